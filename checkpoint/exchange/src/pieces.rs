//! Streaming of whole tensors of a checkpoint in pieces of bounded size.

use rankguard_checkpoint::format::TensorBox;
use rankguard_checkpoint::restore::assemble;
use rankguard_checkpoint::{Checkpoint, Store};

use crate::ExchangeError;

/// Buffer size in bytes.
const BUFFER: u64 = 64 << 20;

/// Callback that receives the number of a tensor and its next bytes.
pub(crate) type PieceCallback<'a> = &'a mut dyn FnMut(usize, &[u8]) -> Result<(), ExchangeError>;

/// Passes the bytes of `wholes`, in order, to `each`. Every byte is checked against the digest of its chunk; a chunk
/// that spans two pieces is read twice. Returns the repairs, one sentence for each damaged copy that was avoided.
pub(crate) fn stream(
    store: &Store,
    checkpoint: &Checkpoint,
    wholes: &[TensorBox],
    each: PieceCallback<'_>,
) -> Result<Vec<String>, ExchangeError> {
    let mut stream = TensorStream {
        store,
        checkpoint,
        boxes: Vec::new(),
        owners: Vec::new(),
        bytes: 0,
        buffer: Vec::new(),
        repairs: Vec::new(),
    };
    for (nth, whole) in wholes.iter().enumerate() {
        for piece in pieces(whole, BUFFER) {
            let bytes = piece.bytes().unwrap_or(0);
            if stream.bytes + bytes > BUFFER {
                stream.flush(each)?;
            }
            stream.bytes += bytes;
            stream.boxes.push(piece);
            stream.owners.push(nth);
        }
    }
    stream.flush(each)?;
    Ok(stream.repairs)
}

struct TensorStream<'a> {
    store: &'a Store,
    checkpoint: &'a Checkpoint,
    boxes: Vec<TensorBox>,
    /// Tensor number of each box.
    owners: Vec<usize>,
    bytes: u64,
    buffer: Vec<u8>,
    repairs: Vec<String>,
}

impl TensorStream<'_> {
    fn flush(&mut self, each: PieceCallback<'_>) -> Result<(), ExchangeError> {
        let Checkpoint { manifest, indexes, .. } = self.checkpoint;
        self.buffer.resize(self.bytes as usize, 0);
        let report = assemble(manifest, indexes, &self.boxes, &[self.store], &mut self.buffer)?;
        self.repairs.extend(report.repairs);
        let mut rest = self.buffer.as_slice();
        for (boxed, owner) in self.boxes.drain(..).zip(self.owners.drain(..)) {
            let (now, later) = rest.split_at(boxed.bytes().unwrap_or(0) as usize);
            each(owner, now)?;
            rest = later;
        }
        self.bytes = 0;
        Ok(())
    }
}

/// Cuts `whole` into boxes of at most `most` bytes (or one element, if that is more); concatenated in order they are
/// the whole. An empty box has no pieces.
pub(crate) fn pieces(whole: &TensorBox, most: u64) -> Vec<TensorBox> {
    let mut found = Vec::new();
    if whole.bytes().is_some_and(|bytes| bytes > 0) {
        cut(whole.clone(), 0, most.max(1), &mut found);
    }
    found
}

/// Cuts along dimension `dim`; the box has extent one in every earlier dimension.
fn cut(part: TensorBox, dim: usize, most: u64, found: &mut Vec<TensorBox>) {
    let bytes = part.bytes().unwrap_or(u64::MAX);
    if bytes <= most || dim == part.shape.len() {
        found.push(part);
        return;
    }
    let extent = part.shape[dim];
    let start = part.offset[dim];
    let slice = bytes / extent;
    let step = (most / slice).max(1);
    let mut at = 0;
    while at < extent {
        let mut piece = part.clone();
        piece.offset[dim] = start + at;
        piece.shape[dim] = step.min(extent - at);
        at += piece.shape[dim];
        if slice > most {
            cut(piece, dim + 1, most, found);
        } else {
            found.push(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rankguard_checkpoint::format::Dtype;

    use super::*;

    /// Returns the row-major index in the whole tensor of each element of a box, in order.
    fn places(part: &TensorBox) -> Vec<u64> {
        let mut places = vec![0];
        for dim in 0..part.shape.len() {
            let range = part.offset[dim]..part.offset[dim] + part.shape[dim];
            places = places
                .iter()
                .flat_map(|place| range.clone().map(move |at| place * part.global_shape[dim] + at))
                .collect();
        }
        places
    }

    proptest! {
        #[test]
        fn back_to_back_they_are_the_whole(shape in proptest::collection::vec(0u64..6, 0..4), most in 1u64..200) {
            let whole = TensorBox::whole("w", Dtype::F32, shape);
            let cut = pieces(&whole, most);
            prop_assert!(cut.iter().all(|piece| piece.bytes().expect("small") <= most.max(4)));
            let all: Vec<u64> = cut.iter().flat_map(places).collect();
            prop_assert_eq!(all, (0..whole.bytes().expect("small") / 4).collect::<Vec<_>>());
        }
    }
}
