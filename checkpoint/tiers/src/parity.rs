//! Parity over groups of shards in different failure domains, from which lost members are restored.
//!
//! XOR for one parity, Reed-Solomon for more. Groups have any number of members of any lengths; shorter members are
//! padded with zeros. Work proceeds stripe by stripe, so memory is bounded and a chunk is restored from its own
//! stripes. The [`GroupDescriptor`] holds the digest of every stripe of every member and parity, so a damaged piece is
//! treated as lost before it is used: in each stripe any `parity` pieces may be lost *or damaged*.
//!
//! Absent: incremental parity of a delta, and parity distributed over the members ([`crate::placement`] assigns
//! holders outside the group).

mod code;
mod descriptor;
mod files;
mod group;
mod mirror;

use std::path::PathBuf;

use rankguard_checkpoint::StoreError;
use rankguard_checkpoint::format::ChunkOrigin;

pub(crate) use code::add;
pub use code::{CodeError, ErasureCode, MEMBERS_MAX, PARITY_MAX};
pub use descriptor::{DescriptorError, GroupDescriptor, MAX_DESCRIPTOR_BYTES, ParityMember};
pub use files::{ParitySource, ProtectionReport, protect, prune};
pub use group::{DegradedGroup, OriginalFile, STRIPE_BYTES, encode};
pub use mirror::ParityMirror;

/// Error of encoding, reading or restoring parity.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum ParityError {
    #[error(transparent)]
    Code(#[from] CodeError),
    #[error("cannot read the shard of rank {} at byte {at}", file.rank)]
    Read {
        file: ChunkOrigin,
        at: u64,
        source: std::io::Error,
    },
    #[error("cannot write parity {parity}")]
    Write { parity: usize, source: std::io::Error },
    #[error("byte {at} is outside of a member of {bytes} bytes")]
    Outside { at: u64, bytes: u64 },
    #[error(
        "parity cannot restore byte {at}: the shards of ranks {} are lost or damaged there and {left} parity pieces are good",
        ranks(.lost)
    )]
    TooManyLost {
        at: u64,
        lost: Vec<ChunkOrigin>,
        left: usize,
    },
    #[error("what parity restores of the shard of rank {} at byte {at} is not what stood there", file.rank)]
    Wrong { file: ChunkOrigin, at: u64 },
    #[error("cannot {what} {}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{} {problem}; make it anew with `rankguard checkpoint parity`", path.display())]
    Descriptor { path: PathBuf, problem: DescriptorError },
    #[error("{} is already there with other content, and nothing is overwritten", path.display())]
    Conflict { path: PathBuf },
    #[error(
        "the shard of rank {} is damaged at byte {at}: repair it first, parity of damage protects damage",
        file.rank
    )]
    Damaged { file: ChunkOrigin, at: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn ranks(lost: &[ChunkOrigin]) -> String {
    let ranks: Vec<String> = lost.iter().map(|file| file.rank.to_string()).collect();
    ranks.join(", ")
}
