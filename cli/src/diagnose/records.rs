//! Files of cases: JSON lines that each contain the streams of one case.

use std::io;
use std::path::Path;

use rankguard_files::ReadBudget;
use rankguard_offline::{CaseRecord, OfflineCase};

use super::{Rules, files};

/// True if a file contains cases: `.jsonl` is in its name and its first line parses as a case.
pub(crate) fn holds_cases(path: &Path, budget: &ReadBudget) -> bool {
    let named = path
        .file_name()
        .is_some_and(|name| name.to_string_lossy().contains(".jsonl"));
    // A pipe can be read only once.
    let named = named && path.is_file();
    let first = || -> io::Result<Option<String>> { files::open(path, budget)?.next() };
    named
        && first()
            .ok()
            .flatten()
            .is_some_and(|line| CaseRecord::parse(&line).is_ok())
}

/// Classifies each case and passes the verdict to `each` immediately, with the number of its streams. An invalid line
/// becomes a problem with its line number.
pub(crate) fn classify<E>(
    path: &Path,
    rules: &Rules,
    budget: &ReadBudget,
    problems: &mut Vec<String>,
    mut each: impl FnMut(OfflineCase, usize) -> Result<(), E>,
) -> Result<(), E> {
    let mut lines = match files::open(path, budget) {
        Ok(lines) => lines,
        Err(error) => {
            problems.push(format!("{}: {error}", path.display()));
            return Ok(());
        }
    };
    let mut number = 0_u64;
    loop {
        number += 1;
        match lines.next() {
            Ok(None) => return Ok(()),
            Ok(Some(line)) if line.trim().is_empty() => {}
            Ok(Some(line)) => match CaseRecord::parse(&line) {
                Ok(record) => {
                    let streams = record.sources.len();
                    each(record.classify_with(&rules.catalogue, &rules.matcher), streams)?;
                }
                Err(error) => problems.push(format!("{}:{number}: {error}", path.display())),
            },
            Err(error) => {
                problems.push(format!("{}: read up to line {number} only: {error}", path.display()));
                return Ok(());
            }
        }
    }
}
