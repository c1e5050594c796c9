//! Placement over random clusters: separated, balanced, deterministic, and stable under changes of membership.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rankguard_checkpoint_tiers::placement::{
    ParityGroup, PlacementNode, ReplicaPlacement, plan_parity, plan_replicas, shared,
};
use rankguard_model::NodeId;

/// Nodes in racks, of any sizes.
fn cluster() -> impl Strategy<Value = Vec<PlacementNode>> {
    proptest::collection::vec(1usize..7, 1..9).prop_map(|racks| {
        let nodes = racks
            .iter()
            .enumerate()
            .flat_map(|(rack, &nodes)| (0..nodes).map(move |node| (rack, node)));
        nodes
            .map(|(rack, node)| {
                PlacementNode::new(
                    &format!("n{rack}-{node}"),
                    &[&format!("row{}", rack % 2), &format!("rack{rack}")],
                )
            })
            .collect()
    })
}

fn by_name(members: &[PlacementNode]) -> BTreeMap<&NodeId, &PlacementNode> {
    members.iter().map(|member| (&member.node, member)).collect()
}

/// Members by rack only, as a list of rack sizes.
fn racks(members: &[PlacementNode]) -> Vec<usize> {
    let mut sizes: BTreeMap<&[String], usize> = BTreeMap::new();
    for member in members {
        *sizes.entry(&member.domains).or_default() += 1;
    }
    sizes.into_values().collect()
}

/// Number of pairs of owner and holder that share a rack.
fn exposed(members: &[PlacementNode], plan: &ReplicaPlacement) -> usize {
    let named = by_name(members);
    let keepers = |member: &&PlacementNode| plan.holders_of(&member.node);
    let bad = |member: &PlacementNode, keeper: &NodeId| shared(member, named[keeper]) == 2;
    members
        .iter()
        .map(|member| keepers(&member).iter().filter(|keeper| bad(member, keeper)).count())
        .sum()
}

fn changed(members: &[PlacementNode], before: &ReplicaPlacement, after: &ReplicaPlacement) -> usize {
    let sorted = |plan: &ReplicaPlacement, node: &NodeId| plan.holders_of(node).into_iter().collect::<BTreeSet<_>>();
    members
        .iter()
        .filter(|member| sorted(before, &member.node) != sorted(after, &member.node))
        .count()
}

#[test]
fn four_nodes_of_two_racks_pair_across_them() {
    let members = ["a0", "a1", "b0", "b1"].map(|node| PlacementNode::new(node, &[&node[..1]]));
    let plan = plan_replicas(&members, 2, None);
    for member in &members {
        let keepers = plan.holders_of(&member.node);
        assert_eq!(keepers.len(), 1);
        assert_ne!(keepers[0].as_str()[..1], member.node.as_str()[..1]);
        assert_eq!(plan.sources_of(&keepers[0]), std::slice::from_ref(&member.node));
    }
}

#[test]
fn a_rest_becomes_a_ring_as_in_gemini() {
    let members: Vec<PlacementNode> = (0..16)
        .map(|node| PlacementNode::new(&format!("n{node:02}"), &[]))
        .collect();
    let plan = plan_replicas(&members, 3, None);
    let mut sizes: Vec<usize> = plan.groups.iter().map(Vec::len).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [3, 3, 3, 3, 4]);
    let fatal = (0..16)
        .flat_map(|a| (a + 1..16).flat_map(move |b| (b + 1..16).map(move |c| [a, b, c])))
        .filter(|lost| {
            let lost: Vec<&NodeId> = lost.iter().map(|&node| &members[node].node).collect();
            let gone = |node: &&&NodeId| plan.holders_of(node).iter().all(|keeper| lost.contains(&keeper));
            lost.iter().any(|node| gone(&node))
        });
    // The survival table of 16 nodes with three copies: 8 fatal triples of 560.
    assert_eq!(fatal.count(), 8);
}

#[test]
fn nobody_and_one_are_no_trouble() {
    assert_eq!(plan_replicas(&[], 2, None).groups, Vec::<Vec<NodeId>>::new());
    let alone = [PlacementNode::new("a", &["r"])];
    assert!(plan_replicas(&alone, 2, None).holders_of(&NodeId::from("a")).is_empty());
    assert_eq!(plan_parity(&alone, 4, 1, &[]), []);
    assert!(
        plan_replicas(&alone, 2, None)
            .holders_of(&NodeId::from("stranger"))
            .is_empty()
    );
}

#[test]
fn a_thousand_nodes_with_one_crowded_rack_are_planned_at_the_optimum() {
    let mut members: Vec<PlacementNode> = (0..400)
        .map(|node| PlacementNode::new(&format!("a{node:04}"), &["a"]))
        .collect();
    members.extend((0..600).map(|node| PlacementNode::new(&format!("b{node:04}"), &[&format!("r{}", node % 20)])));
    let plan = plan_replicas(&members, 2, None);
    let named = by_name(&members);
    let bad = members.iter().filter(|member| {
        plan.holders_of(&member.node)
            .iter()
            .any(|keeper| shared(member, named[keeper]) > 0)
    });
    assert_eq!(bad.count(), 0);
}

#[test]
fn with_racks_for_members_and_holders_a_rack_costs_a_group_one_piece() {
    let members: Vec<PlacementNode> = (0..24)
        .map(|node| PlacementNode::new(&format!("n{node:02}"), &[&format!("rack{}", node / 3)]))
        .collect();
    let named = by_name(&members);
    for group in plan_parity(&members, 6, 2, &[]) {
        let nodes = group.members.iter().chain(&group.holders);
        let racks: BTreeSet<&[String]> = nodes.map(|node| named[node].domains.as_slice()).collect();
        assert_eq!(racks.len(), 8, "{group:?}");
    }
}

proptest! {
    #[test]
    fn every_image_has_its_copies_and_everyone_keeps_the_same_number(members in cluster(), copies in 1usize..5) {
        let plan = plan_replicas(&members, copies, None);
        let wanted = copies.min(members.len()) - 1;
        for member in &members {
            let keepers: BTreeSet<NodeId> = plan.holders_of(&member.node).into_iter().collect();
            prop_assert_eq!(keepers.len(), wanted);
            prop_assert!(!keepers.contains(&member.node));
            let kept = plan.sources_of(&member.node);
            prop_assert_eq!(kept.len(), wanted, "balanced");
            for owner in kept {
                prop_assert!(plan.holders_of(&owner).contains(&member.node), "both sides say the same");
            }
        }
    }

    #[test]
    fn two_copies_share_a_rack_only_when_one_rack_has_more_than_half(members in cluster()) {
        prop_assume!(members.len() >= 2);
        let plan = plan_replicas(&members, 2, None);
        let largest = racks(&members).into_iter().max().unwrap_or(0);
        let all = members.len();
        // Pairs of which both ends must be in the crowded rack; an odd remainder is a ring of three, where each end
        // counts.
        let least = (2 * largest).saturating_sub(all);
        let most = if all % 2 == 0 { least } else { least + 1 };
        let found = exposed(&members, &plan);
        if least == 0 && all % 2 == 0 {
            prop_assert_eq!(found, 0);
        }
        prop_assert!(found <= most.max(usize::from(all % 2 == 1)), "{found} exposed of {all}, largest rack {largest}");
    }

    #[test]
    fn the_order_of_members_does_not_matter(members in cluster(), copies in 2usize..4, turn in 0usize..40) {
        let mut turned = members.clone();
        let places = turned.len();
        turned.rotate_left(turn % places);
        prop_assert_eq!(plan_replicas(&members, copies, None), plan_replicas(&turned, copies, None));
        prop_assert_eq!(plan_parity(&members, 4, 2, &[]), plan_parity(&turned, 4, 2, &[]));
    }

    #[test]
    fn a_plan_for_the_same_members_stays(members in cluster(), copies in 2usize..4) {
        let plan = plan_replicas(&members, copies, None);
        let again = plan_replicas(&members, copies, Some(&plan));
        prop_assert_eq!(changed(&members, &plan, &again), 0);
        let parity = plan_parity(&members, 4, 2, &[]);
        let sets = |groups: &[ParityGroup]| -> BTreeSet<BTreeSet<NodeId>> {
            groups.iter().map(|group| group.members.iter().cloned().collect()).collect()
        };
        let again = plan_parity(&members, 4, 2, &parity);
        prop_assert_eq!(sets(&parity), sets(&again));
    }

    /// One node leaves or joins: affected are its group, the ring at the end and groups swapped for domains.
    #[test]
    fn one_change_moves_little(racks in 8usize..20, each in 2usize..5, copies in 2usize..4, gone in 0usize..1000) {
        let members: Vec<PlacementNode> = (0..racks * each)
            .map(|node| PlacementNode::new(&format!("n{node:03}"), &[&format!("rack{}", node / each)]))
            .collect();
        let plan = plan_replicas(&members, copies, None);
        let mut fewer = members.clone();
        fewer.remove(gone % members.len());
        let after = plan_replicas(&fewer, copies, Some(&plan));
        prop_assert!(changed(&fewer, &plan, &after) <= 5 * copies, "{} moved", changed(&fewer, &plan, &after));
        let back = plan_replicas(&members, copies, Some(&after));
        prop_assert!(changed(&fewer, &after, &back) <= 5 * copies, "{} moved", changed(&fewer, &after, &back));
    }

    #[test]
    fn parity_groups_cover_everyone_and_lose_one_piece_a_node(
        members in cluster(),
        size in 1usize..9,
        parity in 1usize..4,
    ) {
        prop_assume!(members.len() >= 2);
        let groups: Vec<ParityGroup> = plan_parity(&members, size, parity, &[]);
        let all: Vec<&NodeId> = groups.iter().flat_map(|group| &group.members).collect();
        prop_assert_eq!(all.len(), members.len());
        prop_assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), members.len());
        let sizes: Vec<usize> = groups.iter().map(|group| group.members.len()).collect();
        prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
        prop_assert!(*sizes.iter().max().unwrap() <= size.max(1));
        let most = (groups.len() * parity).div_ceil(members.len());
        let mut load: BTreeMap<&NodeId, usize> = BTreeMap::new();
        for group in &groups {
            let mut seen: BTreeSet<&NodeId> = group.members.iter().collect();
            for holder in &group.holders {
                prop_assert!(seen.insert(holder), "a holder twice, or a member of its group");
                *load.entry(holder).or_default() += 1;
            }
            prop_assert_eq!(group.holders.len(), parity.min(members.len() - group.members.len()));
        }
        prop_assert!(load.values().all(|held| *held <= most + 1), "held {load:?}, fair is {most}");
    }
}
