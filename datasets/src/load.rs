//! What is being put together while the files of a data set are read.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::problem::{Problem, Problems};
use crate::provenance::{FileRead, Population};
use crate::repeats::Repeats;
use crate::rows::{MAX_ROWS, Row, Rows};
use crate::table::Table;

/// The times of a table in the order of a file: the first and its line, and the last.
#[derive(Debug)]
struct Order {
    first: f64,
    line: u64,
    last: f64,
}

/// Tables, files and problems so far, and the place that is being read.
#[derive(Debug, Default)]
pub(crate) struct Load {
    pub(crate) root: PathBuf,
    pub(crate) files: Vec<FileRead>,
    pub(crate) tables: BTreeMap<Table, Rows>,
    pub(crate) problems: Problems,
    pub(crate) population: Option<Population>,
    /// Start and end where the publication states them.
    pub(crate) window: Option<(f64, f64)>,
    /// The files count from different zeros: there is no window over all of them.
    pub(crate) no_window: bool,
    line: u64,
    /// Whether the first time of this file said where it is.
    offset: Option<bool>,
    order: BTreeMap<Table, Order>,
    /// Rows that were lost before this file.
    lost_before: u64,
    repeats: Repeats,
    /// Where rows past the bound go.
    spill: Option<Rows>,
}

impl Load {
    /// Nothing is read yet; the population that the publication states.
    pub(crate) fn new(root: &Path, population: Option<Population>) -> Self {
        Self {
            root: root.to_owned(),
            population,
            ..Self::default()
        }
    }

    /// A file begins.
    pub(crate) fn begin(&mut self, file: FileRead) {
        self.files.push(file);
        self.line = 0;
        self.lost_before = self.problems.rows_lost();
        self.offset = None;
        self.order.clear();
    }

    /// For a part of the file at hand, of so many lines, that is read beside others.
    pub(crate) fn part(&mut self, lines: usize) -> Self {
        let mut part = Self::new(&self.root, None);
        let tables = self.tables.iter_mut();
        part.tables = tables.map(|(table, rows)| (*table, rows.part(lines))).collect();
        part.files.push(FileRead {
            path: self.file().to_owned(),
            ..FileRead::default()
        });
        part
    }

    /// Whether a part that was read by itself is what reading on would have given.
    pub(crate) fn fits(&self, part: &Self) -> bool {
        let same_clock = self.offset.zip(part.offset).is_none_or(|(here, there)| here == there);
        same_clock
            && part
                .tables
                .keys()
                .all(|table| self.len(*table) + part.len(*table) <= MAX_ROWS)
    }

    /// Takes in the part of the file that follows, which [fits](Self::fits).
    pub(crate) fn join(&mut self, part: Self) {
        for (table, behind) in part.order {
            self.line = behind.line;
            self.in_order(table, Some(behind.first));
            self.order.insert(table, behind);
        }
        self.line = part.line;
        self.offset = self.offset.or(part.offset);
        self.problems.join(part.problems);
        self.repeats.join(part.repeats);
        for (table, rows) in part.tables {
            self.tables.entry(table).or_insert_with(|| Rows::new(table)).join(rows);
        }
        if let Some((file, read)) = self.files.last_mut().zip(part.files.first()) {
            file.rows_read += read.rows_read;
            file.rows_skipped += read.rows_skipped;
        }
    }

    /// The digest of the file and its length, as it lies there.
    pub(crate) fn digested(&mut self, sha256: String, bytes: u64) {
        if let Some(file) = self.files.last_mut() {
            (file.sha256, file.bytes) = (sha256, bytes);
        }
    }

    /// The file was read: one without a row, wanted or lost, is told.
    pub(crate) fn end(&mut self) {
        let lost = self.problems.rows_lost();
        if self.files.last().is_some_and(|file| file.rows_read == 0) && lost == self.lost_before {
            self.line = 0;
            self.odd("empty", "", || {
                "it is what it should be and has no row: only a header, or less".to_owned()
            });
        }
    }

    /// The file that is being read, relative to what was opened.
    pub(crate) fn file(&self) -> &str {
        self.files.last().map_or("", |file| file.path.as_str())
    }

    /// The line that is being read, from 1.
    pub(crate) fn at(&mut self, line: u64) {
        self.line = line;
    }

    /// One more row of the file was looked at.
    pub(crate) fn read_row(&mut self) {
        if let Some(file) = self.files.last_mut() {
            file.rows_read += 1;
        }
    }

    /// So many rows of the file were looked at.
    pub(crate) fn rows(&mut self, count: u64) {
        if let Some(file) = self.files.last_mut() {
            file.rows_read = count;
        }
    }

    /// The row at hand cannot be used.
    pub(crate) fn lose(&mut self, kind: &'static str, field: &str, what: impl FnOnce() -> String) {
        if let Some(file) = self.files.last_mut() {
            file.rows_skipped += 1;
        }
        self.say(kind, true, field, what);
    }

    /// Something is odd and the row is kept.
    pub(crate) fn odd(&mut self, kind: &'static str, field: &str, what: impl FnOnce() -> String) {
        self.say(kind, false, field, what);
    }

    fn say(&mut self, kind: &'static str, loses: bool, field: &str, what: impl FnOnce() -> String) {
        let (file, line) = (self.files.last().map_or("", |file| file.path.as_str()), self.line);
        self.problems.add(kind, loses, || Problem {
            file: file.to_owned(),
            line,
            field: field.to_owned(),
            what: what(),
        });
    }

    /// The file ends before its end; how many rows are lost is not known and counts as one.
    pub(crate) fn cut_short(&mut self, problem: &io::Error) {
        self.say("truncated", true, "", || {
            format!("cannot be read from here on ({problem}); what came before is kept; fetch the file again")
        });
    }

    /// Says so where the folder holds more files than are looked at.
    pub(crate) fn whole_folder(&mut self, more: bool) {
        if more {
            self.line = 0;
            self.say("limit", true, "", || {
                "the folder is deeper or holds more files than are looked at".to_owned()
            });
        }
    }

    /// A row of the file, word for word: one that was already there is kept, because published counts keep it, and told
    /// when the file [was read](Self::told_repeats).
    pub(crate) fn repeat(&mut self, row: impl AsRef<[u8]>) {
        self.repeats.add(row.as_ref(), self.line);
    }

    /// The file was read: rows that were already there are told.
    pub(crate) fn told_repeats(&mut self) {
        for line in std::mem::take(&mut self.repeats).lines() {
            self.line = line;
            self.odd("duplicate", "", || {
                "the same as an earlier row of this file, kept".to_owned()
            });
        }
    }

    /// How many rows a table has.
    pub(crate) fn len(&self, table: Table) -> usize {
        self.tables.get(&table).map_or(0, Rows::len)
    }

    /// The numbers of a column mean nothing from a row on.
    pub(crate) fn forget(&mut self, table: Table, column: &str, row: usize) {
        if let Some(rows) = self.tables.get_mut(&table) {
            rows.forget(column, row);
        }
    }

    /// A new row of a table.
    pub(crate) fn row(&mut self, table: Table) -> Row<'_> {
        if self.len(table) >= MAX_ROWS {
            self.lose("limit", "", || {
                format!("table {} is full with {MAX_ROWS} rows", table.name())
            });
            return self.spill.insert(Rows::new(table)).row();
        }
        self.tables.entry(table).or_insert_with(|| Rows::new(table)).row()
    }

    /// Says so where this time lies before the last one of the table in this file.
    pub(crate) fn in_order(&mut self, table: Table, time: Option<f64>) {
        let Some(time) = time else {
            return;
        };
        let Some(column) = table.ordered_by() else {
            return;
        };
        let (line, first) = (self.line, time);
        let order = self.order.entry(table).or_insert(Order {
            first,
            line,
            last: time,
        });
        let last = std::mem::replace(&mut order.last, time);
        if time < last {
            self.odd("order", column, || {
                "earlier than the row before it; rows keep the order of the file".to_owned()
            });
        }
    }

    /// A time that has an offset, or has none: within one file all should be alike.
    pub(crate) fn offset(&mut self, field: &str, has: bool, without: &str) {
        if *self.offset.get_or_insert(has) != has {
            self.odd("mixed-offsets", field, || {
                format!("some times of this file have an offset and some have none; those without {without}")
            });
        }
    }

    /// A number; null and said so where it is none.
    pub(crate) fn number(&mut self, field: &str, text: &str) -> Option<f64> {
        if is_null(text) {
            return None;
        }
        let value = text.parse::<f64>().ok().filter(|value| value.is_finite());
        if value.is_none() {
            self.odd("bad-value", field, || format!("{:?} is no number, null", cut(text)));
        }
        value
    }

    /// A time that was tried; null and said so where it is none.
    pub(crate) fn time(&mut self, field: &str, text: &str, read: impl FnOnce(&str) -> Option<f64>) -> Option<f64> {
        if text.is_empty() {
            return None;
        }
        let value = read(text);
        if value.is_none() {
            self.odd("bad-value", field, || format!("{:?} is no time, null", cut(text)));
        }
        value
    }
}

/// Whether a field for a number says that there is none.
pub(crate) fn is_null(text: &str) -> bool {
    matches!(text, "" | "NULL" | "NA")
}

/// The first characters of a foreign text, for a message.
pub(crate) fn cut(text: &str) -> String {
    text.chars().take(60).collect()
}
