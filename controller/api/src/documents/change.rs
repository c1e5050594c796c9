//! Bodies of requests that change something, and the answer to them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Kind of a note about a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NoteKind {
    /// An operator takes notice of the case.
    Acknowledge,
    /// Remark without further effect.
    Comment,
    /// The failure class is another one; the verdict itself is unchanged.
    Correct,
    /// Closes a case with a fault that is still present.
    Close,
}

/// Note about a case.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoteBody {
    pub(crate) kind: NoteKind,
    /// Text of the note.
    #[serde(default)]
    #[schema(max_length = 4096)]
    pub(crate) text: String,
    /// Failure class of a correction; absent for the other kinds.
    pub(crate) class: Option<String>,
}

/// Cordon or drain of a node.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CordonBody {
    /// Reason, as `rankguard status` shows it.
    #[schema(min_length = 1, max_length = 1024)]
    pub(crate) reason: String,
}

/// End of a cordon.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UncordonBody {
    /// If not empty, the cordon is lifted only if it has exactly these reasons.
    #[serde(default)]
    pub(crate) only_reasons: Vec<String>,
}

/// Cancellation of a job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CancelBody {}

/// Answer to a change that was carried out.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChangeReceipt {
    /// Name of the change.
    pub(crate) action: String,
    /// Object of the change.
    pub(crate) target: String,
    /// Number of its entry in the audit log.
    pub(crate) audit: u64,
    /// True if an earlier request with the idempotency key has made the change.
    pub(crate) is_repeated: bool,
}
