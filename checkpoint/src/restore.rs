//! From a committed checkpoint to the boxes a rank wants, on any number of ranks.

use std::collections::BTreeMap;
use std::io;

use rankguard_model::{Rank, RestoreBytes};

use crate::ImageSink;
use crate::format::{Digest, Manifest, PlanError, RangeCopy, ShardIndex, TensorBox, plan};
use crate::source::{ChunkId, ChunkSource, Tier};

/// What a restore did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// Wanted bytes, by the tier that supplied them.
    pub bytes: RestoreBytes,
    /// Chunks that were read and checked; each once.
    pub chunks: u64,
    /// Copies that were damaged or unreadable, and where a good one was found instead; a sentence each.
    pub repairs: Vec<String>,
}

/// Why a restore gives nothing. Bytes already written to the destination are good, but not all are there.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum RestoreError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("index of rank {rank} does not belong to the manifest: {problem}")]
    Foreign { rank: Rank, problem: &'static str },
    #[error("wanted boxes have {wanted} bytes and the destination {capacity}")]
    Destination { wanted: u64, capacity: u64 },
    #[error("no good copy of tensor {tensor}: rank {rank}, chunk {chunk}: {}", told(.tries))]
    NoGoodCopy {
        tensor: String,
        rank: Rank,
        chunk: u32,
        tries: Vec<Try>,
    },
    #[error("cannot write {bytes} bytes at {at} of the destination")]
    Write { at: u64, bytes: u64, source: io::Error },
}

/// A copy that was no good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Try {
    /// Its tier.
    pub tier: Tier,
    /// Its source.
    pub source: String,
    /// What was wrong with it.
    pub problem: String,
}

fn told(tries: &[Try]) -> String {
    if tries.is_empty() {
        return "no tier holds it".to_owned();
    }
    let each = tries.iter().map(|one| match one.tier.to_string() {
        tier if tier == one.source => format!("{tier}: {}", one.problem),
        tier => format!("{tier} ({}): {}", one.source, one.problem),
    });
    each.collect::<Vec<_>>().join("; ")
}

/// A piece of a chunk that is wanted.
struct Piece {
    in_chunk: usize,
    dest_at: u64,
    bytes: usize,
}

/// Restores into memory; see [`assemble_into`].
pub fn assemble(
    manifest: &Manifest,
    indexes: &[ShardIndex],
    wanted: &[TensorBox],
    sources: &[&dyn ChunkSource],
    mut out: &mut [u8],
) -> Result<RestoreReport, RestoreError> {
    let wanted_bytes = wanted.iter().filter_map(TensorBox::bytes).fold(0, u64::saturating_add);
    if wanted_bytes != out.len() as u64 {
        return Err(RestoreError::Destination {
            wanted: wanted_bytes,
            capacity: out.len() as u64,
        });
    }
    assemble_into(manifest, indexes, wanted, sources, &mut out)
}

/// Puts the wanted boxes, back to back in the order asked, into `out`. Each needed chunk is fetched once, from the first
/// source whose copy has the digest that its index states (RG-2). `indexes` are those of [`crate::Checkpoint`]; where
/// several ranks hold the same box, the earlier index supplies it, so put ranks of this node first.
pub fn assemble_into(
    manifest: &Manifest,
    indexes: &[ShardIndex],
    wanted: &[TensorBox],
    sources: &[&dyn ChunkSource],
    out: &mut dyn ImageSink,
) -> Result<RestoreReport, RestoreError> {
    indexes.iter().try_for_each(|index| belongs(manifest, index))?;
    let copies = plan(wanted, indexes)?;
    let wanted_bytes = wanted.iter().filter_map(TensorBox::bytes).fold(0, u64::saturating_add);
    if wanted_bytes > out.capacity() {
        return Err(RestoreError::Destination {
            wanted: wanted_bytes,
            capacity: out.capacity(),
        });
    }
    let by_rank: BTreeMap<Rank, &ShardIndex> = indexes.iter().map(|index| (index.rank, index)).collect();
    let mut report = RestoreReport::default();
    for ((rank, chunk), pieces) in pieces_by_chunk(&copies, &by_rank) {
        let index = by_rank[&rank];
        let (bytes, tier) = fetch(index, chunk, sources, &mut report)?;
        for piece in pieces {
            let part = &bytes[piece.in_chunk..piece.in_chunk + piece.bytes];
            out.write_at(piece.dest_at, part)
                .map_err(|source| RestoreError::Write {
                    at: piece.dest_at,
                    bytes: piece.bytes as u64,
                    source,
                })?;
            *match tier {
                Tier::Arena => &mut report.bytes.arena,
                Tier::Peer => &mut report.bytes.peer,
                Tier::Disk => &mut report.bytes.disk,
            } += piece.bytes as u64;
        }
        report.chunks += 1;
    }
    Ok(report)
}

/// Never a mix of two checkpoints.
fn belongs(manifest: &Manifest, index: &ShardIndex) -> Result<(), RestoreError> {
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

/// What is wanted of each chunk, in order of rank and chunk.
fn pieces_by_chunk(copies: &[RangeCopy], by_rank: &BTreeMap<Rank, &ShardIndex>) -> BTreeMap<(Rank, u32), Vec<Piece>> {
    let mut pieces: BTreeMap<(Rank, u32), Vec<Piece>> = BTreeMap::new();
    for copy in copies {
        let chunking = by_rank[&copy.shard_rank].chunking();
        let (mut at, end) = (copy.source_at, copy.source_at + copy.bytes);
        while at < end {
            let chunk = chunking.chunk_at(at);
            let range = chunking.range(chunk).expect("a plan stays within checked images");
            let to = end.min(range.end);
            pieces.entry((copy.shard_rank, chunk)).or_default().push(Piece {
                in_chunk: (at - range.start) as usize,
                dest_at: copy.dest_at + (at - copy.source_at),
                bytes: (to - at) as usize,
            });
            at = to;
        }
    }
    pieces
}

/// A good copy of a chunk, and where it came from.
fn fetch(
    index: &ShardIndex,
    chunk: u32,
    sources: &[&dyn ChunkSource],
    report: &mut RestoreReport,
) -> Result<(Vec<u8>, Tier), RestoreError> {
    let range = index
        .chunking()
        .range(chunk)
        .expect("a plan stays within checked images");
    let id = ChunkId {
        job: index.job.clone(),
        checkpoint: index.id(),
        rank: index.rank,
        chunk,
        at: range.start,
        bytes: (range.end - range.start) as u32,
        digest: index.chunks[chunk as usize],
    };
    let mut tries = Vec::new();
    for source in sources {
        match checked(*source, &id) {
            Ok(None) => {}
            Ok(Some(bytes)) => {
                if !tries.is_empty() {
                    report.repairs.push(repair(index, chunk, &tries, *source));
                }
                return Ok((bytes, source.tier()));
            }
            Err(problem) => tries.push(Try {
                tier: source.tier(),
                source: source.name(),
                problem,
            }),
        }
    }
    Err(RestoreError::NoGoodCopy {
        tensor: index.tensors_in(chunk).join(", "),
        rank: index.rank,
        chunk,
        tries,
    })
}

fn checked(source: &dyn ChunkSource, id: &ChunkId) -> Result<Option<Vec<u8>>, String> {
    let given = source.chunk(id).map_err(|error| crate::store::chain(error.as_ref()))?;
    let Some(bytes) = given else {
        return Ok(None);
    };
    if bytes.len() != id.bytes as usize {
        return Err(format!("gave {} bytes where the chunk has {}", bytes.len(), id.bytes));
    }
    let found = Digest::of(&bytes);
    if found != id.digest {
        return Err(format!("damaged: digest is {found}, the index says {}", id.digest));
    }
    Ok(Some(bytes))
}

fn repair(index: &ShardIndex, chunk: u32, bad: &[Try], good: &dyn ChunkSource) -> String {
    let tensors = index.tensors_in(chunk).join(", ");
    format!(
        "checkpoint {}, rank {}, chunk {chunk}, tensor {tensors}: {}; taken from {} instead",
        index.id(),
        index.rank,
        told(bad),
        good.name()
    )
}
