//! Chunk digest: XXH3-128, fast enough to compute for every byte during the copy.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use twox_hash::XxHash3_128;

/// XXH3-128 of the bytes of a chunk (seed 0, canonical big-endian), written as 32 lowercase hex digits.
///
/// Detects damage and equal bytes. It is not collision resistant against an attacker and need not be: the table of
/// chunk digests lies in an index under a BLAKE3 [`crate::Digest`], and a process that can write chunks can also write
/// the index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ChunkDigest(pub [u8; 16]);

/// Error for text that is not a chunk digest or a table of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a chunk digest is 32 lowercase hex digits, and a table of them nothing else")]
pub struct ChunkDigestError;

impl ChunkDigest {
    /// Computes the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        XxHash3_128::oneshot(bytes).into()
    }

    /// Computes the root of a digest table: the XXH3-128 of its concatenated digests.
    pub fn root(table: &[Self]) -> Self {
        let mut hasher = ChunkHasher::default();
        table.iter().for_each(|digest| hasher.update(&digest.0));
        hasher.digest()
    }
}

/// Incremental chunk digest, for bytes that arrive in parts.
#[derive(Clone, Default)]
pub struct ChunkHasher(XxHash3_128);

impl ChunkHasher {
    /// Adds `bytes` to the digest.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// Returns the digest of all bytes added so far.
    pub fn digest(&self) -> ChunkDigest {
        self.0.finish_128().into()
    }
}

impl fmt::Debug for ChunkHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkHasher").finish_non_exhaustive()
    }
}

impl From<u128> for ChunkDigest {
    fn from(value: u128) -> Self {
        Self(value.to_be_bytes())
    }
}

impl fmt::Display for ChunkDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for ChunkDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChunkDigest({self})")
    }
}

impl FromStr for ChunkDigest {
    type Err = ChunkDigestError;

    fn from_str(text: &str) -> Result<Self, ChunkDigestError> {
        match table::read(text)?.as_slice() {
            [one] => Ok(*one),
            _ => Err(ChunkDigestError),
        }
    }
}

impl Serialize for ChunkDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ChunkDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// Serialization of a digest table as one string: an image has thousands of digests, and an array of strings would be
/// larger than the digests.
pub(crate) mod table {
    use super::*;

    /// Hex encoder that writes digest by digest; a buffer for the whole string would be twice the size of the table.
    struct HexDigests<'a>(&'a [ChunkDigest]);

    impl fmt::Display for HexDigests<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            let mut text = [0; 32];
            self.0.iter().try_for_each(|digest| {
                for (pair, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(digest.0) {
                    *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
                }
                f.write_str(std::str::from_utf8(&text).expect("hex digits are text"))
            })
        }
    }

    struct DigestsVisitor;

    impl de::Visitor<'_> for DigestsVisitor {
        type Value = Vec<ChunkDigest>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table of chunk digests")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            read(text).map_err(E::custom)
        }
    }

    pub(crate) fn serialize<S: Serializer>(table: &[ChunkDigest], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&HexDigests(table))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ChunkDigest>, D::Error> {
        deserializer.deserialize_str(DigestsVisitor)
    }

    pub(super) fn read(text: &str) -> Result<Vec<ChunkDigest>, ChunkDigestError> {
        let (rows, rest) = text.as_bytes().as_chunks::<32>();
        if !rest.is_empty() {
            return Err(ChunkDigestError);
        }
        rows.iter().map(row).collect()
    }

    fn row(digits: &[u8; 32]) -> Result<ChunkDigest, ChunkDigestError> {
        let mut digest = ChunkDigest::default();
        for (byte, pair) in digest.0.iter_mut().zip(digits.as_chunks::<2>().0) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Ok(digest)
    }

    /// Uppercase is refused: a flipped bit that turns `a` into `A` is damage.
    fn nibble(digit: u8) -> Result<u8, ChunkDigestError> {
        match digit {
            b'0'..=b'9' => Ok(digit - b'0'),
            b'a'..=b'f' => Ok(digit - b'a' + 10),
            _ => Err(ChunkDigestError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published test vector of the reference implementation: XXH3_128bits of empty input, seed 0.
    #[test]
    fn matches_the_published_value() {
        let empty = "99aa06d3014798d86001c324468d497f";
        assert_eq!(ChunkDigest::of(b"").to_string(), empty);
        assert_eq!(empty.parse(), Ok(ChunkDigest::of(b"")));
    }

    #[test]
    fn capital_digits_and_other_lengths_are_damage() {
        let text = ChunkDigest::of(b"weights").to_string();
        for bad in [text.to_uppercase(), text[1..].to_owned(), text.repeat(2), String::new()] {
            assert_eq!(bad.parse::<ChunkDigest>(), Err(ChunkDigestError), "{bad}");
        }
    }

    #[test]
    fn the_root_is_the_digest_of_all_digests() {
        let table = [b"a", b"b"].map(|bytes| ChunkDigest::of(bytes));
        assert_eq!(
            ChunkDigest::root(&table),
            ChunkDigest::of(&[table[0].0, table[1].0].concat())
        );
        assert_ne!(ChunkDigest::root(&table), ChunkDigest::root(&[table[1], table[0]]));
        assert_eq!(ChunkDigest::root(&[]), ChunkDigest::of(b""));
    }
}
