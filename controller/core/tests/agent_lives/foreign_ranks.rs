//! Ranks that another journal has begun.

use std::time::Duration;

use rankguard_core::Event;
use rankguard_model::{
    AgentOrder, EvidenceBody, Generation, JobFence, JobId, JobState, NodeInfo, NodeState, ProcessExit, Step,
};

use super::policy;
use crate::cluster::{Cluster, agent_info, job, node, running_rank};

/// Returns the join of a node with two ranks of a job that a journal with this start has begun.
fn with_foreign_ranks(life: u64) -> NodeInfo {
    let mut info = agent_info(&node(0), "1");
    info.running = vec![running_rank("old", 6, 0), running_rank("old", 6, 1)];
    info.history.fences = vec![JobFence {
        job: JobId::from("old"),
        generation: Generation(6),
        life,
    }];
    info
}

#[test]
fn rg_5_ranks_of_another_journal_run_on_and_are_shown() {
    let mut cluster = Cluster::new(policy());
    cluster.tell(Event::LifeBegan {
        life: 7,
        position: 1,
        newest_at: None,
    });
    let info = with_foreign_ranks(3);
    cluster.tell(Event::NodeJoined { info });
    assert_eq!(cluster.orders, []);
    let view = cluster.state.status(cluster.now);
    let old = &view.jobs[0];
    assert_eq!(
        (old.spec.id.as_str(), old.state, old.generation),
        ("old", JobState::Running, Generation(6))
    );
    assert_eq!(old.placements.len(), 2);
    assert!(
        old.reason
            .as_deref()
            .is_some_and(|reason| reason.contains("no record of the job"))
    );
    let reason = view.nodes[0].reason.clone().expect("a reason");
    assert!(reason.starts_with("runs 2 ranks of job old, generation 6"), "{reason}");
    let told = "node node-0 runs rank 0 as process 70, rank 1 as process 71 of job old, generation 6";
    assert!(
        cluster.announced.iter().any(|text| text.starts_with(told)),
        "{:?}",
        cluster.announced
    );
    // RG-3: its node takes no work.
    cluster.submit(1);
    cluster.wait(Duration::from_secs(10));
    assert!(!cluster.job().nodes().contains(&node(0)));
    // An operator cancels the job.
    cluster.orders.clear();
    cluster.tell(Event::JobCancelled {
        job: JobId::from("old"),
        by: Some("alice".to_owned()),
    });
    let stop = |(to, order): &(_, AgentOrder)| {
        *to == node(0)
            && matches!(
                order,
                AgentOrder::Stop {
                    generation: Generation(6),
                    ..
                }
            )
    };
    assert!(cluster.orders.iter().any(stop));
    assert_eq!(cluster.node_state(0), NodeState::Fencing);
    cluster.obey();
    assert_eq!(cluster.node_state(0), NodeState::Healthy);
    let view = cluster.state.status(cluster.now);
    assert_eq!(view.jobs.len(), 2);
    assert_eq!(
        (view.jobs[1].spec.id.as_str(), view.jobs[1].state),
        ("old", JobState::Stopped)
    );
    let reason = view.jobs[1].reason.clone().unwrap_or_default();
    assert!(reason.starts_with("cancelled by operator alice; "), "{reason}");
    assert!(
        cluster
            .announced
            .iter()
            .any(|text| text.starts_with("node node-0 ended 2 processes of job old"))
    );
}

#[test]
fn a_node_is_free_when_its_ranks_of_another_journal_have_ended() {
    let mut cluster = Cluster::new(policy());
    cluster.tell(Event::LifeBegan {
        life: 7,
        position: 1,
        newest_at: None,
    });
    let info = with_foreign_ranks(3);
    cluster.tell(Event::NodeJoined { info });
    let old = |cluster: &Cluster| {
        cluster
            .state
            .status(cluster.now)
            .jobs
            .last()
            .cloned()
            .expect("it is shown")
    };
    cluster.foreign_rank_says(
        1,
        EvidenceBody::Progress {
            step: Step(40),
            loss: None,
            step_ms: 5.0,
            own_ms: None,
        },
    );
    assert_eq!(old(&cluster).step, Some(Step(40)), "its steps are shown");
    for (rank, exit) in [(0, ProcessExit::Code(0)), (1, ProcessExit::Code(1))] {
        let body = EvidenceBody::RankExited {
            pid: 70 + rank,
            exit,
            ended_by_agent: false,
        };
        cluster.foreign_rank_says(rank, body);
    }
    let ended = old(&cluster);
    assert_eq!((ended.state, ended.step), (JobState::Stopped, Some(Step(40))));
    assert_eq!(ended.ended_at, Some(cluster.now));
    let reason = ended.reason.unwrap_or_default();
    assert!(reason.starts_with("a rank failed: rank 1 on node node-0: "), "{reason}");
    cluster.wait(Duration::from_secs(10));
    assert_eq!(cluster.cases().len(), 0, "the job is not of this journal");
    assert!(
        cluster
            .state
            .fleet()
            .get(&node(0))
            .is_some_and(rankguard_core::Node::is_usable)
    );
}

#[test]
fn rg_3_ranks_that_this_journal_has_begun_and_forgotten_are_ended() {
    let mut cluster = Cluster::new(policy());
    cluster.tell(Event::LifeBegan {
        life: 7,
        position: 1,
        newest_at: None,
    });
    let info = with_foreign_ranks(7);
    cluster.tell(Event::NodeJoined { info });
    let fence = |(to, order): &(_, AgentOrder)| *to == node(0) && matches!(order, AgentOrder::Fence { .. });
    assert!(cluster.orders.iter().any(fence));
}

#[test]
fn a_job_that_is_resumed_replaces_its_ranks_of_another_journal() {
    let mut cluster = Cluster::new(policy());
    cluster.tell(Event::LifeBegan {
        life: 7,
        position: 1,
        newest_at: None,
    });
    let mut info = with_foreign_ranks(3);
    info.running = vec![running_rank("llm", 6, 0)];
    info.history.fences[0].job = job();
    cluster.tell(Event::NodeJoined { info });
    cluster.submit(4);
    for _ in 0..4 {
        cluster.obey();
    }
    cluster.wait(Duration::from_secs(10));
    assert_eq!(
        cluster.generation(),
        Generation(7),
        "above the generation of the other journal"
    );
    assert_eq!(cluster.job().nodes().len(), 4);
}
