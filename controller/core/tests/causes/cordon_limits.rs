//! Faulty nodes that remain in use because the cordon limit was reached.

use std::time::Duration;

use rankguard_core::{Event, JobPhase, RULES};
use rankguard_model::{CaseState, ProcessExit, Role};

use super::{mark, policy, text};
use crate::cluster::{Cluster, job, node};

/// Loses a GPU of node 3, which is cordoned, and one of node 1, which stays in use. The job runs on nodes 0 to 2.
fn beyond_cordon_limit(rules: u32) -> Cluster {
    let mut cluster = Cluster::new(policy(rules));
    cluster.submit(3);
    cluster.obey();
    cluster.obey();
    (0..8).for_each(|rank| cluster.progress(rank, 40));
    cluster.loses_gpu(3);
    cluster.exits(6, ProcessExit::Signal(6), false);
    cluster.wait(Duration::from_secs(8));
    cluster.obey();
    cluster.obey();
    cluster.first_ranks_step(41);
    cluster.wait(Duration::from_secs(20));
    cluster.loses_gpu(1);
    cluster.exits(2, ProcessExit::Signal(6), false);
    cluster.wait(Duration::from_secs(8));
    cluster.obey();
    cluster.obey();
    let nodes = cluster.state.jobs()[&job()].nodes().to_vec();
    assert_eq!(nodes, [node(0), node(1), node(2)]);
    cluster.wait(Duration::from_secs(5));
    cluster
}

/// Returns the class of a KeyError after the steps of the restarted job.
fn class_after_steps(rules: u32) -> String {
    let mut cluster = beyond_cordon_limit(rules);
    cluster.first_ranks_step(42);
    cluster.wait(Duration::from_secs(3));
    cluster.rank_says(0, text("KeyError: 'loss'"), vec![mark("key-error", Role::Root)]);
    cluster.exits(0, ProcessExit::Code(1), false);
    cluster.wait(Duration::from_secs(8));
    let case = cluster.cases().len() - 1;
    cluster.class_of(case)
}

#[test]
fn a_fault_of_a_node_that_stays_in_use_is_not_blamed_for_later_failures() {
    assert_eq!(class_after_steps(RULES), "key-error");
    assert_eq!(class_after_steps(5), "gpu-fallen-off-bus");
}

#[test]
fn a_fault_of_a_node_that_stays_in_use_is_blamed_until_its_ranks_make_steps() {
    let mut cluster = beyond_cordon_limit(RULES);
    cluster.exits(2, ProcessExit::Signal(6), false);
    cluster.wait(Duration::from_secs(8));
    let case = cluster.cases().len() - 1;
    assert_eq!(cluster.class_of(case), "gpu-fallen-off-bus");
}

/// Loses GPUs of nodes 1 and 2 within a second; returns true if node 2 is cordoned or marked as faulty, too.
fn takes_second_node_out_of_use(rules: u32) -> bool {
    let mut cluster = Cluster::running(policy(rules));
    cluster.loses_gpu(1);
    cluster.exits(2, ProcessExit::Signal(6), false);
    cluster.wait(Duration::from_millis(700));
    cluster.loses_gpu(2);
    cluster.wait(Duration::from_secs(8));
    let node_of = |number| cluster.state.fleet().get(&node(number)).expect("it joined");
    assert!(node_of(1).cordon.is_some());
    node_of(2).cordon.is_some() || node_of(2).uncordoned_fault.is_some()
}

#[test]
fn every_node_that_lost_a_gpu_is_taken_out_of_use() {
    assert!(takes_second_node_out_of_use(RULES));
    assert!(!takes_second_node_out_of_use(5));
}

#[test]
fn a_case_beyond_the_cordon_limit_ends_with_the_node_in_use() {
    let mut cluster = Cluster::new(policy(RULES));
    cluster.loses_gpu(3);
    cluster.wait(Duration::from_secs(8));
    cluster.loses_gpu(1);
    cluster.wait(Duration::from_secs(8));
    let outcomes: Vec<String> = cluster.cases().iter().filter_map(|case| case.outcome.clone()).collect();
    assert_eq!(
        outcomes,
        [
            "node node-3 was taken out of use",
            "node node-1 stayed in use, because the cordon limit was reached",
        ]
    );
}

#[test]
fn a_case_of_a_running_job_beyond_the_cordon_limit_names_the_node_in_use() {
    let mut cluster = Cluster::new(policy(RULES));
    cluster.loses_gpu(3);
    cluster.wait(Duration::from_secs(8));
    cluster.submit(3);
    // The job waits for a fourth node first.
    cluster.wait(Duration::from_secs(10));
    cluster.obey();
    cluster.obey();
    cluster.first_ranks_step(41);
    cluster.loses_gpu(1);
    cluster.wait(Duration::from_secs(8));
    let outcome = cluster.cases()[1].outcome.clone();
    let expected = "node node-1 stayed in use, because the cordon limit was reached; every rank of the job was alive, so \
                    nothing was restarted";
    assert_eq!(outcome.as_deref(), Some(expected));
}

#[test]
fn a_case_records_that_an_operator_returned_its_node_to_use() {
    let outcome_after_uncordon = |rules: u32| {
        let mut cluster = Cluster::new(policy(rules));
        cluster.loses_gpu(3);
        cluster.wait(Duration::from_secs(8));
        cluster.tell(Event::NodeUncordoned { node: node(3) });
        let returned_at = cluster.now;
        cluster.wait(Duration::from_secs(60));
        let case = cluster.cases()[0];
        let last = case.actions.last().map(|action| action.text.clone());
        (case.outcome.clone().expect("an outcome"), last, returned_at)
    };
    let (outcome, last, returned_at) = outcome_after_uncordon(RULES);
    let expected = format!("node node-3 was taken out of use; an operator returned it to use at {returned_at}");
    assert_eq!(outcome, expected);
    assert_eq!(last.as_deref(), Some("an operator returned node node-3 to use"));
    let (outcome, last, _) = outcome_after_uncordon(5);
    assert_eq!(outcome, "node node-3 was taken out of use");
    assert_eq!(last.as_deref(), Some("node node-3 cordoned"));
}

#[test]
fn a_gpu_that_is_lost_just_after_a_job_takes_its_node_out_of_use() {
    for rules in [RULES, 5] {
        let mut cluster = Cluster::running(policy(rules));
        cluster.tell(Event::JobCancelled { job: job(), by: None });
        cluster.obey();
        cluster.wait(Duration::from_millis(700));
        cluster.loses_gpu(2);
        cluster.wait(Duration::from_secs(8));
        let cordon = cluster.state.fleet().get(&node(2)).and_then(|node| node.cordon.clone());
        assert_eq!(cordon.is_some(), rules == RULES, "{:?}", cluster.cases());
    }
}

#[test]
fn a_gpu_that_is_lost_after_the_verdict_takes_its_node_out_of_use() {
    let mut cluster = Cluster::running(policy(RULES));
    cluster.rank_says(0, text("KeyError: 'loss'"), vec![mark("key-error", Role::Root)]);
    cluster.exits(0, ProcessExit::Code(1), false);
    while cluster.cases()[0].state == CaseState::Open {
        cluster.wait(Duration::from_millis(100));
    }
    assert_eq!(cluster.class_of(0), "key-error");
    cluster.loses_gpu(2);
    assert_eq!(cluster.class_of(0), "key-error");
    cluster.wait(Duration::from_secs(8));
    let cordon = cluster.state.fleet().get(&node(2)).and_then(|node| node.cordon.clone());
    let cordon = cordon.expect("it is out of use");
    assert_eq!(cordon.case, Some(cluster.cases()[1].id));
    assert_eq!(cluster.class_of(1), "gpu-fallen-off-bus");
    // The job needs four nodes.
    let phase = cluster.state.jobs()[&job()].phase();
    assert!(matches!(phase, JobPhase::Pending { .. }), "{phase:?}");
}

#[test]
fn a_forgotten_node_is_no_reason_why_a_faulty_node_is_in_use() {
    for (rules, counts_forgotten) in [(8, true), (RULES, false)] {
        let mut cluster = beyond_cordon_limit(rules);
        let waits = |cluster: &Cluster| cluster.cases().iter().find_map(|case| case.awaits_operator.clone());
        let before = waits(&cluster).expect("an operator must decide");
        assert!(before.contains("1 node is cordoned"), "{before}");
        cluster.tell(Event::NodeFellSilent {
            node: node(3),
            last_heard: cluster.now,
        });
        cluster.tell(Event::NodeForgotten { node: node(3) });
        let after = waits(&cluster).expect("an operator must decide");
        assert_eq!(
            after.contains("1 node is cordoned"),
            counts_forgotten,
            "rules {rules}: {after}"
        );
    }
}
