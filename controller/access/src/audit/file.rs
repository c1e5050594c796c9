//! Files of the audit log: `audit-000001.log` and so on in the state directory, mode 0600. The highest number is written.
//!
//! A line is a SHA-256 digest and a JSON object. The digest covers the digest of the line before and the object, so that a
//! changed, moved or removed line is detected. A header begins each file: its version, the number of the next entry, the
//! time, and the last digest of the file before.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rankguard_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::entry::{AuditEntry, AuditOutcome};
use crate::digest::{Digest, hex, parse_hex, sha256};

/// Largest file that is read, bytes; several times the size at which a new one begins.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Version of the format.
pub(crate) const VERSION: u32 = 1;

/// Object of a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AuditLine {
    /// First line of a file.
    Header {
        version: u32,
        /// Number of the first entry of the file.
        next: u64,
        at: Timestamp,
        /// Last digest of the file before; empty in the first file.
        previous: String,
    },
    /// Entry; its outcome is unknown until a line `End` follows.
    Entry(AuditEntry),
    /// Result of an entry.
    End {
        /// Number of the entry.
        of: u64,
        outcome: AuditOutcome,
        message: String,
    },
}

impl AuditLine {
    /// Returns the text of the line after a line with the digest `previous`, and its digest.
    pub(crate) fn write(&self, previous: &Digest) -> Result<(String, Digest), serde_json::Error> {
        let json = serde_json::to_string(self)?;
        let digest = sha256(&[previous, json.as_bytes()]);
        Ok((format!("{} {json}\n", hex(&digest)), digest))
    }
}

/// Contents of a file.
#[derive(Debug, Default)]
pub(crate) struct AuditFileContents {
    pub(crate) lines: Vec<AuditLine>,
    /// Digest of the last line.
    pub(crate) digest: Digest,
    /// Bytes of whole lines. A line that is cut off follows if the file is longer.
    pub(crate) size: u64,
    /// Numbers of damaged lines, counted from 1.
    pub(crate) damaged: Vec<usize>,
}

impl AuditFileContents {
    /// Reads a file. Each line is checked against the digest that the line before states, so that damage of one line is
    /// damage of that line only.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let text = rankguard_files::read_text(path, FILE_BYTES_MAX)?;
        let mut contents = Self::default();
        for (at, line) in text.split_inclusive('\n').enumerate() {
            let Some(line) = line.strip_suffix('\n') else { break };
            contents.size += line.len() as u64 + 1;
            let previous = contents.digest;
            let stated = line.get(..64).and_then(parse_hex);
            let json = line.get(65..).unwrap_or_default();
            let is_sound = stated == Some(sha256(&[&previous, json.as_bytes()])) && line.as_bytes()[64] == b' ';
            match serde_json::from_str(json) {
                Ok(read) if is_sound => contents.lines.push(read),
                _ => contents.damaged.push(at + 1),
            }
            contents.digest = stated.unwrap_or(previous);
        }
        Ok(contents)
    }

    /// Returns a number after those of all entries, the damaged ones included: the entries of a file are consecutive, and each
    /// has a line.
    pub(crate) fn next(&self) -> u64 {
        let after = |line: &AuditLine| match line {
            AuditLine::Header { next, .. } => next.saturating_add(self.damaged.len() as u64),
            AuditLine::Entry(entry) => entry.seq.saturating_add(1 + self.damaged.len() as u64),
            AuditLine::End { .. } => 0,
        };
        self.lines.iter().map(after).max().unwrap_or(1)
    }
}

/// Returns the numbers and paths of the files of a directory, oldest first.
pub(crate) fn list(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for found in fs::read_dir(dir)? {
        let name = found?.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix("audit-")?.strip_suffix(".log"));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            files.push((number, dir.join(&name)));
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the path of a file.
pub(crate) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("audit-{number:06}.log"))
}
