//! Reshard planner: maps requested tensor boxes to byte ranges of stored shards, so that a checkpoint loads on another
//! number of ranks.
//!
//! Requested boxes lie back to back in the destination, in request order. For each box, the stored parts of its tensor
//! are swept in order of offset; each part supplies the still uncovered area that it overlaps. Every requested byte
//! therefore has exactly one source, and an area that remains uncovered is an error ([`PlanError::Hole`]). Work is
//! near-linear: one pass over all entries, one sort per tensor, and a sweep over the stored parts that can overlap the
//! requested box.

mod area;
mod parts;

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::Rank;

use self::parts::SortedParts;
use crate::{BoxError, DifferenceCause, Dtype, ShardIndex, TensorBox, tensor_differences};

/// Byte range to copy from the image of one shard into the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeCopy {
    /// Rank that wrote the shard.
    pub shard_rank: Rank,
    /// First byte in the image of that shard.
    pub source_at: u64,
    /// First byte in the destination.
    pub dest_at: u64,
    /// Length in bytes, never zero.
    pub bytes: u64,
}

/// Reason why the shards cannot supply the requested boxes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum PlanError {
    #[error(transparent)]
    Box(#[from] BoxError),
    #[error("tensor {tensor} is not in the checkpoint")]
    Absent { tensor: String },
    #[error(
        "tensor {tensor} differs from rank to rank in the checkpoint, and rank {rank} saved another part of it than is \
         wanted; declare its parts with Shard or DTensor when saving"
    )]
    Ambiguous { tensor: String, rank: Rank },
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

/// Stored part of a tensor.
struct StoredPart<'a> {
    rank: Rank,
    at: u64,
    boxed: &'a TensorBox,
}

/// Computes the copies that fill the destination, sorted by shard and image offset. If several shards hold the same
/// box, the first in `shards` supplies it, so callers list the nearest shard first.
pub fn plan(wanted: &[TensorBox], shards: &[ShardIndex]) -> Result<Vec<RangeCopy>, PlanError> {
    plan_own(wanted, shards, &OwnTensors::default())
}

/// Tensors that a rank reads only from its own shard, because the ranks saved different content under the same name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnTensors {
    rank: Rank,
    names: BTreeMap<String, DifferenceCause>,
}

impl OwnTensors {
    /// Finds the tensors that differ between ranks, for `rank` of the world that saved them.
    pub fn of(rank: Rank, shards: &[ShardIndex]) -> Self {
        let differences = tensor_differences(shards).into_iter();
        let names = differences.map(|found| (found.name, found.cause)).collect();
        Self { rank, names }
    }

    /// True if this tensor differs between ranks.
    pub fn contains(&self, tensor: &str) -> bool {
        self.names.contains_key(tensor)
    }

    /// Returns the requested tensors that the rank's own shard alone supplies.
    fn supplied(&self, wanted: &[TensorBox], shards: &[ShardIndex]) -> Result<BTreeSet<&str>, PlanError> {
        let mut supplied = BTreeSet::new();
        if self.names.is_empty() {
            return Ok(supplied);
        }
        let own = shards.iter().filter(|shard| shard.rank == self.rank);
        let mut saved: BTreeMap<&str, Vec<&TensorBox>> = BTreeMap::new();
        for entry in own.flat_map(|shard| &shard.tensors) {
            saved.entry(&entry.boxed.name).or_default().push(&entry.boxed);
        }
        let holds = |want: &TensorBox| {
            let parts = saved.get(want.name.as_str()).into_iter().flatten();
            parts.into_iter().any(|part| part.encloses(want))
        };
        for want in wanted {
            match self.names.get_key_value(&want.name) {
                Some((name, _)) if holds(want) => drop(supplied.insert(name.as_str())),
                Some((_, DifferenceCause::Content | DifferenceCause::Shape)) => {
                    return Err(PlanError::Ambiguous {
                        tensor: want.name.clone(),
                        rank: self.rank,
                    });
                }
                _ => {}
            }
        }
        Ok(supplied)
    }
}

/// Computes the copies as [`plan`] does, for a rank of the world that saved the shards: tensors in `own` are read from
/// the part that this rank saved.
pub fn plan_own(wanted: &[TensorBox], shards: &[ShardIndex], own: &OwnTensors) -> Result<Vec<RangeCopy>, PlanError> {
    wanted.iter().try_for_each(TensorBox::check)?;
    let mut tensors = TensorRequests::new(wanted);
    for name in own.supplied(wanted, shards)? {
        tensors.supplied_by(name, own.rank);
    }
    shards.iter().try_for_each(|shard| tensors.add_stored(shard))?;
    let parts: Vec<SortedParts<'_>> = tensors.groups.into_iter().map(TensorRequest::into_parts).collect();
    let mut copies = Vec::new();
    let mut dest_at = 0u64;
    for want in wanted {
        let parts = &parts[tensors.by_name[want.name.as_str()]];
        if !parts.stored {
            return Err(PlanError::Absent {
                tensor: want.name.clone(),
            });
        }
        // All parts agree with the first requested box of their tensor, so checking one part is enough.
        parts.first().map_or(Ok(()), |part| part.agree_with(want))?;
        parts.cover(want, dest_at, &mut copies)?;
        let end = want.bytes().and_then(|bytes| dest_at.checked_add(bytes));
        dest_at = end.ok_or(PlanError::TooLarge)?;
    }
    copies.sort_by_key(|copy| (copy.shard_rank, copy.source_at, copy.dest_at));
    Ok(merged(copies))
}

/// Up to this many requested boxes of a tensor, each stored part is tested for overlap here; more are left to the
/// sweep.
const FEW: usize = 4;

/// Requested tensors, each with its stored parts.
struct TensorRequests<'a> {
    by_name: BTreeMap<&'a str, usize>,
    groups: Vec<TensorRequest<'a>>,
}

/// Requested boxes of one tensor and its stored parts.
struct TensorRequest<'a> {
    wanted: Vec<&'a TensorBox>,
    parts: Vec<StoredPart<'a>>,
    /// True if some shard holds a part of the tensor, even one that is not needed.
    stored: bool,
    /// Only rank that may supply the tensor; `None` means any rank.
    supplier: Option<Rank>,
}

impl<'a> TensorRequests<'a> {
    fn new(wanted: &'a [TensorBox]) -> Self {
        let mut tensors = Self {
            by_name: BTreeMap::new(),
            groups: Vec::new(),
        };
        for want in wanted {
            let next = tensors.groups.len();
            let group = *tensors.by_name.entry(&want.name).or_insert(next);
            if group == next {
                tensors.groups.push(TensorRequest {
                    wanted: Vec::new(),
                    parts: Vec::new(),
                    stored: false,
                    supplier: None,
                });
            }
            tensors.groups[group].wanted.push(want);
        }
        tensors
    }

    /// Restricts the sources of this tensor to the shard of `rank`.
    fn supplied_by(&mut self, name: &str, rank: Rank) {
        if let Some(group) = self.by_name.get(name) {
            self.groups[*group].supplier = Some(rank);
        }
    }

    /// Adds the requested tensors of a shard. Shards usually list tensors in the order in which ranks request them, so
    /// the next group is tried before the map lookup.
    fn add_stored(&mut self, shard: &'a ShardIndex) -> Result<(), PlanError> {
        let mut next = 0;
        for entry in &shard.tensors {
            let expected = self
                .groups
                .get(next)
                .filter(|group| group.wanted[0].name == entry.boxed.name);
            let found = match expected {
                Some(_) => next,
                None => match self.by_name.get(entry.boxed.name.as_str()) {
                    Some(group) => *group,
                    None => continue,
                },
            };
            next = found + 1;
            self.groups[found].add_stored(StoredPart {
                rank: shard.rank,
                at: entry.at,
                boxed: &entry.boxed,
            })?;
        }
        Ok(())
    }
}

impl<'a> TensorRequest<'a> {
    fn add_stored(&mut self, part: StoredPart<'a>) -> Result<(), PlanError> {
        if self.supplier.is_some_and(|rank| rank != part.rank) {
            return Ok(());
        }
        self.stored = true;
        let many = self.wanted.len() > FEW;
        // Requested boxes of one tensor agree unless the caller made a mistake; then comparing the parts reports it.
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

    fn into_parts(self) -> SortedParts<'a> {
        SortedParts::new(self.parts, self.stored)
    }
}

impl StoredPart<'_> {
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

    /// True if both boxes have an element in common; boxes of the same tensor have the same number of dimensions.
    fn meets(&self, want: &TensorBox) -> bool {
        let ours = &self.boxed;
        let theirs = want;
        (0..theirs.shape.len()).all(|dim| {
            let start = ours.offset[dim].max(theirs.offset[dim]);
            start < (ours.offset[dim] + ours.shape[dim]).min(theirs.offset[dim] + theirs.shape[dim])
        })
    }
}

/// Joins copies that are contiguous in both source and destination.
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

    /// Returns a shard with one tensor: the `shape` part at `offset` of a 4 x 6 table of bytes.
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
