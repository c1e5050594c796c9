//! Words for the root rank of a case. A rank that is slow or makes no steps has not failed.

use rankguard_model::{Case, ClassId, Rank};

use crate::classes;

/// Classes of ranks that run and make no steps.
const STANDING: [&str; 4] = [
    classes::HANG_STALLED_RANKS,
    classes::HANG_NO_ERROR,
    classes::JOB_HANG,
    classes::FILESYSTEM_HANG,
];

/// Describes the root rank of a case: `rank 3 failed first`, `rank 3 is slow`, or `rank 3 makes no steps`. `None` if evidence
/// shows no rank.
pub fn root_rank_text(case: &Case) -> Option<String> {
    let rank = case.first_failed_rank()?;
    Some(text_of(&case.verdict.class, rank))
}

fn text_of(class: &ClassId, rank: Rank) -> String {
    match class.as_str() {
        classes::STRAGGLER => format!("rank {rank} is slow"),
        class if STANDING.contains(&class) => format!("rank {rank} makes no steps"),
        _ => format!("rank {rank} failed first"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_rank_and_a_standing_rank_have_not_failed() {
        for (class, expect) in [
            (classes::STRAGGLER, "rank 3 is slow"),
            (classes::HANG_STALLED_RANKS, "rank 3 makes no steps"),
            (classes::HANG_NO_ERROR, "rank 3 makes no steps"),
            (classes::SEGFAULT, "rank 3 failed first"),
        ] {
            assert_eq!(text_of(&class.into(), Rank(3)), expect);
        }
    }
}
