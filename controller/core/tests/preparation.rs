//! Standby processes on nodes that a job takes in: they are prepared while its ranks work on.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_core::{DecisionState, Event, Policy, PreflightMode};
use rankguard_model::{
    AgentOrder, CheckpointTiers, Entity, EvidenceBody, EvidenceSource, FailedCheck, JobSpec, NodeInfo, NodeRange,
    PrepareOrder, RankRef, RunningRank, StandbyPolicy,
};

use crate::cluster::{Cluster, job, node};

fn policy() -> Policy {
    Policy {
        first_step_ms: 1_000_000,
        stall_ms: 2_000_000,
        ..Policy::default()
    }
}

/// Runs a job with standby processes on at least two nodes; the last `away` nodes have left and the job has shrunk.
fn shrunk(policy: Policy, away: u32) -> Cluster {
    let mut cluster = Cluster::new(policy);
    let spec = JobSpec {
        standby: Some(StandbyPolicy {
            count: 1,
            imports: vec!["torch".to_owned()],
        }),
        nodes: NodeRange { min: 1, max: 4 },
        ..cluster.spec(1, Some(Cluster::checkpoint_policy(CheckpointTiers::default())))
    };
    cluster.tell(Event::JobSubmitted { spec, claim: None });
    cluster.start();
    cluster.progress(0, 40);
    cluster.checkpoint(50);
    for number in 4 - away..4 {
        lose(&mut cluster, number);
    }
    cluster.wait(Duration::from_secs(10));
    cluster.start();
    cluster.progress(0, 51);
    assert_eq!(cluster.job().nodes().len(), 4 - away as usize);
    // The pause after a shrink is over.
    cluster.wait(Duration::from_secs(600));
    cluster.progress(0, 52);
    cluster.orders.clear();
    cluster
}

fn lose(cluster: &mut Cluster, number: u32) {
    let last_heard = cluster.now;
    cluster.tell(Event::NodeFellSilent {
        node: node(number),
        last_heard,
    });
}

/// The agent of a node joins, as this process.
fn join(cluster: &mut Cluster, number: u32, incarnation: &str) {
    let known = cluster.state.fleet().get(&node(number)).expect("it is known");
    let placements = cluster.job().plan().expect("it is placed").placements();
    let here = placements.iter().filter(|place| place.node == node(number));
    let running = here.map(|place| RunningRank {
        rank: RankRef {
            job: job(),
            generation: cluster.generation(),
            rank: place.rank,
        },
        pid: place.rank.0,
        step: None,
    });
    let info = NodeInfo {
        incarnation: incarnation.to_owned(),
        running: running.collect(),
        ..known.info.clone()
    };
    cluster.tell(Event::NodeJoined { info });
    // It ends what it may have of the last generation.
    let (fences, others) = std::mem::take(&mut cluster.orders)
        .into_iter()
        .partition(|(_, order)| matches!(order, AgentOrder::Fence { .. }));
    cluster.orders = fences;
    cluster.obey();
    cluster.orders.extend::<Vec<_>>(others);
}

impl Cluster {
    /// Carries out the orders of a new generation.
    pub(crate) fn start(&mut self) {
        for _ in 0..4 {
            self.obey();
            if let Some(look) = self.looks.pop() {
                self.looks.clear();
                self.tell(Event::ShardsFound {
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
        }
    }

    /// Removes the orders to prepare from the sent ones and returns them.
    fn take_preparations(&mut self) -> Vec<(rankguard_model::NodeId, PrepareOrder)> {
        let orders = std::mem::take(&mut self.orders);
        let mut found = Vec::new();
        for (node, order) in orders {
            match order {
                AgentOrder::Prepare(wanted) => found.push((node, wanted)),
                other => self.orders.push((node, other)),
            }
        }
        found
    }

    fn take_nodes_to_prepare(&mut self) -> Vec<rankguard_model::NodeId> {
        let all = self.take_preparations().into_iter();
        all.filter(|(_, wanted)| wanted.standby.is_some())
            .map(|(node, _)| node)
            .collect()
    }

    fn report_prepared(&mut self, number: u32, problem: Option<&str>) {
        let body = EvidenceBody::Prepared {
            job: job(),
            generation: self.generation(),
            waiting: if problem.is_some() { 0 } else { 2 },
            problem: problem.map(str::to_owned),
        };
        let node = node(number);
        let entity = Entity::Node { node: node.clone() };
        self.report(node, EvidenceSource::Agent, entity, body, Vec::new());
    }
}

#[test]
fn a_node_is_prepared_before_the_job_is_called_to_checkpoint() {
    let mut cluster = shrunk(policy(), 1);
    join(&mut cluster, 3, "2");
    cluster.wait(Duration::from_secs(31));
    let sent = cluster.take_preparations();
    assert_eq!(sent.len(), 1, "{sent:?}");
    let (to, wanted) = &sent[0];
    assert_eq!(
        (to, &wanted.job, wanted.generation),
        (&node(3), &job(), cluster.generation())
    );
    let standby = wanted.standby.as_ref().expect("it names processes");
    assert_eq!(
        (standby.count, &standby.imports[..]),
        (2, &["torch".to_owned()][..]),
        "one for each rank"
    );
    let reason = cluster.state.status(cluster.now).jobs[0]
        .reason
        .clone()
        .unwrap_or_default();
    assert!(
        reason.contains("standby processes import its modules on node-3"),
        "{reason}"
    );
    // Its own checkpoints do not make it grow meanwhile.
    cluster.progress(0, 60);
    cluster.checkpoint(60);
    assert!(!cluster.is_called() && cluster.job().nodes().len() == 3);
    cluster.report_prepared(3, None);
    assert!(cluster.is_called());
    cluster.progress(0, 70);
    cluster.checkpoint_called();
    assert_eq!(cluster.job().nodes().len(), 4);
    assert_eq!(cluster.take_preparations(), [], "its processes become ranks");
}

#[test]
fn a_job_does_not_wait_for_a_node_that_reports_a_problem_or_nothing() {
    let mut cluster = shrunk(policy(), 1);
    join(&mut cluster, 3, "2");
    cluster.wait(Duration::from_secs(31));
    cluster.report_prepared(3, Some("No module named 'torch'"));
    assert!(cluster.is_called());
    assert!(
        cluster
            .announced
            .iter()
            .any(|text| text.contains("No module named 'torch'"))
    );

    let mut cluster = shrunk(policy(), 1);
    join(&mut cluster, 3, "2");
    cluster.wait(Duration::from_secs(31));
    cluster.wait(Duration::from_secs(100));
    assert!(!cluster.is_called());
    cluster.wait(Duration::from_secs(21));
    assert!(cluster.is_called(), "after the deadline (RG-9)");
    cluster.progress(0, 70);
    cluster.checkpoint_called();
    assert_eq!(cluster.job().nodes().len(), 4);
}

#[test]
fn a_lost_node_is_not_awaited_and_is_prepared_again_when_it_returns() {
    let mut cluster = shrunk(policy(), 2);
    join(&mut cluster, 2, "2");
    join(&mut cluster, 3, "2");
    cluster.wait(Duration::from_secs(31));
    assert_eq!(cluster.take_nodes_to_prepare(), [node(2), node(3)]);
    cluster.report_prepared(2, None);
    assert!(!cluster.is_called());
    lose(&mut cluster, 3);
    cluster.wait(Duration::from_secs(31));
    assert!(cluster.is_called(), "the other node is ready");
    // It returns while the job waits for its checkpoint, which is then taken once more.
    join(&mut cluster, 3, "3");
    cluster.progress(0, 70);
    cluster.checkpoint_called();
    assert_eq!(cluster.job().nodes().len(), 2);
    assert_eq!(cluster.take_nodes_to_prepare(), [node(3)]);
    cluster.orders.clear();
    cluster.report_prepared(3, None);
    assert!(cluster.is_called());
    cluster.checkpoint_called();
    assert_eq!(cluster.job().nodes().len(), 4);
}

#[test]
fn the_processes_end_on_a_node_that_the_job_does_not_take_in() {
    let mut cluster = shrunk(policy(), 1);
    join(&mut cluster, 3, "2");
    cluster.wait(Duration::from_secs(31));
    assert_eq!(cluster.take_nodes_to_prepare(), [node(3)]);
    cluster.tell(Event::NodeCordoned {
        node: node(3),
        reason: "held".to_owned(),
    });
    cluster.wait(Duration::from_secs(121));
    let sent = cluster.take_preparations();
    assert!(
        matches!(&sent[..], [(to, PrepareOrder { standby: None, .. })] if *to == node(3)),
        "{sent:?}"
    );
    assert!(!cluster.is_called());

    let mut cluster = shrunk(policy(), 1);
    join(&mut cluster, 3, "2");
    cluster.wait(Duration::from_secs(31));
    cluster.take_preparations();
    cluster.tell(Event::JobCancelled { job: job(), by: None });
    let sent = cluster.take_preparations();
    assert!(
        matches!(&sent[..], [(to, PrepareOrder { standby: None, .. })] if *to == node(3)),
        "{sent:?}"
    );
}

#[test]
fn the_order_is_repeated_after_a_restart_of_the_controller() {
    let mut cluster = shrunk(policy(), 1);
    join(&mut cluster, 3, "2");
    cluster.wait(Duration::from_secs(31));
    assert_eq!(cluster.take_nodes_to_prepare(), [node(3)]);
    let text = serde_json::to_string(&cluster.state).expect("it can be written");
    cluster.state = serde_json::from_str::<DecisionState>(&text).expect("it can be read");
    cluster.tell(Event::ControllerStarted);
    for number in 0..4 {
        join(&mut cluster, number, if number == 3 { "2" } else { "1" });
    }
    assert_eq!(cluster.take_nodes_to_prepare(), [node(3)]);
    // A new agent process has lost its standby processes.
    join(&mut cluster, 3, "3");
    cluster.wait(Duration::from_secs(31));
    assert_eq!(cluster.take_nodes_to_prepare(), [node(3)]);
    cluster.report_prepared(3, None);
    assert!(cluster.is_called());
}

#[test]
fn a_drained_job_moves_once_the_other_node_is_prepared() {
    let mut cluster = shrunk(policy(), 1);
    join(&mut cluster, 3, "2");
    // Before the growth.
    cluster.tell(Event::NodeDrained {
        node: node(0),
        reason: "new memory".to_owned(),
    });
    cluster.orders.clear();
    cluster.progress(0, 60);
    cluster.checkpoint(60);
    assert_eq!(cluster.take_nodes_to_prepare(), [node(3)]);
    assert!(cluster.job().nodes().contains(&node(0)));
    cluster.report_prepared(3, None);
    assert!(cluster.is_called(), "what was trained meanwhile is not repeated");
    cluster.progress(0, 70);
    cluster.checkpoint_called();
    assert_eq!(cluster.job().nodes(), [node(3), node(1), node(2)]);
}

#[test]
fn older_journals_and_jobs_without_standby_processes_prepare_no_nodes() {
    let rules = rankguard_core::Policy { rules: 7, ..policy() };
    let mut cluster = shrunk(rules, 1);
    join(&mut cluster, 3, "2");
    cluster.wait(Duration::from_secs(31));
    assert_eq!(cluster.take_preparations(), []);
    assert!(cluster.is_called());

    let mut cluster = Cluster::checkpointed(policy(), CheckpointTiers::default());
    cluster.checkpoint(50);
    lose(&mut cluster, 3);
    cluster.wait(Duration::from_secs(10));
    cluster.start();
    cluster.progress(0, 51);
    cluster.wait(Duration::from_secs(600));
    cluster.orders.clear();
    join(&mut cluster, 3, "2");
    cluster.wait(Duration::from_secs(31));
    assert_eq!(cluster.take_preparations(), []);
    assert!(cluster.is_called());
}

/// Returns the nodes with an order to check themselves, and removes these orders from the sent ones.
fn take_checked(cluster: &mut Cluster) -> Vec<rankguard_model::NodeId> {
    let orders = std::mem::take(&mut cluster.orders);
    let is_check = |order: &AgentOrder| matches!(order, AgentOrder::Preflight(_));
    let (checks, others) = orders.into_iter().partition(|(_, order)| is_check(order));
    cluster.orders = others;
    let checks: Vec<(rankguard_model::NodeId, AgentOrder)> = checks;
    checks.into_iter().map(|(node, _)| node).collect()
}

fn report_checked(cluster: &mut Cluster, number: u32, failed: Vec<FailedCheck>) {
    let body = EvidenceBody::Preflighted {
        job: job(),
        generation: cluster.generation(),
        failed,
        environment: BTreeMap::new(),
    };
    let node = node(number);
    let entity = Entity::Node { node: node.clone() };
    cluster.report(node, EvidenceSource::Agent, entity, body, Vec::new());
}

/// Nodes check themselves before a generation.
fn checking() -> Policy {
    Policy {
        preflight: PreflightMode::Require,
        ..policy()
    }
}

fn full_disk() -> FailedCheck {
    FailedCheck {
        check: "write-path".to_owned(),
        subject: "/store".to_owned(),
        class: "disk-full".into(),
        found: "no space left".to_owned(),
        advice: String::new(),
    }
}

/// A node returns to a job of three, and all four answer the preflight that is ordered with its preparation.
fn grown_after_checks(policy: Policy, answers: impl Fn(u32) -> Option<Vec<FailedCheck>>) -> Cluster {
    let mut cluster = shrunk(policy, 1);
    join(&mut cluster, 3, "2");
    cluster.wait(Duration::from_secs(31));
    let _ = take_checked(&mut cluster);
    for number in 0..4 {
        if let Some(failed) = answers(number) {
            report_checked(&mut cluster, number, failed);
        }
    }
    cluster.report_prepared(3, None);
    cluster.progress(0, 70);
    cluster.checkpoint_called();
    cluster
}

#[test]
fn the_nodes_of_a_growth_are_checked_while_the_ranks_work_and_not_again() {
    let mut cluster = shrunk(checking(), 1);
    join(&mut cluster, 3, "2");
    cluster.wait(Duration::from_secs(31));
    assert_eq!(take_checked(&mut cluster), [node(0), node(1), node(2), node(3)]);

    let mut cluster = grown_after_checks(checking(), |_| Some(Vec::new()));
    assert_eq!(take_checked(&mut cluster), [], "all have answered");
    cluster.start();
    cluster.progress(0, 71);
    assert_eq!(cluster.job().nodes().len(), 4);
    assert!(cluster.job().is_running(), "{:?}", cluster.job().phase());
}

#[test]
fn the_gate_checks_nodes_that_have_not_answered_or_would_be_refused() {
    let all = [node(0), node(1), node(2), node(3)];
    let mut silent = grown_after_checks(checking(), |number| (number != 1).then(Vec::new));
    assert_eq!(take_checked(&mut silent), all);
    let mut refused = grown_after_checks(checking(), |number| {
        Some(if number == 3 { vec![full_disk()] } else { Vec::new() })
    });
    assert_eq!(take_checked(&mut refused), all, "the disk may have room by now");
    let between = Policy {
        preflight_between: true,
        ..checking()
    };
    let mut measured = grown_after_checks(between, |_| Some(Vec::new()));
    assert_eq!(take_checked(&mut measured), all, "links are measured without the ranks");
    let before = Policy { rules: 8, ..checking() };
    let mut earlier = grown_after_checks(before, |_| Some(Vec::new()));
    assert_eq!(take_checked(&mut earlier), all, "as a journal of these rules replays");
}
