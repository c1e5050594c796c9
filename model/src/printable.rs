//! Escaping of foreign text for terminals and logs: control and invisible characters become visible escapes.
//!
//! Control characters (C0, DEL, C1) move the cursor or change the terminal; bidirectional and invisible format
//! characters make a name look like another. [`printable`] also escapes line ends, for one name or one line;
//! [`printable_lines`] keeps line ends and tabs, for text of several lines.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

/// Foreign text that is displayed like [`printable`], up to a limit.
#[derive(Debug, Clone, Copy)]
pub struct PrintableText<'a> {
    text: &'a str,
    /// Characters that are displayed; an ellipsis replaces the rest.
    most: usize,
}

impl<'a> PrintableText<'a> {
    /// Wraps the whole text.
    pub fn new(text: &'a str) -> Self {
        Self { text, most: usize::MAX }
    }

    /// Wraps the first `most` characters of the text.
    pub fn first(text: &'a str, most: usize) -> Self {
        Self { text, most }
    }
}

impl fmt::Display for PrintableText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.text.char_indices().nth(self.most).map(|(at, _)| at);
        f.write_str(&printable(&self.text[..end.unwrap_or(self.text.len())]))?;
        if end.is_some() {
            f.write_char('\u{2026}')
        } else {
            Ok(())
        }
    }
}

/// Escapes text for one line: hidden characters, line ends and tabs become escapes (`\n`, `\u{1b}`).
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_hidden)
}

/// Escapes text of several lines: hidden characters become escapes; line ends and tabs are unchanged.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_hidden(c) && !matches!(c, '\n' | '\t'))
}

/// Returns true if a character controls a terminal or is invisible.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{200b}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            _ if !is_escaped(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_visible_rg_11() {
        for (text, line, lines) in [
            ("plain \u{e9}\u{4e2d}", "plain \u{e9}\u{4e2d}", "plain \u{e9}\u{4e2d}"),
            ("a\n\tb\r", "a\\n\\tb\\r", "a\n\tb\\r"),
            ("\u{1b}[31m", "\\u{1b}[31m", "\\u{1b}[31m"),
            ("\u{9b}2J\u{7f}", "\\u{9b}2J\\u{7f}", "\\u{9b}2J\\u{7f}"),
            ("a\u{202e}b\u{2066}", "a\\u{202e}b\\u{2066}", "a\\u{202e}b\\u{2066}"),
            ("a\u{2028}b", "a\\u{2028}b", "a\\u{2028}b"),
        ] {
            assert_eq!(
                (printable(text).as_ref(), printable_lines(text).as_ref()),
                (line, lines)
            );
        }
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(PrintableText::first("abcdef", 3).to_string(), "abc\u{2026}");
        assert_eq!(PrintableText::first("abc", 3).to_string(), "abc");
        assert_eq!(PrintableText::new("a\u{1b}b").to_string(), "a\\u{1b}b");
    }

    #[test]
    fn plain_text_is_borrowed() {
        assert!(matches!(printable("node-1"), Cow::Borrowed("node-1")));
    }
}
