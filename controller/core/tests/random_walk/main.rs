//! Random sequences of events, plausible or not: every named invariant holds after each of them, the generation of a
//! job never decreases (RG-3), the same events give the same state (RG-8), and events survive serialisation.

mod budgets;
mod cases;
mod moves;
mod steps;
mod walk;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rankguard_core::{AdoptionStage, CheckFinding, DecisionState, Event, StampedEvent, TimerKey, step};
use rankguard_faults::Catalogue;
use rankguard_model::{
    AgentOrder, CaseState, ClassId, Classification, Entity, EvidenceBody, EvidenceSource, Generation, JobState, NodeId,
    NodeState, Rank, Role,
};

use moves::{Move, moves};
use walk::{Walk, job, node, policy};

proptest! {
    #[test]
    fn invariants_hold_on_every_walk(list in moves()) {
        let mut walk = Walk::new();
        for one in &list {
            walk.make(one);
        }
        // The journal restores the state (RG-8), also in its serialised form.
        let mut again = DecisionState::new(policy(), Catalogue::builtin());
        for stamped in &walk.journal {
            let text = serde_json::to_string(stamped).expect("an event can be written");
            let read: StampedEvent = serde_json::from_str(&text).expect("an event can be read");
            prop_assert_eq!(&read, stamped);
            step(&mut again, &read);
        }
        prop_assert!(again == walk.state, "the journal gives another state");
    }

    /// RG-8: a state that was serialised and read again is equal, and decides alike from then on. A journal may begin
    /// with one.
    #[test]
    fn a_state_read_back_at_any_moment_goes_on_as_the_one_that_was_written(list in moves(), cut in 0_usize..100) {
        let mut walk = Walk::new();
        for one in &list {
            walk.make(one);
        }
        let cut = walk.journal.len() * cut / 100;
        let mut state = DecisionState::new(policy(), Catalogue::builtin());
        for stamped in &walk.journal[..cut] {
            step(&mut state, stamped);
        }
        let text = serde_json::to_string(&state).expect("a state can be written");
        let mut again: DecisionState = serde_json::from_str(&text).expect("a state can be read");
        prop_assert!(again == state, "it reads back as another state");
        prop_assert_eq!(serde_json::to_string(&again).expect("it can be written again"), text);
        for stamped in &walk.journal[cut..] {
            prop_assert_eq!(step(&mut again, stamped), step(&mut state, stamped));
            prop_assert!(again == state, "it went another way after {stamped:?}");
        }
    }
}

/// Planted error: the plan checker refuses an invalid plan by name.
#[test]
fn a_plan_on_a_lost_node_is_refused() {
    let mut walk = Walk::new();
    for number in 0..2 {
        walk.make(&Move::Join {
            node: number,
            incarnation: 0,
            fence: None,
        });
    }
    walk.make(&Move::Submit { job: 0, min: 1, max: 2 });
    let plan = walk.state.jobs()[&job(0)]
        .plan()
        .cloned()
        .expect("two nodes are enough");
    walk.make(&Move::Silence { node: 1 });
    let problems = rankguard_core::plan_check(&walk.state, &plan);
    assert!(
        problems.contains(&rankguard_core::PlanProblem::NodeNotUsable(node(1))),
        "{problems:?}"
    );
    assert!(
        problems.contains(&rankguard_core::PlanProblem::GenerationNotNewer(plan.generation)),
        "{problems:?}"
    );
}

/// Coverage: the walks reach running jobs, checkpoints, cases, cordons and later generations.
#[test]
fn walks_reach_the_states_that_matter() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let mut reached: BTreeMap<&str, u32> = BTreeMap::new();
    for _ in 0..1_500 {
        let list = moves().new_tree(&mut runner).expect("moves can be drawn").current();
        let mut walk = Walk::new();
        let mut seen: BTreeMap<&str, bool> = BTreeMap::new();
        let mut asked = false;
        for one in &list {
            let adopters = adopters(&walk.state);
            walk.make(one);
            asked |= !adopters.is_empty();
            if adopters.iter().any(|node| !walk.state.fleet().is_live(node)) {
                seen.insert("an adopter lost", true);
            }
            for job in walk.state.jobs().values() {
                if job.state() == JobState::Running {
                    seen.insert("running", true);
                }
                if !job.checkpoints.committed.is_empty() {
                    seen.insert("committed", true);
                }
                if job.generation() > Generation(1) {
                    seen.insert("second generation", true);
                }
                let committing = job.checkpoints.committing.as_ref();
                if matches!(job.phase(), rankguard_core::JobPhase::Adopting { .. })
                    && committing.is_some_and(|manifest| manifest.generation < job.generation())
                {
                    seen.insert("adopted", true);
                    seen.entry("adopted out of memory").or_insert(asked);
                }
            }
            let prepares = |(_, order): &(NodeId, AgentOrder)| matches!(order, AgentOrder::Prepare(order) if order.standby.is_some());
            if walk.orders.iter().any(prepares) {
                seen.insert("preparation", true);
            }
            let newest = walk.journal.last().map(|stamped| &stamped.event);
            let is_report = |event: &Event| match event {
                Event::EvidenceArrived { evidence } => matches!(evidence.body, EvidenceBody::Prepared { .. }),
                _ => false,
            };
            if newest.is_some_and(is_report) {
                seen.insert("prepared", true);
            } else if seen.contains_key("prepared") && walk.state.jobs().values().any(|job| job.nodes().len() == 3) {
                seen.insert("grown onto prepared nodes", true);
            }
            seen.insert("case", !walk.state.cases().is_empty());
            let is_present = |case: &rankguard_model::Case| case.state == CaseState::FaultPresent;
            if walk.state.cases().values().any(is_present) {
                seen.insert("fault present", true);
            } else if seen.contains_key("fault present") {
                seen.insert("fault over", true);
            }
            seen.insert("cordon", walk.state.fleet().cordoned_by_verdict() > 0);
            let fencing = |(_, node): (&NodeId, &rankguard_core::Node)| node.state() == NodeState::Fencing;
            if walk.state.fleet().iter().any(fencing) {
                seen.insert("fencing", true);
            }
        }
        for (what, _) in seen.into_iter().filter(|(_, there)| *there) {
            *reached.entry(what).or_default() += 1;
        }
    }
    let often = ["running", "committed", "second generation", "case", "cordon", "fencing"];
    let often = often.into_iter().chain(["fault present", "fault over"]);
    let adoption = ["adopted", "adopted out of memory", "an adopter lost"];
    let growth = ["preparation", "prepared", "grown onto prepared nodes"];
    for what in often.chain(adoption).chain(growth) {
        assert!(reached.get(what).copied().unwrap_or(0) >= 10, "{what}: {reached:?}");
    }
}

/// Returns the nodes that are ordered to write shards of a step.
fn adopters(state: &DecisionState) -> BTreeSet<NodeId> {
    let stages = state.jobs().values().filter_map(|job| match job.phase() {
        rankguard_core::JobPhase::Adopting {
            stage: AdoptionStage::Asking { waiting, .. },
            ..
        } => Some(waiting),
        _ => None,
    });
    stages.flatten().cloned().collect()
}

/// RG-2: an unreadable checkpoint is struck off and the one before is next; without any the job stops with a reason
/// instead of a start from scratch.
#[test]
fn an_unreadable_checkpoint_gives_way_to_the_one_before_and_the_last_one_stops_the_job() {
    let mut walk = Walk::new();
    walk.make(&Move::Join {
        node: 0,
        incarnation: 0,
        fence: None,
    });
    walk.make(&Move::Submit { job: 0, min: 1, max: 1 });
    for _ in 0..2 {
        walk.make(&Move::Obey);
    }
    for _ in 0..2 {
        walk.make(&Move::Checkpoint { job: 0, ahead: 5 });
        walk.make(&Move::Commit { refuse: false });
    }
    let newest = |walk: &Walk| {
        walk.state.jobs()[&job(0)]
            .checkpoints
            .newest()
            .map(|newest| newest.step.0)
    };
    assert_eq!(newest(&walk), Some(10));
    let damaged = || CheckFinding::Damaged {
        what: "a flipped bit".to_owned(),
    };
    // RG-2: a report of one node strikes nothing off, unless the controller finds damage as well.
    corrupt(&mut walk, 10, 0);
    assert_eq!(newest(&walk), Some(10), "nothing is proven yet");
    answer(&mut walk, CheckFinding::Intact);
    assert_eq!(newest(&walk), Some(10));
    corrupt(&mut walk, 10, 0);
    assert!(walk.checks.is_empty(), "it was answered");
    corrupt(&mut walk, 10, 1);
    let reason = "no answer".to_owned();
    answer(&mut walk, CheckFinding::Unavailable { reason });
    assert_eq!(newest(&walk), Some(10));
    corrupt(&mut walk, 10, 2);
    corrupt(&mut walk, 10, 2);
    answer(&mut walk, damaged());
    assert_eq!(newest(&walk), Some(5));
    assert_ne!(walk.state.jobs()[&job(0)].state(), JobState::Stopped);
    corrupt(&mut walk, 5, 2);
    answer(&mut walk, damaged());
    assert_eq!(walk.state.jobs()[&job(0)].state(), JobState::Stopped);
}

/// A node is cleared while a case that holds its evidence is open: the failure of its own that is split from that case
/// is stated nevertheless.
#[test]
fn a_failure_in_an_open_case_is_stated_although_its_node_was_cleared_meanwhile() {
    let mut walk = Walk::new();
    let join = |node| Move::Join {
        node,
        incarnation: 0,
        fence: None,
    };
    let broke = |node, drill| Move::Hardware { node, class: 0, drill };
    let submit = Move::Submit { job: 0, min: 1, max: 3 };
    let settle = || Move::Timer { pick: 0 };
    let placed = [join(3), broke(1, false), join(4), submit, join(1)];
    let cleared = [broke(4, true), Move::Obey, Move::Obey, Move::Uncordon { node: 4 }];
    for one in placed.into_iter().chain(cleared).chain([settle(), settle()]) {
        walk.make(&one);
    }
    let blames = |case: &rankguard_model::Case| case.verdict.blamed.node() == Some(&node(4));
    assert!(walk.state.cases().values().any(blames));
}

/// Reports that a checkpoint of generation 1 cannot be loaded.
fn corrupt(walk: &mut Walk, step: u64, from: u8) {
    let fields = [("step", step.to_string()), ("generation", "1".to_owned())];
    let mark = Classification {
        class: ClassId::from("checkpoint-corrupt"),
        role: Role::Root,
        confidence: 0.95,
        signature: "walk".into(),
        fields: fields.into(),
    };
    let entity = Entity::Rank {
        job: job(0),
        generation: Generation(1),
        rank: Rank(0),
        node: node(from),
    };
    let body = EvidenceBody::Line {
        text: "it cannot be loaded".to_owned(),
        context: Vec::new(),
        repeats: 1,
    };
    walk.report(node(from), EvidenceSource::Checkpoint, entity, body, vec![mark]);
}

/// Answers the one checkpoint that the controller is to read.
fn answer(walk: &mut Walk, finding: CheckFinding) {
    let (job, id) = walk.checks.pop().expect("the controller is to read it");
    assert!(walk.checks.is_empty(), "once");
    walk.checked(job, id, finding);
}

/// An attempt that cannot read its checkpoint makes no step: the steps from there to the checkpoint before are repeated,
/// too.
#[test]
fn steps_between_a_damaged_checkpoint_and_the_one_before_count_as_lost() {
    let mut walk = Walk::new();
    let join = Move::Join {
        node: 0,
        incarnation: 0,
        fence: None,
    };
    let submit = Move::Submit { job: 0, min: 1, max: 1 };
    let checkpoint = [Move::Checkpoint { job: 0, ahead: 5 }, Move::Commit { refuse: false }];
    let started = [join, submit, Move::Obey, Move::Obey];
    let saved = checkpoint.clone().into_iter().chain(checkpoint);
    for one in started.into_iter().chain(saved) {
        walk.make(&one);
    }
    let fail = |walk: &mut Walk| {
        let exit = Move::Exit {
            job: 0,
            rank: 0,
            code: 2,
            old: false,
        };
        for one in [exit, Move::Timer { pick: 0 }, Move::Obey, Move::Obey, Move::Obey] {
            walk.make(&one);
        }
    };
    walk.make(&Move::Progress {
        job: 0,
        rank: 0,
        step: 12,
    });
    fail(&mut walk);
    corrupt(&mut walk, 10, 0);
    answer(
        &mut walk,
        CheckFinding::Damaged {
            what: "a flipped bit".to_owned(),
        },
    );
    fail(&mut walk);
    let lost: Vec<_> = walk.state.cases().values().filter_map(|case| case.steps_lost).collect();
    assert_eq!(lost, [2, 5]);
}

/// RG-3: the job waits for nodes after a node named a later generation. Its ranks run on, and once their node may be used
/// again they do not go on under the earlier number.
#[test]
fn ranks_below_the_floor_do_not_go_on_after_a_wait() {
    let mut walk = Walk::new();
    let join = |node, fence| Move::Join {
        node,
        incarnation: 0,
        fence,
    };
    let started = [join(4, None), Move::Submit { job: 0, min: 1, max: 1 }, join(0, None)];
    let without_nodes = [
        Move::Restart,
        Move::Cordon { node: 4 },
        Move::Obey,
        join(4, Some((0, 2, 0))),
    ];
    let step = Move::Progress {
        job: 0,
        rank: 0,
        step: 0,
    };
    let ran_on = [Move::Obey, step];
    for one in started.iter().chain(&without_nodes).chain(&ran_on) {
        walk.make(one);
    }
    assert_eq!(walk.state.jobs()[&job(0)].state(), JobState::Pending);
    walk.make(&Move::Uncordon { node: 4 });
    let job = &walk.state.jobs()[&job(0)];
    assert!(job.generation() > Generation(2), "{}", job.generation());
    assert_eq!(job.state(), JobState::Starting);
}

/// A job is too small while a case of it is open, which prevents growth; it ends without a restart.
#[test]
fn growth_that_a_case_prevented_is_requested_again_rg_9() {
    let mut walk = Walk::new();
    let join = |node| Move::Join {
        node,
        incarnation: 0,
        fence: None,
    };
    let step = |step| Move::Progress { job: 0, rank: 0, step };
    let submit = Move::Submit { job: 0, min: 1, max: 3 };
    let start = [
        join(0),
        join(1),
        submit,
        Move::NextTimer,
        Move::Obey,
        Move::Obey,
        step(1),
    ];
    for one in &start {
        walk.make(one);
    }
    let grows = |walk: &Walk| walk.state.timers().contains_key(&TimerKey::Grow { job: job(0) });
    let stalls = |timer: &&TimerKey| matches!(timer, TimerKey::PhaseDeadline { .. });
    walk.make(&join(4));
    let stall = walk
        .state
        .timers()
        .keys()
        .find(stalls)
        .cloned()
        .expect("no step may come");
    walk.now = walk.state.timers()[&stall];
    walk.tell(Event::TimerFired { timer: stall });
    // The request for growth comes while the case is examined.
    walk.make(&Move::NextTimer);
    assert!(!grows(&walk));
    walk.make(&step(2));
    while !walk.state.cases().values().any(|case| case.state == CaseState::Closed) {
        walk.make(&Move::NextTimer);
    }
    assert!(grows(&walk), "{:?}", walk.state.timers());
}
