//! Shards that an ended generation left in uncommitted folders.

use rankguard_model::{Generation, JobId, Rank, ShardSeal, Step};

use crate::format::{CheckpointId, MAX_INDEX_BYTES, ShardIndex, index_file};
use crate::store::shard::seal;
use crate::store::{Store, StoreError, files};

/// Maximum number of attempts that are examined; the newest are examined.
const ATTEMPTS_MAX: usize = 8;

impl Store {
    /// Returns the shards that a generation wrote to folders without a manifest, for steps after `after`, unsorted:
    /// those with a valid index, a file of the right length and existing files for borrowed chunks. The agents that
    /// wrote them need not report again. [`Store::commit`] checks each again.
    pub fn uncommitted_shards_of(
        &self,
        job: &JobId,
        generation: Generation,
        after: Option<Step>,
    ) -> Result<Vec<ShardSeal>, StoreError> {
        let folders = self.folders(job)?.into_iter().rev();
        let left = folders.filter(|(id, committed)| {
            !committed && id.generation == generation && after.is_none_or(|after| id.step > after)
        });
        let mut seals = Vec::new();
        for (id, _) in left.take(ATTEMPTS_MAX) {
            let names = files::names(&self.dir(job, id)?)?.unwrap_or_default();
            let ranks = names.iter().filter_map(|name| rank_of(name));
            seals.extend(ranks.filter_map(|rank| self.uncommitted_shard(job, id, rank)));
        }
        Ok(seals)
    }

    /// Returns the newest generation with a folder, committed or not. A job that reused such a number would find shards
    /// that are not its own.
    pub fn newest_generation(&self, job: &JobId) -> Result<Option<Generation>, StoreError> {
        let folders = self.folders(job)?.into_iter();
        Ok(folders.map(|(id, _)| id.generation).max())
    }

    /// Returns the seal of a shard if its index and files are whole.
    pub fn uncommitted_shard(&self, job: &JobId, id: CheckpointId, rank: Rank) -> Option<ShardSeal> {
        let bytes = files::read(&self.index_path(job, id, rank).ok()?, MAX_INDEX_BYTES).ok()?;
        let index = ShardIndex::from_bytes(&bytes).ok()?;
        let own = (&index.job, index.id(), index.rank) == (job, id, rank);
        self.check_files(&index).ok().filter(|()| own)?;
        Some(seal(&index, &bytes))
    }
}

/// Returns the rank of an index file name.
fn rank_of(name: &str) -> Option<Rank> {
    let number = name.strip_prefix("rank-")?.strip_suffix(".index")?;
    let rank = Rank(number.parse().ok()?);
    (index_file(rank) == name).then_some(rank)
}
