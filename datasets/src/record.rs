//! One record of a delimited file: its fields in one buffer, by place and by the header's name.

/// The fields of a record.
#[derive(Debug, Default, Clone)]
pub(crate) struct Record {
    text: String,
    ends: Vec<usize>,
}

impl Record {
    /// Splits at the delimiter, RFC 4180 quotes undone. False where a quote stays open at the end.
    pub(crate) fn split(&mut self, line: &str, delimiter: &str) -> bool {
        self.text.clear();
        self.ends.clear();
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
            // What follows a closing quote up to the delimiter belongs to the field, as spreadsheets read it.
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

    /// Splits at the delimiter; quotes mean nothing.
    pub(crate) fn split_plain(&mut self, line: &str, delimiter: &str) {
        self.text.clear();
        self.ends.clear();
        for field in line.split(delimiter) {
            self.push(field);
        }
    }

    /// Splits at runs of blanks.
    pub(crate) fn split_blanks(&mut self, line: &str) {
        self.text.clear();
        self.ends.clear();
        for field in line.split_ascii_whitespace() {
            self.push(field);
        }
    }

    fn push(&mut self, field: &str) {
        self.text.push_str(field);
        self.ends.push(self.text.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The field at a place, from 0; empty past the end.
    pub(crate) fn at(&self, at: usize) -> &str {
        let Some(end) = self.ends.get(at) else {
            return "";
        };
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        self.text[start..*end].trim()
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|at| self.at(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Option<Vec<String>> {
        let mut record = Record::default();
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
