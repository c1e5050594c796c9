//! Text and CSV output of study results and reproduced figures.

use rankguard_console::listing::{self, TableColumn};
use rankguard_console::out;
use rankguard_console::width::terminal_width;
use rankguard_studies::{FigureComparison, ReproducedFigure, ResultCell, ResultTable, StudyResult};

/// Prints a study result as text: its definition, tables and problems, and `figures` if there are any.
pub(super) fn show(outcome: &StudyResult, figures: &[ReproducedFigure]) {
    out::line(&format!("{} of {}", outcome.study, outcome.source));
    out::line(&format!("definition: {}", outcome.definition));
    out::line(&format!(
        "population: {}",
        outcome.population.as_deref().unwrap_or("unknown")
    ));
    let window = outcome.window.map(|(from, to)| {
        let dates = rankguard_datasets::date_of(from).zip(rankguard_datasets::date_of(to));
        let dates = dates.map_or(String::new(), |(from, to)| format!(", {from} to {to}"));
        format!("{from:.0} to {to:.0} s, {:.2} days{dates}", (to - from) / 86_400.0)
    });
    out::line(&format!("window:     {}", window.as_deref().unwrap_or("unknown")));
    out::line(&format!("clock:      {}", outcome.clock));
    for table in &outcome.tables {
        out::line("");
        out::line(&table.title);
        let rows = table.rows.iter();
        let rows = rows.map(|row| row.iter().map(ToString::to_string).collect());
        out::text(&listing::text_table(
            table.columns.iter().copied(),
            rows,
            terminal_width(),
        ));
    }
    if !figures.is_empty() {
        out::line("");
        out::line("published figures");
        out::text(&listing::table(figures, FIGURES));
    }
    outcome
        .problems
        .iter()
        .for_each(|problem| out::line(&format!("problem: {}", problem)));
}

/// Prints a table as CSV with a header. Cells with separators or quotes are quoted; an absent value is an empty cell.
pub(super) fn csv(table: &ResultTable) {
    let cell = |text: String| {
        if text.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text
        }
    };
    out::line(
        &table
            .columns
            .iter()
            .map(|name| cell((*name).to_owned()))
            .collect::<Vec<_>>()
            .join(","),
    );
    for row in &table.rows {
        let cells = row.iter().map(|value| match value {
            ResultCell::Number(x) => x.to_string(),
            ResultCell::Absent => String::new(),
            value => cell(value.to_string()),
        });
        out::line(&cells.collect::<Vec<_>>().join(","));
    }
}

/// Columns of the table that compares published figures with computed ones.
pub(super) const FIGURES: &[TableColumn<ReproducedFigure>] = &[
    ("source", |figure| figure.source.to_owned()),
    ("figure", |figure| figure.name.clone()),
    ("published", |figure| figure.published.clone().unwrap_or_default()),
    ("computed", |figure| ResultCell::from(figure.computed).to_string()),
    ("verdict", |figure| {
        let verdict = match figure.comparison() {
            FigureComparison::Equal => "equal",
            FigureComparison::Inside => "inside",
            FigureComparison::Outside => "outside",
            FigureComparison::Computed => "computed",
            FigureComparison::Differs => "differs",
        };
        verdict.to_owned()
    }),
    ("definition", |figure| figure.definition.to_owned()),
];
