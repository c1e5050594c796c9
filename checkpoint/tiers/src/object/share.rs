//! Push of one checkpoint by several nodes, each with the shards of its ranks. The first node waits until they are
//! complete, pushes the remainder ([`ObjectTier::push`]) and puts the manifest.

use std::collections::BTreeSet;

use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::{CheckpointId, index_file};
use rankguard_model::{JobId, Rank};

use super::push::ObjectWrite;
use super::{ObjectError, ObjectTier};

/// Name of the mark in a checkpoint folder while several nodes push to it.
pub(super) const ANNOUNCED_FILE: &str = "UNDER-WAY";

const ANNOUNCED_TEXT: &[u8] = b"the nodes of the job bring their shards of this checkpoint now\n";

/// Assignment of ranks to nodes for a push. All nodes compute the same assignment, and every rank has one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushShare {
    /// Index of this node.
    pub node: u32,
    /// Number of nodes, at least 1.
    pub nodes: u32,
    /// Ranks of each node, at least 1; ranks are numbered node by node.
    pub ranks_per_node: u32,
}

impl PushShare {
    /// Returns true if this node pushes the shards of a rank, of any checkpoint.
    pub fn is_own(&self, rank: Rank) -> bool {
        rank.0 / self.ranks_per_node.max(1) % self.nodes.max(1) == self.node
    }

    /// Returns true if this node completes and commits the push.
    pub fn is_first(&self) -> bool {
        self.node == 0
    }
}

impl ObjectTier {
    /// Pushes the shards and indexes of a node's ranks without a manifest, so the checkpoint does not exist there yet.
    /// Returns the bytes sent. May be repeated and resumes where it stopped.
    pub async fn push_share(
        &self,
        store: &Store,
        job: &JobId,
        id: CheckpointId,
        share: PushShare,
    ) -> Result<u64, ObjectError> {
        let checkpoint = store.load(job, id)?;
        if self.size(&self.manifest_place(job, id)?).await?.is_some() {
            return Ok(0);
        }
        self.refuse_stale(job, id).await?;
        let puts = self.put_shards(store, &checkpoint, &|rank| share.is_own(rank)).await?;
        let sent = puts.iter().map(|put| match put {
            ObjectWrite::Sent(bytes) => *bytes,
            ObjectWrite::AlreadyThere(_) => 0,
        });
        Ok(sent.sum())
    }

    /// Marks this checkpoint as the one that the first node pushes now. The mark is a hint that may be lost, not a part
    /// of the checkpoint.
    pub async fn announce(&self, job: &JobId, id: CheckpointId) -> Result<(), ObjectError> {
        let place = self.place(job, id, ANNOUNCED_FILE)?;
        self.put_new(&place, ANNOUNCED_TEXT.to_vec()).await.map(drop)
    }

    /// Returns true if the first node pushes this checkpoint now.
    pub async fn is_announced(&self, job: &JobId, id: CheckpointId) -> Result<bool, ObjectError> {
        let place = self.place(job, id, ANNOUNCED_FILE)?;
        Ok(self.size(&place).await?.is_some())
    }

    /// Removes the mark: the checkpoint is committed or its push was abandoned.
    pub async fn withdraw(&self, job: &JobId, id: CheckpointId) -> Result<(), ObjectError> {
        self.remove_object(&self.place(job, id, ANNOUNCED_FILE)?).await
    }

    /// Returns the ranks without an index, which is put after its shard.
    pub async fn missing(&self, store: &Store, job: &JobId, id: CheckpointId) -> Result<Vec<Rank>, ObjectError> {
        let world_size = store.manifest(job, id)?.world_size;
        // One listing returns a thousand names; a request for each would be slower.
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
            let share = |node| PushShare {
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
