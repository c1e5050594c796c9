//! Envelope of the text files of a checkpoint.
//!
//! ```text
//! rankguard-manifest 2\n       magic word and version
//! blake3 <64 hex digits>\n     digest of the first line and the body
//! <JSON>\n                     body
//! ```
//!
//! The file is readable with `less`, and a program detects any changed bit from the file alone. The digest covers the
//! version, so a damaged version number cannot make another parser accept the body.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Digest;

/// Format version that this crate writes and reads, for every kind of file.
pub const VERSION: u32 = 2;

/// Prefix of the digest line.
const DIGEST: &str = "blake3 ";

/// Length of a digest as text.
const HEX_DIGITS: usize = 64;

/// Buffer size for the body before it is passed on, bytes.
const PART: usize = 16 << 10;

/// Reason why bytes are not a valid envelope.
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

/// Serializes `body` under the magic word.
pub(crate) fn seal<T: Serialize>(magic: &'static str, body: &T) -> Vec<u8> {
    let mut text = Vec::new();
    let put = |at: usize, part: &[u8]| {
        text.resize(text.len().max(at + part.len()), 0);
        text[at..at + part.len()].copy_from_slice(part);
        Ok(())
    };
    seal_into(magic, body, put).expect("plain data with text keys always has a JSON form");
    text
}

/// Passes the serialized `body` to `put` in parts, each with its file offset; the header with the digest comes last.
/// Streaming bounds the memory of the writer, because the index of a large image is long. Returns the length in bytes.
pub(crate) fn seal_into<T: Serialize>(
    magic: &'static str,
    body: &T,
    mut put: impl FnMut(usize, &[u8]) -> io::Result<()>,
) -> io::Result<usize> {
    let first = format!("{magic} {VERSION}\n");
    let digest_at = first.len() + DIGEST.len();
    let mut parts = BodyWriter {
        at: digest_at + HEX_DIGITS + 1,
        gathered: Vec::with_capacity(PART),
        hasher: blake3::Hasher::new(),
        put: &mut put,
    };
    parts.hasher.update(first.as_bytes());
    serde_json::to_writer(&mut parts, body)?;
    io::Write::flush(&mut parts)?;
    let end = parts.at;
    let digest = Digest(*parts.hasher.finalize().as_bytes());
    put(end, b"\n")?;
    put(0, format!("{first}{DIGEST}{digest}\n").as_bytes())?;
    Ok(end + 1)
}

/// Buffered writer that digests the body and passes it to `put`.
struct BodyWriter<'a> {
    at: usize,
    gathered: Vec<u8>,
    hasher: blake3::Hasher,
    put: &'a mut dyn FnMut(usize, &[u8]) -> io::Result<()>,
}

impl io::Write for BodyWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.gathered.len() + bytes.len() > PART {
            self.flush()?;
        }
        let taken = bytes.len().min(PART);
        self.gathered.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.hasher.update(&self.gathered);
        (self.put)(self.at, &self.gathered)?;
        self.at += self.gathered.len();
        self.gathered.clear();
        Ok(())
    }
}

/// Verifies the envelope and parses its body; refuses damaged bytes, other kinds of file and unknown versions.
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
        .strip_prefix(DIGEST.as_bytes())
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

/// Splits off the first line; returns it without its newline, and the rest.
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
    fn a_text_that_goes_in_parts_is_the_text() {
        let long: Vec<u32> = (0..30_000).collect();
        let mut text = vec![b'?'; 1 << 18];
        let mut largest = 0;
        let length = seal_into(MAGIC, &long, |at, part| {
            text[at..at + part.len()].copy_from_slice(part);
            largest = largest.max(part.len());
            Ok(())
        });
        text.truncate(length.expect("nothing refuses a part"));
        assert!(text == seal(MAGIC, &long) && largest <= PART);
        assert_eq!(open(MAGIC, 1 << 18, &text), Ok(long));
        assert!(seal_into(MAGIC, &text, |_, _| Err(io::ErrorKind::OutOfMemory.into())).is_err());
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
