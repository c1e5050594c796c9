//! Reader of the audit log.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::entry::{AuditEntry, AuditFilter, AuditOutcome};
use super::file::{self, AuditFileContents, AuditLine};
use crate::digest::{Digest, hex};

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

/// Statement of the header of a file about the file before it.
struct NewerFile {
    number: u64,
    /// Last digest of the file before.
    previous: String,
}

impl NewerFile {
    /// Returns the statement of a file; none if its header is damaged.
    fn of(number: u64, contents: &AuditFileContents) -> Option<Self> {
        match contents.lines.first() {
            Some(AuditLine::Header { previous, .. }) => Some(Self {
                number,
                previous: previous.clone(),
            }),
            _ => None,
        }
    }

    /// Describes what is missing between the file `number` with this last digest and the newer one.
    fn missing_before(&self, number: u64, digest: &Digest) -> Option<String> {
        if number + 1 != self.number {
            let missing = file::path(Path::new(""), self.number - 1);
            return Some(format!("{}, which is missing", missing.display()));
        }
        let name = file::path(Path::new(""), number);
        (self.previous != hex(digest)).then(|| format!("{}, after its last line", name.display()))
    }
}

/// Reads the newest files first, until there are enough entries.
pub(crate) fn read(dir: &Path, filter: &AuditFilter, before: Option<u64>, limit: usize) -> io::Result<AuditPage> {
    let mut page = AuditPage::default();
    let mut results: BTreeMap<u64, (AuditOutcome, String)> = BTreeMap::new();
    let mut newer = None;
    for (number, path) in file::list(dir)?.into_iter().rev() {
        let contents = match AuditFileContents::read(&path) {
            Ok(contents) => contents,
            // It was removed meanwhile.
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => {
                newer = None;
                continue;
            }
            Err(problem) => return Err(problem),
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        page.damaged
            .extend(contents.damaged.iter().map(|line| format!("{name}, line {line}")));
        page.damaged
            .extend(newer.and_then(|newer: NewerFile| newer.missing_before(number, &contents.digest)));
        newer = NewerFile::of(number, &contents);
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
