//! Report of a fleet as Markdown.

use std::fmt::Write as _;

use rankguard_model::printable;
use rankguard_summary::FleetReport;

use super::tables::{ReportTable, figures, selection, tables};

/// Renders the report as Markdown, with a heading if there is a title; marks in foreign text are escaped.
pub fn markdown(report: &FleetReport, title: Option<&str>) -> String {
    let mut text = title.map_or_else(String::new, |title| format!("# {}\n\n", escaped(title)));
    let _ = writeln!(text, "{}.\n", selection(report));
    for figure in figures(report) {
        let _ = writeln!(text, "- {}: {}", figure.name, figure.value);
    }
    for table in tables(report) {
        add_table(&mut text, &table);
    }
    text
}

fn add_table(text: &mut String, table: &ReportTable) {
    let _ = writeln!(text, "\n## {}\n", table.title);
    let _ = writeln!(text, "| {} |", table.headings.join(" | "));
    let _ = writeln!(text, "|{}", "---|".repeat(table.headings.len()));
    for row in &table.rows {
        let cells: Vec<String> = row.iter().map(|cell| escaped(cell)).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
}

/// Escapes characters that Markdown or HTML reads as marks.
pub fn escaped(cell: &str) -> String {
    let mut text = String::new();
    for c in printable(cell).chars() {
        if matches!(c, '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>') {
            text.push('\\');
        }
        text.push(c);
    }
    text
}
