//! Lines that were judged: now, or as one in the same words was before.

use std::sync::Arc;

use rankguard_model::Mark;

use super::judgement::Judgement;
use super::recall::Known;

/// A line that was judged.
pub(super) enum Judged {
    /// As one in the same words was before.
    Before(Arc<Known>),
    /// Anew, and whether something stands in it by which what spans several lines begins.
    Now(Judgement, bool),
}

impl Judged {
    pub(super) fn opens(&self) -> bool {
        match self {
            Self::Before(known) => known.opens,
            Self::Now(_, opens) => *opens,
        }
    }

    pub(super) fn into_judgement(self) -> Judgement {
        match self {
            Self::Before(known) => known.judgement.clone(),
            Self::Now(judgement, _) => judgement,
        }
    }

    /// The marks alone; of what is known nothing else is copied.
    pub(super) fn into_marks(self) -> Vec<Mark> {
        match self {
            Self::Before(known) => known.judgement.hits.iter().map(|hit| hit.mark.clone()).collect(),
            Self::Now(judgement, _) => judgement.hits.into_iter().map(|hit| hit.mark).collect(),
        }
    }
}
