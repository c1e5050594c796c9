//! Judgement of replicas that differ: a wrong result on one rank, or values that the program keeps for each rank.
//!
//! The digests of one checkpoint do not show the difference; those of the checkpoint before it do:
//!
//! | before | now | judgement |
//! |---|---|---|
//! | the tensor differed | | values of each rank |
//! | no replicas of the tensor, or no checkpoint | nearly all chunks of the box differ | values of each rank: a flipped bit changes one chunk |
//! | the same | fewer chunks differ | wrong result |
//! | the replicas were equal | a majority contradicts some ranks | wrong result |
//! | the same | no majority, and nearly all chunks of what differs, which is half of all that ranks share | values of each rank: they train apart between two synchronisations |
//! | the same | no majority, fewer chunks | wrong result |
//!
//! A checkpoint with values of each rank is usable: every rank of a job of the same size restores its own. One with a
//! wrong result is not: no rank can be trusted to hold the right bytes without a majority, and the optimizer state of
//! later steps depends on them. A wrong result in a tensor with values of each rank is not detected.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{ReplicaComparison, ReplicaDifference};

/// Share of the chunks that counts as nearly all, percent.
const NEARLY_ALL_PERCENT: u64 = 90;

/// Differences between the replicas of one checkpoint, by their cause.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JudgedDifferences {
    /// Replicas that must be equal: a processor or memory computed a wrong result.
    pub wrong: Vec<ReplicaDifference>,
    /// Values that the program keeps for each rank under one name.
    pub per_rank: Vec<ReplicaDifference>,
}

impl JudgedDifferences {
    /// Returns the names of the tensors with values of each rank, sorted.
    pub fn per_rank_tensors(&self) -> Vec<String> {
        let names: BTreeSet<&String> = self.per_rank.iter().map(|found| &found.tensor).collect();
        names.into_iter().cloned().collect()
    }
}

/// Judges the differences of a checkpoint by those of the checkpoint before it, if there is one.
pub fn judge(now: ReplicaComparison, before: Option<&ReplicaComparison>) -> JudgedDifferences {
    let shared: u64 = now.shared.values().sum();
    let differed: BTreeSet<&str> = before
        .iter()
        .flat_map(|before| before.differing.iter().map(|found| found.tensor.as_str()))
        .collect();
    let is_known = |tensor: &String| before.is_some_and(|before| before.shared.contains_key(tensor));
    let mut judged = JudgedDifferences::default();
    let mut parted = Vec::new();
    for found in now.differing {
        let was_equal = is_known(&found.tensor) && !differed.contains(found.tensor.as_str());
        if !was_equal {
            let is_by_rank = differed.contains(found.tensor.as_str()) || is_nearly_all(sizes(&found));
            let list = if is_by_rank {
                &mut judged.per_rank
            } else {
                &mut judged.wrong
            };
            list.push(found);
        } else if found.suspects().is_empty() {
            parted.push(found);
        } else {
            judged.wrong.push(found);
        }
    }
    let all = parted.iter().map(sizes);
    let (chunks, of) = all.fold((0, 0), |sum: (u64, u64), one| (sum.0 + one.0, sum.1 + one.1));
    // One chunk is all of a small tensor, and a single wrong result.
    let is_by_rank = chunks > 1 && is_nearly_all((chunks, of)) && chunks.saturating_mul(2) >= shared;
    let list = if is_by_rank {
        &mut judged.per_rank
    } else {
        &mut judged.wrong
    };
    list.extend(parted);
    judged
}

/// Returns the number of chunks that differ and that of all chunks.
fn sizes(found: &ReplicaDifference) -> (u64, u64) {
    (found.chunks.len() as u64, u64::from(found.chunk_count))
}

fn is_nearly_all((chunks, of): (u64, u64)) -> bool {
    chunks.saturating_mul(100) >= of.saturating_mul(NEARLY_ALL_PERCENT)
}

/// Returns the reason for which a checkpoint with wrong results is not committed; `None` without any.
pub fn refusal(wrong: &[ReplicaDifference]) -> Option<String> {
    let first = wrong.first()?;
    let tensor = &first.tensor;
    let (chunks, of) = sizes(first);
    let suspects = first.suspects();
    let mut text = match suspects.first() {
        Some(rank) => format!("tensor {tensor} of rank {rank} differs from that of most other ranks"),
        None => {
            let mut ranks = first.groups.iter().filter_map(|group| group.first());
            let one = ranks.next()?;
            let other = ranks.next()?;
            format!("tensor {tensor} differs between ranks {one} and {other}")
        }
    };
    let _ = write!(text, " in {chunks} of {of} chunks");
    let tensors: BTreeSet<&str> = wrong.iter().map(|found| found.tensor.as_str()).collect();
    if tensors.len() > 1 {
        let _ = write!(text, ", and {} more", tensors.len() - 1);
    }
    Some(format!(
        "replicas that must be equal are not: {text}; values of one rank are saved as rankguard.PerRank"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rankguard_model::Rank;

    use super::super::{BoxReplica, compare};
    use super::*;

    /// Content of the chunks of one tensor on each rank.
    type Tensor<'a> = (&'a str, &'a [&'a [u64]]);

    fn comparison(tensors: &[Tensor<'_>]) -> ReplicaComparison {
        let replicas = tensors.iter().flat_map(|(tensor, ranks)| {
            ranks.iter().enumerate().map(|(rank, digests)| BoxReplica {
                rank: Rank(rank as u32),
                tensor,
                offset: &[0],
                shape: &[64],
                chunk_bytes: 4,
                digests,
            })
        });
        compare(replicas)
    }

    /// Names of the tensors with wrong results, and of those with values of each rank.
    fn check(now: &[Tensor<'_>], before: Option<&[Tensor<'_>]>, wrong: &[&str], per_rank: &[&str]) {
        let before = before.map(comparison);
        let judged = judge(comparison(now), before.as_ref());
        let found: Vec<&str> = judged.wrong.iter().map(|found| found.tensor.as_str()).collect();
        assert_eq!(found, wrong, "wrong results");
        assert_eq!(judged.per_rank_tensors(), per_rank, "values of each rank");
    }

    const EQUAL: &[&[u64]] = &[&[1, 2, 3, 4], &[1, 2, 3, 4]];
    const ALL: &[&[u64]] = &[&[1, 2, 3, 4], &[5, 6, 7, 8]];
    const ONE_CHUNK: &[&[u64]] = &[&[1, 2, 3, 4], &[1, 2, 9, 4]];

    #[test]
    fn the_first_and_a_later_checkpoint_with_the_same_content_are_judged_alike() {
        for before in [None, Some(&[("w", ALL)][..]), Some(&[("other", EQUAL)][..])] {
            check(&[("w", ALL)], before, &[], &["w"]);
        }
        // In one chunk, and no checkpoint shows that the tensor differed before.
        for before in [None, Some(&[("w", EQUAL)][..])] {
            check(&[("w", ONE_CHUNK)], before, &["w"], &[]);
        }
        // Values of each rank may become equal in part.
        check(&[("w", ONE_CHUNK)], Some(&[("w", ALL)]), &[], &["w"]);
    }

    #[test]
    fn replicas_that_were_equal_and_of_which_one_rank_is_contradicted_are_wrong() {
        let equal: &[&[u64]] = &[&[1, 2], &[1, 2], &[1, 2]];
        let apart: &[&[u64]] = &[&[1, 2], &[5, 6], &[1, 2]];
        check(&[("w", apart)], Some(&[("w", equal)]), &["w"], &[]);
        let reason = refusal(&judge(comparison(&[("w", apart)]), Some(&comparison(&[("w", equal)]))).wrong);
        assert_eq!(
            reason.as_deref(),
            Some(
                "replicas that must be equal are not: tensor w of rank 1 differs from that of most other ranks in 2 of 2 \
                 chunks; values of one rank are saved as rankguard.PerRank"
            )
        );
    }

    #[test]
    fn ranks_that_train_apart_change_all_that_they_share_and_a_wrong_result_does_not() {
        let before: &[Tensor<'_>] = &[("b", &[&[1], &[1]]), ("m", EQUAL), ("w", EQUAL)];
        let apart: &[Tensor<'_>] = &[("b", &[&[1], &[2]]), ("m", EQUAL), ("w", ALL)];
        check(apart, Some(before), &[], &["b", "w"]);
        // A small tensor alone, one chunk of a large one, and one of several tensors.
        let small: &[Tensor<'_>] = &[("b", &[&[1], &[2]]), ("m", EQUAL), ("w", EQUAL)];
        check(small, Some(before), &["b"], &[]);
        check(&[("b", &[&[1], &[2]])], Some(&[("b", &[&[1], &[1]])]), &["b"], &[]);
        check(&[("m", EQUAL), ("w", ONE_CHUNK)], Some(before), &["w"], &[]);
        let whole: &[Tensor<'_>] = &[("m", EQUAL), ("v", EQUAL), ("w", ALL)];
        let before: &[Tensor<'_>] = &[("m", EQUAL), ("v", EQUAL), ("w", EQUAL)];
        check(whole, Some(before), &["w"], &[]);
    }

    #[test]
    fn without_a_majority_the_reason_names_two_ranks_and_no_difference_is_no_reason() {
        let reason = refusal(&judge(comparison(&[("v", ONE_CHUNK), ("w", ONE_CHUNK)]), None).wrong);
        assert_eq!(
            reason.as_deref(),
            Some(
                "replicas that must be equal are not: tensor v differs between ranks 0 and 1 in 1 of 4 chunks, and 1 \
                 more; values of one rank are saved as rankguard.PerRank"
            )
        );
        assert_eq!(refusal(&[]), None);
    }

    proptest! {
        /// One flipped bit in replicas that were equal is found at any size and number of ranks.
        #[test]
        fn one_changed_chunk_after_equal_replicas_is_wrong(
            sizes in prop::collection::vec(1..9_usize, 1..5), ranks in 2..6_usize, which in any::<prop::sample::Index>(), chunk in any::<prop::sample::Index>(),
        ) {
            let names: Vec<String> = (0..sizes.len()).map(|at| format!("layer.{at}")).collect();
            let flipped = which.index(sizes.len());
            let held = |is_flipped: bool| -> Vec<Vec<Vec<u64>>> {
                let tensor = |(at, size): (usize, &usize)| {
                    let mut copies = vec![(0..*size as u64).collect::<Vec<_>>(); ranks];
                    if is_flipped && at == flipped {
                        copies[ranks - 1][chunk.index(*size)] ^= 1 << 40;
                    }
                    copies
                };
                sizes.iter().enumerate().map(tensor).collect()
            };
            let compared = |is_flipped: bool| {
                let held = held(is_flipped);
                let slices: Vec<Vec<&[u64]>> = held.iter().map(|copies| copies.iter().map(Vec::as_slice).collect()).collect();
                let tensors: Vec<Tensor<'_>> = names.iter().zip(&slices).map(|(name, copies)| (name.as_str(), copies.as_slice())).collect();
                comparison(&tensors)
            };
            let judged = judge(compared(true), Some(&compared(false)));
            prop_assert_eq!(judged.wrong.len(), 1);
            prop_assert_eq!(&judged.wrong[0].tensor, &names[flipped]);
            prop_assert_eq!(judged.per_rank, Vec::new());
        }
    }
}
