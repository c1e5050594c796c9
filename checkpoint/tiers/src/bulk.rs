//! Transfer of shards between agents on separate sockets: gRPC carries bulk data at a fraction of the speed of TCP.
//!
//! ```text
//! frame:  "RGB1" | header length u32 | payload length u64 | header, JSON | payload, raw
//!
//! push:   Offer + index          -> Wanted(which pieces are missing)
//!         Piece n + its chunks   -> Took                                  on several connections at once
//!         Seal                   -> Kept(root)
//! fetch:  Fetch(runs of chunks)  -> Found + the chunks, one after the other
//! parity: Sums                   -> Sums(what is whole of a checkpoint)
//! ```
//!
//! Every request names job, checkpoint and rank and carries the generation of the caller; the receiver refuses a
//! generation below its fence (RG-3). It compares every chunk with the digest in the index before it replies `Took`,
//! and holds all chunks before it replies `Kept`: after `Kept` the sender may count the image as replicated. An
//! interrupted push resumes with the missing pieces.
//!
//! Numbers are little-endian; lengths are bounded before memory is allocated (RG-11). Every request has a deadline, and
//! a receiver bounds its connections and the bytes it holds (RG-9).
//!
//! Parity is computed from pushed images: the members of a lane push their images to the holder of a parity, which
//! retains only the sum ([`ParityMemory`]). A lost image is rebuilt from the other images and the sums ([`RebuildSource`]).
//!
//! Both sides are agents of one cluster and know each other's node, or run on one machine
//! ([`rankguard_identity::PeerTransport`]). A receiver that knows the generation of a request accepts only nodes that take
//! part in it ([`CallerAuthorization`]).
//!
//! Absent: a receiver that streams to disk (with [`Keep::Disk`] the image passes through memory).

mod client;
mod error;
mod frame;
mod parity_memory;
mod rebuild;
mod replica_memory;
mod server;
mod source;

use rankguard_checkpoint::format::{CheckpointId, ChunkDigest, ShardIndex};
use rankguard_identity::AlpnProtocol;
use rankguard_model::{Generation, JobId, Rank};
use serde::{Deserialize, Serialize};

pub use client::{BulkPeer, ClientLimits, ReplicaReceipt};
pub use error::{BulkError, TransferRefusal};
pub use parity_memory::{ParityMemory, RankLane, SUM_CHUNK_BYTES, SumView};
pub use rebuild::{RebuildSource, SumHolder};
pub use replica_memory::{ImageHolder, ReplicaMemory, SealedReplica};
pub use server::{BulkServer, CallerAuthorization, ReceiverStores, ServerLimits};
pub use source::BulkSource;

/// Returns the protocol's name for handshakes, and the reply to a peer that connects without TLS.
fn protocol() -> AlpnProtocol {
    let why = "this agent requires TLS: set identity.ca, identity.certificate and identity.key".to_owned();
    let farewell = frame::head(&frame::ReplyHeader::Refused(TransferRefusal::Failed(why)), 0).unwrap_or_default();
    AlpnProtocol::new(b"rankguard-bulk/1", farewell.into())
}

/// Target size of one piece in bytes.
const PIECE_BYTES: u64 = 4 << 20;

/// Kind of replicated object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicaKind {
    /// Image of a rank.
    Image,
    /// Parity file of the group with this number, which is stored as the rank; see [`parity_index`].
    Parity(u32),
    /// Image of a rank as input of the parity with this number in its lane.
    Share(u32),
    /// Parity with this number over a lane; the lane's first rank is stored as the rank. Its chunks are pieces of
    /// [`SUM_CHUNK_BYTES`].
    Sum(u32),
}

/// Storage of a replica at the receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicaStorage {
    /// Memory, until released.
    Memory,
    /// The receiver's own store on disk, synced.
    Disk,
    /// Only its contribution to a parity in memory, until that is released; used with [`What::Share`].
    Sum(RankLane),
}

/// Name of one replicated object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaName {
    pub job: JobId,
    pub checkpoint: CheckpointId,
    /// Rank that wrote it.
    pub rank: Rank,
    /// Kind of object.
    pub what: ReplicaKind,
}

impl ReplicaName {
    /// Returns the name of the image that an index describes.
    pub fn image(index: &ShardIndex) -> Self {
        Self {
            job: index.job.clone(),
            checkpoint: index.id(),
            rank: index.rank,
            what: ReplicaKind::Image,
        }
    }
}

/// Builds an index over a parity file, so that parity is sent and checked like an image. `group` is stored as the rank;
/// the descriptor is stored as the state.
pub fn parity_index(
    descriptor: &crate::parity::GroupDescriptor,
    id: CheckpointId,
    group: u32,
    parity: &[u8],
) -> ShardIndex {
    use rankguard_checkpoint::format::{Dtype, TensorBox};
    let mut index = ShardIndex::new(&descriptor.job, id);
    let bytes = TensorBox::whole("parity", Dtype::U8, vec![parity.len() as u64]);
    let (tensors, image_bytes) = ShardIndex::lay_out([bytes]);
    (index.rank, index.world_size) = (Rank(group), group.saturating_add(1));
    (index.tensors, index.image_bytes) = (tensors, image_bytes.unwrap_or(0));
    index.chunk_bytes = rankguard_checkpoint::format::chunk_bytes_for(index.image_bytes);
    index.state = serde_json::json!({"descriptor": String::from_utf8_lossy(&descriptor.to_bytes())});
    index.digest_image(parity);
    index
}

/// Generation on behalf of which a request is made.
type FencingToken = Generation;

/// Compresses ascending numbers to runs (first, count).
fn runs(numbers: impl Iterator<Item = u32>) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for nth in numbers {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == nth => *count += 1,
            _ => runs.push((nth, 1)),
        }
    }
    runs
}

/// Division of an image into pieces for transfer; both ends derive the same one from the index.
#[derive(Debug, Clone)]
struct PieceLayout {
    /// Chunk numbers of each piece.
    pieces: Vec<std::ops::Range<u32>>,
    /// Byte range of each chunk in the image.
    ranges: Vec<std::ops::Range<u64>>,
}

impl PieceLayout {
    fn of(index: &ShardIndex) -> Self {
        let ranges: Vec<_> = index.chunking().ranges().collect();
        let mut pieces = Vec::new();
        let mut from = 0u32;
        let mut bytes = 0u64;
        for (chunk, range) in (0u32..).zip(&ranges) {
            let length = range.end - range.start;
            if bytes > 0 && bytes + length > PIECE_BYTES {
                pieces.push(from..chunk);
                (from, bytes) = (chunk, 0);
            }
            bytes += length;
        }
        if bytes > 0 {
            pieces.push(from..ranges.len() as u32);
        }
        Self { pieces, ranges }
    }

    fn length(&self, chunk: u32) -> usize {
        self.ranges
            .get(chunk as usize)
            .map_or(0, |range| (range.end - range.start) as usize)
    }

    /// Returns the transfer size of a piece in bytes: its chunks without the gaps between them.
    fn piece_bytes(&self, piece: u32) -> Option<usize> {
        let chunks = self.pieces.get(piece as usize)?;
        Some(chunks.clone().map(|chunk| self.length(chunk)).sum())
    }

    /// Compares the concatenated chunks of a piece in `bytes` with the index.
    fn check(&self, index: &ShardIndex, piece: u32, bytes: &[u8]) -> Result<(), TransferRefusal> {
        let chunks = self.pieces.get(piece as usize).ok_or(TransferRefusal::Unknown)?;
        if self.piece_bytes(piece) != Some(bytes.len()) {
            return Err(TransferRefusal::Failed(format!(
                "piece {piece} has {} bytes",
                bytes.len()
            )));
        }
        let mut from = 0;
        for chunk in chunks.clone() {
            let to = from + self.length(chunk);
            let stated = index.chunks[chunk as usize];
            let found = ChunkDigest::of(&bytes[from..to]);
            if stated != found {
                let stated = stated.to_string();
                let found = found.to_string();
                return Err(TransferRefusal::Damaged { chunk, stated, found });
            }
            from = to;
        }
        Ok(())
    }

    /// Returns the piece of a chunk and the chunk's offset in it.
    fn place(&self, chunk: u32) -> Option<(usize, usize)> {
        let piece = self.pieces.partition_point(|piece| piece.end <= chunk);
        let chunks = self.pieces.get(piece)?;
        Some((piece, (chunks.start..chunk).map(|before| self.length(before)).sum()))
    }
}
