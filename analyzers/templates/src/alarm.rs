//! Detection of words that announce trouble, at any position in a token and in any case.

/// Returns the words with this first letter in lower case.
const fn words(letter: u8) -> &'static [&'static str] {
    match letter {
        b'a' => &["abort", "assert"],
        b'b' => &["broken"],
        b'c' => &["cannot", "corrupt", "crash", "critical"],
        b'd' => &["deadlock", "denied", "died", "disconnect"],
        b'e' => &["error", "exception", "exceeded"],
        b'f' => &["fail", "fatal", "fault"],
        b'h' => &["hang", "hung"],
        b'i' => &["illegal", "invalid"],
        b'k' => &["killed"],
        b'l' => &["lockup"],
        b'm' => &["mismatch"],
        b'o' => &["out of memory", "overflow"],
        b'p' => &["panic"],
        b'r' => &["refused"],
        b's' => &["segfault", "stall", "stuck"],
        b't' => &["timed out", "timeout", "traceback"],
        b'u' => &["unable", "unreachable", "unresponsive"],
        b'v' => &["violation"],
        _ => &[],
    }
}

/// Returns true if `text` contains one of the words.
pub(crate) fn alarming(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().any(|(at, byte)| {
        words(byte.to_ascii_lowercase()).iter().any(|word| {
            bytes
                .get(at..at + word.len())
                .is_some_and(|found| found.eq_ignore_ascii_case(word.as_bytes()))
        })
    })
}

/// Returns true if `token` names a log level, which like an alarm word is never a value.
pub(crate) fn level(token: &str) -> bool {
    let core = token.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    ["DEBUG", "INFO", "NOTICE", "TRACE", "WARN", "WARNING", "SEVERE"]
        .iter()
        .any(|word| core.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::{alarming, level};

    #[test]
    fn trouble_is_heard_inside_names_and_in_any_case() {
        assert!(alarming("torch.OutOfMemoryError: CUDA out of memory"));
        assert!(alarming("[rank<*>]: ncclSystemERROR"));
        assert!(alarming("connection Timed Out"));
        assert!(!alarming("step <*> loss <*>"));
        assert!(!alarming("erro"));
    }

    #[test]
    fn levels_are_whole_words() {
        assert!(level("[INFO]"));
        assert!(level("warning:"));
        assert!(!level("information"));
    }
}
