//! Descriptor file of a parity group, stored beside the parity.
//!
//! ```text
//! rankguard-parity 1\n         magic word and version
//! blake3 <64 hex digits>\n     digest of the first line and the body
//! <JSON>\n                     body
//! ```

use rankguard_checkpoint::format::{ChunkDigest, ChunkOrigin, Digest, check_job};
use rankguard_model::JobId;
use serde::{Deserialize, Serialize};

use super::code::ErasureCode;

const FIRST_LINE: &str = "rankguard-parity 1\n";

/// Maximum size of a descriptor in bytes.
pub const MAX_DESCRIPTOR_BYTES: usize = 256 << 20;

/// Maximum stripe length in bytes; each takes its length times the group size in memory.
const MAX_STRIPE_BYTES: u32 = 16 << 20;

/// Group of shards under common parity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupDescriptor {
    pub job: JobId,
    /// Bytes of each member in one stripe.
    pub stripe_bytes: u32,
    /// Shards, in the order of the code.
    pub members: Vec<ParityMember>,
    /// Concatenated stripe digests of each parity file, in the order of the code.
    pub parity: Vec<String>,
}

/// Shard under parity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParityMember {
    /// Checkpoint and rank that wrote the shard.
    pub file: ChunkOrigin,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Digest of its index, as in the manifest: parity over bytes other than the committed ones is useless.
    pub index: Digest,
    /// Concatenated stripe digests; the last covers only the bytes that exist.
    pub stripes: String,
}

/// Error of parsing a descriptor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// The file is too long, or of another kind or version.
    #[error("is no parity descriptor that this program reads, or longer than {MAX_DESCRIPTOR_BYTES} bytes")]
    NotOne,
    /// The content differs from its digest, or the end is missing.
    #[error("is damaged or cut off")]
    Damaged,
    /// The body is intact but inconsistent.
    #[error("has an intact body that makes no sense: {0}")]
    Body(String),
}

impl GroupDescriptor {
    /// Returns the length of the parity files: the longest member, rounded up to an even number of bytes.
    pub fn parity_bytes(&self) -> u64 {
        self.members
            .iter()
            .map(|member| member.bytes)
            .max()
            .unwrap_or(0)
            .next_multiple_of(2)
    }

    /// Returns the number of stripes.
    pub fn stripes(&self) -> u64 {
        self.parity_bytes().div_ceil(u64::from(self.stripe_bytes))
    }

    /// Returns the byte range of a stripe in the parity files.
    pub fn stripe(&self, nth: u64) -> std::ops::Range<u64> {
        let (from, length) = (nth * u64::from(self.stripe_bytes), u64::from(self.stripe_bytes));
        from..(from + length).min(self.parity_bytes())
    }

    /// Returns the code of the group.
    pub fn code(&self) -> ErasureCode {
        ErasureCode::new(self.members.len(), self.parity.len()).expect("a descriptor is checked when read or built")
    }

    /// Serialises the descriptor to the content of its file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let body = serde_json::to_vec(self).expect("plain data with text keys always has a JSON form");
        let digest = digest(&body);
        [
            FIRST_LINE.as_bytes(),
            format!("blake3 {digest}\n").as_bytes(),
            &body,
            b"\n",
        ]
        .concat()
    }

    /// Parses and checks the content of a descriptor file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DescriptorError> {
        let rest = bytes
            .strip_prefix(FIRST_LINE.as_bytes())
            .filter(|_| bytes.len() <= MAX_DESCRIPTOR_BYTES);
        let rest = rest.ok_or(DescriptorError::NotOne)?;
        let (header, body) = rest
            .split_at_checked("blake3 ".len() + 64 + 1)
            .ok_or(DescriptorError::Damaged)?;
        let body = body.strip_suffix(b"\n").ok_or(DescriptorError::Damaged)?;
        if header != format!("blake3 {}\n", digest(body)).as_bytes() {
            return Err(DescriptorError::Damaged);
        }
        let descriptor: Self =
            serde_json::from_slice(body).map_err(|problem| DescriptorError::Body(problem.to_string()))?;
        descriptor.check().map_err(DescriptorError::Body)?;
        Ok(descriptor)
    }

    /// Checks the descriptor for consistency, on which all readers rely.
    fn check(&self) -> Result<(), String> {
        check_job(&self.job).map_err(|problem| problem.to_string())?;
        ErasureCode::new(self.members.len(), self.parity.len()).map_err(|problem| problem.to_string())?;
        if !(2..=MAX_STRIPE_BYTES).contains(&self.stripe_bytes) || !self.stripe_bytes.is_multiple_of(2) {
            return Err(format!(
                "stripes of {} bytes; even, up to {MAX_STRIPE_BYTES}",
                self.stripe_bytes
            ));
        }
        if self.members.iter().any(|member| member.bytes > 1 << 48) {
            return Err("a shard of more than 2^48 bytes".to_owned());
        }
        let stripe_bytes = u64::from(self.stripe_bytes);
        let members = self
            .members
            .iter()
            .map(|member| (member.bytes.div_ceil(stripe_bytes), &member.stripes));
        let parity = self.parity.iter().map(|stripes| (self.stripes(), stripes));
        for (count, table) in members.chain(parity) {
            if table.len() as u64 != 32 * count || !table.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(format!(
                    "a table of {} digits where {count} digests belong",
                    table.len()
                ));
            }
        }
        Ok(())
    }
}

/// Returns digest `nth` of a table; `None` past its end.
pub(super) fn digest_at(table: &str, nth: u64) -> Option<ChunkDigest> {
    let from = usize::try_from(nth).ok()?.checked_mul(32)?;
    table.get(from..from + 32)?.parse().ok()
}

fn digest(body: &[u8]) -> Digest {
    Digest::of(&[FIRST_LINE.as_bytes(), body].concat())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rankguard_checkpoint::format::CheckpointId;
    use rankguard_model::{Generation, Rank, Step};

    use super::*;

    fn small() -> GroupDescriptor {
        let id = CheckpointId {
            step: Step(7),
            generation: Generation(2),
        };
        let member = |rank, bytes: u64| ParityMember {
            file: ChunkOrigin::new(id, Rank(rank)),
            bytes,
            index: Digest::of(b"index"),
            stripes: ChunkDigest::of(b"stripe")
                .to_string()
                .repeat(bytes.div_ceil(64) as usize),
        };
        GroupDescriptor {
            job: JobId::from("demo"),
            stripe_bytes: 64,
            members: vec![member(0, 100), member(1, 0), member(2, 61)],
            parity: vec![ChunkDigest::of(b"parity").to_string().repeat(2)],
        }
    }

    #[test]
    fn reads_what_it_wrote_and_notices_every_flipped_bit() {
        let whole = small().to_bytes();
        assert_eq!(GroupDescriptor::from_bytes(&whole), Ok(small()));
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(
                GroupDescriptor::from_bytes(&damaged).is_err(),
                "bit {bit} flipped unnoticed"
            );
        }
    }

    #[test]
    fn a_descriptor_that_contradicts_itself_is_refused() {
        for change in [
            |d: &mut GroupDescriptor| d.stripe_bytes = 0,
            |d: &mut GroupDescriptor| d.stripe_bytes = 63,
            |d: &mut GroupDescriptor| d.members[0].bytes = u64::MAX,
            |d: &mut GroupDescriptor| d.members[0].bytes = 200,
            |d: &mut GroupDescriptor| d.members.clear(),
            |d: &mut GroupDescriptor| d.parity.clear(),
            |d: &mut GroupDescriptor| d.parity[0].truncate(32),
            |d: &mut GroupDescriptor| d.job = JobId::from("../etc"),
        ] {
            let mut broken = small();
            change(&mut broken);
            assert!(matches!(
                GroupDescriptor::from_bytes(&broken.to_bytes()),
                Err(DescriptorError::Body(_))
            ));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = GroupDescriptor::from_bytes(&bytes);
            let mut text = format!("{FIRST_LINE}blake3 {}\n", digest(&bytes)).into_bytes();
            text.extend_from_slice(&bytes);
            text.push(b'\n');
            let _ = GroupDescriptor::from_bytes(&text);
        }
    }
}
