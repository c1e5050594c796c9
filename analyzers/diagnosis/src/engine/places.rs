//! Index of signs by node, for engines that look it up for every candidate.

use rankguard_model::NodeId;

use crate::Sign;

/// Signs of a scene with their indices, grouped by node and in order within a node; signs without a node, or with the
/// empty name of an unknown node, come first.
pub(super) struct Places<'a>(Vec<(usize, &'a Sign)>);

impl<'a> Places<'a> {
    pub(super) fn new(signs: impl Iterator<Item = (usize, &'a Sign)>) -> Self {
        let mut all: Vec<_> = signs.collect();
        all.sort_by(|(_, one), (_, other)| one.node().cmp(&other.node()));
        Self(all)
    }

    /// Returns the signs that name this node.
    pub(super) fn on(&self, node: &NodeId) -> &[(usize, &'a Sign)] {
        let from = self.0.partition_point(|(_, sign)| sign.node() < Some(node));
        let of = &self.0[from..];
        &of[..of.partition_point(|(_, sign)| sign.node() == Some(node))]
    }

    /// Returns the signs that name no node.
    fn nowhere(&self) -> &[(usize, &'a Sign)] {
        &self.0[..self.0.partition_point(|(_, sign)| named(sign).is_none())]
    }

    /// Returns the signs that may concern the same node as `sign`: both name it, or one of them names none.
    pub(super) fn beside(&self, sign: &Sign) -> impl Iterator<Item = (usize, &'a Sign)> {
        let (one, other): (&[_], &[_]) = match named(sign) {
            Some(node) => (self.on(node), self.nowhere()),
            None => (&self.0, &[]),
        };
        one.iter().chain(other).copied()
    }
}

fn named(sign: &Sign) -> Option<&NodeId> {
    sign.node().filter(|node| !node.as_str().is_empty())
}
