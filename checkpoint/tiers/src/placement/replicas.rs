//! Placement of whole images on other nodes.

use rankguard_model::NodeId;
use serde::{Deserialize, Serialize};

use super::groups::regroup;
use super::{PlacementNode, exposure, in_order};

/// Maximum copies of an image, the original included. Beyond four, parity costs less for the same safety.
pub const COPIES_MAX: usize = 4;

/// Assignment of replicas to nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaPlacement {
    /// Copies of each image, the original included.
    pub copies: usize,
    /// Groups. In a group of `copies` nodes each holds the images of all others; a longer one is a ring in this order.
    pub groups: Vec<Vec<NodeId>>,
}

impl ReplicaPlacement {
    /// Returns the nodes that hold the images of `node`, nearest in the ring first; empty if it is not a member.
    pub fn holders_of(&self, node: &NodeId) -> Vec<NodeId> {
        self.around(node, |at, step, size| (at + step) % size)
    }

    /// Returns the nodes with images on `node`.
    pub fn sources_of(&self, node: &NodeId) -> Vec<NodeId> {
        self.around(node, |at, step, size| (at + size - step) % size)
    }

    fn around(&self, node: &NodeId, turn: impl Fn(usize, usize, usize) -> usize) -> Vec<NodeId> {
        let found = self.groups.iter().find_map(|group| {
            let at = group.iter().position(|member| member == node)?;
            Some((group, at))
        });
        let Some((group, at)) = found else {
            return Vec::new();
        };
        let steps = 1..self.copies.min(group.len());
        steps.map(|step| group[turn(at, step, group.len())].clone()).collect()
    }
}

/// Plans `copies` copies of each image (1 to [`COPIES_MAX`], limited by the number of nodes), with few moves from the
/// plan `before`.
pub fn plan_replicas(members: &[PlacementNode], copies: usize, before: Option<&ReplicaPlacement>) -> ReplicaPlacement {
    let members = in_order(members);
    let copies = copies.clamp(1, COPIES_MAX).min(members.len());
    if copies < 2 {
        let groups = members.into_iter().map(|member| vec![member.node]).collect();
        return ReplicaPlacement { copies, groups };
    }
    let count = members.len() / copies;
    let mut sizes = vec![copies; count];
    sizes[count - 1] += members.len() % copies;
    let before = before.map(|before| before.groups.as_slice()).unwrap_or_default();
    let mut groups = regroup(&members, &sizes, before);
    for group in groups.iter_mut().filter(|group| group.len() > copies) {
        *group = ring(&members, group, copies);
    }
    let named = groups
        .into_iter()
        .map(|group| group.into_iter().map(|place| members[place].node.clone()).collect());
    let groups = named.collect();
    ReplicaPlacement { copies, groups }
}

/// Returns the ring order in which each node's holders share the fewest domains with it; the current order is retained
/// on a tie. Rings have fewer than twice [`COPIES_MAX`] nodes, so every order is tried.
fn ring(members: &[PlacementNode], nodes: &[usize], copies: usize) -> Vec<usize> {
    let cost = |order: &[usize]| -> u64 {
        let pairs = (0..order.len()).flat_map(|at| (1..copies).map(move |step| (at, (at + step) % order.len())));
        pairs
            .map(|(at, keeper)| exposure(&members[order[at]], &members[order[keeper]]))
            .sum()
    };
    let mut best = nodes.to_vec();
    let mut order = nodes.to_vec();
    let mut least = cost(&best);
    orders(&mut order, 1, &mut |order| {
        let found = cost(order);
        if found < least {
            (least, best) = (found, order.to_vec());
        }
        least > 0
    });
    best
}

/// Visits every order of `list[from..]` until `look` returns false.
fn orders(list: &mut [usize], from: usize, look: &mut dyn FnMut(&[usize]) -> bool) -> bool {
    if from >= list.len() {
        return look(list);
    }
    for at in from..list.len() {
        list.swap(from, at);
        let more = orders(list, from + 1, look);
        list.swap(from, at);
        if !more {
            return false;
        }
    }
    true
}
