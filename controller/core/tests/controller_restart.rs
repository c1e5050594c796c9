//! Restart of the controller: nodes that have not joined it yet, and ranks that ended while it was away.

use std::time::Duration;

use rankguard_core::{Event, Policy};
use rankguard_model::{
    CheckpointTiers, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, Generation, NodeState, ProcessExit,
    Rank, RankRef, RunningRank, Sequence, StateSpan, Timestamp,
};

use crate::cluster::{Cluster, job, node};

/// A controller that was away for 20 s has started.
fn restarted() -> (Cluster, Timestamp) {
    let mut cluster = Cluster::running(Policy::default());
    cluster.wait(Duration::from_secs(20));
    cluster.tell(Event::ControllerStarted);
    let started = cluster.now;
    (cluster, started)
}

fn reason(cluster: &Cluster, number: u32) -> Option<String> {
    let status = cluster.state.status(cluster.now);
    let view = status.nodes.into_iter().find(|view| view.node == node(number));
    view.expect("it is known").reason
}

/// A node joins with its ranks, without those in `lacks`.
fn joins(cluster: &mut Cluster, number: u32, lacks: &[u32]) {
    let mut info = cluster
        .state
        .fleet()
        .get(&node(number))
        .expect("it is known")
        .info
        .clone();
    let generation = cluster.generation();
    let ranks = (number * 2..number * 2 + 2).filter(|rank| !lacks.contains(rank));
    info.running = ranks
        .map(|rank| RunningRank {
            rank: RankRef {
                job: job(),
                generation,
                rank: Rank(rank),
            },
            pid: rank,
            step: None,
        })
        .collect();
    cluster.tell(Event::NodeJoined { info });
}

#[test]
fn a_node_that_has_not_joined_is_shown_so_and_its_silence_is_counted_so() {
    let (mut cluster, started) = restarted();
    (0..3).for_each(|number| joins(&mut cluster, number, &[]));
    assert_eq!(reason(&cluster, 0), None);
    let wanted = format!("its agent has not joined since the controller started at {started}");
    assert_eq!(
        reason(&cluster, 3),
        Some(format!("{wanted}; it takes no work until it has"))
    );
    cluster.wait(Duration::from_secs(6));
    cluster.tell(Event::NodeFellSilent {
        node: node(3),
        last_heard: started,
    });
    assert_eq!(
        cluster.state.fleet().get(&node(3)).expect("known").state(),
        NodeState::Lost
    );
    assert_eq!(
        reason(&cluster, 3),
        Some(format!("{wanted}; declared lost at {}", cluster.now))
    );
    cluster.wait(Duration::from_secs(10));
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:#?}") };
    let wanted = format!("the agent of node node-3 has not joined since the controller started at {started}");
    assert_eq!(case.findings[0].text, wanted);
    assert!(
        cluster
            .announced
            .iter()
            .any(|text| text.contains("has not joined since")),
        "{:?}",
        cluster.announced
    );
    joins(&mut cluster, 3, &[]);
    assert!(!reason(&cluster, 3).unwrap_or_default().contains("has not joined"));
}

#[test]
fn a_session_that_ended_before_the_restart_dates_the_silence() {
    let mut cluster = Cluster::running(Policy::default());
    cluster.wait(Duration::from_secs(20));
    let last_heard = Some(cluster.now);
    cluster.wait(Duration::from_secs(1));
    cluster.tell(Event::SessionEnded {
        node: node(3),
        last_heard,
    });
    cluster.wait(Duration::from_secs(1));
    cluster.tell(Event::ControllerStarted);
    let started = cluster.now;
    (0..3).for_each(|number| joins(&mut cluster, number, &[]));
    cluster.wait(Duration::from_secs(6));
    cluster.tell(Event::NodeFellSilent {
        node: node(3),
        last_heard: started,
    });
    cluster.wait(Duration::from_secs(10));
    assert_eq!(Some(cluster.cases()[0].findings[0].at), last_heard);
}

/// The agent of node 3 is gone; rank 0 fails right after the start of the controller.
#[test]
fn a_job_is_restarted_once_without_a_node_that_has_not_joined() {
    let mut cluster = Cluster::checkpointed(Policy::default(), CheckpointTiers::default());
    cluster.wait(Duration::from_secs(20));
    cluster.tell(Event::ControllerStarted);
    let started = cluster.now;
    (0..3).for_each(|number| joins(&mut cluster, number, &[]));
    let exit = EvidenceBody::RankExited {
        pid: 0,
        exit: ProcessExit::Signal(9),
        ended_by_agent: false,
    };
    cluster.rank_says(0, exit, Vec::new());
    cluster.wait(Duration::from_secs(5));
    assert_eq!(cluster.generation(), Generation(1), "the verdict waits for node 3");
    cluster.tell(Event::NodeFellSilent {
        node: node(3),
        last_heard: started,
    });
    cluster.wait(Duration::from_secs(20));
    assert_eq!(cluster.generation(), Generation(2));
    let status = cluster.state.status(cluster.now);
    assert!(status.jobs[0].placements.iter().all(|place| place.node != node(3)));
}

/// The exit of rank 3 arrives, dated as it was seen.
fn exit_arrives(cluster: &mut Cluster, at: Timestamp) {
    let evidence = Evidence {
        id: EvidenceId {
            node: node(1),
            seq: Sequence(1_000),
        },
        at,
        source: EvidenceSource::Ranks,
        entity: Entity::Rank {
            job: job(),
            generation: cluster.generation(),
            rank: Rank(3),
            node: node(1),
        },
        body: EvidenceBody::RankExited {
            pid: 3,
            exit: ProcessExit::Code(1),
            ended_by_agent: false,
        },
        marks: Vec::new(),
        synthetic: false,
    };
    cluster.tell(Event::EvidenceArrived { evidence });
}

fn span_of_rank_3(cluster: &Cluster) -> StateSpan {
    let status = cluster.state.status(cluster.now);
    let spans = status.jobs.into_iter().flat_map(|job| job.spans);
    spans.filter(|span| span.rank == Some(Rank(3))).last().expect("it ran")
}

#[test]
fn the_span_of_a_rank_that_ended_meanwhile_ends_with_its_exit() {
    for joins_first in [false, true] {
        let (mut cluster, started) = restarted();
        let exited = Timestamp(started.0 - 7_000_000_000);
        if joins_first {
            joins(&mut cluster, 1, &[3]);
            assert_eq!(span_of_rank_3(&cluster).to, Some(started));
        }
        exit_arrives(&mut cluster, exited);
        assert_eq!(span_of_rank_3(&cluster).to, Some(exited), "joins first: {joins_first}");
    }
    let mut older = Cluster::running(Policy {
        rules: 7,
        ..Policy::default()
    });
    let exited = older.now;
    older.wait(Duration::from_secs(20));
    exit_arrives(&mut older, exited);
    assert_eq!(span_of_rank_3(&older).to, Some(older.now));
}
