//! Preflight gate before a generation.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_core::{Event, JobPhase, Policy, PreflightMode};
use rankguard_model::{AgentOrder, CaseState, ClassId, Entity, FailedCheck, NodeId, NodeInfo};

use crate::cluster::{Cluster, job, node};

fn cluster(preflight: PreflightMode) -> Cluster {
    Cluster::new(Policy {
        preflight,
        ..Policy::default()
    })
}

fn check(subject: &str, class: &str) -> FailedCheck {
    FailedCheck {
        check: "path".to_owned(),
        subject: subject.to_owned(),
        class: ClassId::from(class),
        found: "it is not there".to_owned(),
        advice: "is it mounted?".to_owned(),
    }
}

fn environment(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// Answers orders until there are no more.
fn settle(cluster: &mut Cluster) {
    while !cluster.orders.is_empty() {
        cluster.obey();
    }
}

fn nodes(cluster: &Cluster) -> Vec<NodeId> {
    cluster.state.jobs()[&job()].nodes().to_vec()
}

fn phase(cluster: &Cluster) -> &JobPhase {
    cluster.state.jobs()[&job()].phase()
}

#[test]
fn nodes_that_have_what_the_job_needs_are_asked_once_and_used() {
    let mut cluster = cluster(PreflightMode::Require);
    cluster.submit(4);
    let asked = cluster
        .orders
        .iter()
        .filter(|(_, order)| matches!(order, AgentOrder::Preflight(_)))
        .count();
    assert_eq!(asked, 4);
    settle(&mut cluster);
    assert!(matches!(phase(&cluster), JobPhase::Starting), "{:?}", phase(&cluster));
    assert_eq!(cluster.cases().len(), 0);
}

#[test]
fn nothing_is_asked_when_nobody_wants_it() {
    let mut cluster = cluster(PreflightMode::Off);
    cluster.submit(4);
    assert!(
        cluster
            .orders
            .iter()
            .all(|(_, order)| !matches!(order, AgentOrder::Preflight(_)))
    );
    settle(&mut cluster);
    assert!(matches!(phase(&cluster), JobPhase::Starting));
}

#[test]
fn a_node_on_which_a_check_fails_is_a_case_and_is_not_used_until_it_begins_anew() {
    let mut cluster = cluster(PreflightMode::Require);
    cluster
        .answers
        .insert(node(1), (vec![check("/data", "path-not-found")], BTreeMap::new()));
    cluster.submit(3);
    settle(&mut cluster);
    assert_eq!(nodes(&cluster), [node(0), node(2), node(3)]);
    assert!(matches!(phase(&cluster), JobPhase::Starting), "{:?}", phase(&cluster));
    cluster.wait(Duration::from_secs(10));
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.verdict.class.as_str(), "path-not-found");
    assert_eq!(case.verdict.blamed, Entity::Node { node: node(1) });
    assert_eq!(case.state, CaseState::Closed);
    // The agent restarts, as after a repair; the job grows onto the node again.
    cluster.answers.clear();
    for rank in 0..6 {
        cluster.progress(rank, 1);
    }
    let info = NodeInfo {
        incarnation: "2".to_owned(),
        boot_id: String::new(),
        ..cluster.state.fleet().get(&node(1)).expect("it joined").info.clone()
    };
    cluster.tell(Event::NodeJoined { info });
    cluster.wait(Duration::from_secs(60));
    assert!(nodes(&cluster).contains(&node(1)));
}

#[test]
fn a_refused_node_comes_back_when_an_operator_vouches_for_it() {
    let mut cluster = cluster(PreflightMode::Require);
    cluster
        .answers
        .insert(node(1), (vec![check("/data", "path-not-found")], BTreeMap::new()));
    cluster.submit(4);
    settle(&mut cluster);
    let JobPhase::Pending { missing, .. } = phase(&cluster) else {
        panic!("{:?}", phase(&cluster))
    };
    assert!(
        missing.ends_with("there are 3, without 1 that preflight refused"),
        "{missing}"
    );
    cluster.answers.clear();
    cluster.tell(Event::NodeUncordoned { node: node(1) });
    settle(&mut cluster);
    assert!(matches!(phase(&cluster), JobPhase::Starting));
}

#[test]
fn what_fails_on_every_node_alike_is_the_jobs_own_mistake() {
    let mut cluster = cluster(PreflightMode::Require);
    for number in 0..4 {
        cluster
            .answers
            .insert(node(number), (vec![check("/data", "path-not-found")], BTreeMap::new()));
    }
    cluster.submit(2);
    settle(&mut cluster);
    let JobPhase::Stopped { reason } = phase(&cluster) else {
        panic!("{:?}", phase(&cluster))
    };
    assert_eq!(
        reason,
        "it cannot run on any of its 4 nodes: path /data: it is not there (is it mounted?)"
    );
    cluster.wait(Duration::from_secs(10));
    assert!(
        cluster
            .cases()
            .iter()
            .all(|case| case.verdict.class.as_str() == "path-not-found")
    );
}

#[test]
fn a_warning_stops_nobody() {
    let mut cluster = cluster(PreflightMode::Warn);
    cluster
        .answers
        .insert(node(1), (vec![check("/data", "path-not-found")], BTreeMap::new()));
    cluster.submit(4);
    settle(&mut cluster);
    assert!(matches!(phase(&cluster), JobPhase::Starting));
    assert!(
        cluster
            .announced
            .iter()
            .any(|text| text.contains("preflight of path /data")),
        "{:?}",
        cluster.announced
    );
    assert_eq!(cluster.cases().len(), 0);
}

#[test]
fn a_node_with_another_program_is_refused_and_one_with_another_kernel_is_told() {
    let mut cluster = cluster(PreflightMode::Require);
    for number in 0..4 {
        let program = if number == 2 { "b" } else { "a" };
        let kernel = if number == 3 { "6.9" } else { "6.8" };
        let environment = environment(&[("program", program), ("kernel", kernel)]);
        cluster.answers.insert(node(number), (Vec::new(), environment));
    }
    cluster.submit(3);
    settle(&mut cluster);
    assert_eq!(nodes(&cluster), [node(0), node(1), node(3)]);
    assert!(
        cluster
            .announced
            .iter()
            .any(|text| text.ends_with("preflight of kernel: 6.9, and 6.8 on most nodes of the job"))
    );
    cluster.wait(Duration::from_secs(10));
    assert_eq!(cluster.cases()[0].verdict.class.as_str(), "environment-setup-error");
}

#[test]
fn of_two_halves_that_differ_none_is_refused() {
    let mut cluster = cluster(PreflightMode::Require);
    for number in 0..4 {
        let program = if number < 2 { "b" } else { "a" };
        cluster
            .answers
            .insert(node(number), (Vec::new(), environment(&[("program", program)])));
    }
    cluster.submit(4);
    settle(&mut cluster);
    assert!(matches!(phase(&cluster), JobPhase::Starting));
    assert!(
        cluster
            .announced
            .iter()
            .any(|text| text.contains("none is in the majority: program: a on 2, b on 2"))
    );
}

/// RG-9: a node that does not answer preflight has a deadline.
#[test]
fn a_node_that_does_not_answer_counts_as_lost() {
    let mut cluster = cluster(PreflightMode::Require);
    cluster.submit(3);
    cluster
        .orders
        .retain(|(to, order)| !(*to == node(1) && matches!(order, AgentOrder::Preflight(_))));
    cluster.obey();
    assert!(matches!(phase(&cluster), JobPhase::Fencing { .. }));
    cluster.wait(Duration::from_secs(45));
    settle(&mut cluster);
    assert!(!cluster.state.fleet().is_live(&node(1)));
    assert!(!nodes(&cluster).contains(&node(1)));
    assert!(matches!(phase(&cluster), JobPhase::Starting), "{:?}", phase(&cluster));
}

/// The first node measures for all, and its findings count against the node that they name.
#[test]
fn a_node_whose_ways_are_bad_is_refused_by_the_word_of_the_one_that_measured() {
    let mut cluster = Cluster::new(Policy {
        preflight: PreflightMode::Require,
        preflight_between: true,
        ..Policy::default()
    });
    let bad = FailedCheck {
        check: "between".to_owned(),
        ..check(node(2).as_str(), "network-slow")
    };
    cluster.answers.insert(node(0), (vec![bad], BTreeMap::new()));
    cluster.submit(4);
    let between: Vec<(NodeId, Vec<NodeId>)> = cluster
        .orders
        .iter()
        .filter_map(|(node, order)| match order {
            AgentOrder::Preflight(wanted) => {
                let names = wanted.between.iter().map(|peer| peer.node.clone());
                Some((node.clone(), names.collect()))
            }
            _ => None,
        })
        .collect();
    let all: Vec<NodeId> = (0..4).map(node).collect();
    assert_eq!(between[0], (node(0), all));
    assert!(between[1..].iter().all(|(_, names)| names.is_empty()), "{between:?}");
    cluster.answers.clear();
    let bad = FailedCheck {
        check: "between".to_owned(),
        ..check(node(2).as_str(), "network-slow")
    };
    cluster.answers.insert(node(0), (vec![bad], BTreeMap::new()));
    cluster.obey();
    assert!(
        cluster.state.jobs()[&job()].refused.contains(&node(2)),
        "{:?}",
        cluster.state.jobs()[&job()].refused
    );
    assert!(!cluster.state.jobs()[&job()].refused.contains(&node(0)));
}
