//! Restore of a committed checkpoint into the boxes that a rank requests, for any number of ranks.

use std::collections::BTreeMap;
use std::sync::Mutex;

use rankguard_model::{Rank, RestoreBytes, with_causes};

use crate::arena::kernel;
use crate::failure::{ReadFailure, failure_of};
use crate::format::{ChunkDigest, Manifest, OwnTensors, PlanError, ShardIndex, TensorBox};
use crate::image::{ImageSink, SinkRegion};
use crate::source::{ChunkBytes, ChunkId, ChunkSource, SourceTier};
use crate::store::direct::READ;

mod pieces;

use pieces::{ChunkDestinations, RequestedChunk, wanted_chunks};

/// Number of concurrent reads of one restore. More than the number of processors on purpose: a thread that digests and
/// copies does not read, and the disk must not idle during a cold load. Reading threads use no processor.
const READS: usize = 4;

/// Statistics of a restore.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// Requested bytes, by the tier that supplied them.
    pub bytes: RestoreBytes,
    /// Number of chunks read and verified; each is counted once.
    pub chunks: u64,
    /// Bytes of those chunks. More than requested if only parts of chunks are needed; less if several ranks request the
    /// same chunk.
    pub read: u64,
    /// Damaged or unreadable copies, with the source of the good one; one sentence each.
    pub repairs: Vec<String>,
}

/// Error of a restore. The content of the destination is then unusable.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum RestoreError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("index of rank {rank} does not belong to the manifest: {problem}")]
    Foreign { rank: Rank, problem: &'static str },
    #[error("wanted boxes have {wanted} bytes and the destination {capacity}")]
    Destination { wanted: u64, capacity: u64 },
    #[error("no good copy of tensor {tensor}: rank {rank}, chunk {chunk}: {}", format_attempts(.tries))]
    NoGoodCopy {
        tensor: String,
        rank: Rank,
        chunk: u32,
        tries: Vec<ReadAttempt>,
    },
}

/// Failed attempt to read a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadAttempt {
    /// Tier of the source.
    pub tier: SourceTier,
    /// Name of the source.
    pub source: String,
    /// Description of the problem.
    pub problem: String,
    /// Classification of the problem.
    pub failure: ReadFailure,
}

impl RestoreError {
    /// Classifies the error. Only the tiers that store checkpoints permanently count (the store and object stores): a
    /// chunk is damaged if none of them has a good copy and all of them responded.
    pub fn failure(&self) -> ReadFailure {
        let Self::NoGoodCopy { tries, .. } = self else {
            return ReadFailure::Invalid;
        };
        let durable = tries.iter().filter(|one| one.tier == SourceTier::Disk);
        let found: Vec<ReadFailure> = durable.map(|one| one.failure).collect();
        let any = |failure| found.contains(&failure);
        if found.iter().any(|failure| failure.may_pass()) {
            ReadFailure::Unavailable
        } else if any(ReadFailure::Damaged) {
            ReadFailure::Damaged
        } else if any(ReadFailure::Missing) {
            ReadFailure::Missing
        } else {
            ReadFailure::Unavailable
        }
    }
}

fn format_attempts(tries: &[ReadAttempt]) -> String {
    if tries.is_empty() {
        return "no tier holds it".to_owned();
    }
    let each = tries.iter().map(|one| match one.tier.to_string() {
        tier if tier == one.source => format!("{tier}: {}", one.problem),
        tier => format!("{tier} ({}): {}", one.source, one.problem),
    });
    each.collect::<Vec<_>>().join("; ")
}

/// Restore request of one rank.
pub struct RankRestore<'a> {
    /// Requested boxes, in their order in the destination.
    pub wanted: &'a [TensorBox],
    /// Destination of the boxes.
    pub out: &'a mut dyn ImageSink,
    /// Reading rank, if the job has the world size of the checkpoint: for tensors that differ between ranks it gets its
    /// own part.
    pub reader: Option<Rank>,
}

/// Restores into memory; see [`assemble_into`].
pub fn assemble(
    manifest: &Manifest,
    indexes: &[ShardIndex],
    wanted: &[TensorBox],
    sources: &[&dyn ChunkSource],
    mut out: &mut [u8],
) -> Result<RestoreReport, RestoreError> {
    let bytes = size(wanted);
    if bytes != out.len() as u64 {
        return Err(RestoreError::Destination {
            wanted: bytes,
            capacity: out.len() as u64,
        });
    }
    assemble_into(manifest, indexes, wanted, sources, &mut out)
}

/// Writes the requested boxes in sequence to `out`. Each needed chunk is read once, from the first source with a copy
/// of the digest in its index (RG-2). `indexes` are those of [`crate::Checkpoint`]; if several ranks hold the same box,
/// the earlier index supplies it, so callers list ranks of this node first.
pub fn assemble_into(
    manifest: &Manifest,
    indexes: &[ShardIndex],
    wanted: &[TensorBox],
    sources: &[&dyn ChunkSource],
    out: &mut dyn ImageSink,
) -> Result<RestoreReport, RestoreError> {
    let reader = None;
    assemble_many(manifest, indexes, &mut [RankRestore { wanted, out, reader }], sources)
}

/// Returns the tensors of which this reader gets its own part, if it has the world size of the checkpoint.
pub(crate) fn own_tensors(reader: Option<Rank>, indexes: &[ShardIndex]) -> OwnTensors {
    reader.map_or_else(OwnTensors::default, |rank| OwnTensors::of(rank, indexes))
}

/// Restores for several ranks at once: a chunk that several of them request is read once.
pub fn assemble_many(
    manifest: &Manifest,
    indexes: &[ShardIndex],
    requests: &mut [RankRestore<'_>],
    sources: &[&dyn ChunkSource],
) -> Result<RestoreReport, RestoreError> {
    indexes.iter().try_for_each(|index| check_index(manifest, index))?;
    for request in &*requests {
        let wanted = size(request.wanted);
        let capacity = request.out.capacity();
        if wanted > capacity {
            return Err(RestoreError::Destination { wanted, capacity });
        }
    }
    let by_rank: BTreeMap<Rank, &ShardIndex> = indexes.iter().map(|index| (index.rank, index)).collect();
    let wanted = wanted_chunks(requests, indexes)?;
    let jobs = RestoreQueue {
        queue: Mutex::new(shares_of(wanted)),
        by_rank,
        sources,
        report: Mutex::default(),
    };
    let threads = READS.min(jobs.queue.lock().expect("nobody has it yet").len());
    std::thread::scope(|scope| {
        // The caller's thread does not work: per-thread read buffers are freed when the threads end.
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(|| jobs.work())).collect();
        let all = all.into_iter().map(|one| one.join().expect("a restore does not panic"));
        // Report the first error in thread order; the choice of the chunk does not matter.
        all.fold(Ok(()), Result::and)
    })?;
    let mut report = jobs.report.into_inner().expect("no holder of the report panics");
    report.repairs.sort();
    Ok(report)
}

fn size(wanted: &[TensorBox]) -> u64 {
    wanted.iter().filter_map(TensorBox::bytes).fold(0, u64::saturating_add)
}

/// Checks that an index belongs to the manifest, so that two checkpoints are never mixed.
fn check_index(manifest: &Manifest, index: &ShardIndex) -> Result<(), RestoreError> {
    let rank = index.rank;
    let foreign = |problem| Err(RestoreError::Foreign { rank, problem });
    if index.check().is_err() {
        return foreign("it contradicts itself");
    }
    if index.job != manifest.job || index.id() != manifest.id() || index.world_size != manifest.world_size {
        return foreign("it is of another checkpoint");
    }
    match manifest.shards.get(rank.0 as usize) {
        Some(shard) if shard.bytes == index.image_bytes => Ok(()),
        _ => foreign("the manifest names no such shard"),
    }
}

/// Groups the chunks of one file, sorted by offset, into reads of limited size. Threads take groups in order, so that
/// each file is read sequentially.
fn shares_of(mut wanted: Vec<RequestedChunk<'_>>) -> Vec<Vec<RequestedChunk<'_>>> {
    wanted.sort_by_key(|one| (one.id.place.file, one.id.place.at));
    let mut shares = Vec::<Vec<RequestedChunk<'_>>>::new();
    let mut filled = 0;
    for one in wanted {
        filled += u64::from(one.id.bytes());
        match shares.last_mut() {
            Some(share) if filled <= READ as u64 && share[0].id.place.file == one.id.place.file => share.push(one),
            _ => {
                filled = u64::from(one.id.bytes());
                shares.push(vec![one]);
            }
        }
    }
    // Groups are popped from the end.
    shares.reverse();
    shares
}

/// Reason for refusing a copy of a chunk, and its classification.
type CopyRefusal = (String, ReadFailure);

/// State shared by the threads of a restore.
struct RestoreQueue<'a> {
    queue: Mutex<Vec<Vec<RequestedChunk<'a>>>>,
    by_rank: BTreeMap<Rank, &'a ShardIndex>,
    sources: &'a [&'a dyn ChunkSource],
    report: Mutex<RestoreReport>,
}

impl RestoreQueue<'_> {
    fn work(&self) -> Result<(), RestoreError> {
        let mut report = RestoreReport::default();
        let next = || self.queue.lock().expect("no holder of the queue panics").pop();
        while let Some(share) = next() {
            if let Err(error) = self.fetch(share, &mut report) {
                // The remaining groups are no longer needed.
                self.queue.lock().expect("no holder of the queue panics").clear();
                return Err(error);
            }
        }
        let mut all = self.report.lock().expect("no holder of the report panics");
        all.bytes.arena += report.bytes.arena;
        all.bytes.peer += report.bytes.peer;
        all.bytes.disk += report.bytes.disk;
        (all.chunks, all.read) = (all.chunks + report.chunks, all.read + report.read);
        all.repairs.append(&mut report.repairs);
        Ok(())
    }

    /// Tries one source after the other until every chunk of a group was read with the right digest.
    fn fetch(&self, mut open: Vec<RequestedChunk<'_>>, report: &mut RestoreReport) -> Result<(), RestoreError> {
        for (rank, source) in self.sources.iter().enumerate() {
            let mut healed = Vec::new();
            let mut good = vec![false; open.len()];
            let (ids, mut places): (Vec<&ChunkId>, Vec<&mut ChunkDestinations<'_>>) =
                open.iter_mut().map(|wanted| (&wanted.id, &mut wanted.places)).unzip();
            source.chunks(&ids, &mut |nth, answer| {
                let Some((id, places)) = ids.get(nth).zip(places.get_mut(nth)).filter(|_| !good[nth]) else {
                    return;
                };
                let (problem, failure) = match answer {
                    Ok(None) => return,
                    Ok(Some(bytes)) => match places.copy_chunk(id, bytes) {
                        Ok(()) => {
                            good[nth] = true;
                            if !places.tries.is_empty() {
                                healed.extend(id.private_copy(bytes).map(|copy| (nth, copy)));
                            }
                            return;
                        }
                        Err(wrong) => wrong,
                    },
                    Err(error) => (with_causes(error.as_ref()), failure_of(&error)),
                };
                places.tries.push(ReadAttempt {
                    tier: source.tier(),
                    source: source.name(),
                    problem,
                    failure,
                });
            });
            for (nth, copy) in healed {
                // Offer the good copy to the sources that supplied a bad one or none.
                for before in &self.sources[..rank] {
                    if matches!(before.heal(&open[nth].id, &copy), Ok(true)) {
                        open[nth].places.healed.push(before.name());
                    }
                }
            }
            for (wanted, _) in open.iter().zip(&good).filter(|(_, good)| **good) {
                self.record_source(wanted, *source, report);
            }
            let mut nth = 0;
            open.retain(|_| {
                nth += 1;
                !good[nth - 1]
            });
            if open.is_empty() {
                return Ok(());
            }
        }
        let wanted = open.swap_remove(0);
        let index = self.by_rank[&wanted.id.rank];
        Err(RestoreError::NoGoodCopy {
            tensor: index.tensor_in(wanted.id.chunk).to_owned(),
            rank: wanted.id.rank,
            chunk: wanted.id.chunk,
            tries: wanted.places.tries,
        })
    }

    fn record_source(&self, wanted: &RequestedChunk<'_>, source: &dyn ChunkSource, report: &mut RestoreReport) {
        report.chunks += 1;
        report.read += u64::from(wanted.id.bytes());
        *match source.tier() {
            SourceTier::Arena => &mut report.bytes.arena,
            SourceTier::Peer => &mut report.bytes.peer,
            SourceTier::Disk => &mut report.bytes.disk,
        } += wanted.places.bytes();
        if !wanted.places.tries.is_empty() {
            let tensor = self.by_rank[&wanted.id.rank].tensor_in(wanted.id.chunk);
            report.repairs.push(format!(
                "checkpoint {}, rank {}, chunk {}, tensor {tensor}: {}; taken from {} instead{}",
                wanted.id.checkpoint,
                wanted.id.rank,
                wanted.id.chunk,
                format_attempts(&wanted.places.tries),
                source.name(),
                match wanted.places.healed.as_slice() {
                    [] => String::new(),
                    healed => format!(", and written back to {}", healed.join(", ")),
                }
            ));
        }
    }
}

impl ChunkDestinations<'_> {
    /// Copies a verified chunk to its destinations. The digest is computed during the copy: bytes of a wrong chunk are
    /// overwritten by the right one, or the whole restore fails.
    fn copy_chunk(&mut self, id: &ChunkId, bytes: ChunkBytes<'_>) -> Result<(), CopyRefusal> {
        let length = id.bytes() as usize;
        match bytes {
            ChunkBytes::Private(bytes) if bytes.len() != length => {
                let problem = format!("gave {} bytes where the chunk has {length}", bytes.len());
                Err((problem, ReadFailure::Damaged))
            }
            ChunkBytes::Private(bytes) => self.take_private(id, bytes),
            ChunkBytes::Sealed(image) => {
                let out_of_arena = |problem: crate::arena::ArenaError| (problem.to_string(), ReadFailure::Unavailable);
                let whole = match self.pieces.as_mut_slice() {
                    [(_, piece)] if piece.len() == length => piece.memory(),
                    _ => None,
                };
                if let Some(memory) = whole {
                    return id.check(image.copy_out(id.at, memory).map_err(out_of_arena)?);
                }
                let mut private = vec![0; length];
                image.copy_out(id.at, &mut private).map_err(out_of_arena)?;
                self.take_private(id, &private)
            }
        }
    }

    fn take_private(&mut self, id: &ChunkId, bytes: &[u8]) -> Result<(), CopyRefusal> {
        let mut pieces = self.pieces.iter_mut();
        match pieces.next() {
            Some((_, first)) if first.len() == bytes.len() => id.check(first.put(bytes))?,
            first => {
                id.check(kernel::digest(bytes))?;
                first.into_iter().for_each(|piece| put(piece, bytes));
            }
        }
        pieces.for_each(|piece| put(piece, bytes));
        Ok(())
    }

    /// Returns the number of requested bytes over all destinations.
    fn bytes(&self) -> u64 {
        self.pieces.iter().map(|(_, piece)| piece.len() as u64).sum()
    }
}

fn put((from, piece): &mut (usize, SinkRegion<'_>), bytes: &[u8]) {
    let to = *from + piece.len();
    piece.put(&bytes[*from..to]);
}

impl ChunkId {
    fn check(&self, found: ChunkDigest) -> Result<(), CopyRefusal> {
        if found == self.digest {
            return Ok(());
        }
        let problem = format!("damaged: digest is {found}, the index says {}", self.digest);
        Err((problem, ReadFailure::Damaged))
    }
}
