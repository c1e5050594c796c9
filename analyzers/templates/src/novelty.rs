//! A piece of evidence about templates.

use serde::Serialize;

use crate::id::TemplateId;

/// How a template departs from what is usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoveltyKind {
    /// No healthy run shows it.
    New,
    /// Healthy runs show it regularly, this one does not.
    Missing,
    /// It comes far more often than in healthy runs.
    Burst,
    /// Few of many streams of a group show it.
    OnlyHere,
    /// All but few of many streams of a group show it.
    SilentHere,
    /// It came steadily and stopped long before its stream did; in healthy runs it goes on to the end.
    WentQuiet,
}

/// One piece of evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Novelty {
    /// How it departs from what is usual.
    pub kind: NoveltyKind,
    /// The family's name.
    pub id: TemplateId,
    /// Names of the templates that the family joins, at most [`MAX_NAMES`]; empty where it is one template.
    pub aliases: Vec<TemplateId>,
    /// The family's text.
    pub template: String,
    /// Order among the evidence, 0 to 1.
    pub score: f64,
    /// Lines in the failing run.
    pub failing: u64,
    /// Lines in all healthy runs.
    pub healthy: u64,
    /// The streams concerned: those that show it, or for [`NoveltyKind::SilentHere`] those that do not; at most
    /// [`MAX_NAMES`].
    pub streams: Vec<String>,
    /// How many streams are concerned.
    pub stream_count: usize,
    /// Where the example stands: the first such line, of the failing run where it has any.
    pub stream: String,
    /// Its line number, from 1.
    pub line: u64,
    /// The line as it was, cut to a bound.
    pub example: String,
    /// The evidence in a sentence.
    pub sentence: String,
}

/// Names listed in one piece of evidence.
pub const MAX_NAMES: usize = 8;
/// Pieces of evidence given.
pub const MAX_NOVELTIES: usize = 256;
