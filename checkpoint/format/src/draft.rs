//! What a rank says of the image it has sealed, before anyone has checked it.

use rankguard_model::{Generation, JobId, Rank, Step};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::envelope;
use crate::index::Layout;
use crate::{CheckpointId, Chunking, Digest, MAX_INDEX_BYTES, ShardIndex, ShardLayoutError, TensorBox, TensorEntry};

const MAGIC: &str = "rankguard-shard-draft";

/// An index that still has the rank's quick checksums where digests will stand. It never leaves the arena.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShardDraft {
    /// Its job.
    pub job: JobId,
    /// Step of the image.
    pub step: Step,
    /// The generation that wrote it.
    pub generation: Generation,
    /// The rank that wrote it.
    pub rank: Rank,
    /// Ranks in that generation.
    pub world_size: u32,
    /// Size of a chunk, bytes.
    pub chunk_bytes: u32,
    /// Size of the image, bytes.
    pub image_bytes: u64,
    /// What lies where.
    pub tensors: Vec<TensorEntry>,
    /// CRC-32C of each chunk, in order.
    pub crcs: Vec<u32>,
    /// The rank's small state.
    pub state: Value,
}

impl ShardDraft {
    /// Lays `boxes` back to back; checksums are still to come. Checks nothing.
    pub fn lay_out(boxes: impl IntoIterator<Item = TensorBox>) -> (Vec<TensorEntry>, Option<u64>) {
        let mut end = Some(0u64);
        let place = |boxed: TensorBox| {
            let at = end.unwrap_or(u64::MAX);
            end = boxed.bytes().and_then(|bytes| at.checked_add(bytes));
            TensorEntry { boxed, at }
        };
        let entries = boxes.into_iter().map(place).collect();
        (entries, end)
    }

    /// Which checkpoint it belongs to.
    pub fn id(&self) -> CheckpointId {
        CheckpointId {
            step: self.step,
            generation: self.generation,
        }
    }

    /// The content of a slot's meta area.
    pub fn to_bytes(&self) -> Vec<u8> {
        envelope::seal(MAGIC, self)
    }

    /// Reads a slot's meta area.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ShardLayoutError> {
        let draft: Self = envelope::open(MAGIC, MAX_INDEX_BYTES, bytes)?;
        draft.check()?;
        Ok(draft)
    }

    /// Refuses a draft that contradicts itself.
    pub fn check(&self) -> Result<(), ShardLayoutError> {
        Layout {
            job: &self.job,
            rank: self.rank,
            world_size: self.world_size,
            chunk_bytes: self.chunk_bytes,
            image_bytes: self.image_bytes,
            tensors: &self.tensors,
            chunks: self.crcs.len(),
        }
        .check()
    }

    /// How the image is cut.
    pub fn chunking(&self) -> Chunking {
        Chunking::new(self.image_bytes, self.chunk_bytes).expect("a draft is checked when read or built")
    }

    /// The index, once every chunk has been checked against its checksum and digested.
    pub fn into_index(self, chunks: Vec<Digest>) -> Result<ShardIndex, ShardLayoutError> {
        let index = ShardIndex {
            job: self.job,
            step: self.step,
            generation: self.generation,
            rank: self.rank,
            world_size: self.world_size,
            chunk_bytes: self.chunk_bytes,
            image_bytes: self.image_bytes,
            tensors: self.tensors,
            chunks,
            state: self.state,
        };
        index.check()?;
        Ok(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dtype, crc32c};

    fn small() -> ShardDraft {
        let boxes = ["a", "b"].map(|name| TensorBox::whole(name, Dtype::U8, vec![3]));
        let (tensors, end) = ShardDraft::lay_out(boxes);
        ShardDraft {
            job: JobId::from("demo"),
            step: Step(1),
            generation: Generation(1),
            rank: Rank(0),
            world_size: 1,
            chunk_bytes: 4,
            image_bytes: end.expect("six bytes"),
            tensors,
            crcs: vec![crc32c(b"aaab"), crc32c(b"bb")],
            state: Value::Null,
        }
    }

    #[test]
    fn tensors_lie_back_to_back() {
        let draft = small();
        assert_eq!((draft.tensors[0].at, draft.tensors[1].at, draft.image_bytes), (0, 3, 6));
        assert_eq!(ShardDraft::from_bytes(&draft.to_bytes()), Ok(draft));
    }

    #[test]
    fn an_image_beyond_64_bits_has_no_length() {
        let huge = || TensorBox::whole("x", Dtype::U8, vec![u64::MAX]);
        assert_eq!(ShardDraft::lay_out([huge(), huge(), huge()]).1, None);
    }

    #[test]
    fn an_index_needs_a_digest_for_every_chunk() {
        let digests = vec![Digest::of(b"aaab"), Digest::of(b"bb")];
        assert!(small().into_index(digests[..1].to_vec()).is_err());
        assert_eq!(small().into_index(digests.clone()).expect("whole").chunks, digests);
    }
}
