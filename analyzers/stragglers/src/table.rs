//! Table of uninterpreted columns, common to Parquet, JSON lines and CSV.

use std::collections::BTreeMap;

use crate::problem::{InputProblem, ProblemList};

/// Maximum rows of one file; further ones are left out and reported.
pub(crate) const ROWS_MAX: usize = 4_000_000;

/// Required columns of an operation trace.
pub(crate) const OPERATION_COLUMNS: [&str; 6] = ["dp_rank", "stage", "step", "optype", "start_ts", "duration"];
/// Optional columns of an operation trace.
pub(crate) const OPERATION_EXTRAS: [&str; 5] = ["rank", "seq_id", "mc", "mb_id", "gmc"];
/// Required columns of per-step timings.
pub(crate) const STEP_COLUMNS: [&str; 3] = ["rank", "step", "duration_s"];
/// Optional columns of per-step timings.
pub(crate) const STEP_EXTRAS: [&str; 5] = ["compute_s", "comm_s", "data_s", "tokens", "stage"];

/// Returns true if a column is used.
pub(crate) fn is_known(name: &str) -> bool {
    [&OPERATION_COLUMNS[..], &OPERATION_EXTRAS, &STEP_COLUMNS, &STEP_EXTRAS]
        .iter()
        .any(|names| names.contains(&name))
}

/// Value of one row and column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum TableCell {
    Absent,
    Number(f64),
    /// Index of a word of the table.
    Word(u32),
}

/// Known columns, each with a cell for every row.
#[derive(Debug, Default)]
pub(crate) struct ColumnTable {
    pub(crate) label: String,
    /// Name of a row in messages (`line`, `row`); `places` holds the number of each.
    pub(crate) unit: &'static str,
    pub(crate) places: Vec<u32>,
    pub(crate) columns: BTreeMap<String, Vec<TableCell>>,
    pub(crate) words: WordInterner,
    /// Columns stored as 32-bit floats: their sums are computed in that precision, as by the writers of such files.
    pub(crate) narrow: Vec<String>,
}

impl ColumnTable {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.columns.contains_key(name)
    }

    pub(crate) fn place(&self, row: usize) -> String {
        format!(
            "{} {} {}",
            self.label,
            self.unit,
            self.places.get(row).copied().unwrap_or_default()
        )
    }

    pub(crate) fn cell(&self, name: &str, row: usize) -> TableCell {
        self.columns
            .get(name)
            .and_then(|cells| cells.get(row))
            .copied()
            .unwrap_or(TableCell::Absent)
    }

    /// Appends a row; missing columns get an absent cell.
    pub(crate) fn push(&mut self, place: u32, cells: impl IntoIterator<Item = (String, TableCell)>) {
        let row = self.places.len();
        self.places.push(place);
        for (name, cell) in cells {
            let column = self.columns.entry(name).or_default();
            column.resize(row, TableCell::Absent);
            column.push(cell);
        }
    }

    /// Returns a cell as a number; any other value becomes a problem.
    pub(crate) fn number(
        &self,
        name: &str,
        row: usize,
        problems: &mut ProblemList,
    ) -> Result<Option<f64>, CellTypeError> {
        let mut refuse = |what: String| {
            problems.add(|| InputProblem {
                place: self.place(row),
                field: name.to_owned(),
                what,
            });
            Err(CellTypeError)
        };
        match self.cell(name, row) {
            TableCell::Absent => Ok(None),
            TableCell::Number(value) if value.is_finite() => Ok(Some(value)),
            TableCell::Number(value) => refuse(format!("{value} is not a number to work with; the row is left out")),
            TableCell::Word(word) => refuse(format!(
                "`{}` is not a number; the row is left out",
                self.words.get(word)
            )),
        }
    }

    /// Returns a cell as an integer; a fraction becomes a problem.
    pub(crate) fn whole(
        &self,
        name: &str,
        row: usize,
        problems: &mut ProblemList,
    ) -> Result<Option<i64>, CellTypeError> {
        let Some(value) = self.number(name, row, problems)? else {
            return Ok(None);
        };
        // Above 2^53 a float does not represent every integer.
        if value.fract() != 0.0 || value.abs() > 9_007_199_254_740_992.0 {
            let what = format!("{value} is not a whole number; the row is left out");
            problems.add(|| InputProblem {
                place: self.place(row),
                field: name.to_owned(),
                what,
            });
            return Err(CellTypeError);
        }
        Ok(Some(value as i64))
    }
}

/// Marker for a cell of the wrong type; its problem is already recorded.
#[derive(Debug)]
pub(crate) struct CellTypeError;

/// Interned words of a table. Long words are truncated: no known column needs more.
#[derive(Debug, Default)]
pub(crate) struct WordInterner {
    ids: BTreeMap<String, u32>,
    words: Vec<String>,
}

impl WordInterner {
    const LENGTH_MAX: usize = 48;

    pub(crate) fn id(&mut self, word: &str) -> u32 {
        let cut = match word.char_indices().nth(Self::LENGTH_MAX) {
            Some((end, _)) => &word[..end],
            None => word,
        };
        if let Some(id) = self.ids.get(cut) {
            return *id;
        }
        let id = self.words.len() as u32;
        self.ids.insert(cut.to_owned(), id);
        self.words.push(cut.to_owned());
        id
    }

    pub(crate) fn get(&self, id: u32) -> &str {
        self.words.get(id as usize).map_or("", String::as_str)
    }
}
