//! Several nodes bring one checkpoint to the object tier, each the shards of its ranks; one of them looks when they are there,
//! does what is left ([`ObjectTier::push`]) and puts the manifest.

use std::collections::BTreeSet;

use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::{CheckpointId, index_file};
use rankguard_model::{JobId, Rank};

use super::push::Put;
use super::{ObjectError, ObjectTier};

/// Stands in the folder of a checkpoint while several nodes bring it.
pub(super) const ANNOUNCED_FILE: &str = "UNDER-WAY";

const ANNOUNCED_TEXT: &[u8] = b"the nodes of the job bring their shards of this checkpoint now\n";

/// Who of several nodes brings what. All that compute it with the same numbers agree, and every rank has one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The position of a node among them.
    pub node: u32,
    /// How many there are, at least 1.
    pub nodes: u32,
    /// Ranks of each, at least 1; they are numbered node by node.
    pub ranks_per_node: u32,
}

impl Share {
    /// Whether the shards of a rank are this node's to bring, whichever checkpoint they are of.
    pub fn is_own(&self, rank: Rank) -> bool {
        rank.0 / self.ranks_per_node.max(1) % self.nodes.max(1) == self.node
    }

    /// Whether this node ends what they have begun.
    pub fn is_first(&self) -> bool {
        self.node == 0
    }
}

impl ObjectTier {
    /// Brings the shards and indexes of a node's ranks, and no manifest: the checkpoint does not exist there yet. Gives the
    /// bytes that were sent. May be repeated, and goes on where it stopped.
    pub async fn push_share(
        &self,
        store: &Store,
        job: &JobId,
        id: CheckpointId,
        share: Share,
    ) -> Result<u64, ObjectError> {
        let checkpoint = store.load(job, id)?;
        if self.size(&self.manifest_place(job, id)?).await?.is_some() {
            return Ok(0);
        }
        self.refuse_stale(job, id).await?;
        let puts = self.put_shards(store, &checkpoint, &|rank| share.is_own(rank)).await?;
        let sent = puts.iter().map(|put| match put {
            Put::Sent(bytes) => *bytes,
            Put::AlreadyThere(_) => 0,
        });
        Ok(sent.sum())
    }

    /// Says to the other nodes that this checkpoint is the one that the first node brings now. No part of it: a hint, which may be
    /// lost.
    pub async fn announce(&self, job: &JobId, id: CheckpointId) -> Result<(), ObjectError> {
        let place = self.place(job, id, ANNOUNCED_FILE)?;
        self.put_new(&place, ANNOUNCED_TEXT.to_vec()).await.map(drop)
    }

    /// Whether the first node brings this checkpoint now.
    pub async fn is_announced(&self, job: &JobId, id: CheckpointId) -> Result<bool, ObjectError> {
        let place = self.place(job, id, ANNOUNCED_FILE)?;
        Ok(self.size(&place).await?.is_some())
    }

    /// The checkpoint is there, or nobody brings it any more.
    pub async fn withdraw(&self, job: &JobId, id: CheckpointId) -> Result<(), ObjectError> {
        self.remove_object(&self.place(job, id, ANNOUNCED_FILE)?).await
    }

    /// Ranks whose shards are not there as a whole: an index is put after its shard.
    pub async fn missing(&self, store: &Store, job: &JobId, id: CheckpointId) -> Result<Vec<Rank>, ObjectError> {
        let world_size = store.manifest(job, id)?.world_size;
        // One request for a thousand names, and not one for each.
        let there: BTreeSet<String> = self.names(job, id).await?.into_iter().collect();
        let ranks = (0..world_size).map(Rank);
        Ok(ranks.filter(|rank| !there.contains(&index_file(*rank))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_one_owner_however_many_nodes_there_are_now() {
        for (nodes, ranks_per_node, world) in [(1, 1, 5), (3, 2, 6), (2, 2, 9), (4, 1, 3)] {
            let share = |node| Share {
                node,
                nodes,
                ranks_per_node,
            };
            for rank in (0..world).map(Rank) {
                let owners = (0..nodes).filter(|node| share(*node).is_own(rank));
                assert_eq!(owners.count(), 1, "{rank} of {world} on {nodes} nodes");
            }
        }
    }
}
