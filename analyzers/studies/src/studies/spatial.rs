//! Spatial distribution of failures: a map of their rate, a test for uniformity, and similarity of neighbours.

mod exposure;
mod place;

use std::collections::BTreeMap;

use rankguard_datasets::{Dataset, TableKind as Canonical};
use rankguard_statistics::spatial::{moran, uniformity};

use crate::error::StudyError;
use crate::outcome::{ResultCell, ResultTable, StudyResult};
use crate::plot::{PlotContent, StudyPlot};
use crate::studies::{Study, StudyOptions};

use exposure::GridExposure;
use place::GridPosition;

pub(super) const STUDY: Study = Study {
    name: "spatial",
    about: "map of failures by cabinet, rack or node number; chi-squared against exposure; Moran's I of neighbours",
    needs: "failures or events: node (or --by) as a place; outages: x_location, x_duration_s, or nodes: system, x_nodes, or a population",
    run,
};

/// Minimum failures of a grid to be tested and drawn; smaller grids are only counted.
const FEWEST: u64 = 30;
/// Maximum number of listed grids.
const LISTED: usize = 30;
/// Maximum number of drawn grids.
const DRAWN: usize = 6;

/// Failures of one grid by cell, and by each position within it.
#[derive(Default)]
struct GridFailures {
    cells: BTreeMap<(u32, u32), u64>,
    parts: BTreeMap<(&'static str, u32), u64>,
    failures: u64,
}

impl GridFailures {
    /// Adds failures at one place.
    fn see(&mut self, cell: (u32, u32), parts: Vec<(&'static str, u32)>, failures: u64) {
        *self.cells.entry(cell).or_default() += failures;
        for part in parts {
            *self.parts.entry(part).or_default() += failures;
        }
        self.failures += failures;
    }
}

fn run(data: &Dataset, options: &StudyOptions) -> Result<StudyResult, StudyError> {
    let by = options.by("node");
    // Logs of failures are tables of events.
    let (table, what) = if data.has(Canonical::Failures) {
        (Canonical::Failures, "failures")
    } else {
        (Canonical::Events, "events")
    };
    let labels = data.labels(table, by)?;
    let (mut grids, mut nowhere) = (BTreeMap::<String, GridFailures>::new(), labels.without());
    for (name, failures) in labels.names.iter().zip(labels.counts()) {
        match GridPosition::of(name) {
            Some(GridPosition { grid, cell, parts }) => grids.entry(grid).or_default().see(cell, parts, *failures),
            None => nowhere += failures,
        }
    }
    if grids.is_empty() {
        return Err(StudyError::missing(
            format!("no {by} of a failure says where it stands"),
            "name the column of places with --by: c11-2c1s4n1, R23-M0, or names that end in a number",
        ));
    }
    let mut outcome = StudyResult::new(
        "spatial",
        data,
        format!(
            "{what} of each place that {by} names, over its exposure; uniform: Pearson's chi-squared of cells against exposure; neighbours: Moran's I of {what} over exposure, cells that share an edge, variance under randomisation"
        ),
    );
    let mut grids: Vec<(String, GridFailures)> = grids.into_iter().collect();
    grids.sort_by(|a, b| b.1.failures.cmp(&a.1.failures).then_with(|| a.0.cmp(&b.0)));
    let mut table = ResultTable::new(
        "places",
        &[
            "grid",
            "failures",
            "cells",
            "exposure",
            "chi-squared",
            "degrees",
            "p",
            "dispersion",
            "Moran's I",
            "expected I",
            "p of I",
        ],
    );
    let mut parts = ResultTable::new(
        "positions",
        &[
            "grid",
            "position",
            "value",
            "failures",
            "share of exposure",
            "times the average",
            "p of all values",
        ],
    );
    let mut alone = 0;
    let mut refused = None;
    for (name, grid) in grids.iter().filter(|(_, grid)| grid.failures >= FEWEST).take(LISTED) {
        let exposure = match GridExposure::of(data, options, name, &grid.cells, grids.len() == 1) {
            Ok(exposure) => exposure,
            Err(problem) => {
                outcome.problems.push(format!("{}: {problem}", called(name)));
                refused = Some(problem);
                continue;
            }
        };
        // Failures at places without known exposure are left out of the tests and reported.
        let strays: u64 = grid
            .cells
            .iter()
            .filter(|(cell, _)| !exposure.cells.contains_key(cell))
            .map(|(_, n)| n)
            .sum();
        alone += strays;
        let cells: Vec<((u32, u32), u64, f64)> = exposure
            .cells
            .iter()
            .map(|(cell, exposed)| (*cell, grid.cells.get(cell).copied().unwrap_or(0), *exposed))
            .collect();
        let even = uniformity(&cells.iter().map(|cell| (cell.1, cell.2)).collect::<Vec<_>>());
        let alike = alike(&cells);
        table.row([
            called(name).into(),
            (grid.failures - strays).into(),
            cells.len().into(),
            exposure.what.clone().into(),
            even.map(|even| even.chi_squared).into(),
            even.map_or(ResultCell::Absent, |even| even.degrees.into()),
            even.map(|even| even.p).into(),
            even.map(|even| even.dispersion).into(),
            alike.map(|alike| alike.i).into(),
            alike.map(|alike| alike.expected).into(),
            alike.map(|alike| alike.p).into(),
        ]);
        positions(name, grid, &exposure, &mut parts);
        if outcome.plots.len() < DRAWN {
            outcome.plots.push(StudyPlot {
                title: format!("failures over exposure, {} ({})", called(name), exposure.what),
                across: if cells.iter().all(|cell| cell.0.1 == 0) {
                    "number"
                } else {
                    "column"
                }
                .to_owned(),
                shape: PlotContent::Map(
                    cells
                        .iter()
                        .map(|(cell, count, exposed)| (*cell, *count as f64 / exposed))
                        .collect(),
                ),
            });
        }
    }
    if table.rows.is_empty() {
        return Err(refused.unwrap_or_else(|| {
            StudyError::missing(
                format!("no grid of places that {by} names has {FEWEST} failures: nothing to test"),
                "name the column of places with --by; names without an order, like UUIDs, tell no place",
            )
        }));
    }
    outcome.tables.push(table);
    if !parts.rows.is_empty() {
        outcome.tables.push(parts);
    }
    if nowhere > 0 {
        outcome
            .problems
            .push(format!("{nowhere} failures have no {by} that says where: left out"));
    }
    if alone > 0 {
        outcome.problems.push(format!(
            "{alone} failures lie where nothing is known to have stood: left out of the tests"
        ));
    }
    let (few, rest): (Vec<_>, Vec<_>) = grids.iter().partition(|(_, grid)| grid.failures < FEWEST);
    if !few.is_empty() || rest.len() > LISTED {
        outcome.problems.push(format!(
            "{} of {} grids have fewer than {FEWEST} failures or are past the first {LISTED}: not tested",
            few.len() + rest.len().saturating_sub(LISTED),
            grids.len()
        ));
    }
    Ok(outcome)
}

/// Returns the display name of a grid; a grid of plain numbers has none of its own.
fn called(grid: &str) -> &str {
    match grid.trim_end_matches(['/', '-', '_', '.']) {
        "" => "nodes",
        name => name,
    }
}

/// Computes Moran's I of rates over cells that share an edge.
fn alike(cells: &[((u32, u32), u64, f64)]) -> Option<rankguard_statistics::spatial::MoranTest> {
    let at: BTreeMap<(u32, u32), usize> = cells.iter().enumerate().map(|(at, cell)| (cell.0, at)).collect();
    let mut pairs = Vec::new();
    for (one, ((column, row), ..)) in cells.iter().enumerate() {
        for next in [(column + 1, *row), (*column, row + 1)] {
            pairs.extend(at.get(&next).map(|other| (one, *other)));
        }
    }
    let rates: Vec<f64> = cells
        .iter()
        .map(|(_, count, exposed)| *count as f64 / exposed)
        .collect();
    moran(&rates, &pairs)
}

/// Lists failures by each position encoded in names: the cage of a cabinet, the slot of a cage.
fn positions(name: &str, grid: &GridFailures, exposure: &GridExposure, table: &mut ResultTable) {
    let exposed: f64 = exposure.parts.values().sum::<f64>();
    if exposed <= 0.0 {
        return;
    }
    let mut kinds: Vec<&'static str> = exposure.parts.keys().map(|(part, _)| *part).collect();
    kinds.dedup();
    for kind in kinds {
        let values: Vec<(u32, u64, f64)> = exposure
            .parts
            .iter()
            .filter(|((part, _), _)| *part == kind)
            .map(|(part, exposed)| (part.1, grid.parts.get(part).copied().unwrap_or(0), *exposed))
            .collect();
        let all: f64 = values.iter().map(|value| value.2).sum();
        let count: u64 = values.iter().map(|value| value.1).sum();
        let even = uniformity(&values.iter().map(|value| (value.1, value.2)).collect::<Vec<_>>());
        for (value, found, exposed) in values {
            table.row([
                called(name).into(),
                kind.into(),
                u64::from(value).into(),
                found.into(),
                (exposed / all).into(),
                (found as f64 / (count as f64 * exposed / all)).into(),
                even.map(|even| even.p).into(),
            ]);
        }
    }
}
