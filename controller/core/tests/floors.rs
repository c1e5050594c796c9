//! Generations that this journal lacks: it was restored from a copy, or is another journal (RG-3).

use rankguard_core::{Event, Policy};
use rankguard_model::{
    CheckpointTiers, Entity, EvidenceBody, EvidenceSource, Generation, JobFence, JournalMark, NodeHistory, NodeInfo,
    OrderId, Rank, RankRef, RunningRank, Sequence, SpoolEpoch,
};

use crate::cluster::{Cluster, job, node};

/// Creates a controller with a journal begun in life 7 and the job in generation 1.
fn running() -> Cluster {
    let mut cluster = Cluster::new(Policy::default());
    cluster.tell(Event::LifeBegan {
        life: 7,
        position: 0,
        newest_at: None,
    });
    cluster.submit(4);
    cluster.obey();
    cluster.obey();
    for rank in 0..8 {
        cluster.progress(rank, 40);
    }
    cluster
}

fn join(cluster: &mut Cluster, number: u32, history: NodeHistory, running: Vec<RunningRank>) {
    let known = cluster.state.fleet().get(&node(number)).expect("it joined");
    let info = NodeInfo {
        history,
        running,
        ..known.info.clone()
    };
    cluster.tell(Event::NodeJoined { info });
}

fn fences(generation: u64, life: u64) -> NodeHistory {
    let fence = JobFence {
        job: job(),
        generation: Generation(generation),
        life,
    };
    NodeHistory {
        fences: vec![fence],
        ..NodeHistory::default()
    }
}

/// A node joins a job of generation 1 with this fence.
#[track_caller]
fn check(generation: u64, life: u64, expect: u64) {
    let mut cluster = running();
    join(&mut cluster, 1, fences(generation, life), Vec::new());
    assert_eq!(cluster.generation(), Generation(expect));
    assert!(cluster.cases().is_empty(), "a restored journal is no failure");
}

#[test]
fn the_next_generation_is_above_what_a_node_was_ordered() {
    check(5, 9, 6);
    check(5, 0, 6);
}

#[test]
fn a_number_that_another_life_has_given_is_not_used_again() {
    check(1, 9, 2);
}

#[test]
fn what_the_journal_has_given_itself_changes_nothing() {
    check(1, 7, 1);
    check(1, 0, 1);
}

#[test]
fn a_number_that_is_no_count_is_ignored() {
    check(u64::MAX, 9, 1);
}

#[test]
fn a_job_that_is_submitted_later_begins_above_the_floor() {
    let mut cluster = Cluster::new(Policy::default());
    join(&mut cluster, 0, fences(3, 9), Vec::new());
    join(&mut cluster, 1, fences(2, 9), Vec::new());
    cluster.submit(4);
    assert_eq!(cluster.generation(), Generation(4));
}

#[test]
fn a_refused_order_raises_the_floor_and_is_no_failure() {
    let mut cluster = running();
    let refused = |newest: u64| EvidenceBody::OrderFailed {
        order: OrderId(1),
        job: job(),
        generation: Generation(1),
        reason: "stale".to_owned(),
        newest: Some(Generation(newest)),
    };
    let entity = Entity::Job { job: job() };
    cluster.report(node(0), EvidenceSource::Agent, entity.clone(), refused(4), Vec::new());
    assert_eq!(cluster.generation(), Generation(5));
    // Another node refuses the same order of a generation that is over.
    cluster.report(node(1), EvidenceSource::Agent, entity, refused(5), Vec::new());
    assert_eq!(cluster.generation(), Generation(5));
    cluster.wait(std::time::Duration::from_secs(5));
    assert!(cluster.cases().is_empty());
}

#[test]
fn a_node_that_moves_a_job_again_and_again_is_left_out() {
    let mut cluster = Cluster::new(Policy::default());
    cluster.submit(3);
    for _ in 0..100 {
        let next = cluster.generation().0 + 3;
        join(&mut cluster, 2, fences(next, 9), Vec::new());
    }
    let nodes = cluster.state.jobs()[&job()].nodes().to_vec();
    assert!(!nodes.contains(&node(2)), "{nodes:?}");
    assert!(cluster.generation() < Generation(50));
}

fn alive(generation: u64, ranks: &[u32]) -> Vec<RunningRank> {
    let one = |rank: &u32| RunningRank {
        rank: RankRef {
            job: job(),
            generation: Generation(generation),
            rank: Rank(*rank),
        },
        pid: *rank,
        step: None,
    };
    ranks.iter().map(one).collect()
}

#[test]
fn ranks_that_run_before_their_launch_belong_to_a_lost_course() {
    let mut cluster = Cluster::new(Policy::default());
    cluster.submit(4);
    join(&mut cluster, 1, NodeHistory::default(), alive(1, &[2, 3]));
    assert_eq!(cluster.generation(), Generation(2));
}

#[test]
fn ranks_whose_start_was_reported_to_a_lost_journal_count_as_started() {
    let mut cluster = Cluster::new(Policy::default());
    cluster.submit(4);
    cluster.obey();
    cluster.orders.clear();
    for number in 0..4 {
        join(
            &mut cluster,
            number,
            NodeHistory::default(),
            alive(1, &[number * 2, number * 2 + 1]),
        );
    }
    let phase = cluster.state.jobs()[&job()].phase();
    assert!(matches!(phase, rankguard_core::JobPhase::Starting), "{phase:?}");
}

#[test]
fn ranks_that_ended_in_a_lost_part_of_the_journal_are_started_again() {
    let mut cluster = running();
    cluster.tell(Event::LifeBegan {
        life: 8,
        position: 10,
        newest_at: None,
    });
    let mark = |position| JournalMark {
        journal: 7,
        life: 7,
        position,
    };
    let history = |position| NodeHistory {
        journal: Some(mark(position)),
        ..NodeHistory::default()
    };
    join(&mut cluster, 0, history(10), alive(1, &[0]));
    assert_eq!(cluster.generation(), Generation(1), "its end will still be reported");
    join(&mut cluster, 0, history(12), alive(1, &[0]));
    assert_eq!(cluster.generation(), Generation(2));
}

#[test]
fn a_restored_journal_is_announced_once() {
    let mut cluster = running();
    cluster.tell(Event::LifeBegan {
        life: 8,
        position: 10,
        newest_at: None,
    });
    for number in 0..4 {
        let mark = JournalMark {
            journal: 7,
            life: 7,
            position: 14,
        };
        let node = node(number);
        cluster.tell(Event::JournalDiffers { node, mark });
    }
    let said = cluster
        .announced
        .iter()
        .filter(|text| text.contains("4 entries are lost"));
    assert_eq!(said.count(), 1, "{:?}", cluster.announced);
}

#[test]
fn rg_4_the_epochs_of_a_restored_spool_are_not_accepted() {
    let mut cluster = Cluster::new(Policy::default());
    let epochs = |all: &[(u64, u64)]| NodeHistory {
        epochs: all
            .iter()
            .map(|(id, end)| SpoolEpoch {
                id: *id,
                end: Sequence(*end),
            })
            .collect(),
        ..NodeHistory::default()
    };
    let known = |cluster: &Cluster| {
        let node = cluster.state.fleet().get(&node(0)).expect("it joined");
        node.info
            .history
            .epochs
            .iter()
            .map(|epoch| epoch.id)
            .collect::<Vec<_>>()
    };
    join(&mut cluster, 0, epochs(&[(1, 0), (2, 4)]), Vec::new());
    join(&mut cluster, 0, epochs(&[(1, 0), (3, 4)]), Vec::new());
    assert_eq!(known(&cluster), [1, 2]);
    join(&mut cluster, 0, epochs(&[(1, 0), (2, 0), (4, 4)]), Vec::new());
    assert_eq!(known(&cluster), [1, 2, 4]);
}

#[test]
fn a_number_that_has_written_to_the_store_is_not_used_again() {
    let mut cluster = Cluster::checkpointed(Policy::default(), CheckpointTiers::default());
    let found = |cluster: &mut Cluster, newest: u64| {
        let generation = cluster.generation();
        cluster.tell(Event::ShardsFound {
            job: job(),
            generation,
            seals: Vec::new(),
            newest: Some(Generation(newest)),
            committed: Vec::new(),
            same_size: Vec::new(),
            unusable: Vec::new(),
            problem: None,
        });
    };
    join(&mut cluster, 1, fences(2, 9), Vec::new());
    cluster.obey();
    assert_eq!(cluster.generation(), Generation(3));
    found(&mut cluster, 5);
    assert_eq!(cluster.generation(), Generation(6));
    cluster.obey();
    found(&mut cluster, 5);
    assert_eq!(cluster.generation(), Generation(6));
    let phase = cluster.state.jobs()[&job()].phase();
    assert!(matches!(phase, rankguard_core::JobPhase::Launching { .. }), "{phase:?}");
}
