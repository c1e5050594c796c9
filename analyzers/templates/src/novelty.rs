//! Evidence about templates.

use serde::Serialize;

use crate::id::TemplateId;

/// Difference of a template from healthy runs or other streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoveltyKind {
    /// No healthy run shows the template.
    New,
    /// Healthy runs show the template regularly, this run does not.
    Missing,
    /// The template occurs far more often than in healthy runs.
    Burst,
    /// Few of many streams of a group show the template.
    OnlyHere,
    /// All but few of many streams of a group show the template.
    SilentHere,
    /// The template occurred steadily and stopped long before its stream; in healthy runs it continues to the
    /// end.
    WentQuiet,
}

/// Evidence about one family of templates.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NoveltyFinding {
    /// Kind of difference.
    pub kind: NoveltyKind,
    /// Id of the family.
    pub id: TemplateId,
    /// Ids of the templates that the family joins, at most [`MAX_NAMES`]; empty for a single template.
    pub aliases: Vec<TemplateId>,
    /// Text of the family.
    pub template: String,
    /// Rank among the evidence, 0 to 1.
    pub score: f64,
    /// Number of lines in the failing run.
    pub failing: u64,
    /// Number of lines in all healthy runs.
    pub healthy: u64,
    /// Streams concerned: those that show the template, or for [`NoveltyKind::SilentHere`] those that do not;
    /// at most [`MAX_NAMES`].
    pub streams: Vec<String>,
    /// Total number of streams concerned.
    pub stream_count: usize,
    /// Stream of the example: the first such line, in the failing run if it has any.
    pub stream: String,
    /// Line number of the example, from 1.
    pub line: u64,
    /// Original line, truncated to a limit.
    pub example: String,
    /// Evidence as a sentence.
    pub sentence: String,
}

/// Maximum number of names in one piece of evidence.
pub const MAX_NAMES: usize = 8;
/// Maximum number of pieces of evidence.
pub const MAX_NOVELTIES: usize = 256;
