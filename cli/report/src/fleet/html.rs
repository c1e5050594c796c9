//! Report of a fleet as one self-contained HTML page: no script, no external file, light and dark, readable in print.

use std::fmt::Write as _;

use rankguard_summary::FleetReport;

use super::tables::{ReportTable, figures, selection, tables};
use crate::page::STYLE;
use crate::text::escape;

/// Renders the page.
pub fn html(report: &FleetReport, title: &str) -> String {
    let title = escape(title);
    let mut body = String::from("<dl class=\"tiles\">");
    for figure in figures(report) {
        let _ = write!(
            body,
            "<div class=\"tile\"><dt>{}</dt><dd>{}</dd></div>",
            escape(figure.name),
            escape(figure.value)
        );
    }
    body.push_str("</dl>");
    for table in tables(report) {
        add_table(&mut body, &table);
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{title}</title><style>{STYLE}</style></head><body>\
         <header><h1>{title}</h1><p class=\"quiet\">{}. Times are UTC.</p></header><main>{body}</main>\
         <footer><p class=\"quiet\">Written by rankguard.</p></footer></body></html>\n",
        escape(selection(report))
    )
}

fn add_table(body: &mut String, table: &ReportTable) {
    let _ = write!(
        body,
        "<section class=\"card\"><h2>{}</h2><div class=\"scroll\"><table><thead><tr>",
        escape(table.title)
    );
    for heading in &table.headings {
        let _ = write!(body, "<th scope=\"col\">{}</th>", escape(heading));
    }
    body.push_str("</tr></thead><tbody>");
    for row in &table.rows {
        body.push_str("<tr>");
        for cell in row {
            let _ = write!(body, "<td>{}</td>", escape(cell));
        }
        body.push_str("</tr>");
    }
    if table.rows.is_empty() {
        let _ = write!(body, "<tr><td colspan=\"{}\">none</td></tr>", table.headings.len());
    }
    body.push_str("</tbody></table></div></section>");
}
