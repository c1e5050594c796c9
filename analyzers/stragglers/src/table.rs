//! Columns as read, before they mean anything: the one form of Parquet, JSON lines and CSV.

use std::collections::BTreeMap;

use crate::problem::{Problem, Problems};

/// Rows read of one file; what is beyond is left out and said.
pub(crate) const ROWS_MAX: usize = 4_000_000;

/// Columns of an operation trace that must be there.
pub(crate) const OPERATION_COLUMNS: [&str; 6] = ["dp_rank", "stage", "step", "optype", "start_ts", "duration"];
/// Columns of an operation trace that may be there.
pub(crate) const OPERATION_EXTRAS: [&str; 5] = ["rank", "seq_id", "mc", "mb_id", "gmc"];
/// Columns of per-step timings that must be there.
pub(crate) const STEP_COLUMNS: [&str; 3] = ["rank", "step", "duration_s"];
/// Columns of per-step timings that may be there.
pub(crate) const STEP_EXTRAS: [&str; 5] = ["compute_s", "comm_s", "data_s", "tokens", "stage"];

/// Whether a column means anything here.
pub(crate) fn is_known(name: &str) -> bool {
    [&OPERATION_COLUMNS[..], &OPERATION_EXTRAS, &STEP_COLUMNS, &STEP_EXTRAS]
        .iter()
        .any(|names| names.contains(&name))
}

/// One value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Cell {
    Absent,
    Number(f64),
    /// Index of a word of the table.
    Word(u32),
}

/// Known columns, each with a cell for every row.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) label: String,
    /// What a row is called (`line`, `row`) and the number of each.
    pub(crate) unit: &'static str,
    pub(crate) places: Vec<u32>,
    pub(crate) columns: BTreeMap<String, Vec<Cell>>,
    pub(crate) words: Words,
    /// Columns stored as 32-bit floats: their sums are made in that precision, as the writers of such files make them.
    pub(crate) narrow: Vec<String>,
}

impl Table {
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

    pub(crate) fn cell(&self, name: &str, row: usize) -> Cell {
        self.columns
            .get(name)
            .and_then(|cells| cells.get(row))
            .copied()
            .unwrap_or(Cell::Absent)
    }

    /// Appends a row; columns that it lacks get an absent cell.
    pub(crate) fn push(&mut self, place: u32, cells: impl IntoIterator<Item = (String, Cell)>) {
        let row = self.places.len();
        self.places.push(place);
        for (name, cell) in cells {
            let column = self.columns.entry(name).or_default();
            column.resize(row, Cell::Absent);
            column.push(cell);
        }
    }

    /// A cell as a number; what is not one becomes a problem.
    pub(crate) fn number(&self, name: &str, row: usize, problems: &mut Problems) -> Result<Option<f64>, Refused> {
        let mut refuse = |what: String| {
            problems.add(|| Problem {
                place: self.place(row),
                field: name.to_owned(),
                what,
            });
            Err(Refused)
        };
        match self.cell(name, row) {
            Cell::Absent => Ok(None),
            Cell::Number(value) if value.is_finite() => Ok(Some(value)),
            Cell::Number(value) => refuse(format!("{value} is not a number to work with; the row is left out")),
            Cell::Word(word) => refuse(format!(
                "`{}` is not a number; the row is left out",
                self.words.get(word)
            )),
        }
    }

    /// A cell as a whole number from `least` up; -1 and an empty cell both mean "not given" where `least` is 0.
    pub(crate) fn whole(&self, name: &str, row: usize, problems: &mut Problems) -> Result<Option<i64>, Refused> {
        let Some(value) = self.number(name, row, problems)? else {
            return Ok(None);
        };
        // Beyond 2^53 a float is no longer every whole number.
        if value.fract() != 0.0 || value.abs() > 9_007_199_254_740_992.0 {
            let what = format!("{value} is not a whole number; the row is left out");
            problems.add(|| Problem {
                place: self.place(row),
                field: name.to_owned(),
                what,
            });
            return Err(Refused);
        }
        Ok(Some(value as i64))
    }
}

/// A cell that was not what its column asks for; the problem is already noted.
#[derive(Debug)]
pub(crate) struct Refused;

/// Words of a table, each once. Long ones are cut: no meaning of a column needs more than this.
#[derive(Debug, Default)]
pub(crate) struct Words {
    ids: BTreeMap<String, u32>,
    words: Vec<String>,
}

impl Words {
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
