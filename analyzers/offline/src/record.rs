//! Cases as JSON lines: one object a line, `{"id", "sources": [{"kind", "rank", "node", "lines"}]}`.

use std::sync::Arc;

use rankguard_faults::line::YearHint;
use rankguard_faults::{Catalogue, Matcher};
use rankguard_model::{NodeId, Rank, Source};
use serde::Deserialize;
use thiserror::Error;

use crate::guess;
use crate::incident;
use crate::reading::{Origin, Reader};
use crate::verdicts::{OfflineCase, conclude};

/// One case with its streams. Other fields are not read: they may hold its answer.
#[derive(Debug, Clone, Deserialize)]
pub struct Record {
    /// Its id, unique in its file.
    pub id: String,
    /// Its logs.
    pub sources: Vec<RecordStream>,
}

/// One log of a case.
#[derive(Debug, Clone, Deserialize)]
pub struct RecordStream {
    /// `rank-stderr`, `kmsg`, `scheduler`, `launcher`, `agent-event` or `nccl-debug`; anything else is read as a job's log.
    #[serde(default)]
    pub kind: String,
    /// The rank that wrote it, where one rank did.
    #[serde(default)]
    pub rank: Option<u32>,
    /// The node that wrote it, where the log tells.
    #[serde(default)]
    pub node: Option<String>,
    /// Its lines without their ends.
    pub lines: Vec<String>,
}

/// Why a line is no case.
#[derive(Debug, Error)]
pub enum RecordError {
    /// It is not JSON at all.
    #[error("column {column}: not JSON: {what}; write one object a line")]
    Json {
        /// Where, from 1.
        column: usize,
        /// What the reader says.
        what: String,
    },
    /// A field is absent or of another type.
    #[error("{what}; a case is {{\"id\", \"sources\": [{{\"kind\", \"rank\", \"node\", \"lines\"}}]}}")]
    Field {
        /// What the reader says; it names the field.
        what: String,
    },
}

impl Record {
    /// Reads one line of a file of cases.
    pub fn parse(line: &str) -> Result<Self, RecordError> {
        serde_json::from_str(line).map_err(|error| {
            // The reader's own place is within the line, which the caller names.
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

    /// What its streams say. There is an answer for every case: `none` where nothing failed, `unknown` where nothing
    /// tells what did.
    pub fn classify(self) -> OfflineCase {
        self.classify_with(Catalogue::builtin(), &Matcher::builtin())
    }

    /// The same with another catalogue than the built-in one, and its signatures.
    pub fn classify_with(self, catalogue: &Catalogue, matcher: &Arc<Matcher>) -> OfflineCase {
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
                let mut reader = Reader::with(
                    Arc::clone(matcher),
                    Origin {
                        name: format!("{id}[{index}]"),
                        source: Some(source(&stream.kind)),
                        rank: stream.rank.map(Rank),
                        node: stream.node.map(NodeId::from),
                        year,
                        ..Origin::default()
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

fn source(kind: &str) -> Source {
    match kind {
        "kmsg" => Source::KernelLog,
        "launcher" => Source::Launcher,
        "scheduler" => Source::Scheduler,
        "agent-event" => Source::Host,
        _ => Source::JobLog,
    }
}
