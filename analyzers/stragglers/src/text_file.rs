//! Readers of JSON lines and CSV. A line that cannot be read becomes a problem; the lines after it are
//! read.

use serde_json::{Map, Value};

use crate::problem::{InputProblem, ProblemList};
use crate::table::{ColumnTable, ROWS_MAX, TableCell, WordInterner, is_known};

/// Maximum line length in bytes.
const LINE_MAX: usize = 64 << 10;

/// Reads one JSON object a line.
pub(crate) fn read_json_lines(label: &str, bytes: &[u8], problems: &mut ProblemList) -> ColumnTable {
    let mut table = ColumnTable {
        label: label.to_owned(),
        unit: "line",
        ..ColumnTable::default()
    };
    for (place, line) in lines(label, bytes, problems) {
        match serde_json::from_str::<Map<String, Value>>(&line) {
            Ok(fields) => {
                let known = fields.into_iter().filter(|(name, _)| is_known(name));
                let cells = known.map(|(name, value)| (name, json_cell(&value, &mut table.words)));
                let cells: Vec<_> = cells.collect();
                table.push(place, cells);
            }
            Err(error) => problems.note(
                &format!("{label} line {place}"),
                format!("is not a JSON object of one row: {error}; the line is left out"),
            ),
        }
    }
    fill_up(table)
}

/// Reads a header and one row a line, separated by commas, semicolons or tabs.
pub(crate) fn read_csv(label: &str, bytes: &[u8], problems: &mut ProblemList) -> ColumnTable {
    let mut table = ColumnTable {
        label: label.to_owned(),
        unit: "line",
        ..ColumnTable::default()
    };
    let rows = lines(label, bytes, problems);
    let mut rows = rows.into_iter();
    let Some((_, header)) = rows.next() else { return table };
    let separator = [',', ';', '\t']
        .into_iter()
        .max_by_key(|mark| header.matches(*mark).count())
        .unwrap_or(',');
    let names: Vec<String> = fields(&header, separator).map(str::to_owned).collect();
    for (place, line) in rows {
        let count = line.matches(separator).count() + 1;
        if count != names.len() {
            problems.add(|| InputProblem {
                place: format!("{label} line {place}"),
                field: String::new(),
                what: format!(
                    "has {count} fields where the header has {}; the line is left out",
                    names.len()
                ),
            });
            continue;
        }
        let known = names
            .iter()
            .zip(fields(&line, separator))
            .filter(|(name, _)| is_known(name));
        let cells: Vec<_> = known
            .map(|(name, text)| (name.clone(), text_cell(text, &mut table.words)))
            .collect();
        table.push(place, cells);
    }
    for name in names.into_iter().filter(|name| is_known(name)) {
        table.columns.entry(name).or_default();
    }
    fill_up(table)
}

fn lines(label: &str, bytes: &[u8], problems: &mut ProblemList) -> Vec<(u32, String)> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut rows = Vec::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let place = u32::try_from(index + 1).unwrap_or(u32::MAX);
        if rows.len() > ROWS_MAX {
            problems.note(
                label,
                format!("has more than {ROWS_MAX} rows; those from line {place} on are left out"),
            );
            break;
        }
        match std::str::from_utf8(line) {
            Ok(text) if line.len() <= LINE_MAX => rows.push((place, text.to_owned())),
            _ => problems.note(
                &format!("{label} line {place}"),
                format!("is not text of at most {LINE_MAX} bytes; the line is left out"),
            ),
        }
    }
    rows
}

fn fields(line: &str, separator: char) -> impl Iterator<Item = &str> {
    line.split(separator).map(|field| field.trim().trim_matches('"'))
}

fn text_cell(text: &str, words: &mut WordInterner) -> TableCell {
    match text {
        "" => TableCell::Absent,
        _ => text
            .parse()
            .map_or_else(|_| TableCell::Word(words.id(text)), TableCell::Number),
    }
}

fn json_cell(value: &Value, words: &mut WordInterner) -> TableCell {
    match value {
        Value::Null => TableCell::Absent,
        Value::Number(number) => TableCell::Number(number.as_f64().unwrap_or(f64::NAN)),
        // Writers that cannot represent NaN in JSON write it as a string.
        Value::String(text) => text_cell(text, words),
        other => TableCell::Word(words.id(&other.to_string())),
    }
}

fn fill_up(mut table: ColumnTable) -> ColumnTable {
    let rows = table.places.len();
    for column in table.columns.values_mut() {
        column.resize(rows, TableCell::Absent);
    }
    table
}
