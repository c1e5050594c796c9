//! Documents that the routes return. Their schemas are derived from these types, so that the OpenAPI document cannot
//! differ from the answers.

mod audit;
mod case;
mod catalogue;
mod change;
mod efficiency;
mod failures;
mod job;
mod node;
mod plan;

use rankguard_model::{ReasoningEntry, Timestamp};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

pub(crate) use audit::AuditDocument;
pub(crate) use case::{CaseDocument, CaseSummary};
pub(crate) use catalogue::{ClassDocument, TaxonomyDocument};
pub(crate) use change::{CancelBody, ChangeReceipt, CordonBody, NoteBody, NoteKind, UncordonBody};
pub(crate) use efficiency::{EfficiencyDocument, JobTimeDocument};
pub(crate) use failures::{FailureGroup, FailureMixDocument};
pub(crate) use job::{CheckpointDocument, JobDocument, JobSummaryDocument, ProgressDocument};
pub use node::revoked_text;
pub(crate) use node::{NodeDevice, NodeDocument, NodeHealth, NodeSummary};
pub(crate) use plan::{ChoiceDocument, PlanDocument, PlanSummary};

/// Time as RFC 3339 defines it, in UTC with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
#[schema(value_type = String, format = DateTime, example = "2026-11-24T10:00:00.000Z")]
pub(crate) struct UtcTime(pub(crate) Timestamp);

impl Serialize for UtcTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// Page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Page<T: ToSchema> {
    /// Entries of the page.
    pub(crate) items: Vec<T>,
    /// Cursor of the next page; null on the last one.
    pub(crate) next: Option<String>,
}

/// Sentence with its time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LogEntry {
    at: UtcTime,
    text: String,
}

impl LogEntry {
    pub(crate) fn all(entries: &[ReasoningEntry]) -> Vec<Self> {
        let entry = |entry: &ReasoningEntry| Self {
            at: UtcTime(entry.at),
            text: entry.text.clone(),
        };
        entries.iter().map(entry).collect()
    }
}

/// Change of a case, a job or a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct ChangeDocument {
    /// Kind of the resource: `case`, `job` or `node`; `nodes` if more than 100 nodes changed at a time.
    pub(crate) kind: String,
    /// Number of the case, or name of the job or node; empty for `nodes`.
    pub(crate) name: String,
    /// `added`, `changed` or `removed`.
    pub(crate) change: String,
    /// State of the case, job or node; null if it was removed, and for `nodes`.
    pub(crate) state: Option<String>,
    /// Time of the newest event that the change contains.
    pub(crate) at: UtcTime,
    /// Path of the resource.
    pub(crate) path: String,
}

/// First event of a watch.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WatchStart {
    /// True if the watch continues after `Last-Event-ID`, false if it begins with the newest change.
    pub(crate) is_resumed: bool,
}

/// Changes that a watch cannot deliver.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WatchGap {
    /// Reason of the gap.
    pub(crate) reason: String,
    /// Lists to read again; the watch continues with the newest change.
    pub(crate) lists: Vec<String>,
}

/// Health of the controller.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HealthDocument {
    /// `ok`; a controller that does not work answers with a problem.
    pub(crate) status: String,
}

/// Returns the word with which a value is written in JSON.
pub(crate) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
