//! Outcomes of restarts, and reasons to stop a job.

use std::time::Duration;

use rankguard_core::{Event, JobPhase, Policy};
use rankguard_model::{CaseState, Generation, JobState, NodeState, ProcessExit};

use super::{older, policy, unmarked};
use crate::cluster::{Cluster, job, node};

fn with_restarts(max_restarts: u32, policy: Policy) -> Cluster {
    let mut cluster = Cluster::new(policy);
    let mut spec = cluster.spec(4, None);
    spec.max_restarts = max_restarts;
    cluster.tell(Event::JobSubmitted { spec, claim: None });
    cluster.obey();
    cluster.obey();
    for rank in 0..8 {
        cluster.progress(rank, 40);
    }
    cluster
}

#[test]
fn a_job_without_restarts_is_not_stopped_for_restarts_that_were_never_made() {
    let mut cluster = with_restarts(0, policy());
    cluster.gpu_is_lost(&node(1));
    cluster.wait(Duration::from_secs(10));
    assert_eq!(cluster.job().state(), JobState::Stopped);
    let expect = "gpu-fallen-off-bus, blamed: node node-1, gpu 0000:9b:00; no restarts are allowed (case 1)";
    assert_eq!(cluster.reason(), expect);
    let mut cluster = with_restarts(0, policy());
    cluster.is_killed(1);
    cluster.wait(Duration::from_secs(10));
    let reason = cluster.reason();
    assert!(reason.ends_with("no restarts are allowed (case 1)"), "{reason}");
}

#[test]
fn a_restart_failed_only_if_its_own_generation_failed_before_it_worked() {
    // The restarted ranks work; then another node fails.
    let mut cluster = unmarked(policy());
    cluster.is_killed(1);
    cluster.wait(Duration::from_secs(5));
    cluster.restarts();
    assert_eq!(cluster.job().state(), JobState::Recovering);
    cluster.all_work();
    assert_eq!(cluster.job().state(), JobState::Running);
    assert_eq!(cluster.cases()[0].state, CaseState::Recovered);
    cluster.wait(Duration::from_secs(14));
    cluster.falls_silent(2);
    cluster.wait(Duration::from_secs(10));
    let outcome = cluster.cases()[0].outcome.clone().expect("an outcome");
    assert_eq!(outcome, "the ranks of the job worked again; it reports no steps");
    // The restarted ranks fail at once.
    let mut cluster = unmarked(policy());
    cluster.is_killed(1);
    cluster.wait(Duration::from_secs(5));
    cluster.restarts();
    cluster.is_killed(1);
    cluster.wait(Duration::from_secs(5));
    let outcome = cluster.cases()[0].outcome.clone().expect("an outcome");
    assert_eq!(outcome, "the restart failed too, see case 2");
    // The restarted rank fails at once, while the others write output.
    let mut cluster = unmarked(policy());
    cluster.is_killed(1);
    cluster.wait(Duration::from_secs(5));
    cluster.restarts();
    cluster.activity(0, "output");
    cluster.is_killed(1);
    cluster.activity(2, "output");
    cluster.wait(Duration::from_secs(5));
    let outcome = cluster.cases()[0].outcome.clone().expect("an outcome");
    assert_eq!(outcome, "the restart failed too, see case 2");
    // The restarted ranks run without a sign of life, and then another failure ends them.
    let mut cluster = unmarked(policy());
    cluster.is_killed(1);
    cluster.wait(Duration::from_secs(5));
    cluster.restarts();
    cluster.wait(Duration::from_secs(9));
    cluster.exits(1, ProcessExit::Code(3), false);
    cluster.wait(Duration::from_secs(5));
    let outcome = cluster.cases()[0].outcome.clone().expect("an outcome");
    assert_eq!(
        outcome,
        "another failure ended the restarted ranks after 9.0 s, see case 2"
    );
    // Another failure comes while the old ranks are being ended.
    let mut cluster = Cluster::checkpointed(policy(), rankguard_model::CheckpointTiers::default());
    cluster.is_killed(1);
    cluster.wait(Duration::from_secs(5));
    cluster.falls_silent(3);
    cluster.wait(Duration::from_secs(5));
    let outcome = cluster.cases()[0].outcome.clone().expect("an outcome");
    assert_eq!(outcome, "another failure followed before the job ran again, see case 2");
}

#[test]
fn a_failure_that_comes_back_after_a_recovery_names_the_earlier_case() {
    let mut cluster = unmarked(policy());
    cluster.is_killed(1);
    cluster.wait(Duration::from_secs(5));
    cluster.restarts();
    cluster.all_work();
    assert_eq!(cluster.cases()[0].state, CaseState::Recovered);
    let before = cluster.cases()[0].clone();
    cluster.wait(Duration::from_secs(4));
    cluster.is_killed(1);
    cluster.wait(Duration::from_secs(5));
    assert_eq!(*cluster.cases()[0], before);
    let actions: Vec<&str> = cluster.cases()[1]
        .actions
        .iter()
        .map(|action| action.text.as_str())
        .collect();
    assert_eq!(
        actions[0],
        "case 1 was of the same class and rank, and the job had worked again after it"
    );
}

#[test]
fn a_restarted_job_without_signs_of_life_is_running_after_the_limit_of_its_first_step() {
    let mut cluster = unmarked(policy());
    cluster.is_killed(1);
    cluster.wait(Duration::from_secs(5));
    cluster.restarts();
    cluster.wait(Duration::from_secs(90));
    assert_eq!(cluster.job().state(), JobState::Recovering);
    cluster.wait(Duration::from_secs(20));
    assert_eq!(cluster.job().state(), JobState::Running);
    assert_eq!(cluster.cases()[0].state, CaseState::Recovered);
}

#[test]
fn a_sign_of_life_while_other_ranks_start_counts() {
    let mut cluster = Cluster::new(policy());
    cluster.submit(4);
    cluster.obey();
    let launches = std::mem::take(&mut cluster.orders);
    let (last, first) = launches.split_last().expect("four launches");
    cluster.orders = first.to_vec();
    cluster.obey();
    cluster.activity(0, "output");
    assert!(matches!(cluster.job().phase(), JobPhase::Launching { .. }));
    cluster.orders = vec![last.clone()];
    cluster.obey();
    assert!(
        matches!(cluster.job().phase(), JobPhase::Running),
        "{:?}",
        cluster.job().phase()
    );
}

#[test]
fn nothing_is_placed_on_a_node_with_a_fatal_fault_before_its_verdict() {
    let mut cluster = Cluster::new(policy());
    cluster.gpu_is_lost(&node(0));
    cluster.submit(1);
    cluster.wait(Duration::from_secs(10));
    assert_eq!(cluster.job().nodes(), [node(1), node(2), node(3)]);
    assert_eq!(cluster.generation(), Generation(1));
    assert_eq!(cluster.node_state(0), NodeState::Cordoned);
}

#[test]
fn a_case_names_the_job_that_it_restarts() {
    let mut cluster = Cluster::new(older());
    cluster.gpu_is_lost(&node(0));
    cluster.submit(4);
    cluster.tell(Event::RulesAdopted {
        rules: rankguard_core::RULES,
    });
    cluster.wait(Duration::from_secs(10));
    let case = cluster.cases()[0];
    assert_eq!(
        (case.job.clone(), case.generation),
        (Some(job()), Some(Generation(1))),
        "{case:#?}"
    );
}

#[test]
fn a_waiting_job_counts_the_nodes_that_are_free_after_another_took_some() {
    let mut cluster = Cluster::new(policy());
    let submit = |cluster: &mut Cluster, name: &str, nodes: u32| {
        let spec = rankguard_model::JobSpec {
            id: name.into(),
            nodes: rankguard_model::NodeRange { min: nodes, max: nodes },
            ..cluster.spec(nodes, None)
        };
        cluster.tell(Event::JobSubmitted { spec, claim: None });
    };
    submit(&mut cluster, "wide", 5);
    let reason = |cluster: &Cluster| {
        let status = cluster.state.status(cluster.now);
        let wide = status.jobs.iter().find(|job| job.spec.id.as_str() == "wide");
        wide.and_then(|job| job.reason.clone()).expect("it waits")
    };
    let all = "waits for nodes: it needs at least 5 free healthy nodes with 2 slots each, and there are 4";
    assert_eq!(reason(&cluster), all);
    submit(&mut cluster, "narrow", 3);
    let taken = "; node-0 has job narrow; node-1 has job narrow; node-2 has job narrow";
    assert_eq!(reason(&cluster), all.replace("there are 4", "there is 1") + taken);
}

#[test]
fn the_same_fault_on_another_node_is_no_return_of_the_first() {
    let mut cluster = Cluster::new(policy());
    cluster.submit(3);
    cluster.wait(Duration::from_secs(5));
    cluster.restarts();
    cluster.gpu_is_lost(&node(1));
    cluster.wait(Duration::from_secs(5));
    cluster.restarts();
    cluster.all_work();
    assert_eq!(cluster.cases()[0].state, CaseState::Recovered);
    cluster.wait(Duration::from_secs(4));
    cluster.gpu_is_lost(&node(2));
    cluster.wait(Duration::from_secs(5));
    let case = cluster.cases()[1];
    assert_eq!(case.verdict.class, cluster.cases()[0].verdict.class);
    let is_return = |text: &str| text.contains("was of the same class and rank");
    assert!(
        !case.actions.iter().any(|action| is_return(&action.text)),
        "{:?}",
        case.actions
    );
}
