//! Stored parts of one tensor and the copies that cover a requested box.

use std::collections::BTreeSet;

use super::area::TensorArea;
use super::{PlanError, RangeCopy, StoredPart};
use crate::TensorBox;

/// Parts of one tensor, sorted along the dimension with the most distinct offsets.
pub(super) struct SortedParts<'a> {
    dim: Option<usize>,
    sorted: Vec<StoredPart<'a>>,
    /// Prefix maximum of part ends along `dim`. Parts before the first entry that exceeds the start of a requested box
    /// cannot overlap it.
    reach: Vec<u64>,
    /// True if some shard holds a part of the tensor.
    pub(super) stored: bool,
}

impl<'a> SortedParts<'a> {
    pub(super) fn new(mut parts: Vec<StoredPart<'a>>, stored: bool) -> Self {
        let dims = parts.iter().map(|part| part.boxed.shape.len()).min().unwrap_or(0);
        let distinct = |dim: &usize| {
            let offsets: BTreeSet<u64> = parts.iter().map(|part| part.boxed.offset[*dim]).collect();
            offsets.len()
        };
        // With at most 8 parts any dimension is good enough.
        let dim = match parts.len() {
            0..=8 => (dims > 0).then_some(0),
            _ => (0..dims).rev().max_by_key(distinct),
        };
        // The sort is stable, so of equal boxes the first in caller order comes first; only that one is retained.
        match dim {
            Some(dim) => parts.sort_by(|a, b| {
                let key = |part: &StoredPart<'a>| (part.boxed.offset[dim], &part.boxed.offset, &part.boxed.shape);
                key(a).cmp(&key(b))
            }),
            None => parts.sort_by_key(|part| part.boxed),
        }
        parts.dedup_by(|later, first| later.boxed == first.boxed);
        let mut furthest = 0;
        let reach = parts.iter().map(|part| {
            let end = dim.map_or(0, |dim| part.boxed.offset[dim].saturating_add(part.boxed.shape[dim]));
            furthest = furthest.max(end);
            furthest
        });
        Self {
            reach: reach.collect(),
            stored,
            dim,
            sorted: parts,
        }
    }

    pub(super) fn first(&self) -> Option<&StoredPart<'a>> {
        self.sorted.first()
    }

    /// Returns the parts that can overlap the requested box.
    fn near(&self, want: &TensorBox) -> &[StoredPart<'a>] {
        let Some(dim) = self.dim else {
            return &self.sorted;
        };
        let start = want.offset[dim];
        let end = want.offset[dim].saturating_add(want.shape[dim]);
        let first = self.reach.partition_point(|reach| *reach <= start);
        let last = self.sorted.partition_point(|part| part.boxed.offset[dim] < end);
        self.sorted.get(first..last).unwrap_or(&[])
    }

    /// Appends the copies that fill the requested box, which starts at byte `dest_at` of the destination.
    pub(super) fn cover(&self, want: &TensorBox, dest_at: u64, copies: &mut Vec<RangeCopy>) -> Result<(), PlanError> {
        let whole = TensorArea::of(want);
        let mut open = if whole.is_empty() { Vec::new() } else { vec![whole] };
        let mut taken = Vec::new();
        for part in self.near(want) {
            if open.is_empty() {
                break;
            }
            let part_area = TensorArea::of(part.boxed);
            let mut left = Vec::with_capacity(open.len());
            for area in open {
                match area.meet(&part_area) {
                    Some(common) => {
                        area.without(&common, &mut left);
                        taken.push((part, common));
                    }
                    None => left.push(area),
                }
            }
            open = left;
        }
        if let Some(hole) = open.into_iter().next() {
            return Err(PlanError::Hole {
                tensor: want.name.clone(),
                offset: hole.offset,
                shape: hole.shape,
            });
        }
        // Emitted only after full coverage is known: every range then lies in an image, so the count is bounded by
        // stored bytes.
        for (part, common) in taken {
            emit(part, &common, want, dest_at, copies);
        }
        Ok(())
    }
}

/// Appends the contiguous runs of `common`, contiguous in both `part` and the requested box.
fn emit(part: &StoredPart<'_>, common: &TensorArea, want: &TensorBox, dest_at: u64, copies: &mut Vec<RangeCopy>) {
    let size = want.dtype.bytes();
    let dims = common.shape.len();
    // Trailing dimensions that all three span in full form one run; the dimension before them extends it in part.
    let mut inner = dims;
    while inner > 0
        && common.shape[inner - 1] == part.boxed.shape[inner - 1]
        && common.shape[inner - 1] == want.shape[inner - 1]
    {
        inner -= 1;
    }
    let outer = inner.saturating_sub(1);
    let run: u64 = common.shape[outer..].iter().product::<u64>() * size;
    let source_strides = strides(&part.boxed.shape, size);
    let dest_strides = strides(&want.shape, size);
    let place =
        |base: &[u64], strides: &[u64], dim: usize, step: u64| (common.offset[dim] + step - base[dim]) * strides[dim];
    let mut position = vec![0u64; outer];
    loop {
        let mut source = part.at;
        let mut dest = dest_at;
        for dim in 0..dims {
            let step = position.get(dim).copied().unwrap_or(0);
            source += place(&part.boxed.offset, &source_strides, dim, step);
            dest += place(&want.offset, &dest_strides, dim, step);
        }
        copies.push(RangeCopy {
            shard_rank: part.rank,
            source_at: source,
            dest_at: dest,
            bytes: run,
        });
        // Advance the position; the last outer dimension varies fastest.
        let Some(dim) = (0..outer).rev().find(|dim| position[*dim] + 1 < common.shape[*dim]) else {
            return;
        };
        position[dim] += 1;
        position[dim + 1..].fill(0);
    }
}

/// Returns the byte distance between neighbouring elements along each dimension.
fn strides(shape: &[u64], size: u64) -> Vec<u64> {
    let mut strides = vec![size; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim] * shape[dim];
    }
    strides
}
