//! Nodes that return are fenced before they take work (RG-3), and verdicts cordon within a budget over live nodes
//! (RG-6).

use std::time::Duration;

use rankguard_core::{DecisionState, Event, Policy, step};
use rankguard_model::{
    AgentOrder, CaseState, ClassId, Classification, Entity, EvidenceBody, EvidenceSource, Generation, JobId, NodeId,
    NodeInfo, NodeState, Role, UnconfirmedNode,
};

use crate::cluster::{Cluster, agent_info, job, node, running_rank};

/// Returns the join of an agent that was cut off or frozen and still runs these ranks.
fn info(name: &NodeId, incarnation: &str, running: &[(&str, u64, u32)]) -> NodeInfo {
    let running = running.iter();
    NodeInfo {
        running: running
            .map(|(job, generation, rank)| running_rank(job, *generation, *rank))
            .collect(),
        lease_ms: 30_000,
        ..agent_info(name, incarnation)
    }
}

impl Cluster {
    /// Loses a GPU of a node, and waits for the verdict.
    fn gpu_loss_is_concluded(&mut self, name: &NodeId) {
        self.gpu_is_lost(name);
        self.wait(Duration::from_secs(10));
    }

    fn rejoins(&mut self, number: u32, running: &[(&str, u64, u32)]) {
        let info = info(&node(number), "1", running);
        self.tell(Event::NodeJoined { info });
    }

    /// Returns the fences among the orders to a node.
    fn fences(&self, number: u32) -> Vec<(String, u64)> {
        let fence = |(at, order): &(NodeId, AgentOrder)| match order {
            AgentOrder::Fence { job, generation, .. } if *at == node(number) => Some((job.to_string(), generation.0)),
            _ => None,
        };
        self.orders.iter().filter_map(fence).collect()
    }

    fn answers_fence(&mut self, number: u32, name: &str, generation: u64, left: &[&str]) {
        let body = EvidenceBody::Fenced {
            job: JobId::from(name),
            generation: Generation(generation),
            master_port: None,
            ended: 2,
            left: left.iter().map(|text| (*text).to_owned()).collect(),
        };
        let node = node(number);
        self.report(
            node.clone(),
            EvidenceSource::Agent,
            Entity::Node { node },
            body,
            Vec::new(),
        );
    }

    fn unconfirmed(&self) -> Vec<UnconfirmedNode> {
        self.state.status(self.now).jobs[0].unconfirmed.clone()
    }
}

/// Node 3 is away until the job continues without it.
fn moved_on() -> Cluster {
    let mut cluster = Cluster::checkpointed(Policy::default(), rankguard_model::CheckpointTiers::default());
    cluster.falls_silent(3);
    cluster.wait(Duration::from_secs(5));
    assert_eq!(cluster.generation(), Generation(2), "{:?}", cluster.announced);
    cluster.orders.clear();
    cluster
}

#[test]
fn rg_3_a_node_that_returns_with_old_ranks_is_fenced_before_it_takes_work() {
    let mut cluster = moved_on();
    cluster.rejoins(3, &[("llm", 1, 6), ("llm", 1, 7)]);
    assert_eq!(cluster.node_state(3), NodeState::Fencing);
    assert_eq!(cluster.fences(3), [("llm".to_owned(), 2)]);
    let reason = cluster.state.status(cluster.now).nodes[3].reason.clone();
    assert!(reason.is_some_and(|reason| reason.contains("job llm below generation 2")));
    cluster.answers_fence(3, "llm", 1, &[]);
    assert_eq!(cluster.node_state(3), NodeState::Fencing, "an answer to an older fence");
    cluster.answers_fence(3, "llm", 2, &[]);
    assert_eq!(cluster.node_state(3), NodeState::Healthy);
    let noted = cluster.cases().iter().any(|case| {
        let mut notes = case.actions.iter();
        notes.any(|note| note.text == "node node-3 ended 2 processes of job llm below generation 2")
    });
    assert!(noted, "{:#?}", cluster.cases());
}

/// The report may be empty or false: the recorded placements count as well.
#[test]
fn rg_3_a_node_that_returns_and_reports_nothing_is_fenced_too() {
    let mut cluster = moved_on();
    cluster.rejoins(3, &[]);
    assert_eq!(cluster.node_state(3), NodeState::Fencing);
    assert_eq!(cluster.fences(3), [("llm".to_owned(), 2)]);
}

/// Under older rules; newer ones are tested in `walk.rs`.
#[test]
fn rg_3_ranks_of_an_unknown_job_are_ended() {
    let policy = Policy {
        rules: 4,
        ..Policy::default()
    };
    let mut cluster = Cluster::new(policy);
    cluster.rejoins(0, &[("foreign", 6, 0)]);
    assert_eq!(cluster.fences(0), [("foreign".to_owned(), 7)]);
    cluster.submit(4);
    cluster.wait(Duration::from_secs(6));
    assert_eq!(cluster.generation(), Generation(0), "it waits for node 0");
    cluster.answers_fence(0, "foreign", 7, &[]);
    assert_eq!(cluster.generation(), Generation(1));
}

#[test]
fn rg_3_ranks_where_the_plan_places_them_live_on() {
    let mut cluster = Cluster::running(Policy::default());
    cluster.orders.clear();
    cluster.rejoins(1, &[("llm", 1, 2), ("llm", 1, 3)]);
    assert_eq!((cluster.node_state(1), cluster.fences(1)), (NodeState::Healthy, vec![]));
    // A rank in the place of another node is not where the plan has it.
    cluster.rejoins(1, &[("llm", 1, 0)]);
    assert_eq!(cluster.fences(1), [("llm".to_owned(), 2)]);
}

#[test]
fn rg_9_an_answer_that_does_not_come_keeps_the_node_out_of_use_and_is_asked_for_again() {
    let mut cluster = moved_on();
    cluster.rejoins(3, &[]);
    cluster.orders.clear();
    cluster.wait(Duration::from_secs(16));
    assert_eq!(cluster.fences(3), [("llm".to_owned(), 2)]);
    let told = |cluster: &Cluster| {
        let told = cluster.announced.iter();
        told.filter(|text| text.contains("node node-3 has not confirmed"))
            .count()
    };
    assert_eq!(told(&cluster), 1, "{:?}", cluster.announced);
    cluster.wait(Duration::from_secs(61));
    assert_eq!(cluster.fences(3).len(), 2, "asked again");
    assert_eq!(told(&cluster), 1, "announced once");
    cluster.answers_fence(3, "llm", 2, &["pid 77 of rank 6"]);
    assert_eq!(cluster.node_state(3), NodeState::Fencing);
    let [left] = &cluster.unconfirmed()[..] else {
        panic!("{:?}", cluster.unconfirmed())
    };
    assert_eq!(left.left, ["pid 77 of rank 6"]);
    cluster.answers_fence(3, "llm", 2, &[]);
    assert_eq!(cluster.unconfirmed(), []);
}

#[test]
fn a_cancelled_job_names_the_nodes_whose_ranks_are_not_known_to_have_ended() {
    let mut cluster = Cluster::running(Policy::default());
    cluster.rejoins(2, &[("llm", 1, 4), ("llm", 1, 5)]);
    cluster.falls_silent(2);
    cluster.orders.clear();
    cluster.tell(Event::JobCancelled { job: job(), by: None });
    assert_eq!(cluster.unconfirmed().len(), 4);
    assert!((0..4).all(|number| cluster.node_state(number) != NodeState::Healthy));
    cluster.orders.retain(|(at, _)| *at != node(2));
    cluster.obey();
    let [away] = &cluster.unconfirmed()[..] else {
        panic!("{:?}", cluster.unconfirmed())
    };
    assert_eq!((away.node.clone(), away.state), (node(2), NodeState::Lost));
    assert!(
        away.reason.contains("its ranks end within its lease of 30 s"),
        "{}",
        away.reason
    );
    assert!(!away.is_lease_over);
    let away = away.clone();
    let lease = Duration::from_secs(30);
    // The lease counts from the last message, which is older than the loss.
    cluster.wait(lease + Duration::from_millis(1));
    let [over] = &cluster.unconfirmed()[..] else {
        panic!("{:?}", cluster.unconfirmed())
    };
    let (since, _) = away
        .reason
        .strip_prefix("away since ")
        .and_then(|text| text.split_once(';'))
        .expect("a time");
    assert!(
        over.reason
            .starts_with(&format!("away since {since}; its lease of 30 s ended at 20"))
            && !over.is_lease_over,
        "{}",
        over.reason
    );
    cluster.wait(Duration::from_secs(16));
    assert!(
        cluster.unconfirmed()[0].is_lease_over,
        "30 s of lease and 15 s of fence_ms"
    );
    cluster.rejoins(2, &[("llm", 1, 4)]);
    assert_eq!(cluster.fences(2), [("llm".to_owned(), 2)]);
    cluster.obey();
    assert_eq!(cluster.unconfirmed(), []);
    assert_eq!(cluster.node_state(2), NodeState::Healthy);
}

/// Journals from before nodes were fenced contain no answers: their replay repeats the decisions of that time.
#[test]
fn a_replay_under_older_rules_asks_for_no_fence_until_newer_ones_are_adopted() {
    let policy: Policy = serde_json::from_str("{}").expect("a policy of before");
    let mut cluster = Cluster::running(policy);
    cluster.tell(Event::JobCancelled { job: job(), by: None });
    assert_eq!(cluster.node_state(0), NodeState::Healthy);
    cluster.tell(Event::RulesAdopted {
        rules: rankguard_core::RULES,
    });
    cluster.rejoins(0, &[("llm", 1, 0)]);
    assert_eq!(cluster.node_state(0), NodeState::Fencing);
}

/// Node 1's agent ends the ranks of a generation because its lease expired.
fn lease_ends(cluster: &mut Cluster, generation: u64) {
    let fields = [("job", "llm".to_owned()), ("generation", generation.to_string())];
    let mark = Classification {
        class: ClassId::from("node-agent-silent"),
        role: Role::Confirmation,
        confidence: 0.9,
        signature: rankguard_model::LEASE_SIGNATURE.into(),
        fields: fields.into(),
    };
    let body = EvidenceBody::Line {
        text: "the lease of 30 s is over".to_owned(),
        context: Vec::new(),
        repeats: 1,
    };
    let entity = Entity::Node { node: node(1) };
    cluster.report(node(1), EvidenceSource::Agent, entity, body, vec![mark]);
}

/// The controller was down when the lease expired: the end is a separate failure, and cordons no node.
#[test]
fn ranks_that_a_lease_ended_are_a_case_and_the_job_restarts() {
    let mut cluster = Cluster::running(Policy::default());
    lease_ends(&mut cluster, 1);
    for rank in [2, 3] {
        let exit = rankguard_model::ProcessExit::Signal(9);
        cluster.rank_says(
            rank,
            EvidenceBody::RankExited {
                pid: rank,
                exit,
                ended_by_agent: false,
            },
            Vec::new(),
        );
    }
    cluster.wait(Duration::from_secs(10));
    assert_eq!(cluster.generation(), Generation(2));
    assert_eq!(cluster.state.fleet().cordoned(), 0);
    let told = cluster.cases()[0]
        .findings
        .iter()
        .any(|finding| finding.text.contains("the lease of 30 s is over"));
    assert!(told, "{:#?}", cluster.cases());
}

#[test]
fn a_lease_that_ended_after_the_job_moved_on_extends_the_case_of_that_failure() {
    let mut cluster = Cluster::checkpointed(Policy::default(), rankguard_model::CheckpointTiers::default());
    cluster.falls_silent(1);
    cluster.wait(Duration::from_secs(5));
    let generation = cluster.generation();
    let cases = cluster.cases().len();
    cluster.rejoins(1, &[]);
    lease_ends(&mut cluster, 1);
    cluster.wait(Duration::from_secs(5));
    assert_eq!((cluster.generation(), cluster.cases().len()), (generation, cases));
    let noted = cluster.cases()[0]
        .actions
        .iter()
        .any(|note| note.text.contains("node node-1: the lease of 30 s is over"));
    assert!(noted, "{:#?}", cluster.cases());
}

/// Joins nodes with these names.
fn join(cluster: &mut Cluster, names: impl IntoIterator<Item = String>) -> Vec<NodeId> {
    let names: Vec<NodeId> = names.into_iter().map(NodeId::from).collect();
    for name in &names {
        let info = info(name, "1", &[]);
        cluster.tell(Event::NodeJoined { info });
    }
    names
}

fn depart(cluster: &mut Cluster, names: &[NodeId]) {
    for name in names {
        let last_heard = cluster.now;
        cluster.tell(Event::NodeFellSilent {
            node: name.clone(),
            last_heard,
        });
    }
}

#[test]
fn rg_6_departed_names_widen_no_budget() {
    let mut cluster = Cluster::new(Policy::default());
    let departed = join(&mut cluster, (0..40).map(|number| format!("old-{number}")));
    depart(&mut cluster, &departed);
    cluster.falls_silent(3);
    for number in 0..3 {
        cluster.gpu_loss_is_concluded(&node(number));
    }
    assert_eq!(cluster.state.fleet().cordoned(), 1);
    let refused = cluster.cases().into_iter().filter(|case| {
        let mut notes = case.actions.iter();
        case.state == CaseState::Closed && notes.any(|note| note.text.contains("a person must decide"))
    });
    assert_eq!(refused.count(), 2, "{:#?}", cluster.cases());
}

#[test]
fn a_faulty_node_in_use_is_shown_with_its_case_until_an_operator_decides() {
    let mut cluster = Cluster::new(Policy::default());
    for number in 0..3 {
        cluster.gpu_loss_is_concluded(&node(number));
    }
    let view = |cluster: &Cluster, number: u32| {
        let status = cluster.state.status(cluster.now);
        let found = status.nodes.iter().find(|view| view.node == node(number)).cloned();
        (found.expect("it joined"), status.open_cases)
    };
    let (faulty, open) = view(&cluster, 1);
    let case = faulty.faulty_in_use.expect("its GPU is lost");
    let reason = faulty.reason.unwrap_or_default();
    assert!(
        reason.starts_with(&format!("in use although faulty, case {case}: gpu-")) && reason.contains("1 may be"),
        "{reason}"
    );
    let other = view(&cluster, 2).0.faulty_in_use.expect("its GPU is lost");
    assert_eq!(open, [case, other]);
    // A second fault of the node refers to the case that awaits the decision.
    cluster.wait(Duration::from_secs(700));
    let cases = cluster.cases().len();
    cluster.gpu_loss_is_concluded(&node(1));
    assert_eq!(cluster.cases().len(), cases + 1);
    assert_eq!(view(&cluster, 1).0.faulty_in_use, Some(case));
    assert_eq!(view(&cluster, 1).1, [case, other]);
    // A rejoin of the agent repairs nothing.
    cluster.rejoins(1, &[]);
    assert_eq!(view(&cluster, 1).0.faulty_in_use, Some(case));

    cluster.tell(Event::NodeUncordoned { node: node(1) });
    assert_eq!(
        (view(&cluster, 1).0.faulty_in_use, view(&cluster, 1).0.reason),
        (None, None)
    );
    assert_eq!(view(&cluster, 1).1, [other]);
    cluster.tell(Event::NodeCordoned {
        node: node(2),
        reason: "GPU to be replaced".to_owned(),
    });
    let (cordoned, open) = view(&cluster, 2);
    assert_eq!((cordoned.faulty_in_use, open), (None, vec![]));
    assert_eq!(cordoned.reason.as_deref(), Some("GPU to be replaced"));
    let case = cluster
        .cases()
        .into_iter()
        .find(|case| case.id == other)
        .expect("it is there");
    assert!(
        case.actions
            .iter()
            .any(|note| note.text == "an operator cordoned node node-2"),
        "{case:#?}"
    );
}

#[test]
fn rg_6_an_operators_cordon_counts() {
    let mut cluster = Cluster::new(Policy::default());
    cluster.tell(Event::NodeCordoned {
        node: node(0),
        reason: "new fan".to_owned(),
    });
    cluster.gpu_loss_is_concluded(&node(1));
    assert_eq!(cluster.state.fleet().cordoned_by_verdict(), 0);
}

#[test]
fn an_operators_reason_joins_that_of_a_verdict_and_widens_no_budget() {
    let mut cluster = Cluster::new(Policy::default());
    cluster.gpu_loss_is_concluded(&node(0));
    let before = cluster.state.fleet().clone();
    let standing = before
        .get(&node(0))
        .and_then(|node| node.cordon.clone())
        .expect("a verdict cordons it");
    assert!(standing.case.is_some(), "{standing:?}");
    cluster.tell(Event::NodeCordoned {
        node: node(0),
        reason: "new fan".to_owned(),
    });
    let after = cluster.state.fleet();
    let cordon = after
        .get(&node(0))
        .and_then(|node| node.cordon.clone())
        .expect("it stands");
    assert_eq!(cordon.reason, format!("new fan; {}", standing.reason));
    assert_eq!((cordon.since, cordon.case), (standing.since, standing.case));
    let window = 86_400_000;
    let now = cluster.now;
    assert_eq!(after.recent_cordons(now, window), before.recent_cordons(now, window));
    assert_eq!(after.cordoned_by_verdict(), before.cordoned_by_verdict());
    for _ in 0..2 {
        cluster.tell(Event::NodeDrained {
            node: node(0),
            reason: "drained by hand".to_owned(),
        });
    }
    let cordon = cluster.state.fleet().get(&node(0)).and_then(|node| node.cordon.clone());
    let reason = cordon.map(|cordon| cordon.reason);
    let expect = format!("drained by hand; new fan; {}", standing.reason);
    assert_eq!(reason, Some(expect), "a drain overwrites no reason");
}

/// Nodes that are cordoned, depart and return under other names free no budget.
#[test]
fn rg_6_churning_names_are_cordoned_within_the_share_of_live_nodes() {
    let mut cluster = Cluster::new(Policy::default());
    let steady = join(&mut cluster, (0..26).map(|number| format!("steady-{number:02}")));
    assert_eq!(steady.len() + 4, cluster.state.fleet().live());
    for round in 0..20 {
        let names = join(&mut cluster, [format!("churn-{round}")]);
        cluster.gpu_loss_is_concluded(&names[0]);
        depart(&mut cluster, &names);
        cluster.wait(Duration::from_secs(3_600));
        let cordoned = cluster.state.fleet().cordoned();
        let live = cluster.state.fleet().live();
        assert!(
            cordoned <= (live / 10).max(1),
            "{cordoned} of {live} live in round {round}"
        );
    }
    assert!(cluster.state.fleet().cordoned() >= 1);
}

#[test]
fn rg_6_nodes_that_are_given_back_do_not_reset_the_rate() {
    let mut cluster = Cluster::new(Policy::default());
    cluster.gpu_loss_is_concluded(&node(0));
    cluster.tell(Event::NodeUncordoned { node: node(0) });
    cluster.gpu_loss_is_concluded(&node(1));
    assert_eq!(cluster.state.fleet().cordoned(), 0, "the second within ten minutes");
    cluster.wait(Duration::from_secs(600));
    cluster.gpu_loss_is_concluded(&node(2));
    assert_eq!(cluster.state.fleet().cordoned(), 1);
}

#[test]
fn names_that_departed_long_ago_are_forgotten_unless_they_are_cordoned_or_serve_a_job() {
    let mut cluster = Cluster::new(Policy::default());
    let departed = join(&mut cluster, ["gone".to_owned(), "broken".to_owned()]);
    cluster.tell(Event::NodeCordoned {
        node: departed[1].clone(),
        reason: "fan".to_owned(),
    });
    depart(&mut cluster, &departed);
    cluster.wait(Duration::from_secs(6 * 86_400));
    assert!(cluster.state.fleet().get(&departed[0]).is_some());
    cluster.wait(Duration::from_secs(2 * 86_400));
    assert!(cluster.state.fleet().get(&departed[0]).is_none());
    assert!(cluster.state.fleet().get(&departed[1]).is_some());
    // The node may return as a new one.
    let again = join(&mut cluster, ["gone".to_owned()]);
    assert!(cluster.state.fleet().is_live(&again[0]));
}

/// RG-5: a replayed state requests the same fences.
#[test]
fn fences_survive_a_restart_of_the_controller() {
    let mut cluster = moved_on();
    cluster.rejoins(3, &[]);
    let fences = |state: &DecisionState| -> Vec<_> {
        let nodes = state.fleet().iter();
        nodes.map(|(_, node)| (node.state(), node.fences.clone())).collect()
    };
    let before = fences(&cluster.state);
    let started = rankguard_core::StampedEvent {
        at: cluster.now,
        event: Event::ControllerStarted,
    };
    let actions = step(&mut cluster.state, &started);
    assert!(!actions.is_empty());
    assert_eq!(before, fences(&cluster.state));
    cluster.orders.clear();
    cluster.rejoins(3, &[]);
    assert_eq!(cluster.fences(3), [("llm".to_owned(), 2)]);
}
