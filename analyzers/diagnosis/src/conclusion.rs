//! Conclusions: what was said of a draft, in short for whoever comes later.

use rankguard_model::{ClassId, Entity, Timestamp};
use serde::{Deserialize, Serialize};

/// What was said when a draft was concluded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Conclusion {
    pub(crate) at: Timestamp,
    pub(crate) class: ClassId,
    pub(crate) blamed: Entity,
    /// Whether ranks had ended by then.
    pub(crate) failed: bool,
}
