//! Chunks of a shard that need no write: chunks that another rank of this node writes for the same checkpoint
//! (replicas), and chunks that are on disk since the previous checkpoint (deltas).
//!
//! Equality is found by digest, so no rank needs to know which rank holds a copy. The first rank writes; later ranks
//! borrow from its file, and write their index only once that file is complete. Replicas on other nodes are not known
//! here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use rankguard_checkpoint::format::{CheckpointId, KnownChunks, ShardIndex};
use rankguard_model::{JobId, Rank};

/// Divisor of the image size: borrowing must save at least this part, because a shard that borrows is copied before it
/// is written.
const LEAST_SAVED: u64 = 8;

/// Divisor of the image size: a delta must save at least this part, because it retains the older files on disk.
const LEAST_SAVED_BY_DELTA: u64 = 4;

/// Maximum number of earlier shards that one shard borrows from: each of them is retained on disk whole.
const ORIGINS_MAX: usize = 8;

/// Longest wait for the shard of another rank; after it, this shard is written whole.
const WAIT: Duration = Duration::from_secs(120);

/// Job and checkpoint that shards are written for.
type CheckpointKey = (JobId, CheckpointId);

/// Shards of this node that are being written or were written, for the newest checkpoints of each job.
#[derive(Debug, Default)]
pub(super) struct ChunkDeduplicator {
    attempts: Mutex<BTreeMap<CheckpointKey, BTreeMap<Rank, ShardProgress>>>,
    changed: Condvar,
}

#[derive(Debug)]
struct ShardProgress {
    /// Index as it is, or will be, on disk.
    index: ShardIndex,
    /// Result of the write: true if complete; `None` while it runs.
    whole: Option<bool>,
}

/// Shard that is about to be written.
#[derive(Debug)]
pub(super) struct DedupedWrite<'a> {
    dedupe: &'a ChunkDeduplicator,
    attempt: CheckpointKey,
    rank: Rank,
    known: KnownChunks,
    borrows_from: BTreeSet<Rank>,
}

impl ChunkDeduplicator {
    /// Registers a shard that will be written. `parent` is a shard that is on disk and is retained there.
    pub(super) fn begin(&self, index: &ShardIndex, parent: Option<&ShardIndex>) -> DedupedWrite<'_> {
        let attempt = (index.job.clone(), index.id());
        let mut attempts = self.attempts.lock().expect("no holder of the attempts panics");
        attempts.retain(|(job, id), shards| {
            *job != attempt.0 || *id >= attempt.1 || shards.values().any(|shard| shard.whole.is_none())
        });
        let shards = attempts.entry(attempt.clone()).or_default();
        let (known, lean) = choose(index, shards, parent);
        let own = lean.id();
        let borrows_from = lean.origins.iter().filter(|origin| origin.id() == own);
        let borrows_from = borrows_from.map(|origin| origin.rank).collect();
        let shard = ShardProgress {
            index: lean,
            whole: None,
        };
        shards.insert(index.rank, shard);
        DedupedWrite {
            dedupe: self,
            attempt,
            rank: index.rank,
            known,
            borrows_from,
        }
    }

    pub(super) fn forget(&self, job: &JobId) {
        let mut attempts = self.attempts.lock().expect("no holder of the attempts panics");
        attempts.retain(|(of, _), _| of != job);
        self.changed.notify_all();
    }

    fn end(&self, turn: &DedupedWrite<'_>, written: Option<ShardIndex>) {
        let mut attempts = self.attempts.lock().expect("no holder of the attempts panics");
        let shards = attempts.get_mut(&turn.attempt);
        if let Some(shard) = shards.and_then(|shards| shards.get_mut(&turn.rank)) {
            shard.whole.get_or_insert(written.is_some());
            // The written index can differ from the planned one.
            if let Some(written) = written {
                shard.index = written;
            }
        }
        self.changed.notify_all();
    }
}

/// Selects the chunks to borrow and returns them with the resulting index; nothing is borrowed where it would save too
/// little.
fn choose(
    index: &ShardIndex,
    shards: &BTreeMap<Rank, ShardProgress>,
    parent: Option<&ShardIndex>,
) -> (KnownChunks, ShardIndex) {
    let mut known = KnownChunks::default();
    // Only chunks in these shards' own files count, not those that they borrow from the previous checkpoint.
    let lenders = shards
        .values()
        .filter(|shard| shard.whole != Some(false) && shard.index.borrowed.is_empty());
    for shard in lenders.filter(|shard| is_worth(index, &shard.index, LEAST_SAVED)) {
        known.add(&shard.index);
    }
    let mut lean = index.borrowing(&known);
    if saved(index, &lean) < index.image_bytes / LEAST_SAVED {
        (known, lean) = (KnownChunks::default(), index.clone());
    }
    if let Some(parent) = parent.filter(|parent| is_worth(index, parent, LEAST_SAVED_BY_DELTA)) {
        let mut more = known.clone();
        more.add(parent);
        let leaner = index.borrowing(&more);
        let enough = saved(&lean, &leaner) >= index.image_bytes / LEAST_SAVED_BY_DELTA;
        if enough && leaner.origins.len() <= ORIGINS_MAX {
            (known, lean) = (more, leaner);
        }
    }
    (known, lean)
}

/// Returns the bytes that `lean` writes less than `index`.
fn saved(index: &ShardIndex, lean: &ShardIndex) -> u64 {
    index.file_bytes().saturating_sub(lean.file_bytes())
}

/// Returns true if at least one of `part` chunks is equal at the same position of both shards: a cheap test that holds
/// for any copy or older version.
fn is_worth(index: &ShardIndex, other: &ShardIndex, part: u64) -> bool {
    let same = index
        .chunks
        .iter()
        .zip(&other.chunks)
        .filter(|(one, other)| one == other);
    same.count() as u64 * part >= index.chunks.len() as u64
}

impl DedupedWrite<'_> {
    /// Returns the chunks to borrow: waits until the shards that hold them are on disk, and returns none if one of
    /// them fails.
    pub(super) fn known(&self) -> KnownChunks {
        let until = Instant::now() + WAIT;
        let mut attempts = self.dedupe.attempts.lock().expect("no holder of the attempts panics");
        loop {
            let shards = attempts.get(&self.attempt);
            let state = |rank: &Rank| shards.and_then(|shards| shards.get(rank)).map(|shard| shard.whole);
            let states: Vec<Option<Option<bool>>> = self.borrows_from.iter().map(state).collect();
            if states.iter().all(|state| *state == Some(Some(true))) {
                return self.known.clone();
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || states.iter().any(|state| matches!(state, None | Some(Some(false)))) {
                return KnownChunks::default();
            }
            let waited = self.dedupe.changed.wait_timeout(attempts, left);
            attempts = waited.expect("no holder of the attempts panics").0;
        }
    }

    /// Records that the shard is on disk as `written` describes it; others may borrow from it.
    pub(super) fn end_whole(self, written: ShardIndex) {
        self.dedupe.end(&self, Some(written));
    }
}

impl Drop for DedupedWrite<'_> {
    fn drop(&mut self) {
        self.dedupe.end(self, None);
    }
}

#[cfg(test)]
mod tests {
    use rankguard_checkpoint::format::{Dtype, TensorBox};
    use rankguard_model::{Generation, Step};

    use super::*;

    /// A shard of so many chunks, of which the first `own` are unique to this rank.
    fn shard(step: u64, rank: u32, own: u8) -> ShardIndex {
        let id = CheckpointId {
            step: Step(step),
            generation: Generation(1),
        };
        let (tensors, _) = ShardIndex::lay_out([TensorBox::whole("w", Dtype::U8, vec![16 * 64])]);
        let mut index = ShardIndex {
            rank: Rank(rank),
            world_size: 4,
            chunk_bytes: 64,
            image_bytes: 16 * 64,
            tensors,
            ..ShardIndex::new(&JobId::from("train"), id)
        };
        let byte = |at: usize| match (at / 64) as u8 {
            chunk if chunk < own => 100 + 16 * rank as u8 + chunk + step as u8,
            chunk => chunk,
        };
        let image: Vec<u8> = (0..16 * 64).map(byte).collect();
        index.digest_image(&image);
        index
    }

    fn written(index: &ShardIndex, turn: &DedupedWrite<'_>) -> u64 {
        index.borrowing(&turn.known()).file_bytes()
    }

    #[test]
    fn a_replica_waits_for_the_one_before_it_and_writes_nothing() {
        let dedupe = ChunkDeduplicator::default();
        let first = shard(1, 0, 0);
        let second = shard(1, 1, 0);
        let writes = dedupe.begin(&first, None);
        assert_eq!(written(&first, &writes), 16 * 64);
        let behind = dedupe.begin(&second, None);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| written(&second, &behind));
            writes.end_whole(first.clone());
            assert_eq!(waits.join().expect("no panic"), 0);
        });
    }

    #[test]
    fn when_the_one_before_fails_everything_is_written() {
        let dedupe = ChunkDeduplicator::default();
        let first = shard(1, 0, 0);
        let second = shard(1, 1, 0);
        let fails = dedupe.begin(&first, None);
        let behind = dedupe.begin(&second, None);
        drop(fails);
        assert_eq!(written(&second, &behind), 16 * 64);
        // A later rank does not try to borrow from it.
        behind.end_whole(second.clone());
        let third = shard(1, 2, 0);
        assert_eq!(dedupe.begin(&third, None).borrows_from, BTreeSet::from([Rank(1)]));
    }

    #[test]
    fn what_saves_little_is_written_and_a_delta_has_to_save_more() {
        let dedupe = ChunkDeduplicator::default();
        let before = shard(1, 0, 0);
        for (own, expected) in [(16, 16), (15, 16), (13, 16), (12, 12), (4, 4)] {
            let now = shard(2, 0, own);
            let turn = dedupe.begin(&now, Some(&before));
            assert_eq!(written(&now, &turn), expected * 64, "{own} of 16 chunks are new");
            turn.end_whole(now.clone());
        }
        let dedupe = ChunkDeduplicator::default();
        let first = shard(3, 0, 0);
        dedupe.begin(&first, None).end_whole(first.clone());
        for (own, expected) in [(15, 16), (14, 14)] {
            let now = shard(3, 1, own);
            let turn = dedupe.begin(&now, None);
            assert_eq!(
                written(&now, &turn),
                expected * 64,
                "{own} of 16 chunks are no replicas"
            );
        }
    }
}
