//! Images in the simulated store and on other nodes.

use std::collections::BTreeMap;

use rankguard_model::{FinishOrder, Generation, ImageLocation, NodeId, Rank, ShardSeal, Step};

use crate::SurvivingImages;

/// Key of an image.
type ImageKey = (Generation, Step, Rank);

/// Shards in the store, and copies that were not written to it.
#[derive(Debug, Clone, Default)]
pub(super) struct StoredImages {
    store: BTreeMap<ImageKey, ShardSeal>,
    copies: BTreeMap<(NodeId, ImageKey), ShardSeal>,
}

impl StoredImages {
    pub(super) fn put(&mut self, generation: Generation, seal: ShardSeal) {
        self.store.insert((generation, seal.step, seal.rank), seal);
    }

    /// Stores the remains of an image of a lost node, on another node for copies.
    pub(super) fn leave(
        &mut self,
        generation: Generation,
        seal: ShardSeal,
        left: SurvivingImages,
        other: Option<&NodeId>,
    ) {
        match (left, other) {
            (SurvivingImages::Shards, _) => self.put(generation, seal),
            (SurvivingImages::Copies, Some(other)) => {
                let of = (generation, seal.step, seal.rank);
                self.copies.insert((other.clone(), of), seal);
            }
            (SurvivingImages::Copies | SurvivingImages::Nothing, _) => {}
        }
    }

    pub(super) fn in_store(&self, of: Generation, after: Option<Step>) -> Vec<ShardSeal> {
        let later = |(generation, step, _): &ImageKey| *generation == of && after.is_none_or(|after| *step > after);
        let found = self.store.iter().filter(|(key, _)| later(key));
        found.map(|(_, seal)| seal.clone()).collect()
    }

    /// Writes the copies on a node to the store; returns the number of shards.
    pub(super) fn finish(&mut self, node: &NodeId, wanted: &FinishOrder) -> u32 {
        let here = |(holder, (generation, step, _)): &(NodeId, ImageKey)| {
            let later = wanted.after.is_none_or(|after| *step > after);
            holder == node && *generation == wanted.of && later && wanted.from == ImageLocation::Copies
        };
        let found = self.copies.iter().filter(|(key, _)| here(key));
        let found: Vec<ShardSeal> = found.map(|(_, seal)| seal.clone()).collect();
        let count = u32::try_from(found.len()).unwrap_or(u32::MAX);
        found.into_iter().for_each(|seal| self.put(wanted.of, seal));
        count
    }
}
