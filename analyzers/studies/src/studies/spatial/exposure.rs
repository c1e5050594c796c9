//! Exposure of places: without it, a place with many failures may only be a place with many devices.

use std::collections::BTreeMap;

use rankguard_datasets::{Dataset, TableKind};

use super::place::GridPosition;
use crate::error::StudyError;
use crate::studies::StudyOptions;

/// Exposure by cell and by position of one grid.
#[derive(Debug, Default)]
pub(super) struct GridExposure {
    pub(super) cells: BTreeMap<(u32, u32), f64>,
    /// Empty if only cells are known.
    pub(super) parts: BTreeMap<(&'static str, u32), f64>,
    /// Unit and origin of the exposure.
    pub(super) what: String,
}

/// Year of 365.25 days in seconds.
const YEAR_S: f64 = 365.25 * 86_400.0;
/// Maximum number of places; no machine has more.
const MOST: f64 = 1e6;

/// Failures by cell.
pub(super) type CellCounts = BTreeMap<(u32, u32), u64>;

impl GridExposure {
    /// Determines the exposure of a grid: recorded stays, otherwise the node count of its system, otherwise the
    /// population, which applies only if there is one grid.
    pub(super) fn of(
        data: &Dataset,
        options: &StudyOptions,
        grid: &str,
        failed: &CellCounts,
        is_only: bool,
    ) -> Result<Self, StudyError> {
        if options.population.is_none() {
            if let Some(stays) = stays(data, grid) {
                return Ok(stays);
            }
            if let Some(nodes) = stated(data, grid) {
                return filled(
                    nodes,
                    format!("{nodes} nodes, all alike (stated for the system)"),
                    failed,
                );
            }
        }
        if !is_only {
            return Err(StudyError::missing(
                format!("how much stands at each place of {grid:?} is not stated, and names do not tell: no map"),
                "give data with stays (x_location, x_duration_s) or with the nodes of each system (x_nodes)",
            ));
        }
        let count = options.population(data)?;
        filled(count, format!("{count} places, all alike (the population)"), failed)
    }
}

/// Returns the device-years at each place, if the data records stays.
fn stays(data: &Dataset, grid: &str) -> Option<GridExposure> {
    let places = data.labels(TableKind::Outages, "x_location").ok()?;
    let seconds = data.f64s(TableKind::Outages, "x_duration_s").ok()?;
    let on_grid = |name: &String| GridPosition::of(name).filter(|place| place.grid == grid);
    let known: Vec<Option<GridPosition>> = places.names.iter().map(on_grid).collect();
    let mut found = GridExposure {
        what: "years of stays, as recorded".to_owned(),
        ..GridExposure::default()
    };
    for (label, seconds) in places.of.iter().zip(seconds) {
        let place = label.name().and_then(|name| known[name as usize].as_ref());
        let (Some(place), Some(seconds)) = (place, seconds) else {
            continue;
        };
        if seconds > 0.0 {
            *found.cells.entry(place.cell).or_default() += seconds / YEAR_S;
            for part in &place.parts {
                *found.parts.entry(*part).or_default() += seconds / YEAR_S;
            }
        }
    }
    (!found.cells.is_empty()).then_some(found)
}

/// Returns the node count in the inventory of the system that a grid's name starts with.
fn stated(data: &Dataset, grid: &str) -> Option<f64> {
    let systems = data.strings(TableKind::Nodes, "system").ok()?;
    let nodes = data.f64s(TableKind::Nodes, "x_nodes").ok()?;
    let system = grid.trim_end_matches('/');
    let mut rows = systems.into_iter().zip(nodes);
    rows.find(|(name, _)| name.as_deref() == Some(system))?.1
}

/// Returns a uniform exposure of `count` places: in one row, or in a whole rectangle.
fn filled(count: f64, what: String, failed: &CellCounts) -> Result<GridExposure, StudyError> {
    let refused = |why: &str| {
        StudyError::missing(
            format!("{count} places cannot be mapped: {why}"),
            "give the number of places, failed or not, with --population",
        )
    };
    if !(1.0..=MOST).contains(&count) {
        return Err(refused("that is no machine"));
    }
    let count = count as u32;
    let columns = failed.keys().map(|cell| cell.0).max().unwrap_or(0) + 1;
    let rows = failed.keys().map(|cell| cell.1).max().unwrap_or(0) + 1;
    let cells: Vec<(u32, u32)> = if rows == 1 {
        numbered(count, failed).map(|number| (number, 0)).collect()
    } else if u64::from(columns) * u64::from(rows) == u64::from(count) {
        (0..count).map(|at| (at % columns, at / columns)).collect()
    } else {
        return Err(refused(&format!("failures lie in {columns} columns and {rows} rows")));
    };
    Ok(GridExposure {
        cells: cells.into_iter().map(|cell| (cell, 1.0)).collect(),
        parts: BTreeMap::new(),
        what,
    })
}

/// Returns the numbers of `count` places, starting at 0, 1 or a multiple of their count, the range with the most
/// failures.
fn numbered(count: u32, failed: &CellCounts) -> std::ops::Range<u32> {
    let least = failed.keys().map(|cell| cell.0).min().unwrap_or(0);
    let held = |first: u32| -> u64 { failed.range((first, 0)..(first + count, 0)).map(|(_, n)| n).sum() };
    let mut best = 0;
    for first in [1, least / count * count] {
        if held(first) > held(best) {
            best = first;
        }
    }
    best..best + count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(cells: &[(u32, u32)]) -> CellCounts {
        cells.iter().map(|cell| (*cell, 1)).collect()
    }

    fn cells(count: f64, at: &[(u32, u32)]) -> Vec<(u32, u32)> {
        let exposure = filled(count, String::new(), &failed(at)).expect("it can be mapped");
        exposure.cells.into_keys().collect()
    }

    #[test]
    fn numbers_begin_where_most_failures_are_among_them() {
        assert_eq!(cells(3.0, &[(0, 0), (2, 0)]), [(0, 0), (1, 0), (2, 0)]);
        assert_eq!(cells(3.0, &[(1, 0), (3, 0)]), [(1, 0), (2, 0), (3, 0)]);
        assert_eq!(cells(4.0, &[(9, 0), (11, 0)]), [(8, 0), (9, 0), (10, 0), (11, 0)]);
        assert_eq!(
            cells(2.0, &[(0, 0), (1, 0), (700, 0)]),
            [(0, 0), (1, 0)],
            "a stray changes nothing"
        );
    }

    #[test]
    fn a_rectangle_is_whole_or_refused() {
        assert_eq!(cells(4.0, &[(1, 0), (0, 1)]).len(), 4);
        for count in [3.0, 5.0, 0.0, f64::NAN, 1e9] {
            let refused = filled(count, String::new(), &failed(&[(1, 0), (0, 1)])).expect_err("no map");
            assert!(refused.hint().contains("--population"), "{refused}");
        }
    }
}
