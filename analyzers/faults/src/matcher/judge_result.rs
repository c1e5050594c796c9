//! Judgement of a line, new or from an earlier line that differs only in digits.

use std::sync::Arc;

use rankguard_model::Classification;

use super::judgement::LineJudgement;
use super::kind_cache::KindEntry;

/// Result of judging a line.
pub(super) enum JudgeResult {
    /// Known judgement of an earlier line of the same kind.
    Before(Arc<KindEntry>),
    /// New judgement; the flag is true if the line may open a multi-line unit.
    Now(LineJudgement, bool),
}

impl JudgeResult {
    pub(super) fn opens(&self) -> bool {
        match self {
            Self::Before(known) => known.opens,
            Self::Now(_, opens) => *opens,
        }
    }

    pub(super) fn into_judgement(self) -> LineJudgement {
        match self {
            Self::Before(known) => known.judgement.clone(),
            Self::Now(judgement, _) => judgement,
        }
    }

    /// Returns the marks, copying nothing else of a known judgement.
    pub(super) fn into_marks(self) -> Vec<Classification> {
        match self {
            Self::Before(known) => known.judgement.hits.iter().map(|hit| hit.mark.clone()).collect(),
            Self::Now(judgement, _) => judgement.hits.into_iter().map(|hit| hit.mark).collect(),
        }
    }
}
