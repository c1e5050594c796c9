//! File of the enrolment, `enrolment.log` in the state directory, mode 0600.
//!
//! The first line names the format and its version. Each further line is the CRC-32 of a JSON object and the object: an
//! event. An event is appended and synced before it has an effect. A crash may leave half a line at the end, which is
//! removed; any other damage is an error, because the file may lack revocations or uses. The file is written anew, without
//! what has ended, when it is opened.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rankguard_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::join_token::JoinTokenDetails;

/// Name of the file in the state directory.
pub const LEDGER_FILE: &str = "enrolment.log";
/// First line of the file.
const HEADER: &str = "rankguard-enrolment 1";
/// Largest file, bytes: that of 50,000 nodes and more.
const FILE_BYTES_MAX: u64 = 128 << 20;
const FILE_MODE: u32 = 0o600;

/// Failure to read or write the file.
#[derive(Debug, thiserror::Error)]
pub enum LedgerFileError {
    /// A line is damaged.
    #[error(
        "{} is damaged in line {line}: {why}; restore it from a backup, or move it away, which makes all join tokens invalid",
        path.display()
    )]
    Damaged {
        path: PathBuf,
        /// Number of the line, counted from 1.
        line: usize,
        /// Kind of the damage.
        why: String,
    },
    /// The file cannot be accessed.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// Failed operation, a verb.
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

/// Newest certificate of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCertificate {
    /// Name of the node.
    pub node: String,
    /// Serial number, hexadecimal.
    pub serial: String,
    /// End of its validity.
    pub until: Timestamp,
    /// Join token with which it was issued; `None` for a renewal and for a certificate that a person issued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// SHA-256 of its public key, hexadecimal; empty if it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// PEM of the certificate and its issuer, for a node that did not receive it; empty without a token.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub chain: String,
}

/// Event of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(super) enum LedgerEvent {
    /// A join token was created; it may replace an earlier state of the token.
    Token {
        sha256: String,
        #[serde(flatten)]
        details: JoinTokenDetails,
    },
    /// A join token was revoked.
    Revoked { id: String, at: Timestamp, by: String },
    /// A node received a certificate; `is_use` counts it as a use of its token.
    Certificate {
        is_use: bool,
        #[serde(flatten)]
        certificate: NodeCertificate,
    },
}

/// File, open for appending.
#[derive(Debug)]
pub(super) struct LedgerFile {
    path: PathBuf,
    file: File,
    /// Bytes of whole lines; what follows was left by a failed write.
    size: u64,
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LedgerFileError {
    let path = path.to_owned();
    move |source| LedgerFileError::Io { what, path, source }
}

/// Reads the events; none if there is no file.
pub(super) fn read(path: &Path) -> Result<Vec<LedgerEvent>, LedgerFileError> {
    let text = match rankguard_files::read_text(path, FILE_BYTES_MAX) {
        Ok(text) => text,
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(failed("read", path)(source)),
    };
    parse(&text).map_err(|(line, why)| LedgerFileError::Damaged {
        path: path.to_owned(),
        line,
        why,
    })
}

/// Parses the text of the file. An error is the number of a line and the damage.
fn parse(text: &str) -> Result<Vec<LedgerEvent>, (usize, String)> {
    let mut lines = text.split_inclusive('\n').enumerate().peekable();
    let is_header = lines.next().is_some_and(|(_, line)| line == format!("{HEADER}\n"));
    if !is_header {
        return Err((1, format!("it is not {HEADER:?}")));
    }
    let mut events = Vec::new();
    while let Some((at, line)) = lines.next() {
        // A line without its end is what a crash cut off: the event had no effect yet.
        if !line.ends_with('\n') && lines.peek().is_none() {
            break;
        }
        events.push(parse_line(line.trim_end_matches('\n')).map_err(|why| (at + 1, why))?);
    }
    Ok(events)
}

fn parse_line(line: &str) -> Result<LedgerEvent, String> {
    let (sum, json) = line.split_once(' ').ok_or("it has no checksum")?;
    if sum != checksum(json) {
        return Err("its checksum is wrong".to_owned());
    }
    serde_json::from_str(json).map_err(|problem| problem.to_string())
}

fn checksum(json: &str) -> String {
    format!("{:08x}", crc32fast::hash(json.as_bytes()))
}

fn line(event: &LedgerEvent) -> io::Result<String> {
    let json = serde_json::to_string(event)?;
    Ok(format!("{} {json}\n", checksum(&json)))
}

impl LedgerFile {
    /// Rewrites the file with these events, and opens it.
    pub(super) fn create(path: &Path, events: &[LedgerEvent]) -> Result<Self, LedgerFileError> {
        let written = || {
            let mut text = format!("{HEADER}\n");
            for event in events {
                text += &line(event)?;
            }
            rankguard_files::private::replace_file(path, text.as_bytes(), FILE_MODE)?;
            fs::set_permissions(path, Permissions::from_mode(FILE_MODE))?;
            Ok(text.len() as u64)
        };
        let size = written().map_err(failed("write", path))?;
        let file = OpenOptions::new()
            .write(true)
            .open(path)
            .map_err(failed("open", path))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            size,
        })
    }

    /// Appends an event; it is on disk when this returns. The next one overwrites what a failed write has left.
    pub(super) fn append(&mut self, event: &LedgerEvent) -> Result<(), LedgerFileError> {
        let mut written = || {
            let text = line(event)?;
            if self.size + text.len() as u64 > FILE_BYTES_MAX {
                return Err(io::Error::from(io::ErrorKind::FileTooLarge));
            }
            self.file.set_len(self.size)?;
            self.file.seek(SeekFrom::Start(self.size))?;
            self.file.write_all(text.as_bytes())?;
            self.file.sync_data()?;
            Ok(text.len() as u64)
        };
        self.size += written().map_err(failed("write", &self.path))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(serial: &str) -> LedgerEvent {
        LedgerEvent::Certificate {
            is_use: true,
            certificate: NodeCertificate {
                node: "n1".to_owned(),
                serial: serial.to_owned(),
                until: Timestamp(9),
                token: Some("jt-1".to_owned()),
                key: "ab".to_owned(),
                chain: String::new(),
            },
        }
    }

    /// Half a last line is what a crash leaves; every other damage is an error.
    #[test]
    fn half_a_last_line_is_dropped_and_any_other_damage_is_an_error() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join(LEDGER_FILE);
        assert_eq!(read(&path).expect("no file"), Vec::new());
        let mut file = LedgerFile::create(&path, &[event("1")]).expect("created");
        file.append(&event("2")).expect("appended");
        assert_eq!(read(&path).expect("sound"), [event("1"), event("2")]);
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(&path).expect("text");
        let last = text.trim_end().rfind('\n').expect("lines") + 1;
        for end in last..text.len() {
            assert_eq!(parse(&text[..end]).expect("cut off"), [event("1")], "{end}");
        }
        for at in 0..last {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let damaged = String::from_utf8(bytes).expect("ASCII");
            assert!(parse(&damaged).is_err(), "byte {at}");
        }
    }
}
