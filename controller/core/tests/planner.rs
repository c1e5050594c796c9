//! Recovery by cost: choices of live jobs, their records, waits for nodes, and the delay of growth.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use rankguard_core::{Event, JobPhase, Plan, PlanKind, Policy, StampedEvent, step};
use rankguard_model::{
    Case, ClassId, Classification, Device, DeviceKind, Entity, EvidenceBody, EvidenceSource, FieldValues, Generation,
    JobId, JobSpec, JobState, NodeId, NodeRange, OptionOutcome, RecoveryKind, Role,
};

use crate::cluster::{Cluster, agent_info, node};

/// Rules before costs.
const OLDER: u32 = 7;

fn older() -> Policy {
    Policy {
        rules: OLDER,
        ..Policy::default()
    }
}

impl Cluster {
    fn steps(&mut self, step: u64) {
        let ranks = self.job().nodes().len() as u32 * 2;
        for rank in 0..ranks {
            self.progress(rank, step);
        }
    }

    fn last_case(&self) -> &Case {
        self.cases().pop().expect("there is a case")
    }

    fn plan_nodes(&self) -> Vec<NodeId> {
        self.job().nodes().to_vec()
    }
}

fn outcome(case: &Case, kind: RecoveryKind) -> (OptionOutcome, String) {
    let choice = case.recovery.as_ref().expect("options were compared");
    let option = choice.options.iter().find(|option| option.kind == kind);
    let option = option.expect("every kind is listed");
    (option.outcome, option.reason.clone())
}

fn nodes(numbers: &[u32]) -> Vec<NodeId> {
    numbers.iter().map(|number| node(*number)).collect()
}

/// A job on all four nodes with a start that took 100 s. A node has been away three times before, 20 s each.
fn with_measured_returns(policy: Policy) -> Cluster {
    let mut cluster = Cluster::new(policy);
    for boot in 0..3 {
        cluster.falls_silent(3);
        cluster.wait(Duration::from_secs(20));
        cluster.joins(3, &format!("earlier-{boot}"), &[]);
    }
    cluster.submit(2);
    cluster.restarts();
    cluster.wait(Duration::from_secs(100));
    cluster.steps(40);
    assert_eq!(cluster.job().state(), JobState::Running);
    cluster.falls_silent(3);
    cluster.wait(Duration::from_secs(5));
    cluster
}

#[test]
fn the_options_of_a_lost_node_are_recorded_in_plan_and_case() {
    let mut cluster = Cluster::new(Policy::default());
    cluster.submit(2);
    cluster.restarts();
    cluster.steps(40);
    cluster.falls_silent(3);
    cluster.wait(Duration::from_secs(5));
    let case = cluster.last_case().clone();
    let (wait, why) = outcome(&case, RecoveryKind::Wait);
    assert_eq!(
        (wait, why.as_str()),
        (
            OptionOutcome::Unavailable,
            "0 returns of nodes have been measured, and a wait needs 3"
        )
    );
    assert_eq!(outcome(&case, RecoveryKind::Shrink).0, OptionOutcome::Chosen);
    assert_eq!(outcome(&case, RecoveryKind::SwapSpare).0, OptionOutcome::Unavailable);
    let choice = case.recovery.as_ref().expect("options were compared");
    let absence = choice
        .inputs
        .iter()
        .find(|input| input.name == "return of the lost nodes");
    assert!(absence.is_some_and(|input| input.assumed), "{choice:#?}");
    let plan = cluster.job().plan().expect("the job restarts");
    assert_eq!((plan.kind, plan.choice.as_ref()), (PlanKind::Shrink, Some(choice)));
    // The prediction can be compared with what followed.
    cluster.restarts();
    cluster.steps(41);
    let case = cluster.last_case();
    let restart = case.restart_ms().expect("it made a step");
    assert!(restart >= 0 && case.recovery.as_ref().is_some_and(|choice| choice.restart_ms.is_some()));
}

#[test]
fn older_rules_record_no_options_and_start_at_once() {
    let cluster = with_measured_returns(older());
    assert_eq!(cluster.last_case().recovery, None);
    assert_eq!(cluster.generation(), Generation(2));
    assert_eq!(cluster.plan_nodes(), nodes(&[0, 1, 2]));
    let text = serde_json::to_string(&cluster.state).expect("a state can be written");
    for field in [
        "\"absences\"",
        "\"restarts\"",
        "\"shrinks\"",
        "\"planned_wait\"",
        "\"choice\"",
    ] {
        assert!(!text.contains(field), "{field} is in the state");
    }
}

#[test]
fn a_node_that_usually_returns_soon_is_awaited_and_the_job_keeps_its_size() {
    let mut cluster = with_measured_returns(Policy::default());
    let case = cluster.last_case().clone();
    assert_eq!(outcome(&case, RecoveryKind::Wait).0, OptionOutcome::Chosen, "{case:#?}");
    assert_eq!(outcome(&case, RecoveryKind::Shrink).0, OptionOutcome::Costlier);
    let JobPhase::Pending { missing, .. } = cluster.job().phase() else {
        panic!("{:?}", cluster.job().phase());
    };
    assert!(missing.contains("at most for the return of node-3"), "{missing}");
    cluster.wait(Duration::from_secs(5));
    cluster.joins(3, "later", &[]);
    assert_eq!(cluster.generation(), Generation(2));
    assert_eq!(cluster.plan_nodes(), nodes(&[0, 1, 2, 3]));
    let plan = cluster.job().plan().expect("the job restarts");
    assert_eq!(plan.case, Some(case.id), "it counts as a restart for the case");
    assert_eq!(plan.kind, PlanKind::RestartInPlace);
}

/// The cost of the wait counts on the nodes that are left.
#[test]
fn a_job_that_awaits_a_node_keeps_its_other_nodes() {
    let mut cluster = with_measured_returns(Policy::default());
    let spec = JobSpec {
        id: "other".into(),
        nodes: NodeRange { min: 1, max: 1 },
        ..cluster.spec(1, None)
    };
    cluster.tell(Event::JobSubmitted { spec, claim: None });
    assert!(cluster.state.jobs()[&JobId::from("other")].is_pending());
    cluster.joins(3, "later", &[]);
    assert_eq!(cluster.plan_nodes(), nodes(&[0, 1, 2, 3]));
}

/// RG-9: the wait has a deadline, and the plan at its end does not wait again.
#[test]
fn a_node_that_does_not_return_in_time_is_left_out() {
    let mut cluster = with_measured_returns(Policy::default());
    cluster.wait(Duration::from_secs(20));
    assert_eq!(cluster.generation(), Generation(2));
    assert_eq!(cluster.plan_nodes(), nodes(&[0, 1, 2]));
    let case = cluster.last_case();
    assert_eq!(
        outcome(case, RecoveryKind::Wait),
        (
            OptionOutcome::Unavailable,
            "the job has waited for this failure already".to_owned()
        )
    );
    assert_eq!(case.plan, cluster.job().plan().map(|plan| plan.id));
}

/// RG-9: a job that cannot start at the end of its wait goes on waiting, with another deadline.
#[test]
fn a_job_without_usable_nodes_at_the_end_of_its_wait_has_a_deadline() {
    let mut cluster = with_measured_returns(Policy::default());
    for number in 0..3 {
        cluster.tell(Event::NodeCordoned {
            node: node(number),
            reason: "maintenance".to_owned(),
        });
    }
    cluster.wait(Duration::from_secs(20));
    assert!(cluster.job().is_pending(), "{:?}", cluster.job().phase());
    assert!(
        cluster.job().deadline() > Some(cluster.now),
        "{:?}",
        cluster.job().deadline()
    );
}

/// RG-8: a state that is written during the wait goes on alike.
#[test]
fn a_wait_survives_a_restart_of_the_controller() {
    let mut cluster = with_measured_returns(Policy::default());
    let text = serde_json::to_string(&cluster.state).expect("a state can be written");
    let again = serde_json::from_str(&text).expect("a state can be read");
    assert!(cluster.state == again, "it reads back as another state");
    cluster.state = again;
    cluster.wait(Duration::from_secs(20));
    assert_eq!(cluster.plan_nodes(), nodes(&[0, 1, 2]));
}

/// The cordon limit is used up by the node of an operator, so that the faulty node may not be cordoned (RG-6).
fn beyond_the_cordon_limit(policy: Policy) -> Cluster {
    let mut cluster = Cluster::new(policy);
    cluster.joins(4, "1", &[]);
    cluster.tell(Event::NodeCordoned {
        node: node(4),
        reason: "repair".to_owned(),
    });
    let spec = JobSpec {
        nodes: NodeRange { min: 2, max: 3 },
        ..cluster.spec(2, None)
    };
    cluster.tell(Event::JobSubmitted { spec, claim: None });
    cluster.restarts();
    cluster.steps(40);
    assert_eq!(cluster.plan_nodes(), nodes(&[0, 1, 2]));
    cluster.gpu_is_lost(&node(2));
    cluster.rank_says(
        4,
        EvidenceBody::RankExited {
            pid: 4,
            exit: rankguard_model::ProcessExit::Code(1),
            ended_by_agent: false,
        },
        Vec::new(),
    );
    cluster.wait(Duration::from_secs(5));
    assert!(
        cluster
            .state
            .fleet()
            .get(&node(2))
            .is_some_and(|node| node.cordon.is_none())
    );
    assert_eq!(cluster.generation(), Generation(2));
    cluster
}

#[test]
fn a_free_spare_replaces_a_faulty_node_that_may_not_be_cordoned() {
    let cluster = beyond_the_cordon_limit(Policy::default());
    assert_eq!(cluster.plan_nodes(), nodes(&[0, 1, 3]));
    let case = cluster.last_case();
    assert_eq!(
        outcome(case, RecoveryKind::SwapSpare).0,
        OptionOutcome::Chosen,
        "{case:#?}"
    );
    assert_eq!(outcome(case, RecoveryKind::RestartInPlace).0, OptionOutcome::Costlier);
    let old = beyond_the_cordon_limit(older());
    assert_eq!(old.plan_nodes(), nodes(&[0, 1, 2]), "the old rules hold");
}

/// The link of an adapter goes down, the rank there ends, and the link stays down or comes up again before the verdict.
fn with_a_lost_link(policy: Policy, is_up_again: bool) -> Cluster {
    let mut cluster = Cluster::new(policy);
    let spec = JobSpec {
        nodes: NodeRange { min: 2, max: 3 },
        ..cluster.spec(2, None)
    };
    cluster.tell(Event::JobSubmitted { spec, claim: None });
    cluster.restarts();
    cluster.steps(40);
    assert_eq!(cluster.plan_nodes(), nodes(&[0, 1, 2]));
    link_changes(&mut cluster, 2, false);
    let ended = EvidenceBody::RankExited {
        pid: 4,
        exit: rankguard_model::ProcessExit::Code(1),
        ended_by_agent: false,
    };
    cluster.rank_says(4, ended, Vec::new());
    if is_up_again {
        link_changes(&mut cluster, 2, true);
    }
    cluster.wait(Duration::from_secs(5));
    assert_eq!(cluster.generation(), Generation(2), "{:#?}", cluster.last_case());
    cluster
}

fn link_changes(cluster: &mut Cluster, number: u32, is_up: bool) {
    let (text, class, role) = if is_up {
        ("Link up", "none", Role::Noise)
    } else {
        ("Link down", "nic-link-down", Role::Root)
    };
    let mark = Classification {
        class: ClassId::from(class),
        signature: if is_up { "nic-link-up" } else { "nic-link-down" }.into(),
        role,
        confidence: 0.9,
        fields: FieldValues::new(),
    };
    let link = Entity::Device {
        node: node(number),
        device: Device {
            kind: DeviceKind::Nic,
            address: "ens1f0".to_owned(),
        },
    };
    let text = EvidenceBody::Line {
        text: format!("mlx5_core 0000:5e:00.0 ens1f0: {text}"),
        context: Vec::new(),
        repeats: 1,
    };
    cluster.report(node(number), EvidenceSource::KernelLog, link, text, vec![mark]);
}

#[test]
fn a_free_spare_replaces_a_node_with_a_link_that_ended_ranks_and_is_down() {
    let cluster = with_a_lost_link(Policy::default(), false);
    let case = cluster.last_case();
    assert_eq!(case.verdict.class.as_str(), "nic-link-down", "{case:#?}");
    assert_eq!(cluster.plan_nodes(), nodes(&[0, 1, 3]), "{case:#?}");
    assert_eq!(outcome(case, RecoveryKind::SwapSpare).0, OptionOutcome::Chosen);
    // A link that is up again is no reason to leave.
    let cluster = with_a_lost_link(Policy::default(), true);
    assert_eq!(cluster.plan_nodes(), nodes(&[0, 1, 2]), "{:#?}", cluster.last_case());
    let old = with_a_lost_link(older(), false);
    assert_eq!(old.plan_nodes(), nodes(&[0, 1, 2]), "the old rules hold");
}

/// Both nodes with faults leave in one plan.
#[test]
fn several_faulty_nodes_leave_together() {
    let mut policy = Policy::default();
    policy.cordon_share.0 = 100;
    let mut cluster = Cluster::new(policy);
    cluster.submit(2);
    cluster.restarts();
    cluster.steps(40);
    for number in [1, 2] {
        cluster.gpu_is_lost(&node(number));
    }
    cluster.wait(Duration::from_secs(5));
    assert_eq!(cluster.generation(), Generation(2));
    assert_eq!(cluster.plan_nodes(), nodes(&[0, 3]));
}

/// What happens to a node.
#[derive(Debug, Clone, Copy)]
enum Change {
    Silence,
    Return,
    Work(u64),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        Just(Change::Silence),
        Just(Change::Return),
        (1_u64..200).prop_map(Change::Work),
    ];
    proptest::collection::vec(change, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Each growth follows the last shrink by `grow_ms`, doubled for each earlier shrink within an hour.
    #[test]
    fn a_node_that_comes_and_goes_does_not_restart_its_job_often(list in changes()) {
        let policy = Policy {
            grow_ms: 10_000,
            ..Policy::default()
        };
        let mut cluster = Cluster::new(policy.clone());
        cluster.submit(2);
        cluster.restarts();
        cluster.steps(1);
        let mut plans: BTreeMap<_, Plan> = BTreeMap::new();
        for (step, change) in list.iter().enumerate() {
            match change {
                Change::Silence => cluster.falls_silent(3),
                Change::Return => cluster.joins(3, &format!("boot-{step}"), &[]),
                Change::Work(seconds) => cluster.wait(Duration::from_secs(*seconds)),
            }
            cluster.restarts();
            if cluster.job().has_started() {
                cluster.steps(step as u64 + 2);
            }
            plans.extend(cluster.state.plans().iter().map(|(id, plan)| (*id, plan.clone())));
        }
        let mut shrinks: Vec<&Plan> = Vec::new();
        for plan in plans.values() {
            let recent = |earlier: &&&Plan| plan.made_at.since(earlier.made_at) < Duration::from_secs(3_600);
            match plan.kind {
                PlanKind::Shrink => shrinks.push(plan),
                PlanKind::Grow => {
                    let recent = shrinks.iter().filter(recent).count();
                    let Some(last) = shrinks.last() else { continue };
                    let doubled = policy.grow_ms << recent.saturating_sub(1);
                    let pause = if recent == 0 { 0 } else { doubled.min(3_600_000) };
                    let since = plan.made_at.since(last.made_at);
                    prop_assert!(since >= Duration::from_millis(pause), "{since:?} after {recent} shrinks");
                }
                _ => {}
            }
        }
    }
}

/// Guards the property above against sequences without any growth.
#[test]
fn a_second_shrink_doubles_the_delay_of_growth() {
    let grows_after = |policy: Policy| {
        let mut cluster = Cluster::new(policy);
        cluster.submit(2);
        cluster.restarts();
        cluster.steps(1);
        let mut step = 1;
        let mut delays = Vec::new();
        for boot in 0..3 {
            cluster.falls_silent(3);
            cluster.wait(Duration::from_secs(5));
            cluster.restarts();
            step += 1;
            cluster.steps(step);
            assert_eq!(cluster.plan_nodes().len(), 3);
            cluster.joins(3, &format!("boot-{boot}"), &[]);
            cluster.restarts();
            let mut seconds = 0;
            while cluster.plan_nodes().len() < 4 {
                cluster.wait(Duration::from_secs(1));
                seconds += 1;
                assert!(seconds < 1_000, "it never grows");
            }
            delays.push(seconds);
            cluster.restarts();
            step += 1;
            cluster.steps(step);
        }
        delays
    };
    // Each shrink follows the loss by at most 5 s.
    let delays = grows_after(Policy::default());
    assert!((25..=30).contains(&delays[0]), "{delays:?}");
    assert!((50..=60).contains(&delays[1]), "{delays:?}");
    assert!((110..=120).contains(&delays[2]), "{delays:?}");
    assert_eq!(grows_after(older()), [30, 30, 30]);
}

/// Prints the time of the event that plans the recovery of a job on 9,990 of 10,000 nodes, under these rules and under
/// those before costs: the difference is the cost of the comparison.
#[test]
#[ignore = "measures a time: `cargo test --release --test core_tests planner:: -- --ignored --nocapture`"]
#[allow(clippy::print_stderr, reason = "it measures a time")]
fn planning_time_on_10_000_nodes() {
    for policy in [older(), Policy::default()] {
        let rules = policy.rules;
        eprintln!("rules {rules}: {:?}", planning_time(policy));
    }
}

#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "it measures a time")]
fn planning_time(policy: Policy) -> Duration {
    let mut cluster = Cluster::new(policy);
    let now = cluster.now;
    let at = |event| StampedEvent { at: now, event };
    for number in 4..10_000 {
        let info = agent_info(&node(number), "1");
        step(&mut cluster.state, &at(Event::NodeJoined { info }));
    }
    let spec = JobSpec {
        nodes: NodeRange { min: 9_000, max: 9_990 },
        ..cluster.spec(2, None)
    };
    step(&mut cluster.state, &at(Event::JobSubmitted { spec, claim: None }));
    let lost = cluster.job().nodes()[5_000].clone();
    let silence = Event::NodeFellSilent {
        node: lost,
        last_heard: now,
    };
    step(&mut cluster.state, &at(silence));
    let mut longest = Duration::ZERO;
    while cluster.generation() < Generation(2) {
        let timers = cluster.state.timers();
        let (timer, due) = timers.iter().min_by_key(|(_, due)| **due).expect("a case settles");
        let (timer, due) = (timer.clone(), *due);
        cluster.now = cluster.now.max(due);
        let event = StampedEvent {
            at: cluster.now,
            event: Event::TimerFired { timer },
        };
        let began = std::time::Instant::now();
        step(&mut cluster.state, &event);
        longest = longest.max(began.elapsed());
    }
    assert_eq!(
        cluster.job().nodes().len(),
        9_990,
        "a spare takes the place of the lost node"
    );
    longest
}
