//! Conversion of a timing file of any form to rows: every row is either read completely or reported as a problem.

use std::collections::BTreeMap;

use crate::operation::{OpType, StepTiming, TimingFile, TraceOperation};
use crate::parquet_file::{self, MAGIC};
use crate::problem::{InputProblem, ProblemList};
use crate::table::{CellTypeError, ColumnTable, OPERATION_COLUMNS, STEP_COLUMNS, TableCell};
use crate::text_file;

/// Reads operations or per-step timings from Parquet, JSON lines or CSV, detected by content. `label` names the file
/// in problems. Without usable rows the list is empty and the problems give the reason.
pub fn read_timings(label: &str, bytes: &[u8]) -> (TimingFile, ProblemList) {
    let mut problems = ProblemList::default();
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    let table = match first {
        _ if bytes.starts_with(MAGIC) => parquet_file::read(label, bytes, &mut problems),
        Some(b'{') => text_file::read_json_lines(label, bytes, &mut problems),
        _ => text_file::read_csv(label, bytes, &mut problems),
    };
    if table.places.is_empty() && problems.count == 0 {
        problems.note(
            label,
            "holds no rows; give one row an operation, or one a rank and step".to_owned(),
        );
    }
    let is_steps = table.has("duration_s") && !table.has("optype");
    let needed = if is_steps {
        &STEP_COLUMNS[..]
    } else {
        &OPERATION_COLUMNS[..]
    };
    let missing: Vec<&str> = needed.iter().copied().filter(|name| !table.has(name)).collect();
    if !missing.is_empty() && !table.places.is_empty() {
        problems.note(
            label,
            format!(
                "lacks the columns {}; operations need {}, per-step timings need {}",
                missing.join(", "),
                OPERATION_COLUMNS.join(", "),
                STEP_COLUMNS.join(", ")
            ),
        );
        let nothing = if is_steps {
            TimingFile::Steps(Vec::new())
        } else {
            TimingFile::Operations(Vec::new())
        };
        return (nothing, problems);
    }
    let rows = 0..table.places.len();
    let timings = if is_steps {
        TimingFile::Steps(rows.filter_map(|row| step(&table, row, &mut problems).ok()).collect())
    } else {
        let kinds = kinds(&table);
        let narrow = ["start_ts", "duration"]
            .iter()
            .all(|name| table.narrow.iter().any(|known| known == name));
        let read = |row| operation(&table, row, &kinds, narrow, &mut problems).ok();
        TimingFile::Operations(rows.filter_map(read).collect())
    };
    (timings, problems)
}

/// Maps words of the table to operation types.
fn kinds(table: &ColumnTable) -> BTreeMap<u32, OpType> {
    let cells = table.columns.get("optype").map(Vec::as_slice).unwrap_or_default();
    let mut kinds = BTreeMap::new();
    for cell in cells {
        if let TableCell::Word(word) = cell
            && !kinds.contains_key(word)
            && let Some(kind) = OpType::named(table.words.get(*word))
        {
            kinds.insert(*word, kind);
        }
    }
    kinds
}

fn operation(
    table: &ColumnTable,
    row: usize,
    kinds: &BTreeMap<u32, OpType>,
    narrow: bool,
    problems: &mut ProblemList,
) -> Result<TraceOperation, CellTypeError> {
    let kind = match table.cell("optype", row) {
        TableCell::Word(word) if kinds.contains_key(&word) => kinds[&word],
        cell => {
            let name = match cell {
                TableCell::Word(word) => format!("`{}` is no known operation", table.words.get(word)),
                _ => "is not given as a name".to_owned(),
            };
            let known: Vec<&str> = OpType::ALL.iter().map(|kind| kind.name()).collect();
            let what = format!("{name}; the row is left out. Known are {}", known.join(", "));
            problems.add(|| InputProblem {
                place: table.place(row),
                field: "optype".to_owned(),
                what,
            });
            return Err(CellTypeError);
        }
    };
    let start = needed(table, "start_ts", row, problems)?;
    let duration = seconds(table, "duration", row, problems)?
        .ok_or(())
        .or_else(|()| lacks(table, "duration", row, problems))?;
    let end = if narrow {
        f64::from(start as f32 + duration as f32)
    } else {
        start + duration
    };
    Ok(TraceOperation {
        dp_rank: index(table, "dp_rank", row, problems)?,
        stage: index(table, "stage", row, problems)?,
        step: index(table, "step", row, problems)?,
        rank: optional_index(table, "rank", row, problems)?,
        kind,
        start,
        duration,
        end,
        seq: optional_index(table, "seq_id", row, problems)?,
        chunk: optional_index(table, "mc", row, problems)?,
        microbatch: optional_index(table, "mb_id", row, problems)?,
        global_chunk: optional_index(table, "gmc", row, problems)?,
    })
}

fn step(table: &ColumnTable, row: usize, problems: &mut ProblemList) -> Result<StepTiming, CellTypeError> {
    let duration = seconds(table, "duration_s", row, problems)?;
    Ok(StepTiming {
        rank: index(table, "rank", row, problems)?,
        stage: optional_index(table, "stage", row, problems)?,
        step: index(table, "step", row, problems)?,
        duration: duration
            .ok_or(())
            .or_else(|()| lacks(table, "duration_s", row, problems))?,
        compute: seconds(table, "compute_s", row, problems)?,
        communication: seconds(table, "comm_s", row, problems)?,
        data: seconds(table, "data_s", row, problems)?,
        tokens: seconds(table, "tokens", row, problems)?,
    })
}

fn lacks<T>(table: &ColumnTable, name: &str, row: usize, problems: &mut ProblemList) -> Result<T, CellTypeError> {
    let what = "is empty; the row is left out".to_owned();
    problems.add(|| InputProblem {
        place: table.place(row),
        field: name.to_owned(),
        what,
    });
    Err(CellTypeError)
}

fn needed(table: &ColumnTable, name: &str, row: usize, problems: &mut ProblemList) -> Result<f64, CellTypeError> {
    match table.number(name, row, problems)? {
        Some(value) => Ok(value),
        None => lacks(table, name, row, problems),
    }
}

/// Reads a non-negative amount. The bound, a year, exceeds any step and keeps sums over a file finite.
fn seconds(
    table: &ColumnTable,
    name: &str,
    row: usize,
    problems: &mut ProblemList,
) -> Result<Option<f64>, CellTypeError> {
    let most = if name == "tokens" { 1e15 } else { 3.2e7 };
    match table.number(name, row, problems)? {
        Some(value) if !(0.0..=most).contains(&value) => {
            let what = format!("{value} is not between 0 and {most}; the row is left out");
            problems.add(|| InputProblem {
                place: table.place(row),
                field: name.to_owned(),
                what,
            });
            Err(CellTypeError)
        }
        value => Ok(value),
    }
}

fn index(table: &ColumnTable, name: &str, row: usize, problems: &mut ProblemList) -> Result<i64, CellTypeError> {
    match table.whole(name, row, problems)? {
        Some(value) if value >= 0 => Ok(value),
        Some(value) => {
            let what = format!("{value} is negative; the row is left out");
            problems.add(|| InputProblem {
                place: table.place(row),
                field: name.to_owned(),
                what,
            });
            Err(CellTypeError)
        }
        None => lacks(table, name, row, problems),
    }
}

/// Reads an index; profilers write -1 for an operation without chunk or microbatch.
fn optional_index(
    table: &ColumnTable,
    name: &str,
    row: usize,
    problems: &mut ProblemList,
) -> Result<Option<i64>, CellTypeError> {
    Ok(table.whole(name, row, problems)?.filter(|value| *value >= 0))
}
