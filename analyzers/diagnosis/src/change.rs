//! What diagnosis hands back: what evidence changed, and a draft with its verdict.

use rankguard_model::{EvidenceId, Finding, Generation, JobId, Reason, Timestamp, Verdict};

use crate::DraftId;

/// What a piece of evidence did.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A draft was opened by it.
    Opened {
        /// The draft.
        draft: DraftId,
        /// The job that suffers, where one runs there.
        job: Option<JobId>,
        /// When the earliest sign of it happened.
        first_at: Timestamp,
    },
    /// An open draft took it in.
    Joined {
        /// The draft.
        draft: DraftId,
    },
    /// It belongs to a failure that is already concluded, and changes nothing.
    Late {
        /// The draft.
        draft: DraftId,
        /// What it is in that case.
        finding: Box<Finding>,
    },
    /// It belongs to a failure that is already concluded, and shows that the conclusion was wrong.
    Revised(Box<Concluded>),
    /// It speaks of a generation that may no longer act and of no known case: noise.
    Dropped {
        /// The evidence.
        evidence: EvidenceId,
        /// Why.
        why: String,
    },
}

/// A draft with its verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct Concluded {
    /// The draft.
    pub draft: DraftId,
    /// The job that suffered, where one ran there.
    pub job: Option<JobId>,
    /// Its generation.
    pub generation: Option<Generation>,
    /// When the first cause happened, or the earliest sign where nothing explains the rest.
    pub first_at: Timestamp,
    /// Whether ranks ended or a node fell silent; a device that merely reports a fault leaves the job running.
    pub failed: bool,
    /// The conclusion.
    pub verdict: Verdict,
    /// Every piece of evidence with its role, first cause first.
    pub findings: Vec<Finding>,
    /// The note for the person on call.
    pub reasoning: Vec<Reason>,
    /// What evidence clears it (RG-10).
    pub clears: String,
    /// A stable name: equal when the same failure comes back (a user bug, the same GPU), different otherwise.
    pub signature: String,
    /// The failure in one line: the program's place and words, or who is blamed for what.
    pub headline: String,
    /// Whether a node of it fell silent.
    pub node_silent: bool,
    /// Whether its ranks live and do nothing.
    pub stalled: bool,
    /// Whether ranks could not be started at all.
    pub order_failed: bool,
}

impl Change {
    /// Adds it to others of one call. One of a kind is enough: an exit with two marks extends its draft once.
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
