//! Files of cases: JSON lines that each hold the streams of one case, `{"id", "sources": [{"kind", "rank", "node", "lines"}]}`.

use std::io;
use std::path::Path;

use rankguard_model::{NodeId, Rank, Source};
use serde::Deserialize;

use super::reading::{Origin, Reader};
use super::{Diagnoses, files, incident, verdicts};

/// One case. Fields that hold its answer are not read.
#[derive(Debug, Deserialize)]
struct Record {
    id: String,
    sources: Vec<RecordStream>,
}

#[derive(Debug, Deserialize)]
struct RecordStream {
    #[serde(default)]
    kind: String,
    rank: Option<u32>,
    node: Option<String>,
    lines: Vec<String>,
}

/// Whether a file holds cases: its name says JSON lines and its first line is one.
pub(super) fn is_corpus(path: &Path) -> bool {
    let named = path
        .file_name()
        .is_some_and(|name| name.to_string_lossy().contains(".jsonl"));
    let first = || -> io::Result<Option<String>> { files::open(path)?.next() };
    named
        && first()
            .ok()
            .flatten()
            .is_some_and(|line| serde_json::from_str::<Record>(&line).is_ok())
}

/// One diagnosis a case.
pub(super) fn diagnose(path: &Path, found: &mut Diagnoses) {
    let mut lines = match files::open(path) {
        Ok(lines) => lines,
        Err(error) => return found.problems.push(format!("{}: {error}", path.display())),
    };
    let mut number = 0_u64;
    loop {
        number += 1;
        match lines.next() {
            Ok(None) => break,
            Ok(Some(line)) if line.trim().is_empty() => {}
            Ok(Some(line)) => match serde_json::from_str::<Record>(&line) {
                Ok(record) => {
                    found.streams += record.sources.len().max(1);
                    found.cases.extend(verdicts::conclude(incident_of(record)));
                }
                Err(error) => found
                    .problems
                    .push(format!("{}:{number}: not a case: {error}", path.display())),
            },
            Err(error) => {
                found
                    .problems
                    .push(format!("{}: read up to line {number} only: {error}", path.display()));
                break;
            }
        }
    }
}

fn incident_of(record: Record) -> incident::Incident {
    let streams = record
        .sources
        .into_iter()
        .enumerate()
        .map(|(index, stream)| {
            let mut reader = Reader::new(Origin {
                name: format!("{}[{index}]", record.id),
                source: Some(source(&stream.kind)),
                rank: stream.rank.map(Rank),
                node: stream.node.map(NodeId),
            });
            stream.lines.iter().for_each(|line| reader.push(line));
            reader.finish()
        })
        .collect();
    incident::single(Some(record.id), streams)
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
