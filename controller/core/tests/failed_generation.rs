//! Failed generations: ranks end and the case settles without waiting for the verdict (RG-14); the verdict decides where
//! the job goes on, and whether it does.

use std::time::Duration;

use rankguard_core::{Event, JobPhase, Policy, RULES};
use rankguard_model::{
    AgentOrder, CaseState, ClassId, Classification, Entity, EvidenceBody, EvidenceSource, FieldValues, Generation,
    NodeId, NodeInfo, ProcessExit, Rank, RankRef, Role, RunningRank,
};

use crate::cluster::{Cluster, job, node};

fn policy(rules: u32) -> Policy {
    Policy {
        rules,
        user_retries: 0,
        ..Policy::default()
    }
}

fn exit(exit: ProcessExit, ended_by_agent: bool) -> EvidenceBody {
    EvidenceBody::RankExited {
        pid: 1,
        exit,
        ended_by_agent,
    }
}

fn mark(class: &str, role: Role) -> Classification {
    Classification {
        class: class.into(),
        role,
        confidence: 0.95,
        signature: class.into(),
        fields: FieldValues::new(),
    }
}

fn line(text: &str) -> EvidenceBody {
    EvidenceBody::Line {
        text: text.to_owned(),
        context: Vec::new(),
        repeats: 1,
    }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Cluster {
    /// Returns the nodes that were ordered to end their ranks and keep their images, and takes the orders.
    fn stopped(&mut self) -> Vec<NodeId> {
        let orders = std::mem::take(&mut self.orders).into_iter();
        let stops = orders.filter_map(|(node, order)| match order {
            AgentOrder::Stop { keeps_images: true, .. } => Some(node),
            _ => None,
        });
        stops.collect()
    }

    /// Reports that a node has ended its ranks of generation 1, except for the processes in `left`.
    fn reports_stopped(&mut self, number: u32, left: &[&str]) {
        let body = EvidenceBody::Stopped {
            job: job(),
            generation: Generation(1),
            ended: 2,
            left: left.iter().map(|name| (*name).to_owned()).collect(),
        };
        let node = node(number);
        let entity = Entity::Node { node: node.clone() };
        self.report(node, EvidenceSource::Agent, entity, body, Vec::new());
    }

    fn has_launched(&self) -> bool {
        self.orders
            .iter()
            .any(|(_, order)| matches!(order, AgentOrder::Launch(_)))
    }

    /// The agents of these nodes report the kernel log before the exits.
    fn orders_kernel_logs(&mut self, numbers: &[u32]) {
        for number in numbers {
            let known = self.state.fleet().get(&node(*number)).expect("it joined").info.clone();
            let info = NodeInfo {
                is_kernel_log_first: true,
                running: self.running_on(*number),
                ..known
            };
            self.tell(Event::NodeJoined { info });
        }
    }

    fn running_on(&self, number: u32) -> Vec<RunningRank> {
        let ranks = [2 * number, 2 * number + 1].map(|rank| RunningRank {
            rank: RankRef {
                job: job(),
                generation: Generation(1),
                rank: Rank(rank),
            },
            pid: rank,
            step: None,
        });
        ranks.to_vec()
    }

    fn loses_session(&mut self, number: u32) {
        let last_heard = Some(self.now);
        self.tell(Event::SessionEnded {
            node: node(number),
            last_heard,
        });
    }

    fn is_lost(&self, number: u32) -> bool {
        !self.state.fleet().is_live(&node(number))
    }
}

const ALL: [u32; 4] = [0, 1, 2, 3];

fn nodes(numbers: &[u32]) -> Vec<NodeId> {
    numbers.iter().map(|number| node(*number)).collect()
}

#[test]
fn peers_of_a_killed_rank_end_before_the_verdict() {
    let mut cluster = Cluster::running(policy(RULES));
    cluster.rank_says(1, exit(ProcessExit::Signal(9), false), Vec::new());
    cluster.wait(millis(249));
    assert_eq!(cluster.stopped(), []);
    cluster.wait(millis(1));
    assert_eq!(cluster.generation(), Generation(1));
    cluster.obey();
    cluster.wait(millis(599));
    assert_eq!(cluster.generation(), Generation(1), "the case settles first");
    cluster.wait(millis(1));
    assert_eq!(cluster.generation(), Generation(2));
    assert_eq!(cluster.cases().len(), 1);
    cluster.obey();
    assert!(cluster.has_launched());
}

/// Nothing that explains the failure is on its way, so a short wait suffices.
#[test]
fn a_failure_settles_sooner_if_every_agent_reports_its_kernel_log_before_the_exits() {
    let settles_after = |agents: &[u32], explanation: Option<&str>| {
        let mut cluster = Cluster::running(policy(RULES));
        cluster.orders_kernel_logs(agents);
        if let Some(class) = explanation {
            cluster.rank_says(1, line("a cause"), vec![mark(class, Role::Root)]);
        }
        cluster.rank_says(1, exit(ProcessExit::Signal(9), false), Vec::new());
        cluster.wait(millis(250));
        assert_eq!(cluster.stopped(), nodes(&ALL));
        ALL.into_iter().for_each(|number| cluster.reports_stopped(number, &[]));
        let concluded = (1..2_000).find(|_| {
            cluster.wait(millis(1));
            cluster.cases()[0].state != CaseState::Open
        });
        concluded.expect("the case is concluded")
    };
    assert_eq!(settles_after(&ALL, None), 200);
    assert_eq!(settles_after(&ALL, Some("gpu-fallen-off-bus")), 100);
    assert_eq!(settles_after(&[0, 1, 2], None), 600, "one agent does not");
    assert_eq!(settles_after(&[0, 1, 2], Some("gpu-fallen-off-bus")), 300);
}

/// Settings that change while a case is open hold for it, and the rules remain those of the journal.
#[test]
fn adopted_settings_hold_for_an_open_case() {
    let mut cluster = Cluster::running(policy(RULES));
    cluster.rank_says(1, exit(ProcessExit::Signal(9), false), Vec::new());
    cluster.wait(millis(250));
    cluster.obey();
    let slower = Policy {
        settle_ms: 15_000,
        rules: 1,
        ..policy(RULES)
    };
    cluster.tell(Event::PolicyAdopted {
        policy: Box::new(slower),
    });
    assert_eq!(cluster.state.rules(), RULES);
    cluster.wait(millis(5_900));
    assert_eq!(cluster.generation(), Generation(1), "a fifth of the settle time, twice");
    cluster.wait(millis(200));
    assert_eq!(cluster.generation(), Generation(2));
    let text = serde_json::to_string(&cluster.state).expect("JSON");
    assert_eq!(
        serde_json::from_str::<rankguard_core::DecisionState>(&text).ok(),
        Some(cluster.state)
    );
}

#[test]
fn journals_of_older_rules_end_ranks_with_the_verdict() {
    let mut cluster = Cluster::running(policy(7));
    cluster.rank_says(1, exit(ProcessExit::Signal(9), false), Vec::new());
    cluster.wait(millis(4_499));
    assert_eq!(cluster.stopped(), []);
    assert_eq!(cluster.generation(), Generation(1));
    cluster.wait(millis(1));
    assert_eq!(cluster.generation(), Generation(2));
}

/// Nothing has to be ended, and the case settles from the last end on.
#[test]
fn ranks_that_end_by_themselves_are_waited_for_no_longer() {
    let mut cluster = Cluster::running(policy(RULES));
    for rank in 0..8 {
        cluster.rank_says(rank, exit(ProcessExit::Signal(9), false), Vec::new());
    }
    cluster.wait(millis(599));
    assert_eq!(cluster.generation(), Generation(1));
    cluster.wait(millis(1));
    assert_eq!(cluster.generation(), Generation(2));
}

/// An exception is an explanation: half of the wait suffices. The program is at fault, so nothing starts again.
#[test]
fn a_failure_of_the_program_ends_the_ranks_and_restarts_nothing() {
    let mut cluster = Cluster::running(policy(RULES));
    cluster.rank_says(1, line("KeyError: 'lr'"), vec![mark("key-error", Role::Root)]);
    cluster.rank_says(1, exit(ProcessExit::Code(1), false), Vec::new());
    cluster.wait(millis(250));
    cluster.obey();
    cluster.wait(millis(300));
    let job = &cluster.state.jobs()[&job()];
    assert!(matches!(job.phase(), JobPhase::Stopped { .. }), "{:?}", job.phase());
    assert_eq!(cluster.cases()[0].verdict.class.as_str(), "key-error");
    assert_eq!(cluster.generation(), Generation(1));
    assert!(!cluster.has_launched());
}

/// Agents gather the stacks and flight recorders of all ranks after a timeout; ended ranks have none.
#[test]
fn ranks_that_wait_in_a_collective_operation_are_left_until_the_verdict() {
    let mut cluster = Cluster::running(policy(RULES));
    let text = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)";
    cluster.rank_says(1, line(text), vec![mark("nccl-timeout", Role::Root)]);
    cluster.rank_says(1, exit(ProcessExit::Signal(6), false), Vec::new());
    cluster.wait(millis(1_000));
    assert_eq!(cluster.stopped(), []);
}

#[test]
fn ends_that_are_no_failures_end_no_other_rank() {
    for (how, by_agent) in [(ProcessExit::Code(0), false), (ProcessExit::Signal(9), true)] {
        let mut cluster = Cluster::running(policy(RULES));
        cluster.rank_says(1, exit(how, by_agent), Vec::new());
        cluster.wait(millis(1_000));
        assert_eq!(cluster.stopped(), [], "{how:?}");
    }
}

/// A process that cannot be ended may still report something.
#[test]
fn a_rank_that_does_not_end_leaves_the_usual_settle_time() {
    let mut cluster = Cluster::running(policy(RULES));
    cluster.rank_says(1, exit(ProcessExit::Signal(9), false), Vec::new());
    cluster.wait(millis(250));
    assert_eq!(cluster.stopped(), nodes(&ALL));
    for number in [0, 1, 2] {
        cluster.reports_stopped(number, &[]);
    }
    cluster.reports_stopped(3, &["rank 6"]);
    cluster.wait(millis(4_249));
    assert_eq!(cluster.generation(), Generation(1));
    cluster.wait(millis(1));
    assert_eq!(cluster.generation(), Generation(2));
}

/// The agent of node 3 and its ranks are gone, and a rank beside them lost its connection.
#[test]
fn a_node_without_a_session_beside_a_failed_rank_counts_as_lost_early() {
    let mut cluster = Cluster::new(policy(RULES));
    cluster.submit(3);
    cluster.wait(millis(5_000));
    cluster.obey();
    cluster.obey();
    for rank in 0..8 {
        cluster.progress(rank, 40);
    }
    cluster.loses_session(3);
    cluster.rank_says(1, exit(ProcessExit::Code(1), false), Vec::new());
    cluster.wait(millis(250));
    assert_eq!(cluster.stopped(), nodes(&[0, 1, 2]), "the others are ended");
    for number in [0, 1, 2] {
        cluster.reports_stopped(number, &[]);
    }
    cluster.wait(millis(749));
    assert!(!cluster.is_lost(3));
    cluster.wait(millis(1));
    assert!(cluster.is_lost(3));
    cluster.wait(millis(600));
    assert_eq!(cluster.generation(), Generation(2));
    assert_eq!(cluster.state.jobs()[&job()].nodes(), nodes(&[0, 1, 2]));
    let blamed = &cluster.cases()[0].verdict.blamed;
    assert_eq!(blamed.node(), Some(&node(3)), "{blamed}");
}

#[test]
fn an_ended_session_alone_ends_no_rank_and_loses_no_node() {
    let mut cluster = Cluster::running(policy(RULES));
    cluster.loses_session(3);
    cluster.wait(millis(4_000));
    assert!(!cluster.is_lost(3));
    assert_eq!(cluster.stopped(), []);
}

/// A node that returns in time still runs ranks of the failed generation.
#[test]
fn a_node_that_returns_in_time_ends_its_ranks() {
    let mut cluster = Cluster::running(policy(RULES));
    cluster.loses_session(3);
    cluster.rank_says(1, exit(ProcessExit::Code(1), false), Vec::new());
    cluster.wait(millis(500));
    cluster.orders.clear();
    let known = cluster.state.fleet().get(&node(3)).expect("it joined").info.clone();
    let info = NodeInfo {
        running: cluster.running_on(3),
        ..known
    };
    cluster.tell(Event::NodeJoined { info });
    assert_eq!(cluster.stopped(), nodes(&[3]));
    cluster.wait(millis(600));
    assert!(!cluster.is_lost(3));
}

/// A restart of the controller between the failure and the verdict loses neither the order nor the deadline.
#[test]
fn a_controller_that_restarts_goes_on_where_it_was() {
    let mut cluster = Cluster::running(policy(RULES));
    cluster.rank_says(1, exit(ProcessExit::Signal(9), false), Vec::new());
    let text = serde_json::to_string(&cluster.state).expect("JSON");
    cluster.state = serde_json::from_str(&text).expect("the same state");
    cluster.tell(Event::ControllerStarted);
    cluster.wait(millis(250));
    assert_eq!(cluster.stopped(), nodes(&ALL));
    let text = serde_json::to_string(&cluster.state).expect("JSON");
    assert_eq!(
        serde_json::from_str::<rankguard_core::DecisionState>(&text).ok(),
        Some(cluster.state)
    );
}

/// The program reports why it cannot go on, and its end is reported after the verdict.
#[test]
fn the_case_of_a_rank_that_ends_after_a_verdict_names_the_case_before() {
    let mut cluster = Cluster::running(Policy::default());
    let mark = Classification {
        class: ClassId::from("storage-io-error"),
        role: Role::Root,
        confidence: 0.95,
        signature: "checkpoint.unreadable".into(),
        fields: FieldValues::new(),
    };
    let text = "the checkpoint of step 40 cannot be loaded: input/output error".to_owned();
    let line = EvidenceBody::Line {
        text,
        context: Vec::new(),
        repeats: 1,
    };
    let entity = Entity::Rank {
        job: job(),
        generation: cluster.generation(),
        rank: Rank(3),
        node: node(1),
    };
    cluster.report(node(1), EvidenceSource::Checkpoint, entity, line, vec![mark]);
    cluster.wait(Duration::from_secs(10));
    let outcome = cluster.cases()[0].outcome.clone().expect("an outcome");
    assert_eq!(outcome, "every rank of the job was alive, so nothing was restarted");
    cluster.exits(3, ProcessExit::Code(1), false);
    cluster.wait(Duration::from_secs(10));
    let cases = cluster.cases();
    assert_eq!(cases.len(), 2, "{cases:#?}");
    assert_eq!(cases[1].verdict.first_cause, cases[0].verdict.first_cause);
    let texts: Vec<&str> = cases[1].reasoning.iter().map(|entry| entry.text.as_str()).collect();
    let named = "Case 1 has the same first cause: it was concluded before the ends of ranks were reported.";
    assert!(texts.contains(&named), "{texts:#?}");
}
