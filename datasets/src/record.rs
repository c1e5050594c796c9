//! Record of a delimited file: its fields in one buffer, by index.

use std::ops::Range;

use memchr::{memchr, memchr_iter};

/// Fields of a record.
#[derive(Debug, Default, Clone)]
pub(crate) struct FieldRecord {
    text: String,
    /// Range of each field in the text.
    fields: Vec<Range<usize>>,
}

impl FieldRecord {
    /// Splits at the delimiter and removes RFC 4180 quotes. Returns false if a quote is open at the end.
    pub(crate) fn split(&mut self, line: &str, delimiter: &str) -> bool {
        if memchr(b'"', line.as_bytes()).is_none() {
            self.split_plain(line, delimiter);
            return true;
        }
        self.clear();
        let mut rest = line;
        loop {
            let Some(quoted) = rest.strip_prefix('"') else {
                match rest.split_once(delimiter) {
                    Some((field, after)) => {
                        self.push(field);
                        rest = after;
                        continue;
                    }
                    None => {
                        self.push(rest);
                        return true;
                    }
                }
            };
            rest = quoted;
            loop {
                let Some(at) = rest.find('"') else {
                    return false;
                };
                self.text.push_str(&rest[..at]);
                rest = &rest[at + 1..];
                match rest.strip_prefix('"') {
                    Some(after) => {
                        self.text.push('"');
                        rest = after;
                    }
                    None => break,
                }
            }
            // Text between a closing quote and the delimiter belongs to the field, as in spreadsheets.
            match rest.split_once(delimiter) {
                Some((tail, after)) => {
                    self.push(tail);
                    rest = after;
                }
                None => {
                    self.push(rest);
                    return true;
                }
            }
        }
    }

    /// Splits at the delimiter without quoting.
    pub(crate) fn split_plain(&mut self, line: &str, delimiter: &str) {
        self.clear();
        self.text.push_str(line);
        match delimiter.as_bytes() {
            [byte] => self.cut(memchr_iter(*byte, line.as_bytes()), 1),
            longer => self.cut(line.match_indices(delimiter).map(|(at, _)| at), longer.len()),
        }
    }

    /// Splits at runs of blanks.
    pub(crate) fn split_blanks(&mut self, line: &str) {
        self.clear();
        for field in line.split_ascii_whitespace() {
            self.push(field);
        }
    }

    /// Splits the whole text at delimiters with these offsets.
    fn cut(&mut self, delimiters: impl Iterator<Item = usize>, wide: usize) {
        let mut start = 0;
        for end in delimiters {
            self.fields.push(start..end);
            start = end + wide;
        }
        self.fields.push(start..self.text.len());
    }

    fn clear(&mut self) {
        self.text.clear();
        self.fields.clear();
    }

    /// Appends the end of a field; the text may hold its start already.
    fn push(&mut self, rest: &str) {
        let start = self.fields.last().map_or(0, |field| field.end);
        self.text.push_str(rest);
        self.fields.push(start..self.text.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    /// Returns the field at an index, from 0; empty past the end.
    pub(crate) fn at(&self, at: usize) -> &str {
        let field = &self.text[self.fields.get(at).cloned().unwrap_or_default()];
        // Nearly every field starts and ends with a visible character and needs no trimming.
        match field.as_bytes() {
            [first, .., last] if first.is_ascii_graphic() && last.is_ascii_graphic() => field,
            _ => field.trim(),
        }
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|at| self.at(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Option<Vec<String>> {
        let mut record = FieldRecord::default();
        record
            .split(line, ",")
            .then(|| record.fields().map(str::to_owned).collect())
    }

    #[test]
    fn quotes_commas_and_empty_fields() {
        assert_eq!(split("a,,b"), Some(vec!["a".into(), String::new(), "b".into()]));
        assert_eq!(split("\"a,\"\"b\"\"\",c"), Some(vec!["a,\"b\"".into(), "c".into()]));
        assert_eq!(split("\"open,c"), None);
        assert_eq!(split(""), Some(vec![String::new()]));
    }
}
