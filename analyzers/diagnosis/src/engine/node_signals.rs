//! Index of signs by node, for engines that look it up for every candidate.

use rankguard_model::NodeId;

use crate::Signal;

/// Signs of a scene with their indices, grouped by node and in order within a node; signs without a node, or with the
/// empty name of an unknown node, come first.
pub(super) struct NodeSignals<'a>(Vec<(usize, &'a Signal)>);

impl<'a> NodeSignals<'a> {
    pub(super) fn new(signs: impl Iterator<Item = (usize, &'a Signal)>) -> Self {
        let mut all: Vec<_> = signs.collect();
        all.sort_by(|(_, one), (_, other)| one.node().cmp(&other.node()));
        Self(all)
    }

    /// Returns the signs that name this node.
    pub(super) fn on(&self, node: &NodeId) -> &[(usize, &'a Signal)] {
        let from = self.0.partition_point(|(_, sign)| sign.node() < Some(node));
        let of = &self.0[from..];
        &of[..of.partition_point(|(_, sign)| sign.node() == Some(node))]
    }

    /// Returns the signs that name no node.
    fn nowhere(&self) -> &[(usize, &'a Signal)] {
        &self.0[..self.0.partition_point(|(_, sign)| named(sign).is_none())]
    }

    /// Returns the signs that may concern the same node as `sign`: both name it, or one of them names none.
    pub(super) fn beside(&self, sign: &Signal) -> impl Iterator<Item = (usize, &'a Signal)> {
        let (one, other): (&[_], &[_]) = match named(sign) {
            Some(node) => (self.on(node), self.nowhere()),
            None => (&self.0, &[]),
        };
        one.iter().chain(other).copied()
    }
}

fn named(sign: &Signal) -> Option<&NodeId> {
    sign.node().filter(|node| !node.as_str().is_empty())
}
