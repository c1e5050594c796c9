//! Placement of parity on nodes outside the group of images.

use std::collections::BTreeMap;

use rankguard_model::NodeId;
use serde::{Deserialize, Serialize};

use super::groups::regroup;
use super::{PlacementNode, exposure, in_order};

/// Nodes with images under common parity, and the holders of that parity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParityGroup {
    pub members: Vec<NodeId>,
    /// Holder of each parity, by its number; no holder is a member.
    pub holders: Vec<NodeId>,
}

/// Plans groups of at most `size` members with `parity` holders each, with few moves from the groups `before`. Group
/// sizes differ by at most one. There are at least two groups, since holders belong to other groups; fewer than two
/// nodes give no group. A group with fewer than `parity` nodes outside has that many holders.
///
/// A group is spread over as many domains as there are. A size of at most the number of domains less `parity` leaves
/// some for the holders; with a larger size, a failed domain costs a group more than one piece.
pub fn plan_parity(members: &[PlacementNode], size: usize, parity: usize, before: &[ParityGroup]) -> Vec<ParityGroup> {
    let members = in_order(members);
    if members.len() < 2 || parity == 0 {
        return Vec::new();
    }
    let count = members.len().div_ceil(size.max(1)).max(2);
    let sizes: Vec<usize> = (0..count).map(|group| (members.len() + group) / count).collect();
    let groups_before: Vec<Vec<NodeId>> = before.iter().map(|group| group.members.clone()).collect();
    let groups = regroup(&members, &sizes, &groups_before);

    let holders_before: BTreeMap<&[NodeId], &[NodeId]> = before
        .iter()
        .map(|group| (group.members.as_slice(), group.holders.as_slice()))
        .collect();
    let mut load = vec![0usize; members.len()];
    let most = (count * parity).div_ceil(members.len());
    let mut planned = Vec::with_capacity(count);
    for group in groups {
        let named: Vec<NodeId> = group.iter().map(|&place| members[place].node.clone()).collect();
        let prefer = holders_before.get(named.as_slice()).copied().unwrap_or_default();
        let mut holders: Vec<usize> = Vec::with_capacity(parity);
        for _ in 0..parity {
            let free = (0..members.len()).filter(|place| !group.contains(place) && !holders.contains(place));
            let best = free.min_by_key(|&place| {
                let near = group.iter().chain(&holders);
                let shared: u64 = near.map(|&other| exposure(&members[place], &members[other])).sum();
                let moved = !prefer.contains(&members[place].node);
                (load[place] >= most, shared, moved, load[place], place)
            });
            let Some(best) = best else { break };
            load[best] += 1;
            holders.push(best);
        }
        planned.push(ParityGroup {
            members: named,
            holders: holders.into_iter().map(|place| members[place].node.clone()).collect(),
        });
    }
    planned
}
