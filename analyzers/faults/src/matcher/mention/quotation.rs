//! Quotation around a position of a text.

/// Positions of the quotes around a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quotation {
    /// Index of the opening quote.
    pub(super) start: usize,
    /// Index of the closing quote, or the length of the text if there is none.
    pub(super) end: usize,
}

impl Quotation {
    /// Returns the quotation around a position; none if the position is outside of quotes. An apostrophe in a word is no quote, and
    /// a quote behind a backslash ends nothing.
    pub(super) fn around(text: &str, position: usize) -> Option<Self> {
        let mut open: Option<(usize, char)> = None;
        let mut before = ' ';
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            if at >= position && open.is_none() {
                return None;
            }
            match open {
                None if is_quote(c) && (c != '\'' || !before.is_alphanumeric() || is_prefix(&text[..at])) => {
                    open = Some((at, c));
                }
                Some(_) if c == '\\' => {
                    chars.next();
                }
                Some((start, quote)) if c == quote => {
                    let is_end = c != '\'' || chars.peek().is_none_or(|(_, next)| !next.is_alphanumeric());
                    if is_end && at >= position {
                        return Some(Self { start, end: at });
                    }
                    open = open.filter(|_| !is_end);
                }
                _ => {}
            }
            before = c;
        }
        // An open quotation that never ends is that of a cut line.
        open.map(|(start, _)| Self { start, end: text.len() })
    }

    /// Returns the quoted text without its escapes, with the position of a match in it; none if it has no escaped quote before the
    /// match.
    pub(super) fn unescaped(&self, text: &str, position: usize) -> Option<(String, usize)> {
        let lead = text.get(self.start + 1..position)?;
        let rest = text.get(position..self.end)?;
        lead.contains("\\\"").then(|| {
            let lead = lead.replace("\\\"", "\"");
            let at = lead.len();
            (lead + &rest.replace("\\\"", "\""), at)
        })
    }
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`')
}

/// Returns true for the prefix of a string of Python: `r'...'`, `b'...'`.
fn is_prefix(before: &str) -> bool {
    let mut last = before.chars().rev();
    let is_letter = last.next().is_some_and(|c| "rbfuRBFU".contains(c));
    is_letter && last.next().is_none_or(|c| !c.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_around_a_position_are_found() {
        for (text, quoted) in [
            (r#"msg="an X here" a="b""#, Some("an X here")),
            ("it's X 'a'", None),
            ("a 'b' X 'c'", None),
            ("[r'X', 'b']", Some("X")),
            (r#"{"a": "b \" X"}"#, Some(r#"b \" X"#)),
            ("cut \"and X", Some("and X")),
        ] {
            let found = Quotation::around(text, text.find('X').expect("the mark"));
            assert_eq!(found.map(|found| &text[found.start + 1..found.end]), quoted, "{text}");
        }
    }
}
