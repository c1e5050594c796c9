//! Required size of an arena for an image, and the headroom of a new one.

use std::io;

use rankguard_checkpoint::arena::{ArenaGeometry, ArenaShape};
use rankguard_checkpoint_format::{ShardIndex, TensorBox, chunk_bytes_for};
use serde_json::Value;

/// Minimum and maximum of the headroom in bytes: images grow with plain state that is stored as a tensor, by megabytes
/// over a run.
const HEADROOM: (u64, u64) = (1 << 20, 16 << 20);

/// Divisor of the image size that gives the headroom.
const HEADROOM_PART: u64 = 16;

/// Bytes of a description for each tensor in addition to its name and dimensions, for each number of a dimension, and
/// for each chunk.
const TENSOR_DESCRIBED: u64 = 128;
const NUMBER_DESCRIBED: u64 = 21;
const CHUNK_DESCRIBED: u64 = 32;

/// Bytes of a description for all other content.
const REST_DESCRIBED: u64 = 4096;

/// Arena size that a save or a restore requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArenaDemand {
    /// Bytes of the image.
    pub(crate) image_bytes: u64,
    /// Bytes of the description area; 0 if the default for the image size is enough.
    pub(crate) meta_bytes: u64,
}

impl ArenaDemand {
    /// Computes the demand of an image of these boxes and this state. Returns `None` if it exceeds 64 bits.
    pub(crate) fn new<'a>(boxes: impl Iterator<Item = &'a TensorBox>, state: Option<&Value>) -> Option<Self> {
        let (entries, image_bytes) = ShardIndex::lay_out(boxes.cloned());
        let image_bytes = image_bytes?;
        let mut chunks = 0u64;
        let mut described = REST_DESCRIBED.saturating_add(state.map_or(0, json_bytes));
        for entry in &entries {
            let numbers = 3 * entry.boxed.shape.len() as u64 + 2;
            let tensor = TENSOR_DESCRIBED + 2 * entry.boxed.name.len() as u64 + numbers * NUMBER_DESCRIBED;
            described = described.saturating_add(tensor);
            let bytes = entry.boxed.bytes().unwrap_or(0);
            chunks = chunks.saturating_add(bytes.div_ceil(chunk_bytes_for(image_bytes).into()));
        }
        described = described.saturating_add(chunks.saturating_mul(CHUNK_DESCRIBED));
        let usual = ArenaGeometry::usual_meta(image_bytes);
        Some(Self {
            image_bytes,
            // Doubled, because names and state may grow.
            meta_bytes: if described > usual {
                described.saturating_mul(2)
            } else {
                0
            },
        })
    }

    /// Returns true if an arena of this shape is large enough.
    pub(crate) fn fits(self, geometry: ArenaGeometry) -> bool {
        let meta = self.meta_bytes / 2;
        geometry.image_bytes >= self.image_bytes && geometry.meta_bytes >= meta
    }

    /// Returns the bytes that a new arena has beyond the image.
    pub(crate) fn headroom_bytes(self) -> u64 {
        (self.image_bytes / HEADROOM_PART).clamp(HEADROOM.0, HEADROOM.1)
    }

    /// Returns the shape of a new arena of `slots` slots.
    pub(crate) fn shape(self, slots: u32) -> ArenaShape {
        ArenaShape {
            slots,
            image_bytes: self.image_bytes.saturating_add(self.headroom_bytes()),
            meta_bytes: self.meta_bytes,
        }
    }
}

/// Returns the length of a value as JSON, in bytes.
fn json_bytes(value: &Value) -> u64 {
    struct SizeCounter(u64);
    impl io::Write for SizeCounter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = SizeCounter(0);
    let written = serde_json::to_writer(&mut counter, value);
    written.map_or(u64::MAX, |()| counter.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankguard_checkpoint_format::Dtype;

    fn demand(tensors: usize, state: &Value) -> ArenaDemand {
        let names = (0..tensors).map(|nth| format!("model.layers.{nth}.a-name-of-usual-length.weight"));
        let boxes: Vec<TensorBox> = names
            .map(|name| TensorBox::whole(name, Dtype::F32, vec![2, 2]))
            .collect();
        ArenaDemand::new(boxes.iter(), Some(state)).expect("small")
    }

    #[test]
    fn the_description_area_grows_only_where_names_or_state_need_it() {
        assert_eq!(demand(100, &Value::Null).meta_bytes, 0);
        assert!(demand(20_000, &Value::Null).meta_bytes > 4 << 20);
        let state = Value::String("x".repeat(3 << 20));
        assert!(demand(1, &state).meta_bytes > 6 << 20);
    }

    #[test]
    fn headroom_is_bounded() {
        let with = |image_bytes| ArenaDemand {
            image_bytes,
            meta_bytes: 0,
        };
        assert_eq!(with(0).headroom_bytes(), 1 << 20);
        assert_eq!(with(32 << 20).headroom_bytes(), 2 << 20);
        assert_eq!(with(80 << 30).headroom_bytes(), 16 << 20);
    }
}
