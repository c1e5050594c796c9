//! Prefix that a scheduler of tasks, a launcher or a collector puts before each line of a traceback:
//! `[177/train/578 (pid 28936)] ` of Metaflow, `{subprocess.py:93} INFO - ` of Airflow.
//!
//! The prefix is the text before the header. It counts as one only if the next line has it as well, because a logger may
//! write a message before the header alone. The digits of a time of day may differ; other numbers distinguish writers.

const HEADER: &str = "Traceback (most recent call last)";
/// Maximum length of a prefix, bytes.
const LENGTH: usize = 200;

/// Prefix of the lines of a traceback.
#[derive(Debug, Default)]
pub(super) struct WriterPrefix {
    text: String,
    /// True once the line below the header has shown that it is a prefix.
    is_confirmed: bool,
}

impl WriterPrefix {
    /// Returns the prefix of a header; empty if the header begins its line.
    pub(super) fn of_header(header: &str) -> Self {
        let before = header.split_once(HEADER).map_or("", |(before, _)| before);
        let is_prefix = !before.trim().is_empty() && before.len() <= LENGTH;
        Self {
            text: if is_prefix { before.to_owned() } else { String::new() },
            is_confirmed: false,
        }
    }

    /// Returns a line without the prefix; the whole line if it has none.
    pub(super) fn strip<'a>(&mut self, line: &'a str) -> &'a str {
        if self.text.is_empty() {
            return line;
        }
        let rest = without(line, &self.text);
        if !self.is_confirmed && rest.is_none() {
            self.text.clear();
        }
        self.is_confirmed = true;
        rest.unwrap_or(line)
    }
}

/// Returns the rest of a line after a prefix, in which the time of day may differ.
fn without<'a>(line: &'a str, prefix: &str) -> Option<&'a str> {
    let head = line.as_bytes().get(..prefix.len())?;
    let prefix = prefix.as_bytes();
    let mut at = 0;
    while at < prefix.len() {
        let clock = clock_len(&prefix[at..]);
        if clock == 0 {
            (head[at] == prefix[at]).then_some(())?;
            at += 1;
        } else {
            (clock_len(&head[at..]) == clock).then_some(())?;
            at += clock;
        }
    }
    line.get(prefix.len()..)
}

/// Returns the length of a time of day at the start of a text, such as `06:01:12,977`; 0 if there is none.
fn clock_len(text: &[u8]) -> usize {
    const SHAPE: &[u8] = b"00:00:00";
    let is_of_shape = |(byte, shape): (&u8, &u8)| byte == shape || *shape == b'0' && byte.is_ascii_digit();
    if text.len() < SHAPE.len() || !text.iter().zip(SHAPE).all(is_of_shape) {
        return 0;
    }
    let rest = &text[SHAPE.len()..];
    if !rest.starts_with(b".") && !rest.starts_with(b",") {
        return SHAPE.len();
    }
    let digits = rest[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    SHAPE.len() + if digits > 0 { digits + 1 } else { 0 }
}
