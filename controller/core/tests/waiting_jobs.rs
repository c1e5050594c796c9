//! Nodes of jobs that wait: a waiting job has those on which its ranks run, and others are offered to the jobs that fit.

use std::time::Duration;

use rankguard_core::{Event, JobPhase, Policy};
use rankguard_model::{AgentOrder, EvidenceBody, JobId, JobSpec, JobView, NodeRange, ProcessExit};

use crate::cluster::{Cluster, node};

fn submit(cluster: &mut Cluster, name: &str, nodes: u32) {
    let spec = JobSpec {
        id: name.into(),
        nodes: NodeRange { min: nodes, max: nodes },
        ..cluster.spec(nodes, None)
    };
    cluster.tell(Event::JobSubmitted { spec, claim: None });
}

fn view(cluster: &Cluster, name: &str) -> JobView {
    let status = cluster.state.status(cluster.now);
    let job = status.jobs.into_iter().find(|job| job.spec.id.as_str() == name);
    job.expect("it was submitted")
}

fn reason(cluster: &Cluster, name: &str) -> String {
    view(cluster, name).reason.unwrap_or_default()
}

fn is_waiting(cluster: &Cluster, name: &str) -> bool {
    cluster.state.jobs()[&JobId::from(name)].is_pending()
}

fn loses(cluster: &mut Cluster, number: u32) {
    let last_heard = cluster.now;
    let node = node(number);
    cluster.tell(Event::NodeFellSilent { node, last_heard });
}

/// Reports the ends of the ranks of the job on the first three nodes.
fn ranks_end(cluster: &mut Cluster, exit: ProcessExit) {
    for rank in 0..6 {
        let body = EvidenceBody::RankExited {
            pid: rank,
            exit,
            ended_by_agent: false,
        };
        cluster.rank_says(rank, body, Vec::new());
    }
}

/// A job on four nodes lost one of them, and its ranks on the others have ended.
fn waits_for_a_node(rules: u32, exit: ProcessExit) -> Cluster {
    let mut cluster = Cluster::running(Policy {
        rules,
        ..Policy::default()
    });
    loses(&mut cluster, 3);
    cluster.wait(Duration::from_secs(12));
    ranks_end(&mut cluster, exit);
    cluster.wait(Duration::from_secs(5));
    assert!(is_waiting(&cluster, "llm"));
    cluster
}

#[test]
fn a_job_that_fits_runs_on_the_nodes_of_a_waiting_one() {
    let mut cluster = waits_for_a_node(8, ProcessExit::Signal(15));
    let wanted = "waits for nodes: it needs at least 4 free healthy nodes with 2 slots each, and there are 3; ranks on node-3 may run too, its agent does not answer; node-3 is lost";
    assert_eq!(reason(&cluster, "llm"), wanted);
    submit(&mut cluster, "small", 2);
    assert_eq!(cluster.state.jobs()[&JobId::from("small")].nodes(), [node(0), node(1)]);
    let wanted = "waits for nodes: it needs at least 4 free healthy nodes with 2 slots each, and there is 1; ranks on node-3 may run too, its agent does not answer; node-0 has job small; node-1 has job small; node-3 is lost";
    assert_eq!(reason(&cluster, "llm"), wanted);
    let status = cluster.state.status(cluster.now);
    let job_of = |number: usize| status.nodes[number].job.as_ref().map(JobId::as_str);
    assert_eq!((job_of(0), job_of(2)), (Some("small"), None));
}

#[test]
fn under_older_rules_a_waiting_job_keeps_its_nodes() {
    let mut cluster = waits_for_a_node(7, ProcessExit::Signal(15));
    submit(&mut cluster, "small", 2);
    assert!(is_waiting(&cluster, "small"));
}

#[test]
fn nodes_on_which_ranks_of_a_waiting_job_run_are_kept() {
    let mut cluster = Cluster::running(Policy::default());
    // Its nodes take no new ranks, and its ranks run on.
    loses(&mut cluster, 3);
    cluster.wait(Duration::from_secs(12));
    let is_alive = cluster.state.jobs()[&JobId::from("llm")].is_alive(rankguard_model::Rank(0));
    submit(&mut cluster, "small", 1);
    assert_eq!(is_waiting(&cluster, "small"), is_alive);
    ranks_end(&mut cluster, ProcessExit::Signal(15));
    assert!(!is_waiting(&cluster, "small"), "the ends of the ranks free their nodes");
}

#[test]
fn processes_that_wait_for_another_rank_end_before_another_job_starts() {
    let mut cluster = waits_for_a_node(8, ProcessExit::Left);
    cluster.orders.clear();
    submit(&mut cluster, "small", 1);
    let is_fence =
        |order: &AgentOrder, name: &str| matches!(order, AgentOrder::Fence { job, .. } if job.as_str() == name);
    let orders: Vec<_> = cluster.orders.iter().filter(|(to, _)| *to == node(0)).collect();
    let first = |name: &str| orders.iter().position(|(_, order)| is_fence(order, name));
    let (waiting, new) = (first("llm").expect("a fence"), first("small").expect("a fence"));
    assert!(waiting < new, "{orders:?}");
}

#[test]
fn nodes_are_offered_to_the_oldest_job_first() {
    let mut cluster = Cluster::new(Policy::default());
    submit(&mut cluster, "all", 4);
    for name in ["z-first", "m-second", "a-third"] {
        cluster.wait(Duration::from_secs(1));
        submit(&mut cluster, name, 2);
    }
    let job = JobId::from("all");
    cluster.tell(Event::JobCancelled { job, by: None });
    for number in 0..4 {
        let entity = rankguard_model::Entity::Node { node: node(number) };
        let body = EvidenceBody::Stopped {
            job: JobId::from("all"),
            generation: cluster.state.jobs()[&JobId::from("all")].generation(),
            ended: 2,
            left: Vec::new(),
        };
        cluster.report(
            node(number),
            rankguard_model::EvidenceSource::Agent,
            entity,
            body,
            Vec::new(),
        );
    }
    assert!(!is_waiting(&cluster, "z-first") && !is_waiting(&cluster, "m-second"));
    assert!(is_waiting(&cluster, "a-third"));
}

#[test]
fn a_job_that_waited_for_too_long_is_stopped_with_the_nodes_that_were_free() {
    let mut cluster = Cluster::new(Policy {
        pending_ms: 60_000,
        ..Policy::default()
    });
    submit(&mut cluster, "wide", 5);
    cluster.wait(Duration::from_secs(61));
    let JobPhase::Stopped { reason } = cluster.state.jobs()[&JobId::from("wide")].phase() else {
        panic!("it is stopped");
    };
    let wanted = "waited for nodes: it needs at least 5 free healthy nodes with 2 slots each, and there are 4; it has waited \
                  for 60 s, the longest wait";
    assert_eq!(reason, wanted);
}

/// The last message of a node precedes the declaration of its loss by the silence limit.
#[test]
fn a_node_that_fell_silent_is_away_since_its_last_message() {
    let mut cluster = Cluster::checkpointed(Policy::default(), rankguard_model::CheckpointTiers::default());
    let last_heard = cluster.now;
    cluster.wait(Duration::from_secs(10));
    cluster.tell(Event::NodeFellSilent {
        node: node(3),
        last_heard,
    });
    cluster.wait(Duration::from_secs(20));
    cluster.obey();
    let unconfirmed = view(&cluster, "llm").unconfirmed;
    let of_node = unconfirmed
        .iter()
        .find(|place| place.node == node(3))
        .expect("its ranks may run");
    let wanted = format!("away since {last_heard}; its agent has no lease, so its ranks may run on");
    assert_eq!(of_node.reason, wanted);
}

#[test]
fn only_a_lost_node_without_a_job_is_forgotten() {
    let mut cluster = Cluster::new(Policy::default());
    cluster.tell(Event::NodeForgotten { node: node(2) });
    let refused = "node node-2 is in use or speaks, and is not forgotten";
    assert_eq!(cluster.announced.last().map(String::as_str), Some(refused));
    loses(&mut cluster, 2);
    cluster.tell(Event::NodeForgotten { node: node(2) });
    assert_eq!(
        cluster.announced.last().map(String::as_str),
        Some("node node-2 is forgotten by an operator")
    );
    assert!(cluster.state.fleet().get(&node(2)).is_none());
}

/// The job waits for nodes with its case; the plan that ends the wait is one of the case.
#[test]
fn the_plan_after_a_wait_for_nodes_belongs_to_the_case() {
    let mut cluster = Cluster::running(Policy::default());
    for number in 0..4 {
        loses(&mut cluster, number);
    }
    cluster.wait(Duration::from_secs(30));
    assert!(is_waiting(&cluster, "llm"));
    for number in 0..4 {
        cluster.joins(number, "2", &[]);
    }
    cluster.restarts();
    for rank in 0..8 {
        cluster.progress(rank, 41);
    }
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.outcome.as_deref(), Some("the job made steps again"), "{case:#?}");
    assert!(case.plan.is_some() && case.restart_ms().is_some(), "{case:#?}");
}
