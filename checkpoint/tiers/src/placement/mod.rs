//! Who keeps whose replica or parity, over failure domains.
//!
//! Nodes that fail together are told apart by their *domains*: a path from the largest to the smallest thing that they
//! share with others (`["row-2", "rack-7"]`). Two copies are the better placed the fewer steps of that path they share;
//! they never share the node.
//!
//! *Replicas* follow GEMINI (Wang et al., SOSP 2023): groups of `copies` nodes in which each keeps the images of all
//! others, because groups survive more losses than rings do; where `copies` does not divide the number of nodes, the
//! last group is larger and is a ring, in which each keeps the images of those before it. So any number of nodes will
//! do, and everyone keeps exactly `copies - 1` images. *Parity* has groups of any size, and its holders are nodes
//! outside of the group, so that a node that is lost costs no group more than one piece.
//!
//! Invariants: pure and deterministic (a function of the members and the plan before); a change of membership moves
//! what it must and little more, since groups are kept, filled up and evened out rather than made anew.
//!
//! Absent: weights for nodes with less memory, and any notion of how far apart domains are.

mod groups;
mod parity;
mod replicas;

use rankguard_model::NodeId;
use serde::{Deserialize, Serialize};

pub use parity::{ParityGroup, plan_parity};
pub use replicas::{COPIES_MAX, Replicas, plan_replicas};

/// Most steps of a domain path that count; what lies deeper is taken as one domain.
pub const LEVELS_MAX: usize = 3;

/// A node and what it shares with others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// Its failure domains, largest first; empty when nothing is known of them.
    pub domains: Vec<String>,
}

impl Member {
    /// A node in a path of domains.
    pub fn new(node: &str, domains: &[&str]) -> Self {
        Self {
            node: NodeId::from(node),
            domains: domains.iter().map(|&domain| domain.to_owned()).collect(),
        }
    }
}

/// How many steps of their paths two nodes share, from the largest domain on: 0 is what one wants.
pub fn shared(one: &Member, other: &Member) -> usize {
    let pairs = one.domains.iter().zip(&other.domains).take(LEVELS_MAX);
    pairs.take_while(|(one, other)| one == other).count()
}

/// What it costs to have two nodes answer for each other: sharing a small domain is worse than any number of pairs that
/// share only a large one.
fn exposure(one: &Member, other: &Member) -> u64 {
    match shared(one, other) {
        0 => 0,
        level => 1 << (20 * (level - 1)),
    }
}

/// Members by name, each once: the order that every plan starts from.
fn in_order(members: &[Member]) -> Vec<Member> {
    let mut members = members.to_vec();
    members.sort();
    members.dedup_by(|one, other| one.node == other.node);
    members
}
