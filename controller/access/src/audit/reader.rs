//! Reader of the audit log.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::entry::{AuditEntry, AuditFilter, AuditOutcome};
use super::file::{self, AuditFileContents, AuditLine};

/// Entries that a filter selected.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AuditPage {
    /// Entries, newest first.
    pub entries: Vec<AuditEntry>,
    /// Number before which older entries follow; absent if there are none.
    pub next: Option<u64>,
    /// Files and lines that cannot be verified; their entries are left out.
    pub damaged: Vec<String>,
}

/// Reads the newest files first, until there are enough entries.
pub(crate) fn read(dir: &Path, filter: &AuditFilter, before: Option<u64>, limit: usize) -> io::Result<AuditPage> {
    let mut page = AuditPage::default();
    let mut results: BTreeMap<u64, (AuditOutcome, String)> = BTreeMap::new();
    for (_, path) in file::list(dir)?.into_iter().rev() {
        let contents = match AuditFileContents::read(&path) {
            Ok(contents) => contents,
            // It was removed meanwhile.
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => continue,
            Err(problem) => return Err(problem),
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        page.damaged
            .extend(contents.damaged.iter().map(|line| format!("{name}, line {line}")));
        for line in contents.lines.into_iter().rev() {
            match line {
                AuditLine::Header { .. } => {}
                AuditLine::End { of, outcome, message } => {
                    results.insert(of, (outcome, message));
                }
                AuditLine::Entry(mut entry) => {
                    if let Some((outcome, message)) = results.remove(&entry.seq) {
                        (entry.outcome, entry.message) = (outcome, message);
                    }
                    // The clock of the controller does not run backwards.
                    if filter.since.is_some_and(|since| entry.at < since) {
                        return Ok(page);
                    }
                    let is_wanted = before.is_none_or(|before| entry.seq < before) && filter.matches(&entry);
                    if is_wanted && page.entries.len() == limit {
                        page.next = page.entries.last().map(|last| last.seq);
                        return Ok(page);
                    }
                    if is_wanted {
                        page.entries.push(entry);
                    }
                }
            }
        }
    }
    Ok(page)
}
