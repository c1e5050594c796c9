//! Output of results and figures.

use rankguard_console::listing::{self, TableColumn};
use rankguard_console::out;
use rankguard_model::printable;
use rankguard_studies::{FigureComparison, ReproducedFigure, ResultCell, ResultTable, StudyResult};

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
        let rows: Vec<Vec<String>> = std::iter::once(table.columns.iter().map(|name| name.to_uppercase()).collect())
            .chain(
                table
                    .rows
                    .iter()
                    .map(|row| row.iter().map(ToString::to_string).collect()),
            )
            .collect();
        aligned(&rows);
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

/// Prints columns as wide as their longest cell, two spaces apart; control characters in foreign names are
/// replaced.
fn aligned(rows: &[Vec<String>]) {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| printable(cell).into_owned()).collect())
        .collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width = |at: usize| {
        rows.iter()
            .filter_map(|row| row.get(at))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, wide)| format!("{cell:wide$}"));
        out::line(cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

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

pub(super) const FIGURES: &[TableColumn<ReproducedFigure>] = &[
    ("source", |figure| figure.source.to_owned()),
    ("figure", |figure| figure.name.clone()),
    ("published", |figure| {
        figure.published.clone().unwrap_or_else(|| "-".to_owned())
    }),
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
