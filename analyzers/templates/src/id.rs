//! Ids of templates, derived from their text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::mask::MASK;
use crate::tree::MANY;

const PREFIX: &str = "tpl-";
/// Number of bytes of the digest in an id.
const BYTES: usize = 6;

/// Id of a template: the first 48 bits of the BLAKE3 digest of its text, printed as `tpl-9f3a1c07b2e4`.
///
/// The id depends on the text alone, so it is equal in every run and on every node. With a cryptographic digest,
/// finding two texts with equal ids takes about 2^24 tries; among 8,192 templates the probability of an accidental
/// collision is 1 in 8 million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct TemplateId(u64);

/// Error: the text is not a template id. The error holds the first 40 characters of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a template id such as tpl-9f3a1c07b2e4")]
pub struct TemplateIdError(String);

impl TemplateId {
    /// Returns the id of the template with this text. Both placeholders, `<*>` and `<+>`, count as equal.
    pub fn of(text: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        for (n, part) in text.split(MANY).enumerate() {
            if n > 0 {
                hasher.update(MASK.as_bytes());
            }
            hasher.update(part.as_bytes());
        }
        let digest = hasher.finalize();
        let number = digest
            .as_bytes()
            .iter()
            .take(BYTES)
            .fold(0, |number, byte| number << 8 | u64::from(*byte));
        Self(number)
    }
}

impl fmt::Display for TemplateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{:012x}", self.0)
    }
}

impl From<TemplateId> for String {
    fn from(id: TemplateId) -> Self {
        id.to_string()
    }
}

impl FromStr for TemplateId {
    type Err = TemplateIdError;

    /// Parses `tpl-` and 12 lowercase hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix(PREFIX).filter(|digits| {
            digits.len() == 2 * BYTES && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        });
        digits
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .map(Self)
            .ok_or_else(|| TemplateIdError(text.chars().take(40).collect()))
    }
}

impl TryFrom<String> for TemplateId {
    type Error = TemplateIdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::TemplateId;

    #[test]
    fn a_name_is_what_it_was_when_profiles_were_written() {
        // Profiles on disk hold these ids: a change of the digest or of the text's form orphans them.
        assert_eq!(TemplateId::of("link <*> down").to_string(), "tpl-67d9dd6a5f43");
    }

    #[test]
    fn both_marks_of_a_value_have_one_name_and_names_are_read_back() {
        let id = TemplateId::of("user <+> left");
        assert_eq!(id, TemplateId::of("user <*> left"));
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("tpl-9f3a1c07".parse::<TemplateId>().is_err());
        assert!("tpl-9F3A1C07B2E4".parse::<TemplateId>().is_err());
    }
}
