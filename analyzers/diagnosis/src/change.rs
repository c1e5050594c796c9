//! Results of diagnosis: effects of evidence, and drafts with their verdict.

use rankguard_model::{CaseFinding, EvidenceId, Generation, JobId, ReasoningEntry, Timestamp, Verdict};

use crate::{DraftId, SeparateFailure};

/// Effect of new evidence.
#[derive(Debug, Clone, PartialEq)]
pub enum DraftChange {
    /// The evidence opened a draft.
    Opened {
        draft: DraftId,
        /// Affected job, if one runs there.
        job: Option<JobId>,
        /// Time of the earliest sign that is no noise.
        first_at: Timestamp,
    },
    /// The evidence joined an open draft.
    Joined { draft: DraftId },
    /// The evidence belongs to a concluded failure and does not change its verdict.
    Late {
        draft: DraftId,
        /// Finding to add to the case.
        finding: Box<CaseFinding>,
        /// Failure that the evidence reports, if it does not follow from the case.
        separate: Option<Box<SeparateFailure>>,
    },
    /// The evidence belongs to a concluded failure and changes its verdict.
    Revised(Box<ConcludedDraft>),
    /// The evidence is noise: it belongs to a generation that may no longer act, and to no known case.
    Dropped {
        evidence: EvidenceId,
        /// Reason, as part of a sentence.
        why: String,
    },
}

/// Draft with its verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct ConcludedDraft {
    pub draft: DraftId,
    /// Affected job, if one ran there.
    pub job: Option<JobId>,
    /// Generation of the job.
    pub generation: Option<Generation>,
    /// Time of the earliest finding that is no noise. Under older rules, time of the first cause, or of the earliest
    /// sign if nothing explains the rest.
    pub first_at: Timestamp,
    /// True if ranks ended or a node became silent; a device that only reports a fault leaves the job running.
    pub failed: bool,
    pub verdict: Verdict,
    /// All evidence with its role, first cause first.
    pub findings: Vec<CaseFinding>,
    /// Reasoning log for the person on call.
    pub reasoning: Vec<ReasoningEntry>,
    /// Clearing condition (RG-10).
    pub clears: String,
    /// Stable signature: equal if the same failure repeats (a user bug, the same GPU), different otherwise.
    pub signature: String,
    /// Failure in one line: location and message of the program, or blamed entity and class.
    pub headline: String,
    /// True if a node of it became silent.
    pub node_silent: bool,
    /// True if its ranks are alive but make no progress.
    pub stalled: bool,
    /// True if ranks could not be started.
    pub order_failed: bool,
    /// Failures of other machines or ranks that do not follow from the first cause, oldest first.
    pub separate: Vec<SeparateFailure>,
    /// True if `first_at` replaces an earlier time of the draft; under older rules the earlier of both remains.
    pub has_cause_limits: bool,
}

impl DraftChange {
    /// Adds the change to others of one call. Equal changes are added once: an exit with two marks extends its
    /// draft once.
    pub(crate) fn join(self, changes: &mut Vec<Self>) {
        let repeated = match &self {
            Self::Joined { draft } => changes.iter().any(|known| match known {
                Self::Opened { draft: other, .. } | Self::Joined { draft: other } => draft == other,
                _ => false,
            }),
            other => changes.contains(other),
        };
        if !repeated {
            changes.push(self);
        }
    }
}
