//! Helpers that parse text of driver messages.

use memchr::memchr2_iter;

/// Returns the text after `beginning`, ignoring ASCII case.
pub(super) fn after<'t>(text: &'t str, beginning: &str) -> Option<&'t str> {
    let bytes = text.as_bytes();
    let wanted = beginning.as_bytes();
    let first = wanted.first()?;
    let mut begins = memchr2_iter(first.to_ascii_lowercase(), first.to_ascii_uppercase(), bytes);
    let same = |at: &usize| {
        let window = bytes.get(*at..*at + wanted.len());
        window.is_some_and(|window| window.eq_ignore_ascii_case(wanted))
    };
    text.get(begins.find(same)? + wanted.len()..)
}

/// Parses the whole number at the start of a text, after spaces.
pub(super) fn number(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let end = text
        .bytes()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

/// Returns the word at the start of a text, up to a space, comma, colon or bracket.
pub(super) fn word(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let end = text.find([' ', ',', '(', ')', ':', '\t']).unwrap_or(text.len());
    Some(&text[..end]).filter(|word| !word.is_empty())
}

/// Parses at most `most` hexadecimal words (`0x00086226`) in the first brackets of a text. The closing bracket
/// may be cut off.
pub(super) fn words(text: &str, most: usize) -> Vec<u32> {
    let Some((_, inside)) = text.split_once('(') else {
        return Vec::new();
    };
    let inside = inside.split(')').next().unwrap_or(inside);
    let parts = inside.split([',', ' ']).filter(|part| !part.is_empty());
    parts.map_while(hex).take(most).collect()
}

/// Parses a hexadecimal number such as `0x1f`.
pub(super) fn hex(word: &str) -> Option<u32> {
    let digits = word
        .trim()
        .strip_prefix("0x")
        .or_else(|| word.trim().strip_prefix("0X"))?;
    u32::from_str_radix(digits, 16).ok()
}

/// Returns bits `high..=low` of a word.
pub(super) fn bits(word: u32, high: u32, low: u32) -> u32 {
    (word >> low) & (u32::MAX >> (31 - (high - low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_tail_still_gives_the_words_that_are_whole() {
        assert_eq!(words("link 14(0x100000, 0x0, 0x1", 7), [0x10_0000, 0, 1]);
        assert_eq!(words("Link 08 (0x004505c6 0x0000", 6), [0x0045_05c6, 0]);
        assert_eq!(words("Link -1", 6), [0_u32; 0]);
        assert_eq!(words("(0xzz 0x1)", 6), [0_u32; 0]);
    }

    #[test]
    fn bits_are_counted_from_the_right() {
        assert_eq!(bits(0x0045_05c6, 4, 0), 6);
        assert_eq!(bits(0x0045_05c6, 9, 5), 14);
        assert_eq!(bits(u32::MAX, 31, 0), u32::MAX);
    }
}
