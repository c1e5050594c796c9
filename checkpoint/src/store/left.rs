//! What an ended generation has left of checkpoints that nobody committed.

use rankguard_model::{Generation, JobId, Rank, ShardSeal, Step};

use crate::format::{CheckpointId, MAX_INDEX_BYTES, ShardIndex, index_file};
use crate::store::shard::seal;
use crate::store::{Store, StoreError, files};

/// Attempts that are looked at, the newest.
const ATTEMPTS_MAX: usize = 8;

impl Store {
    /// Shards that a generation has put into folders without a manifest, of later steps than `after`, in no order: those with
    /// an index that is sound, a file of the right length and files that are there for what they borrow. So whoever was to tell
    /// of them need not come back. [`Store::commit`] looks at each again.
    pub fn left_by(
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
            seals.extend(ranks.filter_map(|rank| self.left_shard(job, id, rank)));
        }
        Ok(seals)
    }

    /// The newest generation that has a folder, committed or not. A job that is given such a number again would meet shards
    /// that are not its own.
    pub fn newest_generation(&self, job: &JobId) -> Result<Option<Generation>, StoreError> {
        let folders = self.folders(job)?.into_iter();
        Ok(folders.map(|(id, _)| id.generation).max())
    }

    /// What the manifest would need to know of a shard, if that is whole.
    pub fn left_shard(&self, job: &JobId, id: CheckpointId, rank: Rank) -> Option<ShardSeal> {
        let bytes = files::read(&self.index_path(job, id, rank).ok()?, MAX_INDEX_BYTES).ok()?;
        let index = ShardIndex::from_bytes(&bytes).ok()?;
        let own = (&index.job, index.id(), index.rank) == (job, id, rank);
        self.check_files(&index).ok().filter(|()| own)?;
        Some(seal(&index, &bytes))
    }
}

/// The rank whose index has this name.
fn rank_of(name: &str) -> Option<Rank> {
    let number = name.strip_prefix("rank-")?.strip_suffix(".index")?;
    let rank = Rank(number.parse().ok()?);
    (index_file(rank) == name).then_some(rank)
}
