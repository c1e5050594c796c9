//! Statements of cases and of the status about nodes, links and restarts.

use std::time::Duration;

use rankguard_core::{Event, JobPhase, RULES};
use rankguard_model::{Device, DeviceKind, Entity, EvidenceSource, JobSpec, ProcessExit, Role};

use super::{mark, policy, text};
use crate::cluster::{Cluster, job, node};

#[test]
fn the_case_of_a_cancelled_job_names_the_node_that_it_took_out_of_use() {
    let mut cluster = Cluster::running(policy(RULES));
    cluster.loses_gpu(1);
    cluster.exits(2, ProcessExit::Signal(6), false);
    cluster.wait(Duration::from_secs(8));
    cluster.tell(Event::JobCancelled { job: job(), by: None });
    let outcome = cluster.cases()[0].outcome.clone().expect("it has one");
    assert_eq!(
        outcome,
        "the job was stopped: cancelled by an operator's request; node node-1 was taken out of use"
    );
    cluster.tell(Event::NodeUncordoned { node: node(1) });
    let outcome = cluster.cases()[0].outcome.clone().expect("it has one");
    assert!(outcome.contains("an operator returned it to use"), "{outcome}");
}

#[test]
fn a_job_that_waits_for_nodes_shows_no_ranks_that_have_ended() {
    let mut cluster = Cluster::running(policy(RULES));
    cluster.loses_gpu(1);
    cluster.exits(2, ProcessExit::Signal(6), false);
    cluster.wait(Duration::from_secs(8));
    let view = cluster.state.status(cluster.now).jobs.remove(0);
    assert_eq!(view.state, rankguard_model::JobState::Pending);
    let ranks: Vec<u32> = view.placements.iter().map(|place| place.rank.0).collect();
    assert!(!ranks.contains(&2) && ranks.contains(&0), "{ranks:?}");
    (0..8)
        .filter(|rank| *rank != 2)
        .for_each(|rank| cluster.exits(rank, ProcessExit::Code(1), false));
    let status = cluster.state.status(cluster.now);
    assert_eq!(status.jobs[0].placements, []);
    assert!(status.nodes.iter().all(|node| node.job.is_none()), "{:?}", status.nodes);
}

#[test]
fn a_node_of_a_waiting_job_belongs_to_it_while_ranks_run_there() {
    let mut cluster = Cluster::running(policy(RULES));
    let nodes = |cluster: &Cluster| {
        let status = cluster.state.status(cluster.now);
        let with_job = status.nodes.into_iter().filter(|node| node.job.is_some());
        with_job.map(|node| node.node.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(nodes(&cluster).len(), 4);
    cluster.loses_gpu(1);
    cluster.exits(2, ProcessExit::Signal(6), false);
    cluster.wait(Duration::from_secs(8));
    // Ranks 2 and 3 are those of the node with the fault; rank 2 has ended.
    assert_eq!(nodes(&cluster), ["node-0", "node-1", "node-2", "node-3"]);
    cluster.exits(3, ProcessExit::Code(1), false);
    assert_eq!(nodes(&cluster), ["node-0", "node-2", "node-3"]);
}

#[test]
fn a_case_names_the_ranks_that_had_ended_well_before() {
    let reasoning = |rules: u32| {
        let mut cluster = Cluster::running(policy(rules));
        cluster.exits(5, ProcessExit::Code(0), false);
        cluster.wait(Duration::from_secs(1));
        cluster.rank_says(
            2,
            text("BrokenPipeError: [Errno 32] Broken pipe"),
            vec![mark("connection-reset", Role::Cascade)],
        );
        cluster.exits(2, ProcessExit::Code(1), false);
        cluster.wait(Duration::from_secs(8));
        let cases = cluster.cases();
        let reasons = cases[0].reasoning.iter().map(|entry| entry.text.clone());
        reasons.collect::<Vec<_>>().join("\n")
    };
    let told = "Rank 5 had ended with exit code 0 before, while other ranks of the generation ran.";
    let shown = reasoning(RULES);
    assert!(shown.contains(told), "{shown}");
    assert!(!reasoning(7).contains("exit code 0"));
}

#[test]
fn a_link_that_is_down_is_shown_until_it_is_up_again() {
    let mut cluster = Cluster::new(policy(RULES));
    let nic = Entity::Device {
        node: node(1),
        device: Device {
            kind: DeviceKind::Nic,
            address: "mlx5_0".to_owned(),
        },
    };
    let reason = |cluster: &Cluster| cluster.state.status(cluster.now).nodes[1].reason.clone();
    let down = vec![mark("nic-link-down", Role::Root)];
    cluster.report(node(1), EvidenceSource::KernelLog, nic.clone(), text("Link down"), down);
    cluster.wait(Duration::from_secs(8));
    let shown = reason(&cluster).expect("the link is down");
    assert!(
        shown.contains("the link of node node-1, nic mlx5_0 has been down since"),
        "{shown}"
    );
    let mut up = mark("none", Role::Noise);
    up.signature = "nic-link-up".into();
    cluster.report(node(1), EvidenceSource::KernelLog, nic, text("Link up"), vec![up]);
    assert_eq!(reason(&cluster), None);
    let outcome = cluster.cases()[0].outcome.clone().expect("it has one");
    assert!(outcome.contains("; the link was up again at "), "{outcome}");
}

#[test]
fn a_case_records_that_its_link_came_up_before_the_verdict() {
    let mut cluster = Cluster::new(policy(RULES));
    let nic = Entity::Device {
        node: node(1),
        device: Device {
            kind: DeviceKind::Nic,
            address: "mlx5_0".to_owned(),
        },
    };
    let down = vec![mark("nic-link-down", Role::Root)];
    cluster.report(node(1), EvidenceSource::KernelLog, nic.clone(), text("Link down"), down);
    cluster.wait(Duration::from_secs(1));
    let mut up = mark("none", Role::Noise);
    up.signature = "nic-link-up".into();
    cluster.report(node(1), EvidenceSource::KernelLog, nic, text("Link up"), vec![up]);
    cluster.wait(Duration::from_secs(8));
    let actions = &cluster.cases()[0].actions;
    let is_noted = actions
        .iter()
        .any(|action| action.text.starts_with("the link was up again at "));
    assert!(is_noted, "{actions:?}");
}

/// Returns the advice of the case that stops a job for a segmentation fault, with this number of restarts.
fn advice_at_stop(restarts: u32) -> String {
    let mut cluster = Cluster::new(policy(RULES));
    let spec = JobSpec {
        max_restarts: restarts,
        ..cluster.spec(4, None)
    };
    cluster.tell(Event::JobSubmitted { spec, claim: None });
    cluster.obey();
    for _ in 0..=restarts {
        cluster.exits(2, ProcessExit::Signal(11), false);
        cluster.wait(Duration::from_secs(10));
        cluster.obey();
    }
    let phase = cluster.state.jobs()[&job()].phase();
    assert!(matches!(phase, JobPhase::Stopped { .. }), "{phase:?}");
    let cases = cluster.cases();
    cases.last().expect("it failed").verdict.mitigation.advice.clone()
}

#[test]
fn a_restart_that_was_tried_is_not_advised_again() {
    let first = advice_at_stop(0);
    assert!(first.starts_with("Restart once; "), "{first}");
    let again = advice_at_stop(1);
    assert!(again.starts_with("Read the native stack"), "{again}");
}

#[test]
fn a_case_of_a_node_that_was_out_of_use_names_the_earlier_cordon() {
    let outcome_of = |rules: u32| {
        let mut cluster = Cluster::new(policy(rules));
        cluster.tell(Event::NodeCordoned {
            node: node(3),
            reason: "hold".to_owned(),
        });
        cluster.loses_gpu(3);
        cluster.wait(Duration::from_secs(8));
        cluster.cases()[0].outcome.clone().expect("an outcome")
    };
    assert_eq!(outcome_of(RULES), "node node-3 was already out of use by an operator");
    assert_eq!(outcome_of(7), "node node-3 was taken out of use");
}

/// Returns the reason of a job with one restart that stops after two exits of ranks.
fn reason_after(first: (u32, i32), second: (u32, i32)) -> String {
    let mut cluster = Cluster::new(policy(RULES));
    let spec = JobSpec {
        max_restarts: 1,
        ..cluster.spec(4, None)
    };
    cluster.tell(Event::JobSubmitted { spec, claim: None });
    cluster.obey();
    for (rank, signal) in [first, second] {
        cluster.obey();
        cluster.exits(rank, ProcessExit::Signal(signal), false);
        cluster.wait(Duration::from_secs(10));
        cluster.obey();
    }
    match cluster.state.jobs()[&job()].phase() {
        JobPhase::Stopped { reason } => reason.clone(),
        phase => panic!("{phase:?}"),
    }
}

#[test]
fn a_failure_is_the_same_if_rank_and_signal_are() {
    for (second, is_same) in [((2, 9), true), ((2, 15), false), ((5, 9), false)] {
        let reason = reason_after((2, 9), second);
        let wanted = if is_same {
            "; the same failure came back"
        } else {
            "; a failure of the same class came back"
        };
        assert!(reason.contains(wanted), "{second:?}: {reason}");
    }
}
