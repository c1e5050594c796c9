//! Signs by the node that they name, for engines that ask it for every candidate.

use std::collections::BTreeMap;

use rankguard_model::NodeId;

use crate::Sign;

/// Some signs of a scene, with their indices, in their order.
pub(super) struct Places<'a> {
    all: Vec<(usize, &'a Sign)>,
    of: BTreeMap<&'a NodeId, Vec<(usize, &'a Sign)>>,
    /// Those that name no node, or the empty one that stands for a node which nothing told.
    nowhere: Vec<(usize, &'a Sign)>,
}

impl<'a> Places<'a> {
    pub(super) fn new(signs: impl Iterator<Item = (usize, &'a Sign)>) -> Self {
        let all: Vec<_> = signs.collect();
        let (mut of, mut nowhere) = (BTreeMap::<_, Vec<_>>::new(), Vec::new());
        for (index, sign) in &all {
            if let Some(node) = sign.node() {
                of.entry(node).or_default().push((*index, *sign));
            }
            if named(sign).is_none() {
                nowhere.push((*index, *sign));
            }
        }
        Self { all, of, nowhere }
    }

    /// Signs that name this node.
    pub(super) fn on(&self, node: &NodeId) -> &[(usize, &'a Sign)] {
        self.of.get(node).map_or(&[], Vec::as_slice)
    }

    /// Signs that may speak of the same node as this one: both name it, or one of them names none.
    pub(super) fn beside(&self, sign: &Sign) -> impl Iterator<Item = (usize, &'a Sign)> {
        let (one, other): (&[_], &[_]) = match named(sign) {
            Some(node) => (self.on(node), &self.nowhere),
            None => (&self.all, &[]),
        };
        one.iter().chain(other).copied()
    }
}

fn named(sign: &Sign) -> Option<&NodeId> {
    sign.node().filter(|node| !node.as_str().is_empty())
}
