//! Ownership of rows. Every tensor is split along dimension 0 into contiguous rows; a rank updates and checkpoints its
//! rows. With fewer rows than ranks, some ranks own none.

use std::ops::Range;

use rankguard_checkpoint_format::{Dtype, TensorBox};

use crate::network::NeuralNetwork;
use crate::schedule::piece;

/// Prefixes of tensor names in a checkpoint: parameters, and the first and second moments of Adam.
pub(crate) const KINDS: [&str; 3] = ["", "adam.m.", "adam.v."];

/// Part of every tensor that one rank owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParameterShard {
    /// Ranges of the flat parameters, in the order of the tensors, empty ones left out.
    ranges: Vec<Range<usize>>,
    /// The same ranges as boxes, with tensor names without a prefix of [`KINDS`].
    boxes: Vec<TensorBox>,
    /// Number of owned elements.
    len: usize,
}

impl ParameterShard {
    pub(crate) fn of(network: &NeuralNetwork, rank: usize, world_size: usize) -> Self {
        let mut ranges = Vec::new();
        let mut boxes = Vec::new();
        for tensor in network.tensors() {
            let rows = piece(tensor.rows, world_size, rank);
            if !rows.is_empty() {
                ranges.push(tensor.at + rows.start * tensor.width..tensor.at + rows.end * tensor.width);
                let rows = rows.start as u64..rows.end as u64;
                boxes.push(TensorBox::rows(&tensor.name, Dtype::F32, tensor.shape.clone(), rows));
            }
        }
        let len = ranges.iter().map(Range::len).sum();
        Self { ranges, boxes, len }
    }

    /// Returns the number of owned elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the owned ranges of the flat parameters.
    pub(crate) fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// Returns the boxes of this rank's checkpoint: those of parameters, then of the first moments, then of the second.
    pub(crate) fn boxes(&self) -> Vec<TensorBox> {
        let kinds = KINDS.iter().flat_map(|kind| self.boxes.iter().map(move |b| (kind, b)));
        kinds
            .map(|(kind, b)| TensorBox {
                name: format!("{kind}{}", b.name),
                ..b.clone()
            })
            .collect()
    }

    /// Appends the owned elements of a flat array as little-endian bytes.
    pub(crate) fn write(&self, flat: &[f32], bytes: &mut Vec<u8>) {
        for range in &self.ranges {
            write_values(&flat[range.clone()], bytes);
        }
    }

    /// Sets the owned elements of a flat array from `4 * len` little-endian bytes; panics if there are fewer.
    pub(crate) fn read(&self, bytes: &[u8], flat: &mut [f32]) {
        let mut rest = bytes;
        for range in &self.ranges {
            let (head, tail) = rest.split_at(4 * range.len());
            read_values(head, &mut flat[range.clone()]);
            rest = tail;
        }
    }
}

/// Appends values as little-endian bytes.
pub(crate) fn write_values(values: &[f32], bytes: &mut Vec<u8>) {
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

/// Sets values from little-endian bytes, four for each value.
pub(crate) fn read_values(bytes: &[u8], values: &mut [f32]) {
    for (value, bytes) in values.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *value = f32::from_le_bytes(*bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_of_every_world_size_cover_each_parameter_once() {
        let network = NeuralNetwork::new(vec![64, 33, 10]);
        for world_size in 1..=24 {
            let mut owners = vec![0; network.parameter_count()];
            for rank in 0..world_size {
                let shard = ParameterShard::of(&network, rank, world_size);
                for range in shard.ranges() {
                    owners[range.clone()].iter_mut().for_each(|n| *n += 1);
                }
            }
            assert!(owners.iter().all(|&n| n == 1), "world size {world_size}");
        }
    }

    #[test]
    fn a_rank_may_own_no_row_of_a_tiny_tensor() {
        let network = NeuralNetwork::new(vec![64, 40, 10]);
        let boxes = ParameterShard::of(&network, 0, 24).boxes();
        assert!(boxes.iter().all(|b| !b.name.contains("fc2")));
        assert_eq!(boxes.len(), 2 * 3);
        assert_eq!(boxes[2].name, "adam.m.fc1.weight");
        assert!(boxes.iter().all(|b| b.check().is_ok()));
    }

    #[test]
    fn written_values_are_read_back() {
        let network = NeuralNetwork::new(vec![64, 33, 10]);
        let flat = network.initial(5);
        let mut copy = vec![0.0; flat.len()];
        for rank in 0..3 {
            let shard = ParameterShard::of(&network, rank, 3);
            let mut bytes = Vec::new();
            shard.write(&flat, &mut bytes);
            assert_eq!(bytes.len(), 4 * shard.len());
            shard.read(&bytes, &mut copy);
        }
        assert_eq!(flat, copy);
    }
}
