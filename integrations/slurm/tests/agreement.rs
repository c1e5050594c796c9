//! Comparison of both sides: the table, and random walks that end in agreement.

use proptest::prelude::*;
use rankguard_slurm::{ControllerNode, NodeAvailability, NodeLimit, NodePair, SyncAction, reason, reconcile};

const ALL: NodeLimit = NodeLimit::Percent(100);

fn closed(reason: &str) -> NodeAvailability {
    NodeAvailability::Closed {
        reason: reason.to_owned(),
        user: Some("ada".to_owned()),
    }
}

fn mirrored(reasons: &[&str]) -> NodeAvailability {
    NodeAvailability::Mirrored {
        reason: reason::drain_reason(reasons),
        is_down: false,
    }
}

fn pair(number: usize, slurm: NodeAvailability, reasons: &[&str]) -> NodePair {
    NodePair {
        slurm_name: format!("s{number}"),
        controller_name: format!("n{number}"),
        slurm,
        controller: ControllerNode {
            reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
        },
    }
}

/// One row of the table: use in Slurm, reasons in Rankguard, action.
#[track_caller]
fn check(slurm: NodeAvailability, reasons: &[&str], wanted: Option<SyncAction>) {
    let plan = reconcile(&[pair(1, slurm, reasons)], ALL);
    assert_eq!(plan.actions, Vec::from_iter(wanted));
    assert!(plan.held_back.is_empty());
}

#[test]
fn every_pair_of_states_has_its_action() {
    use NodeAvailability::{Open, Silent};
    let (case, mirror) = ("case 12: gpu-xid-79 on n1:3", "slurm drain: fan (set by ada)");
    let down = || NodeAvailability::Mirrored {
        reason: reason::drain_reason(&[case]),
        is_down: true,
    };
    let drain = |reason: &str| SyncAction::Drain {
        node: "s1".to_owned(),
        reason: reason.to_owned(),
    };
    let undrain = |is_down| SyncAction::Undrain {
        node: "s1".to_owned(),
        reason: reason::drain_reason(&[case]),
        is_down,
    };
    let cordon = SyncAction::Cordon {
        node: "n1".to_owned(),
        reason: mirror.to_owned(),
    };
    let uncordon = SyncAction::Uncordon {
        node: "n1".to_owned(),
        reasons: vec![mirror.to_owned()],
    };
    // In use on both sides.
    check(Open, &[], None);
    check(Silent, &[], None);
    // Reasons of Rankguard only.
    check(
        Open,
        &[case],
        Some(drain("rankguard: case 12: gpu-xid-79 on n1:3 (auto-resume)")),
    );
    check(
        Open,
        &[mirror, "ticket", case],
        Some(drain("rankguard: ticket, case 12: gpu-xid-79 on n1:3 (auto-resume)")),
    );
    check(Silent, &[case], None);
    check(mirrored(&[case]), &[case], None);
    check(mirrored(&["older text"]), &[case], None);
    // Reasons of Slurm only.
    check(closed("fan"), &[], Some(cordon));
    check(closed("fan"), &[mirror], None);
    check(closed("another"), &[mirror], None);
    // Both, as after drains in the same second.
    check(closed("fan"), &[case], None);
    check(closed("fan"), &[case, mirror], None);
    // The reason of one side is gone.
    check(mirrored(&[case]), &[], Some(undrain(false)));
    check(down(), &[], Some(undrain(true)));
    check(mirrored(&[case]), &[mirror], Some(undrain(false)));
    check(Open, &[mirror], Some(uncordon.clone()));
    check(Silent, &[mirror], Some(uncordon));
}

#[test]
fn rg_6_a_faulty_rankguard_drains_no_more_nodes_than_the_limit() {
    let mut pairs: Vec<NodePair> = (0..20)
        .map(|number| pair(number, NodeAvailability::Open, &["case 1: x"]))
        .collect();
    let plan = reconcile(&pairs, NodeLimit::DEFAULT);
    assert_eq!((plan.actions.len(), plan.held_back.len(), plan.limit), (2, 18, 2));
    // Those that are drained already count; those that are about to be resumed do not.
    pairs[0].slurm = mirrored(&["case 1: x"]);
    pairs[1].slurm = mirrored(&["case 1: x"]);
    pairs[1].controller = ControllerNode::default();
    let plan = reconcile(&pairs, NodeLimit::DEFAULT);
    let drains = plan
        .actions
        .iter()
        .filter(|action| matches!(action, SyncAction::Drain { .. }));
    assert_eq!((drains.count(), plan.held_back.len()), (1, 17));
    // A drain by a person is no use of the limit, and is mirrored without one.
    pairs.iter_mut().for_each(|pair| {
        pair.slurm = closed("outage");
        pair.controller = ControllerNode::default();
    });
    assert_eq!(reconcile(&pairs, NodeLimit::Nodes(0)).actions.len(), 20);
}

/// Event of a walk about one of three nodes.
#[derive(Debug, Clone, Copy)]
enum WalkEvent {
    /// A person drains in Slurm; also over a mirror.
    PersonDrains,
    /// A person resumes in Slurm; also a mirror.
    PersonResumes,
    /// A case or an operator cordons in Rankguard.
    RankguardCordons,
    /// An operator lifts the cordon in Rankguard.
    OperatorUncordons,
    /// One of two daemons reads both sides.
    Reads(bool),
    /// A daemon carries out what it planned when it read, this many actions; the others are lost.
    Acts(bool, usize),
}

fn walk_event() -> impl Strategy<Value = (usize, WalkEvent)> {
    let event = prop_oneof![
        Just(WalkEvent::PersonDrains),
        Just(WalkEvent::PersonResumes),
        Just(WalkEvent::RankguardCordons),
        Just(WalkEvent::OperatorUncordons),
        any::<bool>().prop_map(WalkEvent::Reads),
        (any::<bool>(), 0..4usize).prop_map(|(which, most)| WalkEvent::Acts(which, most)),
    ];
    (0..3usize, event)
}

/// Two sides with three nodes, and plans of two daemons.
#[derive(Debug, Default)]
struct Walk {
    pairs: Vec<NodePair>,
    plans: [Vec<SyncAction>; 2],
}

impl Walk {
    fn index(node: &str) -> usize {
        node[1..].parse().expect("a number")
    }

    /// Carries out an action as the daemon does: Slurm is read again directly before, and a cordon is lifted only with
    /// the reasons that were read.
    fn act(&mut self, action: &SyncAction) {
        match action {
            SyncAction::Drain { node, reason } => {
                let slurm = &mut self.pairs[Self::index(node)].slurm;
                if *slurm == NodeAvailability::Open {
                    *slurm = NodeAvailability::Mirrored {
                        reason: reason.clone(),
                        is_down: false,
                    };
                }
            }
            SyncAction::Undrain { node, reason, .. } => {
                let slurm = &mut self.pairs[Self::index(node)].slurm;
                assert!(reason::is_mirrored_drain(reason));
                if matches!(slurm, NodeAvailability::Mirrored { reason: now, .. } if now == reason) {
                    *slurm = NodeAvailability::Open;
                }
            }
            SyncAction::Cordon { node, reason } => {
                let reasons = &mut self.pairs[Self::index(node)].controller.reasons;
                reasons.retain(|before| before != reason);
                reasons.insert(0, reason.clone());
            }
            SyncAction::Uncordon { node, reasons } => {
                assert!(reasons.iter().all(|reason| reason::is_mirrored_cordon(reason)));
                let now = &mut self.pairs[Self::index(node)].controller.reasons;
                if now == reasons {
                    now.clear();
                }
            }
        }
    }

    fn apply(&mut self, node: usize, event: WalkEvent) {
        let pair = &mut self.pairs[node];
        match event {
            WalkEvent::PersonDrains => pair.slurm = closed("by hand"),
            WalkEvent::PersonResumes => pair.slurm = NodeAvailability::Open,
            WalkEvent::RankguardCordons => pair.controller.reasons.push("case 1: x".to_owned()),
            WalkEvent::OperatorUncordons => pair.controller.reasons.clear(),
            WalkEvent::Reads(which) => self.plans[usize::from(which)] = reconcile(&self.pairs, ALL).actions,
            WalkEvent::Acts(which, most) => {
                let plan = std::mem::take(&mut self.plans[usize::from(which)]);
                plan.iter().take(most).for_each(|action| self.act(action));
            }
        }
    }
}

proptest! {
    #[test]
    fn walks_end_in_agreement_and_never_lift_or_replace_a_reason_of_a_person(
        events in proptest::collection::vec(walk_event(), 0..60)
    ) {
        let pairs = (0..3).map(|number| pair(number, NodeAvailability::Open, &[])).collect();
        let mut walk = Walk { pairs, ..Walk::default() };
        for (node, event) in events {
            let before = walk.pairs.clone();
            walk.apply(node, event);
            if matches!(event, WalkEvent::Acts(..)) {
                for (before, after) in before.iter().zip(&walk.pairs) {
                    let is_of_a_person = matches!(before.slurm, NodeAvailability::Closed { .. });
                    prop_assert!(!is_of_a_person || before.slurm == after.slurm);
                    for own in before.controller.own_reasons() {
                        prop_assert!(after.controller.own_reasons().contains(&own));
                    }
                }
            }
        }
        let owned: Vec<(bool, bool)> = walk.pairs.iter().map(owners).collect();
        // No daemon acts on an old plan any more; each round completes what the one before began.
        for _ in 0..3 {
            let plan = reconcile(&walk.pairs, ALL);
            plan.actions.iter().for_each(|action| walk.act(action));
        }
        prop_assert!(reconcile(&walk.pairs, ALL).actions.is_empty());
        for (pair, (slurm, rankguard)) in walk.pairs.iter().zip(owned) {
            prop_assert_eq!(owners(pair), (slurm, rankguard));
            let is_out = slurm || rankguard;
            prop_assert_eq!(pair.slurm != NodeAvailability::Open, is_out, "{:?}", pair);
            prop_assert_eq!(!pair.controller.reasons.is_empty(), is_out, "{:?}", pair);
        }
    }
}

/// Returns the sides that have a reason of their own: Slurm, Rankguard.
fn owners(pair: &NodePair) -> (bool, bool) {
    let slurm = matches!(pair.slurm, NodeAvailability::Closed { .. });
    (slurm, !pair.controller.own_reasons().is_empty())
}
