//! Areas of a tensor: intersection and difference.

use crate::TensorBox;

/// Area of a tensor: offset and extent, one entry per dimension.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct TensorArea {
    pub(super) offset: Vec<u64>,
    pub(super) shape: Vec<u64>,
}

impl TensorArea {
    /// Returns the area that a box covers in its tensor.
    pub(super) fn of(boxed: &TensorBox) -> Self {
        Self {
            offset: boxed.offset.clone(),
            shape: boxed.shape.clone(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Returns the intersection of both areas; `None` if it is empty.
    pub(super) fn meet(&self, other: &Self) -> Option<Self> {
        let mut common = self.clone();
        for dim in 0..self.shape.len() {
            let start = self.offset[dim].max(other.offset[dim]);
            let end = (self.offset[dim] + self.shape[dim]).min(other.offset[dim] + other.shape[dim]);
            if start >= end {
                return None;
            }
            (common.offset[dim], common.shape[dim]) = (start, end - start);
        }
        Some(common)
    }

    /// Appends to `left` the parts of this area that remain outside `hole`, which must lie within it.
    pub(super) fn without(mut self, hole: &Self, left: &mut Vec<Self>) {
        for dim in 0..self.shape.len() {
            let start = self.offset[dim];
            let end = self.offset[dim] + self.shape[dim];
            let from = hole.offset[dim];
            let to = hole.offset[dim] + hole.shape[dim];
            for (piece_start, piece_end) in [(start, from), (to, end)] {
                if piece_start < piece_end {
                    let mut piece = self.clone();
                    (piece.offset[dim], piece.shape[dim]) = (piece_start, piece_end - piece_start);
                    left.push(piece);
                }
            }
            (self.offset[dim], self.shape[dim]) = (from, to - from);
        }
    }
}
