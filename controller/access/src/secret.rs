//! Value of a token: `rgt_` (access) or `rgj_` (enrolment), 64 hexadecimal digits of 256 random bits, and 8 digits of their CRC-32. The prefix and the
//! checksum let a scanner for leaked secrets find it, and a mistyped value is refused without a look at the stored tokens.

use std::fmt;

use crate::digest::{Digest, hex, sha256};

/// Beginning of every access token.
const PREFIX: &str = "rgt_";
/// Beginning of every join token.
const JOIN_PREFIX: &str = "rgj_";
/// Digits after the prefix: those of the random bytes, and those of the checksum.
const SECRET_DIGITS: usize = 64;
const CHECKSUM_DIGITS: usize = 8;

/// Value of a token. Its debug text does not contain it.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenSecret(String);

impl TokenSecret {
    /// Creates the random value of an access token; `None` if the system provides no random bytes.
    pub fn generate() -> Option<Self> {
        Self::with_prefix(PREFIX)
    }

    /// Creates the random value of a join token; `None` if the system provides no random bytes.
    pub fn generate_join() -> Option<Self> {
        Self::with_prefix(JOIN_PREFIX)
    }

    fn with_prefix(prefix: &str) -> Option<Self> {
        let bytes = rankguard_identity::secret::<32>()?;
        let digits = hex(&bytes);
        let checksum = checksum(&digits);
        Some(Self(format!("{prefix}{digits}{checksum}")))
    }

    /// Parses the text of an access token; `None` if it has another form or a wrong checksum.
    pub fn parse(text: &str) -> Option<Self> {
        Self::parse_after(PREFIX, text)
    }

    /// Parses the text of a join token; `None` if it has another form or a wrong checksum.
    pub fn parse_join(text: &str) -> Option<Self> {
        Self::parse_after(JOIN_PREFIX, text)
    }

    fn parse_after(prefix: &str, text: &str) -> Option<Self> {
        let digits = text.strip_prefix(prefix)?;
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != SECRET_DIGITS + CHECKSUM_DIGITS || !digits.bytes().all(is_digit) {
            return None;
        }
        let (secret, sum) = digits.split_at(SECRET_DIGITS);
        (checksum(secret) == sum).then(|| Self(text.to_owned()))
    }

    /// Returns true if a text contains the beginning of a token, also percent-encoded.
    pub fn is_in(text: &str) -> bool {
        let plain = text.to_ascii_lowercase().replace("%5f", "_");
        plain.contains(PREFIX) || plain.contains(JOIN_PREFIX)
    }

    /// Returns the value, for the answer to its creation.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the hash under which the token is stored. The value has 256 random bits, so that no salt or slow hash is
    /// needed.
    pub(crate) fn hash(&self) -> Digest {
        sha256(&[self.0.as_bytes()])
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSecret(..)")
    }
}

fn checksum(digits: &str) -> String {
    format!("{:08x}", crc32fast::hash(digits.as_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_value_is_read_back_and_every_typing_error_is_refused() {
        let secret = TokenSecret::generate().expect("random bytes");
        let text = secret.expose().to_owned();
        assert_eq!(text.len(), 76);
        assert_eq!(TokenSecret::parse(&text), Some(secret.clone()));
        assert_ne!(TokenSecret::generate().expect("random bytes"), secret);
        assert!(!format!("{secret:?}").contains(&text[4..12]));
        for at in 4..text.len() {
            let other = if text.as_bytes()[at] == b'0' { "1" } else { "0" };
            let mistyped = format!("{}{other}{}", &text[..at], &text[at + 1..]);
            assert_eq!(TokenSecret::parse(&mistyped), None, "digit {at}");
        }
        for other in [
            &text[1..],
            &text[..75],
            &format!("{text}0"),
            &format!(" {text}"),
            &text.to_uppercase(),
        ] {
            assert_eq!(TokenSecret::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_join_token_is_no_access_token() {
        let join = TokenSecret::generate_join().expect("random bytes");
        assert_eq!(TokenSecret::parse_join(join.expose()), Some(join.clone()));
        assert_eq!(TokenSecret::parse(join.expose()), None);
        assert_eq!(
            TokenSecret::parse_join(TokenSecret::generate().expect("random bytes").expose()),
            None
        );
    }

    #[test]
    fn a_token_in_a_uri_is_found() {
        assert!(TokenSecret::is_in("a=b&x=rgt_00"));
        assert!(TokenSecret::is_in("RGT%5f00"));
        assert!(!TokenSecret::is_in("target_1"));
    }

    proptest! {
        #[test]
        fn arbitrary_text_is_no_token_and_no_panic(text in "\\PC*") {
            prop_assert!(TokenSecret::parse(&text).is_none());
            let prefixed = format!("{PREFIX}{text}");
            prop_assert!(TokenSecret::parse(&prefixed).is_none());
        }
    }
}
