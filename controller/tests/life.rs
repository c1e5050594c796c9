//! Life of a controller: jobs from submission to end, restarts in between, and refused requests.

use std::fs;
use std::time::Duration;

use crate::common::{Agent, DEADLINE, Running, job, settings};
use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::{CheckpointId, Dtype, ShardIndex, TensorBox};
use rankguard_controller::journal::{self, JOURNAL_FILE, JournalError};
use rankguard_controller::{ControllerError, run};
use rankguard_core::Event;
use rankguard_model::{
    AgentOrder, CaseId, CheckpointPolicy, EvidenceBody, Generation, JobId, JobState, LaunchOrder, NodeRange, NodeState,
    ProcessExit, ShardSeal, Step,
};
use rankguard_proto::v1;
use rankguard_proto::v1::to_agent::Kind as Down;
use tokio::time::timeout;
use tonic::Code;

fn state_of(status: &rankguard_model::StatusView, job: &JobId) -> JobState {
    status
        .jobs
        .iter()
        .find(|view| view.spec.id == *job)
        .expect("it was submitted")
        .state
}

fn uncordon(node: &str, only_reasons: &[&str]) -> v1::UncordonRequest {
    v1::UncordonRequest {
        node: node.to_owned(),
        only_reasons: only_reasons.iter().map(|reason| (*reason).to_owned()).collect(),
    }
}

/// Passes a job from its fence to its launch.
async fn launch(agent: &mut Agent, job: &JobId) -> LaunchOrder {
    let generation = match agent.order().await {
        AgentOrder::Fence {
            job: name,
            generation,
            reserve_port: true,
            ..
        } if name == *job => generation,
        other => panic!("a fence comes first: {other:?}"),
    };
    agent.fenced(job, generation).await;
    match agent.order().await {
        AgentOrder::Launch(launch) => launch,
        other => panic!("a launch comes next: {other:?}"),
    }
}

/// Starts the rank of a launch and reports a step.
async fn start(agent: &mut Agent, launch: &LaunchOrder) {
    let rank = agent.rank(&launch.job, launch.generation, 0);
    agent
        .report(
            rank.clone(),
            EvidenceBody::RankStarted {
                pid: 7,
                from_standby: false,
            },
        )
        .await;
    let step = Step(1);
    agent
        .report(
            rank,
            EvidenceBody::Progress {
                step,
                loss: Some(0.5),
                step_ms: 3.0,
                own_ms: None,
            },
        )
        .await;
}

async fn finish(agent: &mut Agent, job: &JobId, generation: Generation) {
    let rank = agent.rank(job, generation, 0);
    agent.report(rank.clone(), EvidenceBody::RankFinished).await;
    let exit = ProcessExit::Code(0);
    agent
        .report(
            rank,
            EvidenceBody::RankExited {
                pid: 7,
                exit,
                ended_by_agent: false,
            },
        )
        .await;
}

#[tokio::test]
async fn a_job_runs_from_submission_to_its_end() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let mut agent = Agent::join(controller.address, "n1").await;
    let spec = job("digits");
    controller.submit(&spec).await.expect("a sound job");
    let launched = launch(&mut agent, &spec.id).await;
    assert_eq!((launched.world_size, launched.master_port), (1, 29_500));
    start(&mut agent, &launched).await;
    controller
        .status_until(|status| state_of(status, &spec.id) == JobState::Running)
        .await;
    finish(&mut agent, &spec.id, launched.generation).await;
    controller
        .status_until(|status| state_of(status, &spec.id) == JobState::Finished)
        .await;
    controller.stop().await;
}

/// A copy of the journal file of a running controller equals the file after a kill.
#[tokio::test]
async fn rg_5_a_killed_controller_goes_on_where_its_journal_ends() {
    let dir = tempfile::tempdir().expect("a directory");
    let after = tempfile::tempdir().expect("a directory");
    let spec = job("digits");
    let controller = Running::start(settings(dir.path())).await;
    let mut agent = Agent::join(controller.address, "n1").await;
    controller.submit(&spec).await.expect("a sound job");
    let AgentOrder::Fence { generation, .. } = agent.order().await else {
        panic!("a fence")
    };
    // The controller is killed after it ordered the fence and before the answer.
    fs::copy(dir.path().join(JOURNAL_FILE), after.path().join(JOURNAL_FILE)).expect("room");
    controller.stop().await;

    let controller = Running::start(settings(after.path())).await;
    let mut agent = Agent::join(controller.address, "n1").await;
    let launched = launch(&mut agent, &spec.id).await;
    assert_eq!(launched.generation, generation, "the plan stands: nothing has failed");
    start(&mut agent, &launched).await;
    controller
        .status_until(|status| state_of(status, &spec.id) == JobState::Running)
        .await;
    controller.stop().await;

    // The controller ends while the job runs; the job ends meanwhile; the agent reports the end when the controller is
    // back.
    let controller = Running::start(settings(after.path())).await;
    assert_eq!(state_of(&controller.status().await, &spec.id), JobState::Running);
    let mut agent = Agent::join(controller.address, "n1").await;
    assert_eq!(agent.acknowledged, 3, "one fence, one start, one step");
    finish(&mut agent, &spec.id, launched.generation).await;
    let status = controller
        .status_until(|status| state_of(status, &spec.id) == JobState::Finished)
        .await;
    assert_eq!(status.jobs[0].generation, generation);
    assert_eq!(status.jobs[0].progress.len(), 1, "nothing is counted twice");
    controller.stop().await;
}

#[tokio::test]
async fn a_node_that_does_not_come_back_after_a_restart_is_lost() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut settings = settings(dir.path());
    let controller = Running::start(settings.clone()).await;
    drop(Agent::join(controller.address, "n1").await);
    controller.stop().await;
    let events = || journal::read(dir.path()).expect("a closed journal").events;
    let ended = events().last().expect("it has joined").at;
    settings.silence_limit = Duration::from_secs(1);
    let controller = Running::start(settings).await;
    controller
        .status_until(|status| status.nodes[0].state == NodeState::Lost)
        .await;
    controller.stop().await;
    let lost = events().into_iter().find_map(|stamped| match stamped.event {
        Event::NodeFellSilent { last_heard, .. } => Some((last_heard, stamped.at)),
        _ => None,
    });
    let (since, at) = lost.expect("it is in the journal");
    assert!(since > ended, "it has the whole limit to come back");
    assert!(at.since(since) > Duration::from_secs(1), "{since} {at}");
}

#[tokio::test]
async fn timers_of_an_earlier_life_fire_in_this_one() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut settings = settings(dir.path());
    settings.policy.pending_ms = 700;
    let controller = Running::start(settings.clone()).await;
    controller.submit(&job("alone")).await.expect("a sound job");
    controller.stop().await;
    // No node joins: the deadline that was set before the restart must end the wait.
    let controller = Running::start(settings).await;
    let id = JobId::from("alone");
    let status = controller
        .status_until(|status| state_of(status, &id) == JobState::Stopped)
        .await;
    let reason = status.jobs[0].reason.clone().expect("a reason");
    assert!(reason.contains("at least 1 free healthy node with"), "{reason}");
    controller.stop().await;
}

/// Writes a shard as an agent would and returns its seal.
fn write_shard(store: &Store, job: &JobId, generation: Generation, step: Step) -> ShardSeal {
    let image = [7_u8; 64];
    let (tensors, _) = ShardIndex::lay_out([TensorBox::whole("weight", Dtype::U8, vec![64])]);
    let mut index = ShardIndex {
        image_bytes: 64,
        tensors,
        ..ShardIndex::new(job, CheckpointId { step, generation })
    };
    index.digest_image(&image);
    store.write_shard(&index, &image.as_slice()).expect("room").seal
}

/// A state directory outlives changes of the configuration.
#[tokio::test]
async fn changed_settings_hold_after_a_restart_of_the_controller() {
    let dir = tempfile::tempdir().expect("a directory");
    let gathering_for = |gather_ms: u64| {
        let mut settings = settings(dir.path());
        settings.policy.gather_ms = gather_ms;
        settings
    };
    let mut spec = job("digits");
    spec.nodes = NodeRange { min: 1, max: 2 };
    let controller = Running::start(gathering_for(3_600_000)).await;
    let agent = Agent::join(controller.address, "n1").await;
    drop(agent);
    controller.stop().await;
    let controller = Running::start(gathering_for(1)).await;
    let mut agent = Agent::join(controller.address, "n1").await;
    controller.submit(&spec).await.expect("a sound job");
    // With the settings of before it would wait an hour for a second node.
    launch(&mut agent, &spec.id).await;
    drop(agent);
    controller.stop().await;
    // They are in the journal, so a restart with the same settings adds nothing.
    let controller = Running::start(gathering_for(1)).await;
    controller.stop().await;
    let events = journal::read(dir.path()).expect("a closed journal").events;
    let adopted = events.iter().filter_map(|stamped| match &stamped.event {
        Event::PolicyAdopted { policy } => Some(policy.gather_ms),
        _ => None,
    });
    assert_eq!(adopted.collect::<Vec<_>>(), [1]);
}

#[tokio::test]
async fn rg_1_a_checkpoint_is_committed_when_its_last_shard_is_durable_and_old_ones_go() {
    let dir = tempfile::tempdir().expect("a directory");
    let store_dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(store_dir.path()).expect("a store");
    let controller = Running::start(settings(dir.path())).await;
    let mut agent = Agent::join(controller.address, "n1").await;
    let mut spec = job("digits");
    spec.checkpoint = Some(CheckpointPolicy {
        every_steps: 10,
        store: store_dir.path().display().to_string(),
        keep: 2,
        retention: rankguard_model::RetentionPolicy::default(),
        tiers: rankguard_model::CheckpointTiers::default(),
    });
    controller.submit(&spec).await.expect("a sound job");
    let launched = launch(&mut agent, &spec.id).await;
    start(&mut agent, &launched).await;
    let rank = agent.rank(&spec.id, launched.generation, 0);
    for step in [Step(10), Step(20), Step(30)] {
        let seal = write_shard(&store, &spec.id, launched.generation, step);
        agent.report(rank.clone(), EvidenceBody::ShardDurable { seal }).await;
        match agent.order().await {
            AgentOrder::Keep { step: kept, .. } => assert_eq!(kept, step),
            other => panic!("a commit is followed by keep: {other:?}"),
        }
    }
    // Retention follows the commit that the order reports.
    let committed = || -> Vec<u64> {
        let ids = store.committed_ids(&spec.id).expect("a store");
        ids.iter().map(|id| id.step.0).collect()
    };
    let until = std::time::Instant::now() + DEADLINE;
    while committed() != [20, 30] && std::time::Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(committed(), [20, 30]);

    // A missing shard prevents the commit, and the journal holds the reason.
    let mut seal = write_shard(&store, &spec.id, launched.generation, Step(40));
    seal.index = "0".repeat(64);
    agent.report(rank.clone(), EvidenceBody::ShardDurable { seal }).await;
    let sequence = agent
        .report(
            rank,
            EvidenceBody::ShardSealed {
                step: Step(50),
                stall_ms: 0.1,
                bytes: 64,
            },
        )
        .await;
    agent.acknowledged(sequence).await;
    let id = spec.id.clone();
    controller
        .status_until(|status| state_of(status, &id) == JobState::Running)
        .await;
    let refused = |path: &std::path::Path| {
        let recording = journal::read(path).expect("a closed journal");
        recording.events.into_iter().find_map(|stamped| match stamped.event {
            Event::ManifestRefused { step, reason, .. } => Some((step, reason)),
            _ => None,
        })
    };
    // The refusal may still be in flight: a restarted controller repeats unanswered requests.
    controller.stop().await;
    let mut found = refused(dir.path());
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while found.is_none() && std::time::Instant::now() < until {
        let controller = Running::start(settings(dir.path())).await;
        controller.status().await;
        controller.stop().await;
        found = refused(dir.path());
    }
    let (step, reason) = found.expect("a refusal");
    assert_eq!(step, Step(40));
    assert!(reason.contains("rank-00000.index has digest"), "{reason}");
    assert_eq!(store.committed_ids(&spec.id).expect("a store").len(), 2);
}

/// Reads on until a void checkpoint is reported.
async fn void(agent: &mut Agent) -> v1::CheckpointVoid {
    loop {
        if let Down::Void(void) = agent.next().await {
            return void;
        }
    }
}

#[tokio::test]
async fn void_checkpoints_are_reported_to_the_nodes_of_the_job_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let store_dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(store_dir.path()).expect("a store");
    let controller = Running::start(settings(dir.path())).await;
    let mut agent = Agent::join(controller.address, "n1").await;
    let mut spec = job("digits");
    spec.checkpoint = Some(CheckpointPolicy {
        every_steps: 10,
        store: store_dir.path().display().to_string(),
        keep: 2,
        retention: rankguard_model::RetentionPolicy::default(),
        tiers: rankguard_model::CheckpointTiers::default(),
    });
    controller.submit(&spec).await.expect("a sound job");
    let launched = launch(&mut agent, &spec.id).await;
    start(&mut agent, &launched).await;
    let rank = agent.rank(&spec.id, launched.generation, 0);
    let failed = |step: u64| EvidenceBody::ShardFailed {
        step: Step(step),
        reason: format!("no space for step {step}"),
    };
    // The second report of step 10 makes nothing void that was not.
    for step in [10, 10, 20] {
        agent.report(rank.clone(), failed(step)).await;
    }
    for step in [10, 20] {
        let expected = v1::CheckpointVoid {
            job: "digits".to_owned(),
            generation: launched.generation.0,
            step,
            reason: format!("no space for step {step}"),
        };
        assert_eq!(void(&mut agent).await, expected);
    }
    // The shard of a rank is durable, and the manifest cannot be written.
    let mut seal = write_shard(&store, &spec.id, launched.generation, Step(30));
    seal.index = "0".repeat(64);
    agent.report(rank, EvidenceBody::ShardDurable { seal }).await;
    let refused = void(&mut agent).await;
    assert_eq!(refused.step, 30);
    assert!(
        refused.reason.contains("rank-00000.index has digest"),
        "{}",
        refused.reason
    );
    controller.stop().await;
}

#[tokio::test]
async fn a_port_in_use_is_named_with_a_hint() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut settings = settings(dir.path());
    settings.listen = taken.local_addr().expect("bound");
    let error = timeout(DEADLINE, run(settings.clone(), std::future::pending()))
        .await
        .expect("at once");
    let text = error.expect_err("in use").to_string();
    assert!(text.starts_with(&format!("port in use: {}", settings.listen)), "{text}");
    assert!(text.contains("port 0"), "{text}");
}

#[tokio::test]
async fn an_address_that_others_can_reach_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut settings = settings(dir.path());
    settings.listen = "0.0.0.0:0".parse().expect("an address");
    let error = run(settings, std::future::pending())
        .await
        .expect_err("not loopback")
        .to_string();
    assert!(error.contains("could start programs on every node"), "{error}");
}

#[tokio::test]
async fn two_controllers_on_one_state_directory_are_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let error = run(settings(dir.path()), std::future::pending())
        .await
        .expect_err("locked");
    assert!(
        matches!(error, ControllerError::Journal(JournalError::InUse { .. })),
        "{error:?}"
    );
    // The first controller is unharmed, and so is its address file.
    assert_eq!(
        rankguard_controller::read_address(dir.path()).expect("the file"),
        controller.address
    );
    controller.status().await;
    controller.stop().await;
}

#[tokio::test]
async fn port_0_takes_the_port_of_the_last_run_so_that_agents_find_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let first = Running::start(settings(dir.path())).await;
    let address = first.address;
    drop(Agent::join(address, "n1").await);
    first.stop().await;
    let second = Running::start(settings(dir.path())).await;
    assert_eq!(second.address, address);
    second.stop().await;
}

#[tokio::test]
async fn operators_are_told_what_is_wrong() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let mut operator = controller.operator().await;

    let mut bad = job("a/b");
    bad.command.clear();
    bad.nodes = NodeRange { min: 2, max: 1 };
    let status = controller.submit(&bad).await.expect_err("three mistakes");
    assert_eq!(
        (status.code(), status.message().lines().count()),
        (Code::InvalidArgument, 3),
        "{status}"
    );

    // A job larger than the cluster is accepted, and shows the missing condition.
    let mut large = job("large");
    large.nodes = NodeRange { min: 9, max: 9 };
    controller.submit(&large).await.expect("a sound job");
    let status = controller.status().await;
    let reason = status.jobs[0].reason.clone().expect("a reason");
    assert!(
        reason.contains("at least 9 free healthy nodes with 1 slot each, and there are 0"),
        "{reason}"
    );
    assert_eq!(
        controller.submit(&large).await.expect_err("twice").code(),
        Code::AlreadyExists
    );

    let name = |job: &str| v1::JobName { job: job.to_owned() };
    assert_eq!(
        operator.cancel_job(name("nobody")).await.expect_err("unknown").code(),
        Code::NotFound
    );
    assert_eq!(
        operator
            .uncordon_node(uncordon("nobody", &[]))
            .await
            .expect_err("unknown")
            .code(),
        Code::NotFound
    );
    let case = v1::CaseNumber { id: CaseId(7).0 };
    assert_eq!(
        operator.get_case(case).await.expect_err("unknown").message(),
        "there is no case 7"
    );
    assert_eq!(
        operator
            .list_cases(v1::Empty {})
            .await
            .expect("an answer")
            .into_inner()
            .json,
        "[]"
    );

    operator.cancel_job(name("large")).await.expect("it waits");
    assert_eq!(state_of(&controller.status().await, &large.id), JobState::Stopped);
    let again = operator.cancel_job(name("large")).await.expect_err("it is over");
    assert_eq!(
        (again.code(), again.message()),
        (Code::FailedPrecondition, "job large was already stopped")
    );
    controller.stop().await;
}

#[tokio::test]
async fn an_uncordon_for_some_reasons_lifts_no_cordon_with_others() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let _agent = Agent::join(controller.address, "n1").await;
    let mut operator = controller.operator().await;
    let cordon = |reason: &str| v1::CordonRequest {
        node: "n1".to_owned(),
        reason: reason.to_owned(),
    };
    let mirrored = "slurm drain: fan (set by ada)";
    let refused = operator.uncordon_node(uncordon("n1", &[mirrored])).await;
    let refused = refused.expect_err("the node has no cordon");
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::FailedPrecondition, "node n1 is not cordoned")
    );

    operator.cordon_node(cordon(mirrored)).await.expect("a known node");
    operator.cordon_node(cordon("ticket 4711")).await.expect("a known node");
    let refused = operator.uncordon_node(uncordon("n1", &[mirrored])).await;
    let refused = refused.expect_err("the cordon has another reason, too");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let shown = controller.status().await.nodes.remove(0).cordon.expect("a cordon");
    assert_eq!(
        (shown.reasons, shown.case),
        (vec!["ticket 4711".to_owned(), mirrored.to_owned()], None)
    );

    for number in 2..rankguard_core::CORDON_REASONS_MAX {
        operator
            .cordon_node(cordon(&format!("ticket {number}")))
            .await
            .expect("there is room");
    }
    let refused = operator.cordon_node(cordon("one more")).await.expect_err("no room");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    operator
        .cordon_node(cordon("ticket 4711"))
        .await
        .expect("it has this reason");
    operator.uncordon_node(uncordon("n1", &[])).await.expect("a known node");
    operator.cordon_node(cordon(mirrored)).await.expect("a known node");
    operator.cordon_node(cordon("ticket 4711")).await.expect("a known node");

    let both = uncordon("n1", &["ticket 4711", mirrored]);
    operator.uncordon_node(both).await.expect("these are its reasons");
    let view = controller.status().await.nodes.remove(0);
    assert_eq!((view.state, view.cordon), (NodeState::Healthy, None));
    controller.stop().await;
}

#[tokio::test]
async fn a_cordon_by_an_operator_lasts_over_a_restart() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let _agent = Agent::join(controller.address, "n1").await;
    let reason = "cable is loose".to_owned();
    let node = "n1".to_owned();
    let request = v1::CordonRequest {
        node: node.clone(),
        reason,
    };
    controller
        .operator()
        .await
        .cordon_node(request)
        .await
        .expect("a known node");
    controller.stop().await;
    let controller = Running::start(settings(dir.path())).await;
    let view = controller.status().await.nodes.remove(0);
    assert_eq!(view.state, NodeState::Cordoned);
    let reason = view.reason.unwrap_or_default();
    let wanted = "cable is loose; its agent has not joined since the controller started at ";
    assert!(reason.starts_with(wanted), "{reason}");
    controller
        .operator()
        .await
        .uncordon_node(uncordon("n1", &[]))
        .await
        .expect("a known node");
    assert_eq!(controller.status().await.nodes[0].state, NodeState::Healthy);
    controller.stop().await;
}
