//! SHA-256 and its text.

use ring::digest::{Context, SHA256};

/// SHA-256 digest, 32 bytes.
pub(crate) type Digest = [u8; 32];

/// Returns the digest of the concatenated parts.
pub(crate) fn sha256(parts: &[&[u8]]) -> Digest {
    let mut context = Context::new(&SHA256);
    parts.iter().for_each(|part| context.update(part));
    let mut digest = Digest::default();
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

/// Returns lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            for half in [byte >> 4, byte & 0xf] {
                text.push(char::from_digit(half.into(), 16).unwrap_or('0'));
            }
            text
        })
}

/// Parses the lower-case digits of a digest.
pub(crate) fn parse_hex(text: &str) -> Option<Digest> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut digest = Digest::default();
    for (byte, pair) in digest.iter_mut().zip(digits.chunks(2)) {
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(digest)
}

/// Compares two digests without a branch on their contents.
pub(crate) fn is_equal(left: &Digest, right: &Digest) -> bool {
    let difference = left
        .iter()
        .zip(right)
        .fold(0, |all, (left, right)| all | (left ^ right));
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_digest_is_read_back() {
        let digest = sha256(&[b"a", b"bc"]);
        assert_eq!(
            hex(&digest),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(parse_hex(&hex(&digest)), Some(digest));
        assert_eq!(parse_hex(&hex(&digest).to_uppercase()), None);
        assert!(is_equal(&digest, &digest));
        for byte in 0..32 {
            let mut other = digest;
            other[byte] ^= 0x80;
            assert!(!is_equal(&digest, &other), "byte {byte}");
        }
    }
}
