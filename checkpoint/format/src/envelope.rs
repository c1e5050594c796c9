//! The outside of every text file of a checkpoint.
//!
//! ```text
//! rankguard-manifest 2\n       magic word and version
//! blake3 <64 hex digits>\n     digest of the first line and the body
//! <JSON>\n                     body
//! ```
//!
//! A person can read it with `less`; a program knows from the file alone whether a bit has changed. The version stands
//! under the digest too, so a damaged version number cannot make another parser accept the body.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Digest;

/// The version that this crate writes, of every kind of file.
pub const VERSION: u32 = 2;

/// Why bytes are no such file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum EnvelopeError {
    #[error("is {bytes} bytes, more than the {max} a {magic} may have")]
    TooLong {
        magic: &'static str,
        bytes: usize,
        max: usize,
    },
    #[error("does not begin with the magic word {magic}")]
    NotOne { magic: &'static str },
    #[error(
        "is a {magic} of version {version}, and this program reads version {VERSION}; load it with the program that wrote it, or save anew"
    )]
    Version { magic: &'static str, version: String },
    #[error("is cut off or has a damaged header")]
    Torn,
    #[error("is damaged: its digest is {found}, its header says {stated}")]
    Damaged { stated: Digest, found: Digest },
    #[error("has an intact body that is no {magic}: {problem}")]
    Body { magic: &'static str, problem: String },
}

/// Text of `body` under `magic`.
pub(crate) fn seal<T: Serialize>(magic: &'static str, body: &T) -> Vec<u8> {
    let body = serde_json::to_vec(body).expect("plain data with text keys always has a JSON form");
    let first = format!("{magic} {VERSION}\n");
    let digest = digest(first.as_bytes(), &body);
    let mut text = Vec::with_capacity(first.len() + body.len() + 80);
    text.extend_from_slice(first.as_bytes());
    text.extend_from_slice(format!("blake3 {digest}\n").as_bytes());
    text.extend_from_slice(&body);
    text.push(b'\n');
    text
}

/// The body of `bytes`, if they are whole, of this kind and of a known version.
pub(crate) fn open<T: DeserializeOwned>(magic: &'static str, max: usize, bytes: &[u8]) -> Result<T, EnvelopeError> {
    if bytes.len() > max {
        return Err(EnvelopeError::TooLong {
            magic,
            bytes: bytes.len(),
            max,
        });
    }
    let after_magic = bytes
        .strip_prefix(magic.as_bytes())
        .and_then(|rest| rest.strip_prefix(b" "));
    let after_magic = after_magic.ok_or(EnvelopeError::NotOne { magic })?;
    let (version, rest) = line(after_magic)?;
    if version != VERSION.to_string().as_bytes() {
        let version = String::from_utf8_lossy(&version[..version.len().min(16)])
            .escape_debug()
            .to_string();
        return Err(EnvelopeError::Version { magic, version });
    }
    let (second, rest) = line(rest)?;
    let stated = second
        .strip_prefix(b"blake3 ")
        .and_then(|hex| std::str::from_utf8(hex).ok());
    let stated: Digest = stated.and_then(|hex| hex.parse().ok()).ok_or(EnvelopeError::Torn)?;
    let body = rest.strip_suffix(b"\n").ok_or(EnvelopeError::Torn)?;
    let found = digest(format!("{magic} {VERSION}\n").as_bytes(), body);
    if found != stated {
        return Err(EnvelopeError::Damaged { stated, found });
    }
    serde_json::from_slice(body).map_err(|error| EnvelopeError::Body {
        magic,
        problem: error.to_string(),
    })
}

/// The first line without its end, and what follows it.
fn line(bytes: &[u8]) -> Result<(&[u8], &[u8]), EnvelopeError> {
    let end = bytes
        .iter()
        .take(128)
        .position(|byte| *byte == b'\n')
        .ok_or(EnvelopeError::Torn)?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

fn digest(first_line: &[u8], body: &[u8]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(first_line).update(body);
    Digest(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAGIC: &str = "rankguard-test";

    fn read(bytes: &[u8]) -> Result<Vec<u32>, EnvelopeError> {
        open(MAGIC, 1 << 16, bytes)
    }

    #[test]
    fn reads_what_it_wrote() {
        assert_eq!(read(&seal(MAGIC, &[1, 2, 3])), Ok(vec![1, 2, 3]));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let whole = seal(MAGIC, &[1, 2, 3]);
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&damaged).is_err(), "bit {bit} flipped unnoticed");
        }
    }

    #[test]
    fn every_prefix_is_refused() {
        let whole = seal(MAGIC, &[1, 2, 3]);
        for length in 0..whole.len() {
            assert!(
                read(&whole[..length]).is_err(),
                "a prefix of {length} bytes was accepted"
            );
        }
    }

    #[test]
    fn an_unknown_version_is_named() {
        let newer = String::from_utf8(seal(MAGIC, &[1]))
            .expect("text")
            .replacen(" 2\n", " 3\n", 1);
        let error = read(newer.as_bytes()).expect_err("version 3 is unknown");
        assert!(
            matches!(&error, EnvelopeError::Version { version, .. } if version == "3"),
            "{error}"
        );
    }

    #[test]
    fn another_kind_of_file_and_a_giant_are_refused() {
        assert_eq!(
            read(&seal("rankguard-other", &[1])),
            Err(EnvelopeError::NotOne { magic: MAGIC })
        );
        assert!(matches!(read(&vec![0; 1 << 17]), Err(EnvelopeError::TooLong { .. })));
        assert!(matches!(
            open::<Vec<u32>>(MAGIC, 999, &seal(MAGIC, &"text")),
            Err(EnvelopeError::Body { .. })
        ));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = read(&bytes);
        }

        #[test]
        fn arbitrary_bytes_behind_a_good_header_never_panic(bytes: Vec<u8>) {
            let first = format!("{MAGIC} {VERSION}\n");
            let mut text = format!("{first}blake3 {}\n", digest(first.as_bytes(), &bytes)).into_bytes();
            text.extend_from_slice(&bytes);
            text.push(b'\n');
            let _ = read(&text);
        }
    }
}
