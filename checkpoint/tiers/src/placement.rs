//! Placement of replicas and parity on nodes, over failure domains.
//!
//! The failure *domains* of a node are a path from the largest to the smallest unit that it shares with other nodes
//! (`["row-2", "rack-7"]`). Two copies are placed better the fewer steps of that path they share; they never share the
//! node.
//!
//! *Replicas* follow GEMINI (Wang et al., SOSP 2023): groups of `copies` nodes in which each node holds the images of
//! all others, because groups survive more losses than rings do. Where `copies` does not divide the number of nodes,
//! the last group is larger and is a ring, in which each node holds the images of its predecessors. Any number of nodes
//! works, and every node holds exactly `copies - 1` images.
//!
//! *Parity* has groups of any size and holders outside the group, so that a lost node costs no group more than one
//! piece.
//!
//! Invariants: pure and deterministic (a function of the members and the previous plan); a change of membership moves
//! little more than it must, because groups are retained, filled up and levelled instead of rebuilt.
//!
//! Absent: weights for nodes with less memory, and distances between domains.

mod groups;
mod parity;
mod replicas;

use rankguard_model::NodeId;
use serde::{Deserialize, Serialize};

pub use parity::{ParityGroup, plan_parity};
pub use replicas::{COPIES_MAX, ReplicaPlacement, plan_replicas};

/// Maximum number of path steps that count; deeper ones are treated as one domain.
pub const LEVELS_MAX: usize = 3;

/// Node with its failure domains.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PlacementNode {
    pub node: NodeId,
    /// Failure domains, largest first; empty if unknown.
    pub domains: Vec<String>,
}

impl PlacementNode {
    /// Creates a member with a path of domains.
    pub fn new(node: &str, domains: &[&str]) -> Self {
        Self {
            node: NodeId::from(node),
            domains: domains.iter().map(|&domain| domain.to_owned()).collect(),
        }
    }
}

/// Returns the number of path steps that two nodes share, from the largest domain on: 0 is best.
pub fn shared(one: &PlacementNode, other: &PlacementNode) -> usize {
    let pairs = one.domains.iter().zip(&other.domains).take(LEVELS_MAX);
    pairs.take_while(|(one, other)| one == other).count()
}

/// Returns the cost of two nodes that protect each other: one pair in a small domain outweighs any number of pairs in a
/// large one.
fn exposure(one: &PlacementNode, other: &PlacementNode) -> u64 {
    match shared(one, other) {
        0 => 0,
        level => 1 << (20 * (level - 1)),
    }
}

/// Returns members sorted by name and unique, the start of every plan.
fn in_order(members: &[PlacementNode]) -> Vec<PlacementNode> {
    let mut members = members.to_vec();
    members.sort();
    members.dedup_by(|one, other| one.node == other.node);
    members
}
