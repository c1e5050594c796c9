//! Prints a list in one of four formats.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use rankguard_model::printable;
use serde::Serialize;

use crate::OutputFormat;
use crate::out;

/// A column: its heading and the function that renders a cell.
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
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_header(columns.iter().map(|(heading, _)| heading.to_uppercase()));
    if std::io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    for item in items {
        table.add_row(columns.iter().map(|(_, cell)| printable(&cell(item)).into_owned()));
    }
    let mut text = String::new();
    for line in table.to_string().lines() {
        let _ = writeln!(text, "{}", line.strip_prefix(' ').unwrap_or(line).trim_end());
    }
    text
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

    #[test]
    fn csv_quotes_what_would_break_it() {
        let text = csv(&[(1, "plain"), (2, "a, \"b\"\nc")], COLUMNS);
        assert_eq!(text, "number,what_it_says\n1,plain\n2,\"a, \"\"b\"\"\nc\"\n");
    }

    #[test]
    fn a_table_has_headings_and_no_control_characters() {
        let text = table(&[(1, "red \u{1b}[31m")], COLUMNS);
        assert_eq!(text, "NUMBER  WHAT IT SAYS\n1       red \\u{1b}[31m\n");
    }
}
