//! Comparison of both sides: the table, and random walks that end in agreement.

use proptest::prelude::*;
use rankguard_kubernetes::mark::{CordonMark, REPEATS_MAX, cordon_reason, is_mirrored_cordon};
use rankguard_kubernetes::{ComparedNode, NodeUse, SyncAction, reconcile};
use rankguard_scheduler_nodes::NodeLimit;

use crate::support::pair;

const ALL: NodeLimit = NodeLimit::Percent(100);
const CASE: &str = "case 12: gpu-fallen-off-bus on node n1, gpu 0000:9b:00";
const MIRROR: &str = "cordoned in Kubernetes by kubectl";

fn closed() -> NodeUse {
    NodeUse::Closed {
        manager: Some("kubectl".to_owned()),
    }
}

fn mark(reasons: &[&str]) -> CordonMark {
    CordonMark::new(reasons, None)
}

fn repeated(reasons: &[&str], repeats: u32) -> CordonMark {
    CordonMark {
        repeats,
        ..mark(reasons)
    }
}

/// One row of the table: use in Kubernetes, reasons in Rankguard, action.
#[track_caller]
fn check(kubernetes: NodeUse, reasons: &[&str], wanted: Option<SyncAction>) {
    let plan = reconcile(&[pair("n1", kubernetes, reasons)], ALL);
    assert_eq!(plan.actions, Vec::from_iter(wanted));
    assert!(plan.held_back.is_empty());
}

fn cordon(before: NodeUse, mark: CordonMark) -> Option<SyncAction> {
    let node = "n1".to_owned();
    Some(SyncAction::Cordon { node, before, mark })
}

fn lift(before: NodeUse) -> Option<SyncAction> {
    let node = "n1".to_owned();
    Some(SyncAction::Lift { node, before })
}

#[test]
fn every_pair_of_states_has_its_action() {
    use NodeUse::{Mirrored, Open, Reopened};
    let names = || ("n1".to_owned(), "n1".to_owned());
    let mirror_cordon = |before, reason: &str| {
        let (node, controller_name) = names();
        let reason = reason.to_owned();
        Some(SyncAction::MirrorCordon {
            node,
            controller_name,
            before,
            reason,
        })
    };
    let lift_mirror = |before| {
        let (node, controller_name) = names();
        let reasons = vec![MIRROR.to_owned()];
        Some(SyncAction::LiftMirror {
            node,
            controller_name,
            before,
            reasons,
        })
    };
    // In use on both sides.
    check(Open, &[], None);
    // Reasons of Rankguard only.
    check(Open, &[CASE], cordon(Open, mark(&[CASE])));
    check(Open, &[MIRROR, "ticket", CASE], cordon(Open, mark(&["ticket", CASE])));
    check(Mirrored(mark(&[CASE])), &[CASE], None);
    check(
        Mirrored(mark(&["older"])),
        &[CASE],
        cordon(Mirrored(mark(&["older"])), mark(&[CASE])),
    );
    // Another manager has lifted the cordon.
    let again = |repeats| cordon(Reopened(repeated(&[CASE], repeats)), repeated(&[CASE], repeats + 1));
    check(Reopened(mark(&[CASE])), &[CASE], again(0));
    check(Reopened(repeated(&[CASE], 2)), &[CASE], again(2));
    check(Reopened(repeated(&[CASE], REPEATS_MAX)), &[CASE], None);
    let other = Reopened(repeated(&["older"], REPEATS_MAX));
    check(other.clone(), &[CASE], cordon(other, mark(&[CASE])));
    // Reasons of Kubernetes only.
    check(closed(), &[], mirror_cordon(closed(), MIRROR));
    let unknown = NodeUse::Closed { manager: None };
    check(
        unknown.clone(),
        &[],
        mirror_cordon(unknown, "cordoned in Kubernetes by an unknown manager"),
    );
    check(closed(), &[MIRROR], None);
    // Both.
    check(closed(), &[CASE], None);
    check(closed(), &[CASE, MIRROR], None);
    // The reason of one side is gone.
    check(Mirrored(mark(&[CASE])), &[], lift(Mirrored(mark(&[CASE]))));
    check(Mirrored(mark(&[CASE])), &[MIRROR], lift(Mirrored(mark(&[CASE]))));
    check(
        Reopened(repeated(&[CASE], REPEATS_MAX)),
        &[],
        lift(Reopened(repeated(&[CASE], REPEATS_MAX))),
    );
    check(Open, &[MIRROR], lift_mirror(Open));
}

#[test]
fn a_manager_that_lifts_a_cordon_again_and_again_has_its_way_and_is_named() {
    let mut kubernetes = NodeUse::Open;
    let mut writes = 0;
    // A person or a program uncordons after each cordon.
    for _ in 0..50 {
        let plan = reconcile(&[pair("n1", kubernetes.clone(), &[CASE])], ALL);
        match plan.actions.first() {
            Some(SyncAction::Cordon { mark, .. }) => {
                writes += 1;
                kubernetes = NodeUse::Reopened(mark.clone());
            }
            _ => assert_eq!(plan.overruled, ["n1"]),
        }
    }
    assert_eq!(writes, 1 + REPEATS_MAX);
}

#[test]
fn rg_6_a_faulty_rankguard_cordons_no_more_nodes_than_the_limit() {
    let mut pairs: Vec<ComparedNode> = (0..20)
        .map(|number| pair(&format!("n{number}"), NodeUse::Open, &[CASE]))
        .collect();
    let plan = reconcile(&pairs, NodeLimit::DEFAULT);
    assert_eq!((plan.actions.len(), plan.held_back.len(), plan.limit), (2, 18, 2));
    // Cordoned nodes count; those about to be lifted do not.
    pairs[0].kubernetes = NodeUse::Mirrored(mark(&[CASE]));
    pairs[1].kubernetes = NodeUse::Mirrored(mark(&[CASE]));
    pairs[1].controller.reasons.clear();
    let plan = reconcile(&pairs, NodeLimit::DEFAULT);
    let cordons = plan.actions.iter().filter(|action| action.rule() == "cordon");
    assert_eq!((cordons.count(), plan.held_back.len()), (1, 17));
    // A cordon that was lifted is set again within the limit only.
    pairs[2].kubernetes = NodeUse::Mirrored(mark(&[CASE]));
    pairs[3].kubernetes = NodeUse::Reopened(mark(&[CASE]));
    let plan = reconcile(&pairs, NodeLimit::DEFAULT);
    assert!(plan.held_back.contains(&"n3".to_owned()));
    // A cordon by a person is no use of the limit, and is mirrored without one.
    pairs.iter_mut().for_each(|pair| {
        pair.kubernetes = closed();
        pair.controller.reasons.clear();
    });
    assert_eq!(reconcile(&pairs, NodeLimit::Nodes(0)).actions.len(), 20);
}

#[test]
fn foreign_text_becomes_a_bounded_reason_and_a_valid_taint() {
    let reason = cordon_reason(Some("evil\u{202e}\n\"manager\"; uncordon all"));
    assert_eq!(reason, "cordoned in Kubernetes by evil 'manager', uncordon all");
    assert!(is_mirrored_cordon(&reason));
    assert!(cordon_reason(Some(&"x".repeat(500))).len() < 100);
    let mark = CordonMark::new(&["a\u{7}b"], Some("_gpu fallen/off.bus_"));
    assert_eq!(
        (mark.class.as_str(), mark.reason.as_str()),
        ("gpu-fallen-off.bus", "a b")
    );
    let mark = CordonMark::new(&[&"x".repeat(5_000)], Some(&"é".repeat(200)));
    assert_eq!((mark.class.as_str(), mark.reason.len()), ("operator", 500));
}

/// Event of a walk about one of three nodes.
#[derive(Debug, Clone, Copy)]
enum WalkEvent {
    /// `kubectl cordon`, which changes nothing on a node that is cordoned.
    PersonCordons,
    /// `kubectl uncordon`, also over a mirror.
    PersonUncordons,
    /// A person removes the annotation of a mirror.
    PersonTakesOver,
    /// A case or an operator cordons in Rankguard.
    RankguardCordons,
    /// An operator lifts the cordon in Rankguard.
    OperatorUncordons,
    /// One of two programs reads both sides.
    Reads(bool),
    /// A program carries out what it planned when it read, this many actions; the others are lost.
    Acts(bool, usize),
}

fn walk_event() -> impl Strategy<Value = (usize, WalkEvent)> {
    let event = prop_oneof![
        Just(WalkEvent::PersonCordons),
        Just(WalkEvent::PersonUncordons),
        Just(WalkEvent::PersonTakesOver),
        Just(WalkEvent::RankguardCordons),
        Just(WalkEvent::OperatorUncordons),
        any::<bool>().prop_map(WalkEvent::Reads),
        (any::<bool>(), 0..4usize).prop_map(|(which, most)| WalkEvent::Acts(which, most)),
    ];
    (0..3usize, event)
}

/// Two sides with three nodes, and plans of two programs.
#[derive(Debug, Default)]
struct Walk {
    pairs: Vec<ComparedNode>,
    plans: [Vec<SyncAction>; 2],
}

impl Walk {
    /// Carries out an action as the program does: the node is read again directly before, and a cordon in Rankguard is
    /// lifted only with the reasons that were read.
    fn act(&mut self, action: &SyncAction) {
        let (node, before) = action.basis();
        let index: usize = node[1..].parse().expect("a number");
        let pair = &mut self.pairs[index];
        if pair.kubernetes != *before {
            return;
        }
        match action {
            SyncAction::Cordon { mark, .. } => pair.kubernetes = NodeUse::Mirrored(mark.clone()),
            SyncAction::Lift { .. } => pair.kubernetes = NodeUse::Open,
            SyncAction::MirrorCordon { reason, .. } => {
                let reasons = &mut pair.controller.reasons;
                reasons.retain(|known| known != reason);
                reasons.insert(0, reason.clone());
            }
            SyncAction::LiftMirror { reasons, .. } => {
                assert!(reasons.iter().all(|reason| is_mirrored_cordon(reason)));
                if pair.controller.reasons == *reasons {
                    pair.controller.reasons.clear();
                }
            }
        }
    }

    fn apply(&mut self, node: usize, event: WalkEvent) {
        let pair = &mut self.pairs[node];
        match (event, pair.kubernetes.clone()) {
            (WalkEvent::PersonCordons, NodeUse::Open) => pair.kubernetes = closed(),
            (WalkEvent::PersonCordons, NodeUse::Reopened(mark)) => pair.kubernetes = NodeUse::Mirrored(mark),
            (WalkEvent::PersonUncordons, NodeUse::Closed { .. }) => pair.kubernetes = NodeUse::Open,
            (WalkEvent::PersonUncordons, NodeUse::Mirrored(mark)) => pair.kubernetes = NodeUse::Reopened(mark),
            (WalkEvent::PersonTakesOver, NodeUse::Mirrored(_)) => pair.kubernetes = closed(),
            (WalkEvent::RankguardCordons, _) => pair.controller.reasons.push("case 1: x".to_owned()),
            (WalkEvent::OperatorUncordons, _) => pair.controller.reasons.clear(),
            (WalkEvent::Reads(which), _) => self.plans[usize::from(which)] = reconcile(&self.pairs, ALL).actions,
            (WalkEvent::Acts(which, most), _) => {
                let plan = std::mem::take(&mut self.plans[usize::from(which)]);
                plan.iter().take(most).for_each(|action| self.act(action));
            }
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn walks_end_in_agreement_and_never_lift_or_replace_a_reason_of_a_person(
        events in proptest::collection::vec(walk_event(), 0..60)
    ) {
        let pairs = (0..3).map(|number| pair(&format!("n{number}"), NodeUse::Open, &[])).collect();
        let mut walk = Walk { pairs, ..Walk::default() };
        for (node, event) in events {
            let before = walk.pairs.clone();
            walk.apply(node, event);
            if matches!(event, WalkEvent::Acts(..)) {
                for (before, after) in before.iter().zip(&walk.pairs) {
                    let is_of_a_person = matches!(before.kubernetes, NodeUse::Closed { .. });
                    prop_assert!(!is_of_a_person || before.kubernetes == after.kubernetes);
                    for own in before.controller.own_reasons() {
                        prop_assert!(after.controller.own_reasons().contains(&own));
                    }
                }
            }
        }
        let owned: Vec<(bool, bool)> = walk.pairs.iter().map(owners).collect();
        // No program acts on an old plan any more; each round completes what the one before began.
        for _ in 0..3 {
            let plan = reconcile(&walk.pairs, ALL);
            plan.actions.iter().for_each(|action| walk.act(action));
        }
        let last = reconcile(&walk.pairs, ALL);
        prop_assert!(last.actions.is_empty(), "{:?}", last.actions);
        for (pair, (kubernetes, rankguard)) in walk.pairs.iter().zip(owned) {
            prop_assert_eq!(owners(pair), (kubernetes, rankguard));
            let is_out = kubernetes || rankguard;
            prop_assert_eq!(!pair.controller.reasons.is_empty(), is_out, "{:?}", pair);
            if last.overruled.contains(&pair.kubernetes_name) {
                let has_had_its_way = matches!(&pair.kubernetes, NodeUse::Reopened(mark) if mark.repeats == REPEATS_MAX);
                prop_assert!(has_had_its_way && rankguard, "{:?}", pair);
            } else {
                prop_assert_eq!(pair.kubernetes != NodeUse::Open, is_out, "{:?}", pair);
                prop_assert!(!matches!(pair.kubernetes, NodeUse::Reopened(_)), "{:?}", pair);
            }
        }
    }
}

/// Returns the sides that have a reason of their own: Kubernetes, Rankguard.
fn owners(pair: &ComparedNode) -> (bool, bool) {
    let kubernetes = matches!(pair.kubernetes, NodeUse::Closed { .. });
    (kubernetes, !pair.controller.own_reasons().is_empty())
}
