//! Outcomes as one HTML page with embedded pictures, without scripts or external resources.

use std::fmt::Write as _;

use crate::outcome::StudyResult;
use crate::plot::escape;
use crate::reproduced::ReproducedFigure;

/// Renders the page.
pub fn report(title: &str, outcomes: &[StudyResult], figures: &[ReproducedFigure]) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><style>body{{font:15px \
         sans-serif;max-width:60em;margin:2em auto}}table{{border-collapse:collapse;margin:1em 0}}td,th{{padding:.2em \
         .8em;border-bottom:1px solid #ddd;text-align:left}}.n{{color:#666}}</style></head><body><h1>{0}</h1>",
        escape(title)
    );
    for outcome in outcomes {
        let _ = write!(
            page,
            "<h2>{}</h2><p>{}</p><p class=\"n\">population: {}<br>clock: {}<br>window: {}</p>",
            outcome.study,
            escape(&outcome.definition),
            escape(outcome.population.as_deref().unwrap_or("unknown")),
            escape(&outcome.clock),
            outcome
                .window
                .map_or("unknown".to_owned(), |(from, to)| format!("{from} to {to} s")),
        );
        for table in &outcome.tables {
            let _ = write!(page, "<h3>{}</h3><table><tr>", escape(&table.title));
            table
                .columns
                .iter()
                .for_each(|name| page.push_str(&format!("<th>{}</th>", escape(name))));
            page.push_str("</tr>");
            for row in &table.rows {
                page.push_str("<tr>");
                row.iter()
                    .for_each(|cell| page.push_str(&format!("<td>{}</td>", escape(&cell.to_string()))));
                page.push_str("</tr>");
            }
            page.push_str("</table>");
        }
        outcome.plots.iter().for_each(|plot| page.push_str(&plot.svg()));
        for problem in &outcome.problems {
            let _ = write!(page, "<p class=\"n\">{}</p>", escape(problem));
        }
    }
    if !figures.is_empty() {
        page.push_str("<h2>published figures</h2><table><tr><th>figure</th><th>published</th><th>computed</th><th>definition</th></tr>");
        for figure in figures {
            let _ = write!(
                page,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                escape(&figure.name),
                escape(figure.published.as_deref().unwrap_or("-")),
                crate::ResultCell::from(figure.computed),
                escape(figure.definition)
            );
        }
        page.push_str("</table>");
    }
    page.push_str("</body></html>\n");
    page
}
