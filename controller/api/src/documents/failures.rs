//! Document of the failure mix: cases counted by group.

use serde::Serialize;
use utoipa::ToSchema;

use super::UtcTime;

/// Cases of a selection, counted by group.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FailureMixDocument {
    /// Grouping: `class`, `layer`, `blamed`, `node`, `failure-domain`, `job`, `week`, or the id of a taxonomy.
    pub(crate) by: String,
    /// Short title of the taxonomy; null for another grouping.
    pub(crate) taxonomy: Option<String>,
    /// Number of selected cases.
    pub(crate) cases: u64,
    /// Number of selected cases without a group: the grouping has no place for them.
    pub(crate) without_group: u64,
    /// Groups, the one with the most cases first; weeks in order of time. Each case is in one group: of several categories the most specific
    /// one, and of a corrected case that of the newest correction.
    pub(crate) groups: Vec<FailureGroup>,
}

/// Cases of one group.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FailureGroup {
    /// Class, layer, blamed part, node, failure domain, job, date of the Monday of a week, or category.
    pub(crate) key: String,
    /// Name as the authors of the taxonomy print it; the key for another grouping.
    pub(crate) name: String,
    pub(crate) cases: u64,
    /// Number of its cases that are open.
    pub(crate) open: u64,
    /// Sum of the steps that had to be repeated, as far as recorded.
    pub(crate) steps_lost: u64,
    /// Number of cases after which a job made a step again.
    pub(crate) recoveries: u64,
    /// Sum of the times from the first evidence to that step, milliseconds.
    pub(crate) downtime_ms: i64,
    /// Time of the first evidence of its first case.
    pub(crate) first_at: UtcTime,
    /// Time of the first evidence of its newest case.
    pub(crate) newest_at: UtcTime,
    /// Its newest case.
    pub(crate) newest_case: u64,
}
