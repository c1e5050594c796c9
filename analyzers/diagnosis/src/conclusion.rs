//! Short conclusion that a draft stores for later evidence.

use rankguard_model::{ClassId, Entity, Timestamp};
use serde::{Deserialize, Serialize};

/// Verdict of a draft when it was concluded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DraftConclusion {
    pub(crate) at: Timestamp,
    pub(crate) class: ClassId,
    pub(crate) blamed: Entity,
    /// True if ranks had ended by then.
    pub(crate) failed: bool,
    /// True if its first cause, or a confirmation of it, is of a drill; none if older rules concluded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) synthetic: Option<bool>,
}
