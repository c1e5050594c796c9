//! Which bytes of which shards make up the wanted boxes: loading a checkpoint on another number of ranks.
//!
//! The wanted boxes lie back to back in the destination, in the order asked. For each, the stored parts of its tensor
//! are swept in order of offset; each takes what it can of the area that is still uncovered, so every wanted byte has
//! exactly one source, and an area that stays uncovered is a hole and an error. Work is near-linear: one pass over all
//! entries, one sort a tensor, and a sweep over the stored parts that can meet the wanted box.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::Rank;

use crate::{BoxError, Dtype, ShardIndex, TensorBox};

/// Bytes to copy from one shard's image into the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeCopy {
    /// The rank that wrote the shard.
    pub shard_rank: Rank,
    /// First byte in that shard's image.
    pub source_at: u64,
    /// First byte in the destination.
    pub dest_at: u64,
    /// How many bytes; never zero.
    pub bytes: u64,
}

/// Why the shards cannot give what is wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum PlanError {
    #[error(transparent)]
    Box(#[from] BoxError),
    #[error("tensor {tensor} is not in the checkpoint")]
    Absent { tensor: String },
    #[error("tensor {tensor} is {stored} in the checkpoint (rank {rank}) and {wanted} is wanted")]
    Dtype {
        tensor: String,
        rank: Rank,
        stored: Dtype,
        wanted: Dtype,
    },
    #[error("tensor {tensor} has shape {stored:?} in the checkpoint (rank {rank}) and {wanted:?} is wanted")]
    Shape {
        tensor: String,
        rank: Rank,
        stored: Vec<u64>,
        wanted: Vec<u64>,
    },
    #[error("tensor {tensor}: no shard holds the part at {offset:?} of extent {shape:?}")]
    Hole {
        tensor: String,
        offset: Vec<u64>,
        shape: Vec<u64>,
    },
    #[error("the wanted boxes exceed 64 bits in size")]
    TooLarge,
}

/// A stored part of a tensor.
struct Part<'a> {
    rank: Rank,
    at: u64,
    boxed: &'a TensorBox,
}

/// An area of a tensor: offset and extent, an entry a dimension.
#[derive(Clone, PartialEq, Eq)]
struct Area {
    offset: Vec<u64>,
    shape: Vec<u64>,
}

/// The copies that fill the destination, by shard and place in its image. Where several shards hold the very same
/// box, the earliest in `shards` supplies it: put the nearest first.
pub fn plan(wanted: &[TensorBox], shards: &[ShardIndex]) -> Result<Vec<RangeCopy>, PlanError> {
    wanted.iter().try_for_each(TensorBox::check)?;
    let mut tensors = Tensors::new(wanted);
    shards.iter().try_for_each(|shard| tensors.take(shard))?;
    let parts: Vec<Parts<'_>> = tensors.groups.into_iter().map(Group::into_parts).collect();
    let (mut copies, mut dest_at) = (Vec::new(), 0u64);
    for want in wanted {
        let parts = &parts[tensors.by_name[want.name.as_str()]];
        if !parts.stored {
            return Err(PlanError::Absent {
                tensor: want.name.clone(),
            });
        }
        // All parts agree with the first box that is wanted of their tensor, so one of them speaks for all.
        parts.sorted.first().map_or(Ok(()), |part| part.agree_with(want))?;
        parts.cover(want, dest_at, &mut copies)?;
        let end = want.bytes().and_then(|bytes| dest_at.checked_add(bytes));
        dest_at = end.ok_or(PlanError::TooLarge)?;
    }
    copies.sort_by_key(|copy| (copy.shard_rank, copy.source_at, copy.dest_at));
    Ok(merged(copies))
}

/// Up to this many wanted boxes of a tensor, a stored part is compared with each; more are left to the sweep.
const FEW: usize = 4;

/// The wanted tensors, each with what is stored of it.
struct Tensors<'a> {
    by_name: BTreeMap<&'a str, usize>,
    groups: Vec<Group<'a>>,
}

/// What is wanted of one tensor, and what is stored of that.
struct Group<'a> {
    wanted: Vec<&'a TensorBox>,
    parts: Vec<Part<'a>>,
    /// Some shard has a part of it, be it another one.
    stored: bool,
}

impl<'a> Tensors<'a> {
    fn new(wanted: &'a [TensorBox]) -> Self {
        let mut tensors = Self {
            by_name: BTreeMap::new(),
            groups: Vec::new(),
        };
        for want in wanted {
            let next = tensors.groups.len();
            let group = *tensors.by_name.entry(&want.name).or_insert(next);
            if group == next {
                tensors.groups.push(Group {
                    wanted: Vec::new(),
                    parts: Vec::new(),
                    stored: false,
                });
            }
            tensors.groups[group].wanted.push(want);
        }
        tensors
    }

    /// Takes what is wanted from a shard's tensors. Shards list tensors in the order in which ranks ask for them, as a rule, so
    /// the next one is looked for there before it is looked up.
    fn take(&mut self, shard: &'a ShardIndex) -> Result<(), PlanError> {
        let mut next = 0;
        for entry in &shard.tensors {
            let expected = self.groups.get(next).filter(|group| group.wanted[0].name == entry.boxed.name);
            let found = match expected {
                Some(_) => next,
                None => match self.by_name.get(entry.boxed.name.as_str()) {
                    Some(group) => *group,
                    None => continue,
                },
            };
            next = found + 1;
            self.groups[found].take(Part {
                rank: shard.rank,
                at: entry.at,
                boxed: &entry.boxed,
            })?;
        }
        Ok(())
    }
}

impl<'a> Group<'a> {
    fn take(&mut self, part: Part<'a>) -> Result<(), PlanError> {
        self.stored = true;
        let many = self.wanted.len() > FEW;
        // Boxes of one tensor agree among themselves, unless the caller is at fault; then some part says so.
        let compared = if many { &self.wanted[..1] } else { &self.wanted[..] };
        let mut met = many;
        for want in compared {
            part.agree_with(want)?;
            met = met || part.meets(want);
        }
        if met {
            self.parts.push(part);
        }
        Ok(())
    }

    fn into_parts(self) -> Parts<'a> {
        Parts {
            stored: self.stored,
            ..Parts::new(self.parts)
        }
    }
}

impl Part<'_> {
    fn agree_with(&self, want: &TensorBox) -> Result<(), PlanError> {
        if self.boxed.dtype != want.dtype {
            return Err(PlanError::Dtype {
                tensor: want.name.clone(),
                rank: self.rank,
                stored: self.boxed.dtype,
                wanted: want.dtype,
            });
        }
        if self.boxed.global_shape != want.global_shape {
            return Err(PlanError::Shape {
                tensor: want.name.clone(),
                rank: self.rank,
                stored: self.boxed.global_shape.clone(),
                wanted: want.global_shape.clone(),
            });
        }
        Ok(())
    }

    /// Whether they have an element in common; boxes of the same tensor have the same dimensions.
    fn meets(&self, want: &TensorBox) -> bool {
        let (ours, theirs) = (&self.boxed, want);
        (0..theirs.shape.len()).all(|dim| {
            let start = ours.offset[dim].max(theirs.offset[dim]);
            start < (ours.offset[dim] + ours.shape[dim]).min(theirs.offset[dim] + theirs.shape[dim])
        })
    }
}

/// The parts of one tensor, sorted along the dimension that tells most of them apart.
struct Parts<'a> {
    dim: Option<usize>,
    sorted: Vec<Part<'a>>,
    /// For each place, the furthest end of any part up to it: parts before a place whose reach is too short cannot
    /// meet what is wanted.
    reach: Vec<u64>,
    /// Some shard has a part of the tensor.
    stored: bool,
}

impl<'a> Parts<'a> {
    fn new(mut parts: Vec<Part<'a>>) -> Self {
        let dims = parts.iter().map(|part| part.boxed.shape.len()).min().unwrap_or(0);
        let distinct = |dim: &usize| {
            let offsets: BTreeSet<u64> = parts.iter().map(|part| part.boxed.offset[*dim]).collect();
            offsets.len()
        };
        // With a few parts any dimension will do.
        let dim = match parts.len() {
            0..=8 => (dims > 0).then_some(0),
            _ => (0..dims).rev().max_by_key(distinct),
        };
        // Stable, so of equal boxes the earliest in the caller's order stays first; it alone is kept.
        match dim {
            Some(dim) => parts.sort_by(|a, b| {
                let key = |part: &Part<'a>| (part.boxed.offset[dim], &part.boxed.offset, &part.boxed.shape);
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
            stored: true,
            dim,
            sorted: parts,
        }
    }

    /// The parts that can meet `want`.
    fn near(&self, want: &TensorBox) -> &[Part<'a>] {
        let Some(dim) = self.dim else {
            return &self.sorted;
        };
        let (start, end) = (want.offset[dim], want.offset[dim].saturating_add(want.shape[dim]));
        let first = self.reach.partition_point(|reach| *reach <= start);
        let last = self.sorted.partition_point(|part| part.boxed.offset[dim] < end);
        self.sorted.get(first..last).unwrap_or(&[])
    }

    fn cover(&self, want: &TensorBox, dest_at: u64, copies: &mut Vec<RangeCopy>) -> Result<(), PlanError> {
        let whole = Area {
            offset: want.offset.clone(),
            shape: want.shape.clone(),
        };
        let mut open = if whole.is_empty() { Vec::new() } else { vec![whole] };
        let mut taken = Vec::new();
        for part in self.near(want) {
            if open.is_empty() {
                break;
            }
            let part_area = Area {
                offset: part.boxed.offset.clone(),
                shape: part.boxed.shape.clone(),
            };
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
        // Only now: what is covered really lies in some image, so there are no more ranges than stored bytes.
        for (part, common) in taken {
            emit(part, &common, want, dest_at, copies);
        }
        Ok(())
    }
}

impl Area {
    fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// What both areas have in common; `None` when that is nothing.
    fn meet(&self, other: &Self) -> Option<Self> {
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

    /// Adds to `left` what remains of this area when `hole`, which lies in it, is cut out.
    fn without(mut self, hole: &Self, left: &mut Vec<Self>) {
        for dim in 0..self.shape.len() {
            let (start, end) = (self.offset[dim], self.offset[dim] + self.shape[dim]);
            let (from, to) = (hole.offset[dim], hole.offset[dim] + hole.shape[dim]);
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

/// The contiguous runs of `common` as they lie in both `part` and `want`.
fn emit(part: &Part<'_>, common: &Area, want: &TensorBox, dest_at: u64, copies: &mut Vec<RangeCopy>) {
    let size = want.dtype.bytes();
    let dims = common.shape.len();
    // Trailing dimensions that all three have in full are one run; the dimension before them joins it in part.
    let mut inner = dims;
    while inner > 0
        && common.shape[inner - 1] == part.boxed.shape[inner - 1]
        && common.shape[inner - 1] == want.shape[inner - 1]
    {
        inner -= 1;
    }
    let outer = inner.saturating_sub(1);
    let run: u64 = common.shape[outer..].iter().product::<u64>() * size;
    let (source_strides, dest_strides) = (strides(&part.boxed.shape, size), strides(&want.shape, size));
    let place =
        |base: &[u64], strides: &[u64], dim: usize, step: u64| (common.offset[dim] + step - base[dim]) * strides[dim];
    let mut position = vec![0u64; outer];
    loop {
        let (mut source, mut dest) = (part.at, dest_at);
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
        // The next position, last outer dimension fastest.
        let Some(dim) = (0..outer).rev().find(|dim| position[*dim] + 1 < common.shape[*dim]) else {
            return;
        };
        position[dim] += 1;
        position[dim + 1..].fill(0);
    }
}

/// Bytes from one element to the next along each dimension.
fn strides(shape: &[u64], size: u64) -> Vec<u64> {
    let mut strides = vec![size; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim] * shape[dim];
    }
    strides
}

/// Joins copies that continue each other on both sides.
fn merged(copies: Vec<RangeCopy>) -> Vec<RangeCopy> {
    let mut joined: Vec<RangeCopy> = Vec::with_capacity(copies.len());
    for copy in copies {
        match joined.last_mut() {
            Some(last)
                if last.shard_rank == copy.shard_rank
                    && last.source_at + last.bytes == copy.source_at
                    && last.dest_at + last.bytes == copy.dest_at =>
            {
                last.bytes += copy.bytes;
            }
            _ => joined.push(copy),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CheckpointId;
    use rankguard_model::{Generation, JobId, Step};

    /// A shard whose only tensor is the `shape` part at `offset` of a 4 x 6 table of bytes.
    fn shard(rank: u32, offset: [u64; 2], shape: [u64; 2]) -> ShardIndex {
        let boxed = part(offset, shape);
        let mut index = ShardIndex {
            rank: Rank(rank),
            world_size: 8,
            chunk_bytes: 64,
            image_bytes: boxed.bytes().expect("small"),
            tensors: ShardIndex::lay_out([boxed]).0,
            ..ShardIndex::new(&JobId::from("demo"), id())
        };
        index.digest_image(&[0; 24]);
        index
    }

    fn id() -> CheckpointId {
        CheckpointId {
            step: Step(1),
            generation: Generation(1),
        }
    }

    fn part(offset: [u64; 2], shape: [u64; 2]) -> TensorBox {
        TensorBox {
            name: "w".to_owned(),
            dtype: Dtype::U8,
            global_shape: vec![4, 6],
            offset: offset.to_vec(),
            shape: shape.to_vec(),
        }
    }

    fn copies(wanted: TensorBox, shards: &[ShardIndex]) -> Vec<(u32, u64, u64, u64)> {
        let plan = plan(&[wanted], shards).expect("covered");
        plan.into_iter()
            .map(|c| (c.shard_rank.0, c.source_at, c.dest_at, c.bytes))
            .collect()
    }

    #[test]
    fn whole_rows_are_one_copy_a_shard() {
        let rows = [shard(0, [0, 0], [2, 6]), shard(1, [2, 0], [2, 6])];
        assert_eq!(copies(part([0, 0], [4, 6]), &rows), [(0, 0, 0, 12), (1, 0, 12, 12)]);
        assert_eq!(copies(part([1, 0], [2, 6]), &rows), [(0, 6, 0, 6), (1, 0, 6, 6)]);
    }

    #[test]
    fn columns_of_a_row_shard_are_one_copy_a_row() {
        let rows = [shard(0, [0, 0], [2, 6]), shard(1, [2, 0], [2, 6])];
        assert_eq!(copies(part([1, 4], [2, 2]), &rows), [(0, 10, 0, 2), (1, 4, 2, 2)]);
    }

    #[test]
    fn of_replicas_the_first_supplies_and_each_byte_is_read_once() {
        let replicas = [shard(5, [0, 0], [4, 6]), shard(2, [0, 0], [4, 6])];
        assert_eq!(copies(part([0, 0], [4, 6]), &replicas), [(5, 0, 0, 24)]);
        let overlapping = [shard(0, [0, 0], [3, 6]), shard(1, [1, 0], [3, 6])];
        assert_eq!(
            copies(part([0, 0], [4, 6]), &overlapping),
            [(0, 0, 0, 18), (1, 12, 18, 6)]
        );
    }

    #[test]
    fn rg_2_a_hole_names_its_tensor_and_place() {
        let rows = [shard(0, [0, 0], [2, 6]), shard(1, [3, 0], [1, 6])];
        let error = plan(&[part([0, 0], [4, 6])], &rows).expect_err("row 2 is nowhere");
        let hole = PlanError::Hole {
            tensor: "w".to_owned(),
            offset: vec![2, 0],
            shape: vec![1, 6],
        };
        assert_eq!(error, hole);
    }

    #[test]
    fn another_name_type_or_shape_is_an_error() {
        let rows = [shard(0, [0, 0], [4, 6])];
        let with = |change: fn(&mut TensorBox)| {
            let mut wanted = part([0, 0], [4, 6]);
            change(&mut wanted);
            plan(&[wanted], &rows).expect_err("not stored like that")
        };
        assert!(matches!(with(|w| w.name = "v".to_owned()), PlanError::Absent { .. }));
        assert!(matches!(with(|w| w.dtype = Dtype::I8), PlanError::Dtype { .. }));
        assert!(matches!(with(|w| w.global_shape = vec![5, 6]), PlanError::Shape { .. }));
        assert!(matches!(with(|w| w.offset = vec![1, 0]), PlanError::Box(_)));
    }

    #[test]
    fn shards_that_disagree_among_themselves_are_refused() {
        let mut odd = shard(1, [2, 0], [2, 6]);
        odd.tensors[0].boxed.dtype = Dtype::I8;
        let error = plan(&[part([0, 0], [2, 6])], &[shard(0, [0, 0], [2, 6]), odd]);
        assert!(matches!(error, Err(PlanError::Dtype { rank: Rank(1), .. })));
    }

    #[test]
    fn an_empty_box_and_a_scalar_are_boxes_too() {
        let mut scalar = shard(0, [0, 0], [4, 6]);
        scalar.tensors[0].boxed = TensorBox::whole("lr", Dtype::F64, vec![]);
        let wanted = TensorBox::whole("lr", Dtype::F64, vec![]);
        assert_eq!(copies(wanted, &[scalar]), [(0, 0, 0, 8)]);
        assert_eq!(copies(part([4, 0], [0, 6]), &[shard(0, [0, 0], [4, 6])]), []);
    }
}
