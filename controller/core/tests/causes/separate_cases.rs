//! Failures beside each other that have nothing to do with each other.

use std::time::Duration;

use rankguard_core::{Event, RULES};
use rankguard_model::{
    CaseState, CheckpointTiers, Device, DeviceKind, Entity, EvidenceSource, ProcessExit, Rank, Role,
};

use super::{mark, policy, text};
use crate::cluster::{Cluster, job, node};

#[test]
fn a_second_fault_of_another_node_is_a_case_of_its_own() {
    let mut policy = policy(RULES);
    policy.cordon_share.0 = 100;
    let mut cluster = Cluster::running(policy);
    cluster.loses_gpu(1);
    cluster.loses_gpu(2);
    cluster.exits(2, ProcessExit::Signal(6), false);
    cluster.exits(4, ProcessExit::Signal(6), false);
    cluster.wait(Duration::from_secs(8));
    let blamed: Vec<_> = cluster
        .cases()
        .iter()
        .map(|case| case.verdict.blamed.node().cloned())
        .collect();
    assert_eq!(blamed, [Some(node(1)), Some(node(2))]);
    let second = cluster.cases()[1];
    assert_eq!((second.state, second.job.clone()), (CaseState::Closed, Some(job())));
    assert_eq!(second.outcome.as_deref(), Some("node node-2 was taken out of use"));
    for number in [1, 2] {
        let cordon = cluster
            .state
            .fleet()
            .get(&node(number))
            .and_then(|node| node.cordon.clone());
        let case = cordon.and_then(|cordon| cordon.case);
        assert_eq!(case.map(|case| case.0), Some(u64::from(number)));
    }
    cluster.tell(Event::NodeUncordoned { node: node(2) });
    let outcome = cluster.cases()[1].outcome.clone().expect("it has one");
    assert!(outcome.contains("an operator returned it to use"), "{outcome}");
}

/// Loses a GPU of one node while a rank of another one is killed; returns the cases.
fn killed_beside_a_lost_gpu(rules: u32) -> (Vec<String>, Option<String>) {
    let mut cluster = Cluster::running(policy(rules));
    cluster.loses_gpu(1);
    cluster.exits(2, ProcessExit::Signal(6), false);
    cluster.exits(6, ProcessExit::Signal(9), false);
    cluster.wait(Duration::from_secs(8));
    let cases = cluster.cases();
    let outcome = cases.last().and_then(|case| case.outcome.clone());
    let classes = (0..cases.len()).map(|case| cluster.class_of(case)).collect();
    (classes, outcome)
}

#[test]
fn a_rank_that_is_killed_beside_a_fault_of_another_node_is_a_case_of_its_own() {
    let (classes, outcome) = killed_beside_a_lost_gpu(RULES);
    assert_eq!(classes, ["gpu-fallen-off-bus", "killed-by-signal"]);
    assert_eq!(outcome.as_deref(), Some("what is done for the job is in case 1"));
}

/// No exception of a rank kills a rank of another node.
#[test]
fn a_rank_that_is_killed_beside_an_exception_is_a_case_of_its_own() {
    for (rules, expected) in [(RULES, &["key-error", "killed-by-signal"][..]), (7, &["key-error"])] {
        let mut cluster = Cluster::running(policy(rules));
        cluster.rank_says(0, text("KeyError: 'lr'"), vec![mark("key-error", Role::Root)]);
        cluster.exits(0, ProcessExit::Code(1), false);
        cluster.exits(6, ProcessExit::Signal(9), false);
        cluster.wait(Duration::from_secs(8));
        let classes: Vec<String> = (0..cluster.cases().len()).map(|case| cluster.class_of(case)).collect();
        assert_eq!(classes, expected, "{rules}");
    }
}

/// The order of two ends is not known within the difference of two clocks.
#[test]
fn ranks_that_one_signal_ended_together_blame_none_of_them() {
    for (rules, rank) in [(RULES, None), (7, Some(Rank(0)))] {
        let mut cluster = Cluster::running(policy(rules));
        for rank in [0, 2, 6] {
            cluster.exits(rank, ProcessExit::Signal(15), false);
        }
        cluster.wait(Duration::from_secs(8));
        assert_eq!(cluster.cases().len(), 1, "{rules}");
        let verdict = &cluster.cases()[0].verdict;
        assert_eq!((verdict.root_rank, verdict.blamed.rank()), (rank, rank), "{rules}");
    }
}

#[test]
fn journals_of_older_rules_keep_the_numbers_of_their_cases() {
    let (classes, _) = killed_beside_a_lost_gpu(6);
    assert_eq!(classes, ["gpu-fallen-off-bus"]);
}

/// A fault of the same node is in use by the cordon limit, and a fault of another node follows.
#[test]
fn a_fault_that_awaits_a_decision_is_no_part_of_the_case_of_another_node() {
    for (rules, count) in [(RULES, 3), (7, 4)] {
        let mut cluster = Cluster::checkpointed(policy(rules), CheckpointTiers::default());
        for number in 0..3 {
            let entity = Entity::Device {
                node: node(number),
                device: Device {
                    kind: DeviceKind::Gpu,
                    address: "0000:9b:00".to_owned(),
                },
            };
            let lost = vec![mark("gpu-fallen-off-bus", Role::Root)];
            cluster.report(node(number), EvidenceSource::KernelLog, entity, text("Xid 79"), lost);
            cluster.wait(Duration::from_secs(8));
            cluster.obey();
            cluster.obey();
            (0..6).for_each(|rank| cluster.progress(rank, 41));
        }
        let blamed: Vec<_> = cluster
            .cases()
            .iter()
            .filter_map(|case| case.verdict.blamed.node().cloned())
            .collect();
        assert_eq!(blamed.len(), count, "rules {rules}: {blamed:?}");
        if rules == RULES {
            assert_eq!(blamed, [node(0), node(1), node(2)]);
        }
    }
}
