//! Assignment of nodes to groups of given sizes, spread over domains, with few moves from the previous groups.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::NodeId;

use super::{PlacementNode, exposure};

/// Groups as indexes into the list of members.
type GroupIndexes = Vec<Vec<usize>>;

/// Assigns `members` (sorted, unique) to groups of exactly `sizes`, which sum to their number.
pub(super) fn regroup(members: &[PlacementNode], sizes: &[usize], before: &[Vec<NodeId>]) -> GroupIndexes {
    let places: BTreeMap<&NodeId, usize> = members
        .iter()
        .zip(0..)
        .map(|(member, place)| (&member.node, place))
        .collect();
    let mut seen = BTreeSet::new();
    let mut left: GroupIndexes = before
        .iter()
        .map(|group| {
            let here = group.iter().filter_map(|node| places.get(node).copied());
            here.filter(|place| seen.insert(*place)).collect()
        })
        .collect();
    // Large groups go to large sizes; if there are too many groups, the smallest are dissolved.
    left.sort_by_key(|group: &Vec<usize>| std::cmp::Reverse(group.len()));
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&group| std::cmp::Reverse(sizes[group]));
    let mut groups: GroupIndexes = vec![Vec::new(); sizes.len()];
    for (group, members_before) in order.into_iter().zip(left) {
        groups[group] = members_before;
    }
    for (group, &size) in groups.iter_mut().zip(sizes) {
        while group.len() > size {
            let worst = (0..group.len()).max_by_key(|&at| (exposed(members, group, group[at], Some(at)), group[at]));
            group.remove(worst.unwrap_or(0));
        }
    }
    let placed: BTreeSet<usize> = groups.iter().flatten().copied().collect();
    let mut newcomers: Vec<usize> = (0..members.len()).filter(|place| !placed.contains(place)).collect();
    // Members of large domains first: they are the hardest to separate.
    let mut crowd: BTreeMap<&[String], usize> = BTreeMap::new();
    for member in members {
        *crowd.entry(&member.domains).or_default() += 1;
    }
    newcomers.sort_by_key(|&place| (std::cmp::Reverse(crowd[members[place].domains.as_slice()]), place));
    for place in newcomers {
        let open = (0..groups.len()).filter(|&group| groups[group].len() < sizes[group]);
        let best = open.min_by_key(|&group| {
            let free = sizes[group] - groups[group].len();
            (
                exposed(members, &groups[group], place, None),
                std::cmp::Reverse(free),
                group,
            )
        });
        groups[best.expect("sizes sum to the number of members")].push(place);
    }
    part(members, &mut groups);
    groups
}

/// Returns the exposure of `place` to the members of `group`, without the one at `but`.
fn exposed(members: &[PlacementNode], group: &[usize], place: usize, but: Option<usize>) -> u64 {
    let others = group.iter().enumerate().filter(|(at, _)| Some(*at) != but);
    others
        .map(|(_, &other)| exposure(&members[place], &members[other]))
        .sum()
}

/// Swaps members of different groups while that separates domains better. Each swap lowers the total exposure, so
/// the loop ends.
fn part(members: &[PlacementNode], groups: &mut GroupIndexes) {
    loop {
        let mut swapped = false;
        for group in 0..groups.len() {
            for at in 0..groups[group].len() {
                let now = exposed(members, &groups[group], groups[group][at], Some(at));
                if now > 0 && swap(members, groups, group, at, now) {
                    swapped = true;
                }
            }
        }
        if !swapped {
            return;
        }
    }
}

/// Exchanges one exposed member with the best partner of another group, if that lowers the total.
fn swap(members: &[PlacementNode], groups: &mut GroupIndexes, group: usize, at: usize, now: u64) -> bool {
    let place = groups[group][at];
    let mut best: Option<(u64, usize, usize)> = None;
    for other in (0..groups.len()).filter(|&other| other != group) {
        for (theirs, &partner) in groups[other].iter().enumerate() {
            if members[partner].domains == members[place].domains {
                continue;
            }
            let before = now + exposed(members, &groups[other], partner, Some(theirs));
            let after = exposed(members, &groups[group], partner, Some(at))
                + exposed(members, &groups[other], place, Some(theirs));
            if after < before && best.is_none_or(|(gain, ..)| before - after > gain) {
                best = Some((before - after, other, theirs));
            }
        }
    }
    let Some((_, other, theirs)) = best else {
        return false;
    };
    let partner = groups[other][theirs];
    groups[group][at] = partner;
    groups[other][theirs] = place;
    true
}
