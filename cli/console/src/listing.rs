//! Prints a list in one of four formats.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use rankguard_model::printable;
use serde::Serialize;

use crate::OutputFormat;
use crate::out;
use crate::width::{cells, terminal_width, wrap};

/// A column: its heading and the function that renders a cell. An empty cell is shown as a dash in a table and stays
/// empty in CSV.
pub type TableColumn<T> = (&'static str, fn(&T) -> String);

/// Prints a list. JSON formats contain whole items; table and CSV contain the columns.
pub fn print<T: Serialize>(format: OutputFormat, items: &[T], columns: &[TableColumn<T>]) {
    match format {
        OutputFormat::Json => out::json(items),
        OutputFormat::Jsonl => items.iter().for_each(out::json_line),
        // A file or pipe gets the exact cells; on a terminal control characters are escaped.
        OutputFormat::Csv if std::io::stdout().is_terminal() => out::text(&csv(items, columns)),
        OutputFormat::Csv => out::bytes(csv(items, columns).as_bytes()),
        OutputFormat::Table => out::text(&table(items, columns)),
    }
}

/// Renders a table without borders, fitted to the width of the terminal if there is one.
pub fn table<T>(items: &[T], columns: &[TableColumn<T>]) -> String {
    let row = |item: &T| columns.iter().map(|(_, cell)| cell(item)).collect();
    let headings = columns.iter().map(|(heading, _)| *heading);
    text_table(headings, items.iter().map(row), terminal_width())
}

/// Renders rows of text as [`table`] does, within `width` cells.
pub fn text_table<'a>(
    headings: impl IntoIterator<Item = &'a str>,
    rows: impl IntoIterator<Item = Vec<String>>,
    width: Option<usize>,
) -> String {
    let rows = rows.into_iter().map(|row| row.iter().map(|cell| shown(cell)).collect());
    let mut grid = TextGrid {
        headings: headings.into_iter().map(str::to_uppercase).collect(),
        rows: rows.collect(),
    };
    match width.filter(|width| grid.natural_width() > *width) {
        None => grid.aligned(&grid.natural()),
        Some(width) => {
            grid.abbreviate();
            match grid.fitted(width) {
                Some(widths) => grid.aligned(&widths),
                None => grid.records(width),
            }
        }
    }
}

/// Formats a cell of a table.
fn shown(cell: &str) -> String {
    if cell.is_empty() {
        "-".to_owned()
    } else {
        printable(cell).into_owned()
    }
}

/// Cells between two columns.
const GAP: usize = 2;
/// Column that may be narrowed, but not below this width.
const NARROWEST: usize = 13;
/// Column with long texts, which become unreadable sooner.
const LONG_TEXT: usize = 40;
const NARROWEST_TEXT: usize = 20;
/// Least room for a value beside its heading.
const VALUE_MIN: usize = 8;
/// Headings that are shortened where a table does not fit.
const ABBREVIATIONS: [(&str, &str); 3] = [("GENERATION", "GEN"), ("CHECKPOINT", "CKPT"), ("CONFIDENCE", "CONF")];

/// Headings and cells of a table, ready to be shown.
struct TextGrid {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl TextGrid {
    /// Returns the width of each column without wrapped lines.
    fn natural(&self) -> Vec<usize> {
        let cell = |at: usize| {
            self.rows
                .iter()
                .filter_map(move |row| row.get(at))
                .map(|cell| cells(cell))
        };
        let headings = self.headings.iter().enumerate();
        headings
            .map(|(at, heading)| cell(at).max().unwrap_or(0).max(cells(heading)))
            .collect()
    }

    fn natural_width(&self) -> usize {
        total(&self.natural())
    }

    fn abbreviate(&mut self) {
        for heading in &mut self.headings {
            if let Some((_, short)) = ABBREVIATIONS.iter().find(|(long, _)| long == heading) {
                (*short).clone_into(heading);
            }
        }
    }

    /// Returns column widths that fit: the widest columns are narrowed first. `None` if no readable table fits.
    fn fitted(&self, width: usize) -> Option<Vec<usize>> {
        let natural = self.natural();
        let least: Vec<usize> = self
            .headings
            .iter()
            .zip(&natural)
            .map(|(heading, natural)| {
                let word = heading.split(' ').map(cells).max().unwrap_or(0);
                let readable = if *natural > LONG_TEXT {
                    NARROWEST_TEXT
                } else {
                    NARROWEST
                };
                (*natural).min(word.max(readable))
            })
            .collect();
        let least: Vec<usize> = least
            .iter()
            .enumerate()
            .map(|(at, least)| self.tight(at, *least))
            .collect();
        if total(&least) > width {
            return None;
        }
        let mut widths: Vec<usize> = natural;
        while total(&widths) > width {
            let widest = (0..widths.len())
                .filter(|at| widths[*at] > least[*at])
                .max_by_key(|at| widths[*at])?;
            widths[widest] -= 1;
        }
        Some(widths)
    }

    /// Returns the width of a column of short cells with a wrapped heading, else `least`.
    fn tight(&self, at: usize, least: usize) -> usize {
        let longest = self
            .rows
            .iter()
            .filter_map(|row| row.get(at))
            .map(|cell| cells(cell))
            .max();
        let word = self.headings[at].split(' ').map(cells).max().unwrap_or(0);
        least.min(longest.unwrap_or(0).max(word))
    }

    fn aligned(&self, widths: &[usize]) -> String {
        let mut text = String::new();
        for row in std::iter::once(&self.headings).chain(&self.rows) {
            let wrapped: Vec<Vec<String>> = row.iter().zip(widths).map(|(cell, width)| wrap(cell, *width)).collect();
            let height = wrapped.iter().map(Vec::len).max().unwrap_or(1);
            for line in 0..height {
                let mut shown = String::new();
                for (cell, width) in wrapped.iter().zip(widths) {
                    let cell = cell.get(line).map_or("", String::as_str);
                    shown.push_str(cell);
                    let pad = width.saturating_sub(cells(cell)) + GAP;
                    shown.extend(std::iter::repeat_n(' ', pad));
                }
                let _ = writeln!(text, "{}", shown.trim_end());
            }
        }
        text
    }

    /// Renders each row as lines of heading and value, as `psql` does for tables that are too wide.
    fn records(&self, width: usize) -> String {
        let longest = self.headings.iter().map(|heading| cells(heading)).max().unwrap_or(0);
        let label = longest.min(width.saturating_sub(GAP + VALUE_MIN));
        let room = width.saturating_sub(label + GAP);
        let mut text = String::new();
        for (at, row) in self.rows.iter().enumerate() {
            if at > 0 {
                text.push('\n');
            }
            for (heading, cell) in self.headings.iter().zip(row) {
                let names = wrap(heading, label);
                let values = wrap(cell, room);
                for line in 0..names.len().max(values.len()) {
                    let name = names.get(line).map_or("", String::as_str);
                    let value = values.get(line).map_or("", String::as_str);
                    let pad = label.saturating_sub(cells(name)) + GAP;
                    let line = format!("{name}{}{value}", " ".repeat(pad));
                    let _ = writeln!(text, "{}", line.trim_end());
                }
            }
        }
        text
    }
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// Renders RFC 4180 with `\n` line ends.
fn csv<T>(items: &[T], columns: &[TableColumn<T>]) -> String {
    let mut text = String::new();
    let headings = columns.iter().map(|(heading, _)| heading.replace(' ', "_"));
    csv_line(&mut text, headings);
    for item in items {
        csv_line(&mut text, columns.iter().map(|(_, cell)| cell(item)));
    }
    text
}

fn csv_line(text: &mut String, cells: impl Iterator<Item = String>) {
    for (at, cell) in cells.enumerate() {
        if at > 0 {
            text.push(',');
        }
        if cell.contains([',', '"', '\n', '\r']) {
            let _ = write!(text, "\"{}\"", cell.replace('"', "\"\""));
        } else {
            text.push_str(&cell);
        }
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[TableColumn<(u32, &str)>] = &[
        ("number", |item| item.0.to_string()),
        ("what it says", |item| item.1.to_owned()),
    ];

    /// Columns of `rankguard cases`, with one case.
    fn cases(width: Option<usize>) -> String {
        let headings = [
            "case",
            "state",
            "since",
            "job",
            "class",
            "confidence",
            "blamed",
            "first step after ms",
            "outcome",
        ];
        let row = [
            "12",
            "recovering",
            "2026-11-27T22:37:46.152Z",
            "train",
            "gpu-fallen-off-bus",
            "0.97",
            "device 0000:9b:00 of node gpu-rack7-n12",
            "",
            "the job was restarted on nodes gpu-rack7-n13 and gpu-rack7-n14 from the checkpoint of step 1200",
        ];
        text_table(headings, [row.map(str::to_owned).to_vec()], width)
    }

    #[test]
    fn csv_quotes_what_would_break_it_and_leaves_nothing_empty() {
        let text = csv(&[(1, "plain"), (2, "a, \"b\"\nc"), (3, "")], COLUMNS);
        assert_eq!(text, "number,what_it_says\n1,plain\n2,\"a, \"\"b\"\"\nc\"\n3,\n");
    }

    #[test]
    fn a_table_has_headings_dashes_for_nothing_and_no_control_characters() {
        let text = table(&[(1, "red \u{1b}[31m"), (2, "")], COLUMNS);
        assert_eq!(text, "NUMBER  WHAT IT SAYS\n1       red \\u{1b}[31m\n2       -\n");
    }

    #[test]
    fn output_to_a_file_has_one_line_an_item() {
        assert_eq!(cases(None).lines().count(), 2);
    }

    #[test]
    fn every_line_fits_the_terminal_and_loses_nothing() {
        for width in 20..260 {
            let text = cases(Some(width));
            for line in text.lines() {
                assert!(cells(line) <= width, "{width}: {line:?}");
            }
            let joined: String = text.split_whitespace().collect();
            for part in ["checkpoint", "step", "1200"] {
                assert!(
                    width < 40 || joined.contains(part),
                    "{part} is missing at {width}:\n{text}"
                );
            }
        }
    }

    #[test]
    fn a_wide_column_is_wrapped_and_a_narrow_terminal_gets_records() {
        let headings = ["node", "reason"];
        let row = vec!["n1".to_owned(), "XID 79: the GPU has fallen off the bus".to_owned()];
        assert_eq!(
            text_table(headings, [row.clone()], Some(30)),
            "NODE  REASON\nn1    XID 79: the GPU has\n      fallen off the bus\n"
        );
        assert_eq!(
            text_table(headings, [row.clone(), row], Some(20)),
            "NODE  REASON\nn1    XID 79: the\n      GPU has fallen\n      off the bus\n\
             n1    XID 79: the\n      GPU has fallen\n      off the bus\n"
        );
        assert!(cases(Some(80)).starts_with("CASE                 12\nSTATE                recovering\n"));
    }
}
