//! What stands under common parity, in one small file beside it.
//!
//! ```text
//! rankguard-parity 1\n         magic word and version
//! blake3 <64 hex digits>\n     digest of the first line and the body
//! <JSON>\n                     body
//! ```

use rankguard_checkpoint::format::{ChunkDigest, Digest, Origin, check_job};
use rankguard_model::JobId;
use serde::{Deserialize, Serialize};

use super::code::Code;

const FIRST_LINE: &str = "rankguard-parity 1\n";

/// Longest descriptor that a reader accepts.
pub const MAX_DESCRIPTOR_BYTES: usize = 256 << 20;

/// Longest stripe that a reader accepts; each costs its length times the group in memory.
const MAX_STRIPE_BYTES: u32 = 16 << 20;

/// A group of shards under common parity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// The job.
    pub job: JobId,
    /// Bytes of each member that one stripe takes.
    pub stripe_bytes: u32,
    /// The shards, in the order of the code.
    pub members: Vec<ParityMember>,
    /// The parity files, in the order of the code: the digests of their stripes, one after the other.
    pub parity: Vec<String>,
}

/// A shard under parity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParityMember {
    /// Which.
    pub file: Origin,
    /// Length of its file.
    pub bytes: u64,
    /// Digest of its index, as the manifest names it: parity of other bytes than the committed ones is of no use.
    pub index: Digest,
    /// Digests of its stripes, one after the other; the last is of what there is of it.
    pub stripes: String,
}

/// Why bytes are no descriptor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// Too long, or another kind of file or version.
    #[error("is no parity descriptor that this program reads, or longer than {MAX_DESCRIPTOR_BYTES} bytes")]
    NotOne,
    /// A bit has changed, or the end is missing.
    #[error("is damaged or cut off")]
    Damaged,
    /// Intact, but it contradicts itself.
    #[error("has an intact body that makes no sense: {0}")]
    Body(String),
}

impl Descriptor {
    /// Length of the parity files: that of the longest member, rounded up to what the code wants.
    pub fn parity_bytes(&self) -> u64 {
        self.members
            .iter()
            .map(|member| member.bytes)
            .max()
            .unwrap_or(0)
            .next_multiple_of(2)
    }

    /// Number of stripes.
    pub fn stripes(&self) -> u64 {
        self.parity_bytes().div_ceil(u64::from(self.stripe_bytes))
    }

    /// Where a stripe lies in the parity files.
    pub fn stripe(&self, nth: u64) -> std::ops::Range<u64> {
        let (from, length) = (nth * u64::from(self.stripe_bytes), u64::from(self.stripe_bytes));
        from..(from + length).min(self.parity_bytes())
    }

    /// The code of the group.
    pub fn code(&self) -> Code {
        Code::new(self.members.len(), self.parity.len()).expect("a descriptor is checked when read or built")
    }

    /// The content of its file.
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

    /// Reads its file.
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

    /// Refuses a group that contradicts itself; whoever reads one relies on this.
    fn check(&self) -> Result<(), String> {
        check_job(&self.job).map_err(|problem| problem.to_string())?;
        Code::new(self.members.len(), self.parity.len()).map_err(|problem| problem.to_string())?;
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

/// The digest in a table; `None` past its end.
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

    fn small() -> Descriptor {
        let id = CheckpointId {
            step: Step(7),
            generation: Generation(2),
        };
        let member = |rank, bytes: u64| ParityMember {
            file: Origin::new(id, Rank(rank)),
            bytes,
            index: Digest::of(b"index"),
            stripes: ChunkDigest::of(b"stripe")
                .to_string()
                .repeat(bytes.div_ceil(64) as usize),
        };
        Descriptor {
            job: JobId::from("demo"),
            stripe_bytes: 64,
            members: vec![member(0, 100), member(1, 0), member(2, 61)],
            parity: vec![ChunkDigest::of(b"parity").to_string().repeat(2)],
        }
    }

    #[test]
    fn reads_what_it_wrote_and_notices_every_flipped_bit() {
        let whole = small().to_bytes();
        assert_eq!(Descriptor::from_bytes(&whole), Ok(small()));
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Descriptor::from_bytes(&damaged).is_err(), "bit {bit} flipped unnoticed");
        }
    }

    #[test]
    fn a_descriptor_that_contradicts_itself_is_refused() {
        for change in [
            |d: &mut Descriptor| d.stripe_bytes = 0,
            |d: &mut Descriptor| d.stripe_bytes = 63,
            |d: &mut Descriptor| d.members[0].bytes = u64::MAX,
            |d: &mut Descriptor| d.members[0].bytes = 200,
            |d: &mut Descriptor| d.members.clear(),
            |d: &mut Descriptor| d.parity.clear(),
            |d: &mut Descriptor| d.parity[0].truncate(32),
            |d: &mut Descriptor| d.job = JobId::from("../etc"),
        ] {
            let mut broken = small();
            change(&mut broken);
            assert!(matches!(
                Descriptor::from_bytes(&broken.to_bytes()),
                Err(DescriptorError::Body(_))
            ));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = Descriptor::from_bytes(&bytes);
            let mut text = format!("{FIRST_LINE}blake3 {}\n", digest(&bytes)).into_bytes();
            text.extend_from_slice(&bytes);
            text.push(b'\n');
            let _ = Descriptor::from_bytes(&text);
        }
    }
}
