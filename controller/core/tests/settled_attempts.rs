//! Every save is committed or counts as void, and agents drop images that no generation needs.

use std::time::Duration;

use rankguard_checkpoint_schedule::replica_differences::ReplicaDifference;
use rankguard_core::{Event, JobPhase, Policy};
use rankguard_model::{
    AgentOrder, CheckpointCounts, CheckpointTiers, EvidenceBody, Generation, ProcessExit, Rank, ShardSeal, Step,
};

use crate::cluster::{Cluster, job, node};

fn seal(rank: u32, step: u64) -> ShardSeal {
    ShardSeal {
        rank: Rank(rank),
        step: Step(step),
        world_size: 8,
        index: "0".repeat(64),
        bytes: 1,
        ledger: None,
        schema: String::new(),
    }
}

fn checkpointed() -> Cluster {
    Cluster::checkpointed(Policy::default(), CheckpointTiers::default())
}

fn report_sealed(cluster: &mut Cluster, rank: u32, step: u64) {
    let sealed = EvidenceBody::ShardSealed {
        step: Step(step),
        stall_ms: 1.0,
        bytes: 1,
    };
    cluster.rank_says(rank, sealed, Vec::new());
}

fn report_durable(cluster: &mut Cluster, rank: u32, step: u64) {
    let seal = seal(rank, step);
    cluster.rank_says(rank, EvidenceBody::ShardDurable { seal }, Vec::new());
}

/// Commits all manifests that the controller writes, one after the other, and returns their steps.
fn commit_all(cluster: &mut Cluster) -> Vec<u64> {
    let mut steps = Vec::new();
    while let Some(manifest) = cluster.manifests.pop() {
        steps.push(manifest.step.0);
        cluster.tell(Event::ManifestCommitted {
            job: job(),
            step: manifest.step,
            generation: manifest.generation,
            differing: Vec::new(),
            per_rank: Vec::new(),
            same_size: Vec::new(),
        });
    }
    steps
}

fn save(cluster: &mut Cluster, step: u64) {
    for rank in 0..8 {
        report_sealed(cluster, rank, step);
        report_durable(cluster, rank, step);
    }
    assert_eq!(commit_all(cluster), [step]);
}

fn counts(cluster: &Cluster) -> CheckpointCounts {
    cluster.state.jobs()[&job()].checkpoints.counts.clone()
}

fn newest_void(cluster: &Cluster) -> Option<(u64, String)> {
    let newest = counts(cluster).newest_void?;
    Some((newest.step.0, newest.reason))
}

/// RG-5: agents report what ranks saved meanwhile one after the other; the retention rules keep two of these checkpoints.
#[test]
fn rg_5_saves_during_an_absence_of_the_controller_are_all_committed() {
    let mut cluster = checkpointed();
    let steps: Vec<u64> = (5..=10).map(|save| save * 10).collect();
    for number in 0..4 {
        for step in &steps {
            for rank in [2 * number, 2 * number + 1] {
                report_sealed(&mut cluster, rank, *step);
                report_durable(&mut cluster, rank, *step);
            }
        }
    }
    let mut committed = commit_all(&mut cluster);
    committed.sort_unstable();
    assert_eq!(committed, steps);
    let counts = counts(&cluster);
    assert_eq!((counts.committed, counts.void), (6, 0));
    assert_eq!(counts.newest_committed, Some(Step(100)));
    let retained = cluster.state.jobs()[&job()]
        .checkpoints
        .newest()
        .map(|newest| newest.step);
    assert_eq!(retained, Some(Step(100)), "the newest is the start of the job");
    // The oldest is committed last, and no later collection follows if the job has ended.
    let pinned: Vec<u64> = cluster.pinned.iter().map(|id| id.step.0).collect();
    assert_eq!(
        pinned,
        [90, 100],
        "retention applies to the checkpoint that was committed last"
    );
}

/// Of a longer absence the oldest saves cannot be followed any more; they count as void with a reason.
#[test]
fn saves_that_are_no_longer_tracked_count_as_void() {
    let mut cluster = checkpointed();
    for number in 0..4 {
        for step in (50..=250).step_by(10) {
            for rank in [2 * number, 2 * number + 1] {
                report_sealed(&mut cluster, rank, step);
                report_durable(&mut cluster, rank, step);
            }
        }
    }
    let committed = commit_all(&mut cluster).len() as u64;
    let counts = counts(&cluster);
    assert_eq!((counts.committed, counts.committed + counts.void), (committed, 21));
    assert!(committed >= 8, "{committed} of 21 are committed");
    assert_eq!(counts.void_in_row, 0, "the newest is committed");
}

#[test]
fn saves_without_a_rank_that_has_ended_with_0_count_as_void_at_once() {
    let mut cluster = checkpointed();
    for rank in 0..8 {
        cluster.progress(rank, 50);
    }
    save(&mut cluster, 50);
    let exit = EvidenceBody::RankExited {
        pid: 7,
        exit: ProcessExit::Code(0),
        ended_by_agent: false,
    };
    cluster.rank_says(7, exit, Vec::new());
    for (number, step) in [60, 70, 80].into_iter().enumerate() {
        for rank in 0..7 {
            cluster.progress(rank, step);
            report_sealed(&mut cluster, rank, step);
            let reason = "rank 7 ended with exit code 0 before it had saved this step";
            assert_eq!(newest_void(&cluster), Some((step, reason.to_owned())));
            report_durable(&mut cluster, rank, step);
        }
        let counts = counts(&cluster);
        assert_eq!(
            (counts.committed, counts.void),
            (1, number as u64 + 1),
            "each counts once"
        );
    }
    assert_eq!(counts(&cluster).void_in_row, 3);
}

/// All ranks save the last step and end; the agents of some report the seal after the exit, or later than others.
#[test]
fn the_last_save_of_a_job_that_ends_is_committed_whatever_is_reported_first() {
    let mut cluster = checkpointed();
    for rank in 0..8 {
        cluster.progress(rank, 50);
    }
    let exit = |rank: u32| EvidenceBody::RankExited {
        pid: rank,
        exit: ProcessExit::Code(0),
        ended_by_agent: false,
    };
    for rank in 0..4 {
        cluster.rank_says(rank, exit(rank), Vec::new());
        report_sealed(&mut cluster, rank, 50);
    }
    for rank in 4..8 {
        report_sealed(&mut cluster, rank, 50);
        cluster.rank_says(rank, exit(rank), Vec::new());
    }
    assert!(matches!(cluster.state.jobs()[&job()].phase(), JobPhase::Finished));
    for rank in 0..8 {
        report_durable(&mut cluster, rank, 50);
    }
    assert_eq!(commit_all(&mut cluster), [50]);
    assert_eq!((counts(&cluster).committed, counts(&cluster).void), (1, 0));
}

/// Reason of a refusal for replicas that differ.
const REFUSAL: &str = "replicas that must be equal are not";

/// Saves a step in which the first ranks differ from the last ones, and refuses it.
fn refuse(cluster: &mut Cluster, step: u64, first: u32) {
    for rank in 0..8 {
        report_sealed(cluster, rank, step);
        report_durable(cluster, rank, step);
    }
    let manifest = cluster.manifests.pop().expect("it is complete");
    cluster.tell(Event::ManifestRefused {
        job: job(),
        step: manifest.step,
        generation: manifest.generation,
        reason: REFUSAL.to_owned(),
        differing: vec![ReplicaDifference {
            tensor: "w".to_owned(),
            offset: vec![0],
            shape: vec![8],
            chunks: vec![0],
            chunk_count: 9,
            groups: vec![(0..first).map(Rank).collect(), (first..8).map(Rank).collect()],
        }],
    });
}

/// A checkpoint that is refused for replicas that differ is void in every count, and the case names the rank.
#[test]
fn a_refused_checkpoint_is_void_and_its_differences_are_evidence() {
    let mut cluster = checkpointed();
    save(&mut cluster, 50);
    refuse(&mut cluster, 60, 7);
    assert_eq!(newest_void(&cluster), Some((60, REFUSAL.to_owned())));
    let checkpoints = &cluster.state.jobs()[&job()].checkpoints;
    assert_eq!(checkpoints.newest().map(|newest| newest.step), Some(Step(50)));
    cluster.wait(Duration::from_secs(30));
    let first = cluster.cases().first().map(|case| case.verdict.class.to_string());
    assert_eq!(first.as_deref(), Some("silent-data-corruption"));
}

/// Ranks with wrong values train on, and nothing that they save can be committed: the job is restarted from the last commit,
/// also if no rank and no node can be blamed.
#[test]
fn a_job_whose_replicas_differ_restarts_from_its_last_commit() {
    let mut cluster = checkpointed();
    save(&mut cluster, 50);
    let before = cluster.state.jobs()[&job()].generation();
    refuse(&mut cluster, 60, 4);
    cluster.wait(Duration::from_secs(30));
    let started = &cluster.state.jobs()[&job()];
    assert!(started.generation() > before, "{:?}", cluster.cases());
    let case = &cluster.cases()[0];
    assert_eq!(case.verdict.class.as_str(), "silent-data-corruption");
    assert!(case.plan.is_some(), "{case:?}");
    assert_eq!(started.checkpoints.newest().map(|newest| newest.step), Some(Step(50)));
}

/// Tensors with other values on each rank are shown until a checkpoint has none.
#[test]
fn tensors_that_differ_from_rank_to_rank_are_no_case() {
    let mut cluster = checkpointed();
    for (step, tensors) in [(50, vec!["w".to_owned()]), (60, Vec::new())] {
        for rank in 0..8 {
            report_sealed(&mut cluster, rank, step);
            report_durable(&mut cluster, rank, step);
        }
        let manifest = cluster.manifests.pop().expect("it is complete");
        cluster.tell(Event::ManifestCommitted {
            job: job(),
            step: manifest.step,
            generation: manifest.generation,
            differing: Vec::new(),
            per_rank: tensors.clone(),
            same_size: Vec::new(),
        });
        let view = cluster.state.job_view(&job(), cluster.now).expect("it runs");
        assert_eq!(view.per_rank_tensors, tensors);
    }
    cluster.wait(Duration::from_secs(30));
    assert_eq!(cluster.cases().len(), 0);
    let named: Vec<&String> = cluster
        .announced
        .iter()
        .filter(|text| text.contains("tensor w"))
        .collect();
    assert_eq!(named.len(), 1);
}

/// Returns the nodes that were ordered to drop the images of the job since the last call.
fn released(cluster: &mut Cluster) -> Vec<u32> {
    let is_release = |order: &AgentOrder| {
        matches!(
            order,
            AgentOrder::Stop {
                keeps_images: false,
                ..
            }
        )
    };
    let to = cluster.orders.iter().filter(|(_, order)| is_release(order));
    to.filter_map(|(to, _)| (0..4).find(|number| node(*number) == *to))
        .collect()
}

/// The last node is lost and the job goes on with three; the agent returns later.
fn without_the_last_node() -> Cluster {
    let mut cluster = checkpointed();
    save(&mut cluster, 50);
    cluster.orders.clear();
    cluster.tell(Event::NodeFellSilent {
        node: node(3),
        last_heard: cluster.now,
    });
    cluster.wait(Duration::from_secs(6));
    assert_eq!(cluster.generation(), Generation(2));
    while !cluster.orders.is_empty() {
        cluster.obey();
    }
    if let Some(look) = cluster.looks.pop() {
        cluster.tell(Event::ShardsFound {
            job: job(),
            generation: look.generation,
            seals: Vec::new(),
            newest: None,
            committed: Vec::new(),
            same_size: Vec::new(),
            unusable: Vec::new(),
            problem: None,
        });
    }
    cluster.obey();
    for rank in 0..6 {
        cluster.progress(rank, 51);
    }
    cluster
}

#[test]
fn a_node_that_a_job_has_left_drops_its_images_after_the_next_commit_and_when_it_returns() {
    let mut cluster = without_the_last_node();
    let info = cluster.state.fleet().get(&node(3)).expect("it is known").info.clone();
    cluster.orders.clear();
    cluster.tell(Event::NodeJoined { info: info.clone() });
    assert_eq!(released(&mut cluster), [] as [u32; 0], "its images may still be needed");
    for rank in 0..6 {
        let mut durable = seal(rank, 60);
        durable.world_size = 6;
        report_sealed(&mut cluster, rank, 60);
        cluster.rank_says(rank, EvidenceBody::ShardDurable { seal: durable }, Vec::new());
    }
    cluster.orders.clear();
    assert_eq!(commit_all(&mut cluster), [60]);
    assert_eq!(released(&mut cluster), [3]);
    // The order did not arrive: it is repeated, until it is answered.
    cluster.orders.clear();
    cluster.tell(Event::NodeJoined { info: info.clone() });
    assert_eq!(released(&mut cluster), [3]);
    let order = |(_, order): &(_, AgentOrder)| matches!(order, AgentOrder::Stop { .. });
    cluster.orders.retain(order);
    cluster.obey();
    cluster.orders.clear();
    cluster.tell(Event::NodeJoined { info });
    assert_eq!(released(&mut cluster), [] as [u32; 0]);
}

#[test]
fn a_node_that_a_job_has_left_drops_its_images_when_the_job_ends() {
    let mut cluster = without_the_last_node();
    let info = cluster.state.fleet().get(&node(3)).expect("it is known").info.clone();
    cluster.tell(Event::NodeJoined { info });
    cluster.orders.clear();
    cluster.tell(Event::JobCancelled { job: job(), by: None });
    let mut nodes = released(&mut cluster);
    nodes.sort_unstable();
    assert_eq!(nodes, [0, 1, 2, 3]);
}

/// All ranks end; their last save is reported after that.
fn finished() -> Cluster {
    let mut cluster = checkpointed();
    for rank in 0..8 {
        cluster.progress(rank, 50);
    }
    save(&mut cluster, 50);
    for rank in 0..8 {
        let exit = EvidenceBody::RankExited {
            pid: rank,
            exit: ProcessExit::Code(0),
            ended_by_agent: false,
        };
        cluster.rank_says(rank, exit, Vec::new());
    }
    assert!(matches!(cluster.state.jobs()[&job()].phase(), JobPhase::Finished));
    for rank in 0..8 {
        report_sealed(&mut cluster, rank, 60);
    }
    cluster.orders.clear();
    cluster
}

#[test]
fn nodes_of_a_finished_job_drop_its_images_after_its_last_commit() {
    let mut cluster = finished();
    cluster.wait(Duration::from_secs(60));
    assert_eq!(released(&mut cluster), [] as [u32; 0], "step 60 is not durable");
    for rank in 0..8 {
        report_durable(&mut cluster, rank, 60);
    }
    assert_eq!(released(&mut cluster), [] as [u32; 0], "step 60 is not committed");
    assert_eq!(commit_all(&mut cluster), [60]);
    assert_eq!(released(&mut cluster), [0, 1, 2, 3]);
    while !cluster.orders.is_empty() {
        cluster.obey();
    }
    let info = cluster.state.fleet().get(&node(3)).expect("it is known").info.clone();
    cluster.tell(Event::NodeJoined { info });
    assert_eq!(released(&mut cluster), [] as [u32; 0], "the order was answered");
    assert_eq!(cluster.cases().len(), 0);
}

#[test]
fn nodes_of_a_finished_job_drop_the_images_of_a_save_that_is_never_complete() {
    let mut cluster = finished();
    report_durable(&mut cluster, 0, 60);
    cluster.wait(Duration::from_secs(3_000));
    assert_eq!(released(&mut cluster), [] as [u32; 0]);
    cluster.wait(Duration::from_secs(700));
    assert_eq!(released(&mut cluster), [0, 1, 2, 3]);
}

#[test]
fn nodes_of_a_finished_job_retain_its_images_while_seals_may_be_reported() {
    let mut cluster = checkpointed();
    for rank in 0..8 {
        cluster.progress(rank, 50);
        let exit = EvidenceBody::RankExited {
            pid: rank,
            exit: ProcessExit::Code(0),
            ended_by_agent: false,
        };
        cluster.rank_says(rank, exit, Vec::new());
    }
    cluster.orders.clear();
    cluster.wait(Duration::from_secs(20));
    assert_eq!(released(&mut cluster), [] as [u32; 0]);
    cluster.wait(Duration::from_secs(20));
    assert_eq!(released(&mut cluster), [0, 1, 2, 3]);
}

/// A job that is submitted after the absence has no saves of it.
#[test]
fn a_void_save_of_a_later_job_does_not_name_the_absence_of_the_controller() {
    for is_later in [false, true] {
        let mut cluster = if is_later {
            Cluster::new(Policy::default())
        } else {
            checkpointed()
        };
        cluster.tell(Event::LifeBegan {
            life: 8,
            position: 10,
            newest_at: Some(cluster.now.before(Duration::from_secs(5))),
        });
        if is_later {
            let spec = cluster.spec(3, Some(Cluster::checkpoint_policy(CheckpointTiers::default())));
            cluster.tell(Event::JobSubmitted { spec, claim: None });
            cluster.obey();
            cluster.obey();
        }
        for step in (50..=250).step_by(10) {
            for rank in 1..8 {
                report_sealed(&mut cluster, rank, step);
                report_durable(&mut cluster, rank, step);
            }
        }
        let (_, reason) = newest_void(&cluster).expect("saves without rank 0 gave way");
        assert_eq!(
            reason.contains("the controller was restarted at"),
            !is_later,
            "{reason}"
        );
    }
}

/// Ranks 2 to 7 save every second, and the reports of rank 0 do not arrive. Returns the reasons of the void saves, each with the
/// second of the save.
fn save_without_rank_0(cluster: &mut Cluster, seconds: std::ops::Range<u64>) -> Vec<(u64, String)> {
    let mut reasons: Vec<(u64, String)> = Vec::new();
    for second in seconds {
        for rank in 2..8 {
            report_sealed(cluster, rank, second * 10);
            report_durable(cluster, rank, second * 10);
        }
        let newest = newest_void(cluster).map(|(step, reason)| (step / 10, reason));
        if newest != reasons.last().cloned() {
            reasons.extend(newest);
        }
        cluster.wait(Duration::from_secs(1));
    }
    reasons
}

/// The agent of the first node was stopped, and the controller was restarted in half a second.
#[test]
fn saves_that_lack_the_reports_of_a_silent_node_name_the_node() {
    let mut cluster = checkpointed();
    report_sealed(&mut cluster, 0, 1);
    let silent_since = cluster.now;
    cluster.tell(Event::LifeBegan {
        life: 8,
        position: 10,
        newest_at: Some(cluster.now.before(Duration::from_millis(500))),
    });
    cluster.wait(Duration::from_secs(4));
    let reasons = save_without_rank_0(&mut cluster, 5..25);
    assert!(reasons.len() > 5, "{reasons:?}");
    let stated = format!("no report of node {} had arrived since {silent_since}", node(0));
    for (second, reason) in &reasons {
        assert!(reason.contains(&stated), "second {second}: {reason}");
        assert!(
            reason.contains(&format!("rank 0 on node {}", node(0))),
            "second {second}: {reason}"
        );
    }
}

/// The process of the controller was stopped for 10 s; afterwards agents report what they have saved meanwhile one after the
/// other.
#[test]
fn saves_of_a_pause_of_the_controller_name_the_pause_and_later_ones_do_not() {
    let mut cluster = checkpointed();
    (0..8).for_each(|rank| report_sealed(&mut cluster, rank, 1));
    let paused_at = cluster.now;
    let resumed_at = paused_at.after(Duration::from_secs(30));
    cluster.now = resumed_at;
    cluster.tell(Event::ControllerPaused { since: paused_at });
    let mut reasons = Vec::new();
    for second in 1..60 {
        let saved_at = paused_at.after(Duration::from_secs(second));
        cluster.now = saved_at.max(cluster.now);
        if saved_at > resumed_at {
            report_sealed(&mut cluster, 0, second * 10);
        }
        for rank in 2..8 {
            let seal = seal(rank, second * 10);
            cluster.rank_says_at(saved_at, rank, EvidenceBody::ShardDurable { seal });
        }
        reasons.extend(newest_void(&cluster));
    }
    reasons.dedup();
    let stated = format!("the controller did not run from {paused_at} to {resumed_at}");
    assert!(reasons.len() > 20, "{reasons:?}");
    for (step, reason) in &reasons {
        assert_eq!(reason.contains(&stated), *step <= 310, "step {step}: {reason}");
        assert_eq!(
            reason.contains("why is not known"),
            *step > 310,
            "step {step}: {reason}"
        );
    }
}
