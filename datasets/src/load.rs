//! State of loading the files of a data set.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::problem::{InputProblem, ProblemSummary};
use crate::provenance::{FileRead, Population};
use crate::repeats::RowDigests;
use crate::rows::{GrowingTable, LastRow, MAX_ROWS};
use crate::table::TableKind;

/// Check that the times of a table ascend in a file.
#[derive(Debug)]
struct TimeOrderCheck {
    /// First time of the table in the file or part.
    first: f64,
    /// Line of the first time, from 1.
    line: u64,
    /// Time of the previous row.
    last: f64,
}

/// Tables, files and problems loaded so far, and the current position.
#[derive(Debug, Default)]
pub(crate) struct LoadState {
    pub(crate) root: PathBuf,
    pub(crate) files: Vec<FileRead>,
    pub(crate) tables: BTreeMap<TableKind, GrowingTable>,
    pub(crate) problems: ProblemSummary,
    pub(crate) population: Option<Population>,
    /// Start and end in seconds of the clock, if the publication states them.
    pub(crate) window: Option<(f64, f64)>,
    /// True if the times of the files have different origins, so that no common window exists.
    pub(crate) no_window: bool,
    /// Current line, from 1; 0 for a problem of the whole file.
    line: u64,
    /// True if the first time of this file had a UTC offset; `None` before the first time.
    offset: Option<bool>,
    order: BTreeMap<TableKind, TimeOrderCheck>,
    /// Number of rows lost before this file.
    lost_before: u64,
    repeats: RowDigests,
    /// Table for the values of one row beyond [`MAX_ROWS`], which are discarded.
    spill: Option<GrowingTable>,
}

impl LoadState {
    /// Creates an empty load with the population that the publication states.
    pub(crate) fn new(root: &Path, population: Option<Population>) -> Self {
        Self {
            root: root.to_owned(),
            population,
            ..Self::default()
        }
    }

    /// Starts a file: resets the line and the checks within a file.
    pub(crate) fn begin(&mut self, file: FileRead) {
        self.files.push(file);
        self.line = 0;
        self.lost_before = self.problems.rows_lost();
        self.offset = None;
        self.order.clear();
    }

    /// Creates a load for a part of the current file, of about `lines` lines, that is read concurrently.
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

    /// Returns true if joining a part that was read separately gives the same result as sequential reading: its times
    /// agree about offsets, and no table exceeds [`MAX_ROWS`].
    pub(crate) fn fits(&self, part: &Self) -> bool {
        let same_clock = self.offset.zip(part.offset).is_none_or(|(here, there)| here == there);
        same_clock
            && part
                .tables
                .keys()
                .all(|table| self.len(*table) + part.len(*table) <= MAX_ROWS)
    }

    /// Appends the next part of the file, which must [fit](Self::fits).
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
            self.tables
                .entry(table)
                .or_insert_with(|| GrowingTable::new(table))
                .join(rows);
        }
        if let Some((file, read)) = self.files.last_mut().zip(part.files.first()) {
            file.rows_read += read.rows_read;
            file.rows_skipped += read.rows_skipped;
        }
    }

    /// Sets the digest of the file and its stored length in bytes.
    pub(crate) fn digested(&mut self, sha256: String, bytes: u64) {
        if let Some(file) = self.files.last_mut() {
            (file.sha256, file.bytes) = (sha256, bytes);
        }
    }

    /// Ends a file; reports a file without any row, valid or lost.
    pub(crate) fn end(&mut self) {
        let lost = self.problems.rows_lost();
        if self.files.last().is_some_and(|file| file.rows_read == 0) && lost == self.lost_before {
            self.line = 0;
            self.report_kept_row("empty", "", || {
                "it is what it should be and has no row: only a header, or less".to_owned()
            });
        }
    }

    /// Returns the path of the current file, relative to the opened path.
    pub(crate) fn file(&self) -> &str {
        self.files.last().map_or("", |file| file.path.as_str())
    }

    /// Sets the current line, from 1.
    pub(crate) fn at(&mut self, line: u64) {
        self.line = line;
    }

    /// Counts one row of the file as read.
    pub(crate) fn read_row(&mut self) {
        if let Some(file) = self.files.last_mut() {
            file.rows_read += 1;
        }
    }

    /// Sets the number of rows of the file that were read.
    pub(crate) fn rows(&mut self, count: u64) {
        if let Some(file) = self.files.last_mut() {
            file.rows_read = count;
        }
    }

    /// Reports a problem that loses the current row. `kind` groups problems; `what` is called only if the problem is
    /// among the first of its kind, which are retained.
    pub(crate) fn lose(&mut self, kind: &'static str, field: &str, what: impl FnOnce() -> String) {
        if let Some(file) = self.files.last_mut() {
            file.rows_skipped += 1;
        }
        self.say(kind, true, field, what);
    }

    /// Reports a problem and retains the row.
    pub(crate) fn report_kept_row(&mut self, kind: &'static str, field: &str, what: impl FnOnce() -> String) {
        self.say(kind, false, field, what);
    }

    /// Adds a problem at the current line; `loses` is true if it loses a row.
    fn say(&mut self, kind: &'static str, loses: bool, field: &str, what: impl FnOnce() -> String) {
        let file = self.files.last().map_or("", |file| file.path.as_str());
        let line = self.line;
        self.problems.add(kind, loses, || InputProblem {
            file: file.to_owned(),
            line,
            field: field.to_owned(),
            what: what(),
        });
    }

    /// Reports a truncated file; the unknown number of lost rows counts as one.
    pub(crate) fn cut_short(&mut self, problem: &io::Error) {
        self.say("truncated", true, "", || {
            format!("cannot be read from here on ({problem}); what came before is kept; fetch the file again")
        });
    }

    /// Reports a folder that is deeper or has more files than the limits, if `more` is true.
    pub(crate) fn whole_folder(&mut self, more: bool) {
        if more {
            self.line = 0;
            self.say("limit", true, "", || {
                "the folder is deeper or holds more files than are looked at".to_owned()
            });
        }
    }

    /// Records the digest of a row. A repeated row is retained, as in published counts, and reported [at the end of the
    /// file](Self::report_repeats).
    pub(crate) fn repeat(&mut self, row: impl AsRef<[u8]>) {
        self.repeats.add(row.as_ref(), self.line);
    }

    /// Reports the repeated rows of the file, and resets the record of rows.
    pub(crate) fn report_repeats(&mut self) {
        for line in std::mem::take(&mut self.repeats).lines() {
            self.line = line;
            self.report_kept_row("duplicate", "", || {
                "the same as an earlier row of this file, kept".to_owned()
            });
        }
    }

    /// Returns the number of rows of a table.
    pub(crate) fn len(&self, table: TableKind) -> usize {
        self.tables.get(&table).map_or(0, GrowingTable::len)
    }

    /// Sets the numbers of a column to null from a row on; `row` is an index from 0.
    pub(crate) fn forget(&mut self, table: TableKind, column: &str, row: usize) {
        if let Some(rows) = self.tables.get_mut(&table) {
            rows.forget(column, row);
        }
    }

    /// Adds a row to a table. A row beyond [`MAX_ROWS`] is reported as lost, and its values are discarded.
    pub(crate) fn row(&mut self, table: TableKind) -> LastRow<'_> {
        if self.len(table) >= MAX_ROWS {
            self.lose("limit", "", || {
                format!("table {} is full with {MAX_ROWS} rows", table.name())
            });
            return self.spill.insert(GrowingTable::new(table)).row();
        }
        self.tables
            .entry(table)
            .or_insert_with(|| GrowingTable::new(table))
            .row()
    }

    /// Reports a time that is earlier than that of the previous row of the table in this file.
    pub(crate) fn in_order(&mut self, table: TableKind, time: Option<f64>) {
        let Some(time) = time else {
            return;
        };
        let Some(column) = table.ordered_by() else {
            return;
        };
        let line = self.line;
        let first = time;
        let order = self.order.entry(table).or_insert(TimeOrderCheck {
            first,
            line,
            last: time,
        });
        let last = std::mem::replace(&mut order.last, time);
        if time < last {
            self.report_kept_row("order", column, || {
                "earlier than the row before it; rows keep the order of the file".to_owned()
            });
        }
    }

    /// Reports a time that differs from the first one of the file in having a UTC offset. `without` describes how times
    /// without offset are interpreted.
    pub(crate) fn offset(&mut self, field: &str, has: bool, without: &str) {
        if *self.offset.get_or_insert(has) != has {
            self.report_kept_row("mixed-offsets", field, || {
                format!("some times of this file have an offset and some have none; those without {without}")
            });
        }
    }

    /// Parses a number. Null markers give `None`; an invalid or infinite number is reported and gives `None`, too.
    pub(crate) fn number(&mut self, field: &str, text: &str) -> Option<f64> {
        if is_null(text) {
            return None;
        }
        let value = text.parse::<f64>().ok().filter(|value| value.is_finite());
        if value.is_none() {
            self.report_kept_row("bad-value", field, || format!("{:?} is no number, null", cut(text)));
        }
        value
    }

    /// Parses a time with `read`, in seconds. An empty text gives `None`; an invalid time is reported and gives `None`,
    /// too.
    pub(crate) fn time(&mut self, field: &str, text: &str, read: impl FnOnce(&str) -> Option<f64>) -> Option<f64> {
        if text.is_empty() {
            return None;
        }
        let value = read(text);
        if value.is_none() {
            self.report_kept_row("bad-value", field, || format!("{:?} is no time, null", cut(text)));
        }
        value
    }
}

/// Returns true if a number field is empty or has a null marker (`NULL`, `NA`).
pub(crate) fn is_null(text: &str) -> bool {
    matches!(text, "" | "NULL" | "NA")
}

/// Returns the first 60 characters of a foreign text, for a message.
pub(crate) fn cut(text: &str) -> String {
    text.chars().take(60).collect()
}
