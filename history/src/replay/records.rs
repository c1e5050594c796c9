//! Files of cases: JSON lines that hold the streams of one case each, and optionally its label.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use rankguard_offline::CaseRecord;
use serde::Deserialize;

use super::engine::ReplayEngine;
use super::tally::ReplayTally;

/// Maximum size in bytes of the line of a case.
const CASE_BYTES: u64 = 64 << 20;

/// Label of a case. The engine reads everything else in the line, but never the label.
#[derive(Deserialize)]
struct CaseLabel {
    label: Option<String>,
}

/// Returns true if a file name has the extension of JSON lines.
pub(super) fn holds_cases(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "jsonl")
}

/// Classifies every case by each catalogue and compares it with its label.
pub(super) fn replay(path: &Path, engines: &[ReplayEngine], tally: &mut ReplayTally) {
    let mut reader = match File::open(path) {
        Ok(file) => BufReader::new(file),
        Err(problem) => return tally.problem(format!("{}: {problem}", path.display())),
    };
    let mut number = 0_u64;
    loop {
        number += 1;
        let mut line = Vec::new();
        match std::io::Read::take(&mut reader, CASE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) if line.len() as u64 == CASE_BYTES => {
                return tally.problem(format!(
                    "{}:{number}: longer than 64 MiB; the rest is skipped",
                    path.display()
                ));
            }
            Ok(_) => {}
            Err(problem) => return tally.problem(format!("{}:{number}: {problem}", path.display())),
        }
        let text = String::from_utf8_lossy(&line);
        if text.trim().is_empty() {
            continue;
        }
        match CaseRecord::parse(&text) {
            Ok(record) => {
                let lines: u64 = record.sources.iter().map(|source| source.lines.len() as u64).sum();
                tally.lines += lines;
                let mut classes = Vec::new();
                for (which, engine) in engines.iter().enumerate() {
                    let case = record.clone().classify_with(engine.catalogue(), &engine.matcher());
                    if which == 0 {
                        tally.evidence += case.key_lines.len() as u64;
                    }
                    *tally.classes[which].entry(case.class.clone()).or_default() += 1;
                    classes.push(case.class);
                }
                let answer = serde_json::from_str::<CaseLabel>(&text)
                    .ok()
                    .and_then(|answer| answer.label);
                if let (Some(label), Some(class)) = (&answer, classes.first()) {
                    tally.judge_case(label, class);
                }
                if let [before, after] = &classes[..] {
                    tally.differ_in(before.clone(), after.clone(), &record.id);
                    if let Some(label) = &answer {
                        tally.judge_case_against(label, after);
                    }
                }
            }
            Err(problem) => {
                tally.unread_cases += 1;
                tally.problem(format!("{}:{number}: {problem}", path.display()));
            }
        }
    }
}
