//! Comparison of data-parallel replicas, to detect silent data corruption.
//!
//! Ranks of a data-parallel group hold the same box of a tensor, and every box is cut into chunks the same way, so
//! equal boxes have equal chunk digests. A difference means that some processor or memory computed a wrong result
//! without reporting an error, or that the program keeps other values on each rank under one name ([`judgement`] decides
//! which). With three or more replicas a majority identifies the suspects; with two, only the difference is known.

pub mod judgement;

use std::collections::BTreeMap;

use rankguard_model::Rank;
use serde::{Deserialize, Serialize};

/// Copy of a box on one rank, of the same step as all others that are compared.
#[derive(Debug, Clone, Copy)]
pub struct BoxReplica<'a, D> {
    /// Rank that holds the copy.
    pub rank: Rank,
    /// Full name of the tensor.
    pub tensor: &'a str,
    /// First element of the box in the tensor.
    pub offset: &'a [u64],
    /// Extent of the box, elements.
    pub shape: &'a [u64],
    /// Chunk size, bytes. Boxes with different chunk sizes cannot be compared.
    pub chunk_bytes: u64,
    /// Digests of the chunks, in order.
    pub digests: &'a [D],
}

/// Box with replicas that differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaDifference {
    /// Full name of the tensor.
    pub tensor: String,
    /// First element of the box in the tensor.
    pub offset: Vec<u64>,
    /// Extent of the box, elements.
    pub shape: Vec<u64>,
    /// Chunks of the box that differ, counted from its beginning.
    pub chunks: Vec<u32>,
    /// Number of all chunks of the box; 0 in older journals.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub chunk_count: u32,
    /// Groups of ranks with equal content, the largest group first.
    pub groups: Vec<Vec<Rank>>,
}

fn is_unknown(chunk_count: &u32) -> bool {
    *chunk_count == 0
}

/// Comparison of all replicas of one checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplicaComparison {
    /// Boxes with replicas that differ.
    pub differing: Vec<ReplicaDifference>,
    /// Chunks of the boxes that several ranks hold, by tensor.
    pub shared: BTreeMap<String, u64>,
}

impl ReplicaDifference {
    /// Returns the ranks that disagree with a majority of all; empty without a majority, as with two replicas.
    pub fn suspects(&self) -> Vec<Rank> {
        let all: usize = self.groups.iter().map(Vec::len).sum();
        match self.groups.split_first() {
            Some((most, rest)) if most.len() * 2 > all => {
                let mut suspects: Vec<Rank> = rest.iter().flatten().copied().collect();
                suspects.sort();
                suspects
            }
            _ => Vec::new(),
        }
    }

    /// Returns all ranks that hold the box, sorted.
    pub fn ranks(&self) -> Vec<Rank> {
        let mut ranks: Vec<Rank> = self.groups.iter().flatten().copied().collect();
        ranks.sort();
        ranks
    }
}

/// Compares all replicas of every box. Boxes that only one rank holds, or that have different chunk sizes, are skipped.
pub fn differences<'a, D: Ord + 'a>(replicas: impl IntoIterator<Item = BoxReplica<'a, D>>) -> Vec<ReplicaDifference> {
    compare(replicas).differing
}

/// Compares as [`differences`] does, and also returns the size of what was compared.
pub fn compare<'a, D: Ord + 'a>(replicas: impl IntoIterator<Item = BoxReplica<'a, D>>) -> ReplicaComparison {
    let mut boxes: BTreeMap<_, BTreeMap<&[D], Vec<Rank>>> = BTreeMap::new();
    for replica in replicas {
        let BoxReplica {
            tensor,
            offset,
            shape,
            chunk_bytes,
            ..
        } = replica;
        let key = (tensor, offset, shape, chunk_bytes, replica.digests.len());
        let ranks = boxes.entry(key).or_default().entry(replica.digests).or_default();
        if !ranks.contains(&replica.rank) {
            ranks.push(replica.rank);
        }
    }
    let mut found = ReplicaComparison::default();
    for ((tensor, offset, shape, _, chunk_count), copies) in boxes {
        if copies.values().map(Vec::len).sum::<usize>() < 2 {
            continue;
        }
        *found.shared.entry(tensor.to_owned()).or_default() += chunk_count as u64;
        if copies.len() < 2 {
            continue;
        }
        let chunks = differing_chunks(copies.keys().copied());
        let mut groups: Vec<Vec<Rank>> = copies.into_values().collect();
        groups.iter_mut().for_each(|ranks| ranks.sort());
        groups.sort_by_key(|ranks| (std::cmp::Reverse(ranks.len()), ranks.first().copied()));
        found.differing.push(ReplicaDifference {
            tensor: tensor.to_owned(),
            offset: offset.to_vec(),
            shape: shape.to_vec(),
            chunks,
            chunk_count: u32::try_from(chunk_count).unwrap_or(u32::MAX),
            groups,
        });
    }
    found
}

fn differing_chunks<'a, D: Ord + 'a>(copies: impl Iterator<Item = &'a [D]>) -> Vec<u32> {
    let copies: Vec<&[D]> = copies.collect();
    let Some((first, others)) = copies.split_first() else {
        return Vec::new();
    };
    let differs = |at: &usize| others.iter().any(|other| other[*at] != first[*at]);
    let chunks = (0..first.len()).filter(differs);
    chunks.map(|at| u32::try_from(at).unwrap_or(u32::MAX)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn replica<'a>(rank: u32, tensor: &'a str, digests: &'a [u64]) -> BoxReplica<'a, u64> {
        BoxReplica {
            rank: Rank(rank),
            tensor,
            offset: &[0],
            shape: &[8],
            chunk_bytes: 4,
            digests,
        }
    }

    #[test]
    fn the_one_that_differs_from_the_majority_is_suspected() {
        let good = [1, 2, 3];
        let bad = [1, 9, 3];
        let found = differences([
            replica(0, "w", &good),
            replica(1, "w", &bad),
            replica(2, "w", &good),
            replica(3, "v", &bad),
        ]);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].tensor.as_str(), found[0].chunks.as_slice()),
            ("w", [1].as_slice())
        );
        assert_eq!(found[0].suspects(), [Rank(1)]);
        assert_eq!(found[0].ranks(), [Rank(0), Rank(1), Rank(2)]);
    }

    #[test]
    fn of_two_nobody_is_suspected_and_other_cuts_say_nothing() {
        let good = [1, 2];
        let bad = [1, 9];
        let found = differences([replica(0, "w", &good), replica(1, "w", &bad)]);
        assert_eq!((found.len(), found[0].suspects()), (1, Vec::new()));
        let coarse = BoxReplica {
            chunk_bytes: 8,
            digests: &bad[..1],
            ..replica(1, "w", &bad)
        };
        let moved = BoxReplica {
            offset: &[8],
            ..replica(1, "w", &bad)
        };
        assert_eq!(differences([replica(0, "w", &good), coarse, moved]), []);
        // Four that split evenly: there is no majority.
        let even = [
            replica(0, "w", &good),
            replica(1, "w", &bad),
            replica(2, "w", &good),
            replica(3, "w", &bad),
        ];
        assert_eq!(differences(even)[0].suspects(), []);
    }

    proptest! {
        /// Equal replicas never raise an alarm; one flipped digest always does, with tensor, chunk and rank.
        #[test]
        fn exactly_the_flipped_one_is_found(
            tensors in prop::collection::vec(prop::collection::vec(any::<u64>(), 1..6), 1..5), ranks in 3..8_u32, which in any::<prop::sample::Index>(), who in any::<prop::sample::Index>(),
        ) {
            let names: Vec<String> = (0..tensors.len()).map(|at| format!("layer.{at}")).collect();
            let equal = || (0..ranks).flat_map(|rank| names.iter().zip(&tensors).map(move |(name, digests)| replica(rank, name, digests)));
            prop_assert_eq!(differences(equal()), []);
            let tensor = which.index(tensors.len());
            let rank = who.index(ranks as usize) as u32;
            let chunk = which.index(tensors[tensor].len());
            let mut flipped = tensors[tensor].clone();
            flipped[chunk] ^= 1;
            let found = differences(equal().map(|copy| {
                if copy.rank == Rank(rank) && copy.tensor == names[tensor] { BoxReplica { digests: &flipped, ..copy } } else { copy }
            }));
            prop_assert_eq!(found.len(), 1);
            prop_assert_eq!(&found[0].tensor, &names[tensor]);
            prop_assert_eq!(&found[0].chunks, &vec![chunk as u32]);
            prop_assert_eq!(found[0].suspects(), vec![Rank(rank)]);
        }
    }
}
