//! Cases as JSON lines: one object a line, `{"id", "sources": [{"kind", "rank", "node", "lines"}]}`.

use std::str::FromStr;
use std::sync::Arc;

use rankguard_faults::line::YearHint;
use rankguard_faults::{Catalogue, SignatureMatcher};
use rankguard_model::{EvidenceSource, NodeId, Rank};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use thiserror::Error;

use crate::guess;
use crate::incident;
use crate::reading::{StreamOrigin, StreamReader};
use crate::verdicts::{OfflineCase, conclude};

/// Case with its streams. Other fields are ignored: they may hold the expected answer.
#[derive(Debug, Clone, Deserialize)]
pub struct CaseRecord {
    /// Case id, unique in its file.
    pub id: String,
    /// Logs of the case.
    pub sources: Vec<RecordStream>,
}

/// Log of a case.
#[derive(Debug, Clone, Deserialize)]
pub struct RecordStream {
    /// Kind of the log.
    #[serde(default)]
    pub kind: StreamKind,
    /// Rank that wrote it, if it is one rank's.
    #[serde(default)]
    pub rank: Option<u32>,
    /// Node that wrote it, if known.
    #[serde(default)]
    pub node: Option<String>,
    /// Lines without their ends.
    pub lines: Vec<String>,
}

/// Kind of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamKind {
    /// Output of one rank, or of a job.
    #[default]
    RankStderr,
    /// Output of NCCL with `NCCL_DEBUG`.
    NcclDebug,
    /// Log of a launcher, such as torchrun.
    Launcher,
    /// Log of a scheduler, or its records.
    Scheduler,
    /// Kernel log of a node.
    Kmsg,
    /// Reports of an agent or a monitor of a node.
    AgentEvent,
}

impl FromStr for StreamKind {
    type Err = serde::de::value::Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::deserialize(name.into_deserializer())
    }
}

/// Error of parsing a case.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The line is not JSON.
    #[error("column {column}: not JSON: {what}; write one object a line")]
    Json {
        /// Column of the error, from 1.
        column: usize,
        /// Message of the JSON parser.
        what: String,
    },
    /// A field is absent or of another type.
    #[error("{what}; a case is {{\"id\", \"sources\": [{{\"kind\", \"rank\", \"node\", \"lines\"}}]}}")]
    Field {
        /// Message of the JSON parser; it names the field.
        what: String,
    },
}

impl CaseRecord {
    /// Parses one line of a file of cases.
    pub fn parse(line: &str) -> Result<Self, RecordError> {
        serde_json::from_str(line).map_err(|error| {
            // The parser's own line number is always 1; the caller adds the real one.
            let what = error.to_string();
            let what = what.split(" at line ").next().unwrap_or_default().to_owned();
            if error.is_data() {
                RecordError::Field { what }
            } else {
                RecordError::Json {
                    column: error.column(),
                    what,
                }
            }
        })
    }

    /// Classifies the case. Every case has an answer: `none` if nothing failed, `unknown` if the cause is unknown.
    pub fn classify(self) -> OfflineCase {
        self.classify_with(Catalogue::builtin(), &SignatureMatcher::builtin())
    }

    /// Classifies the case with another catalogue than the built-in one, and its signatures.
    pub fn classify_with(self, catalogue: &Catalogue, matcher: &Arc<SignatureMatcher>) -> OfflineCase {
        let id = self.id.clone();
        let moments = self
            .sources
            .iter()
            .filter_map(|stream| guess::newest_moment(&stream.lines));
        let year = moments.max().map(YearHint::Near);
        let streams = self
            .sources
            .into_iter()
            .enumerate()
            .map(|(index, stream)| {
                let mut reader = StreamReader::with(
                    Arc::clone(matcher),
                    StreamOrigin {
                        name: format!("{id}[{index}]"),
                        source: Some(source(stream.kind)),
                        rank: stream.rank.map(Rank),
                        node: stream.node.map(NodeId::from),
                        year,
                        ..StreamOrigin::default()
                    },
                );
                stream.lines.iter().for_each(|line| reader.push(line));
                reader.finish()
            })
            .collect();
        conclude(&incident::single(streams), catalogue).map_or_else(
            || OfflineCase::none(id.clone()),
            |case| OfflineCase { id: id.clone(), ..case },
        )
    }
}

fn source(kind: StreamKind) -> EvidenceSource {
    match kind {
        StreamKind::Kmsg => EvidenceSource::KernelLog,
        StreamKind::Launcher => EvidenceSource::Launcher,
        StreamKind::Scheduler => EvidenceSource::Scheduler,
        StreamKind::AgentEvent => EvidenceSource::Host,
        StreamKind::RankStderr | StreamKind::NcclDebug => EvidenceSource::JobLog,
    }
}
