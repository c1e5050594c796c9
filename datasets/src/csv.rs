//! Reader of delimited files with a header, record by record.

use crate::block::MAX_LINE;
use crate::input::InputFile;
use crate::load::{LoadState, cut};
use crate::record::FieldRecord;

/// Maximum lines of one quoted record, beyond which its quote counts as an error.
const MOST_LINES: usize = 100;

/// Delimited file with named columns.
pub(crate) struct DelimitedFile<'a> {
    input: &'a mut InputFile,
    header: Vec<String>,
    delimiter: &'static str,
    /// True if fields may be quoted and contain the delimiter.
    quotes: bool,
    record: FieldRecord,
}

impl<'a> DelimitedFile<'a> {
    /// Reads the header and creates the reader.
    pub(crate) fn new(input: &'a mut InputFile, delimiter: &'static str, load: &mut LoadState) -> Option<Self> {
        let mut record = FieldRecord::default();
        record.split(input.line(load)?, delimiter);
        let header: Vec<String> = record.fields().map(str::to_owned).collect();
        named_twice(&header, load);
        Some(Self::with_header(input, delimiter, header))
    }

    /// Creates a reader for a file without a header.
    pub(crate) fn with_header(input: &'a mut InputFile, delimiter: &'static str, header: Vec<String>) -> Self {
        Self {
            input,
            header,
            delimiter,
            quotes: true,
            record: FieldRecord::default(),
        }
    }

    /// Creates a reader for a file without quoting, in which fields may contain line breaks: short lines are
    /// joined with the next.
    pub(crate) fn unquoted(input: &'a mut InputFile, delimiter: &'static str, load: &mut LoadState) -> Option<Self> {
        let line = input.line(load)?;
        let header: Vec<String> = line.split(delimiter).map(|name| name.trim().to_owned()).collect();
        named_twice(&header, load);
        Some(Self {
            quotes: false,
            ..Self::with_header(input, delimiter, header)
        })
    }

    pub(crate) fn header(&self) -> &[String] {
        &self.header
    }

    /// Moves to the next record with as many fields as the header; any other record is reported as lost.
    pub(crate) fn next(&mut self, load: &mut LoadState) -> bool {
        loop {
            let Some(line) = self.input.line(load) else {
                return false;
            };
            if line.trim().is_empty() {
                continue;
            }
            load.read_row();
            if Self::complete(&mut self.record, line, self.delimiter, self.quotes, self.header.len()) {
                load.repeat(line);
            } else {
                let first = line.to_owned();
                if !self.join(first, load) && self.quotes {
                    load.lose("open-quote", "", || {
                        "a quote that is never closed; the line is passed over".to_owned()
                    });
                    continue;
                }
            }
            let found = self.record.len();
            let wanted = self.header.len();
            // Some writers end every line with the delimiter.
            if found == wanted || (found == wanted + 1 && self.record.at(wanted).is_empty()) {
                // Files concatenated with `cat` repeat the header.
                if wanted > 1
                    && self
                        .record
                        .fields()
                        .take(wanted)
                        .eq(self.header.iter().map(String::as_str))
                {
                    load.report_kept_row("header-again", "", || "the header once more, no row".to_owned());
                    continue;
                }
                return true;
            }
            load.lose("width", "", || {
                format!("{found} fields where the header has {wanted}; passed over")
            });
        }
    }

    /// Joins an incomplete record with the next lines. If it does not end, those lines are put back.
    fn join(&mut self, first: String, load: &mut LoadState) -> bool {
        let at = self.input.number();
        let mut whole = first.clone();
        let mut taken = Vec::new();
        while taken.len() < MOST_LINES && whole.len() < MAX_LINE {
            let Some(line) = self.input.line(load) else {
                self.input.tear();
                break;
            };
            taken.push(line.to_owned());
            whole.push('\n');
            whole.push_str(line);
            if Self::complete(&mut self.record, &whole, self.delimiter, self.quotes, self.header.len()) {
                load.at(at);
                load.repeat(&whole);
                return true;
            }
            if !self.quotes && self.record.len() > self.header.len() {
                break;
            }
        }
        self.input.unread(taken);
        Self::complete(&mut self.record, &first, self.delimiter, self.quotes, self.header.len());
        load.at(at);
        false
    }

    /// Splits a line; returns true if it is a complete record.
    fn complete(record: &mut FieldRecord, line: &str, delimiter: &str, quotes: bool, wanted: usize) -> bool {
        if quotes {
            return record.split(line, delimiter);
        }
        record.split_plain(line, delimiter);
        record.len() == wanted || (record.len() == wanted + 1 && record.at(wanted).is_empty())
    }

    /// Returns the field of a column; empty if there is no such column.
    pub(crate) fn get(&self, name: &str) -> &str {
        let at = self.header.iter().position(|column| column == name);
        at.map_or("", |at| self.record.at(at))
    }

    /// Returns the field at an index, from 0.
    pub(crate) fn at(&self, at: usize) -> &str {
        self.record.at(at)
    }

    /// Parses the number in a column.
    pub(crate) fn num(&self, name: &str, load: &mut LoadState) -> Option<f64> {
        load.number(name, self.get(name))
    }

    /// Returns a required text; if it is empty, the row is reported as lost.
    pub(crate) fn need(&self, name: &str, load: &mut LoadState) -> Option<String> {
        let text = self.get(name);
        if text.is_empty() {
            let row = cut(self.record.at(0));
            load.lose("missing", name, || format!("empty in the row of {row:?}; passed over"));
            return None;
        }
        Some(text.to_owned())
    }
}

/// Reports columns with the same name.
fn named_twice(header: &[String], load: &mut LoadState) {
    for (at, name) in header.iter().enumerate() {
        if !name.is_empty() && header[..at].contains(name) {
            load.report_kept_row("columns", name, || {
                "two columns have this name; the first is read".to_owned()
            });
        }
    }
}
