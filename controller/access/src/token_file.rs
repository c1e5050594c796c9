//! File of the tokens, `tokens.txt` in the state directory, mode 0600.
//!
//! The first line names the format and its version. Each further line is the CRC-32 of a JSON object and the object: a
//! token with its SHA-256 hash. The last line has the number of tokens, so that a truncated file is detected. A change writes
//! the whole file under another name, syncs it, renames it and syncs the directory: a reader sees the old or the new
//! tokens.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::digest::{hex, parse_hex};
use crate::token::{StoredToken, TokenDetails};

/// Name of the file in the state directory.
pub const TOKEN_FILE: &str = "tokens.txt";
/// First line of the file.
const HEADER: &str = "rankguard-tokens 1";
/// Largest file, bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;
const FILE_MODE: u32 = 0o600;

/// Failure to read or write the file.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// A line is damaged.
    #[error(
        "{} is damaged in line {line}: {why}; restore it from a backup, or move it away, which makes all tokens invalid",
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

/// Line of a token.
#[derive(Serialize, Deserialize)]
struct TokenLine {
    sha256: String,
    #[serde(flatten)]
    details: TokenDetails,
}

/// Reads the tokens; none if there is no file. Removes the access of others to the file.
pub(crate) fn read(path: &Path) -> Result<Vec<StoredToken>, TokenFileError> {
    let failed = |what| {
        move |source| TokenFileError::Io {
            what,
            path: path.to_owned(),
            source,
        }
    };
    let text = match rankguard_files::read_text(path, FILE_BYTES_MAX) {
        Ok(text) => text,
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(failed("read")(source)),
    };
    let mode = fs::metadata(path)
        .map_err(failed("read the mode of"))?
        .permissions()
        .mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(FILE_MODE)).map_err(failed("restrict"))?;
    }
    parse(&text).map_err(|(line, why)| TokenFileError::Damaged {
        path: path.to_owned(),
        line,
        why,
    })
}

/// Parses the text of the file. An error is the number of a line and the damage.
fn parse(text: &str) -> Result<Vec<StoredToken>, (usize, String)> {
    let mut lines = text.split_inclusive('\n').enumerate().map(|(at, line)| (at + 1, line));
    let damaged = |line: usize, why: &str| (line, why.to_owned());
    if lines.next().map(|(_, line)| line) != Some(&format!("{HEADER}\n")) {
        return Err((1, format!("it is not {HEADER:?}")));
    }
    let mut tokens: Vec<StoredToken> = Vec::new();
    for (number, line) in lines.by_ref() {
        let line = line
            .strip_suffix('\n')
            .ok_or_else(|| damaged(number, "it is cut off"))?;
        if let Some(count) = line.strip_prefix("end ") {
            if count != tokens.len().to_string() {
                return Err((
                    number,
                    format!("it counts {count} tokens, and {} precede it", tokens.len()),
                ));
            }
            return match lines.next() {
                Some((number, _)) => Err(damaged(number, "it follows the last line")),
                None => Ok(tokens),
            };
        }
        let token = parse_line(line).map_err(|why| (number, why))?;
        if tokens.iter().any(|known| known.details.id == token.details.id) {
            return Err((number, format!("token {} occurs twice", token.details.id)));
        }
        tokens.push(token);
    }
    Err((
        tokens.len() + 2,
        "the last line is missing, so tokens or revocations may be, too".to_owned(),
    ))
}

fn parse_line(line: &str) -> Result<StoredToken, String> {
    let (sum, json) = line.split_once(' ').ok_or("it has no checksum")?;
    if sum != checksum(json) {
        return Err("its checksum is wrong".to_owned());
    }
    let TokenLine { sha256, details } = serde_json::from_str(json).map_err(|problem| problem.to_string())?;
    let hash = parse_hex(&sha256).ok_or("its hash is no SHA-256")?;
    Ok(StoredToken { details, hash })
}

fn checksum(json: &str) -> String {
    format!("{:08x}", crc32fast::hash(json.as_bytes()))
}

/// Replaces the file atomically; the new one is on disk when this returns.
pub(crate) fn write<'t>(path: &Path, tokens: impl Iterator<Item = &'t StoredToken>) -> Result<(), TokenFileError> {
    let mut text = format!("{HEADER}\n");
    let mut count = 0_usize;
    for token in tokens {
        let line = TokenLine {
            sha256: hex(&token.hash),
            details: token.details.clone(),
        };
        let json = serde_json::to_string(&line).map_err(|source| TokenFileError::Io {
            what: "write",
            path: path.to_owned(),
            source: source.into(),
        })?;
        text += &format!("{} {json}\n", checksum(&json));
        count += 1;
    }
    text += &format!("end {count}\n");
    let replaced = rankguard_files::private::replace_file(path, text.as_bytes(), FILE_MODE);
    replaced.map_err(|source| TokenFileError::Io {
        what: "write",
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use rankguard_model::Timestamp;

    use super::*;
    use crate::role::AccessRole;
    use crate::scope::TokenScope;

    fn token(id: &str) -> StoredToken {
        StoredToken {
            hash: [id.len().to_le_bytes()[0]; 32],
            details: TokenDetails {
                id: id.to_owned(),
                name: format!("name-of-{id}"),
                role: AccessRole::Operator,
                scope: TokenScope::default(),
                created_at: Timestamp(1),
                created_by: "operator ada".to_owned(),
                expires_at: Timestamp(2),
                last_used_at: None,
                revoked_at: None,
                revoked_by: None,
            },
        }
    }

    #[test]
    fn tokens_are_read_back_and_no_other_user_can_read_the_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join(TOKEN_FILE);
        assert_eq!(read(&path).expect("no file"), Vec::new());
        let tokens = [token("a"), token("bb")];
        write(&path, tokens.iter()).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("ours");
        assert_eq!(read(&path).expect("sound"), tokens);
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 1);
    }

    /// Every prefix of the file and every changed byte is detected, with the number of its line.
    #[test]
    fn any_damage_is_an_error_with_its_line() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join(TOKEN_FILE);
        write(&path, [token("a"), token("bb")].iter()).expect("written");
        let text = fs::read_to_string(&path).expect("text");
        for end in 0..text.len() {
            let (line, why) = parse(&text[..end]).expect_err("cut off");
            assert!((1..=4).contains(&line), "{end}: {line} {why}");
        }
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let damaged = String::from_utf8(bytes).expect("ASCII");
            let (line, _) = parse(&damaged).expect_err("damaged");
            let expected = text[..at].matches('\n').count() + 1;
            assert!(
                line == expected || line == expected + 1,
                "byte {at}: line {line}, expected {expected}"
            );
        }
        fs::write(&path, text.replace("viewer", "admin").replace("operator\"", "admin\"")).expect("written");
        let error = read(&path).expect_err("edited").to_string();
        assert!(
            error.contains("tokens.txt is damaged in line 2: its checksum is wrong"),
            "{error}"
        );
    }
}
