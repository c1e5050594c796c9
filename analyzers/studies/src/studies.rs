//! List of all studies, with their options. Each study is a module.

pub(crate) mod availability;
pub(crate) mod bursts;
pub(crate) mod coalesce;
pub(crate) mod correlated;
pub(crate) mod fits;
pub(crate) mod intervals;
mod jobs;
mod lemons;
pub(crate) mod mix;
mod mtbf;
mod repair;
mod retries;
mod spatial;
mod survival;

use rankguard_datasets::{Dataset, TableKind as Canonical};

use crate::error::StudyError;
use crate::outcome::StudyResult;

/// Confidence level of all intervals, 0 to 1.
pub(crate) const LEVEL: f64 = 0.95;

/// Options of a study.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StudyOptions {
    /// Total number of nodes or devices; the default is that of the data set.
    pub population: Option<u64>,
    /// Column by which rows are grouped; the default depends on the study, such as `node` or `class`.
    pub by: Option<String>,
    /// Window in seconds: between failures of a burst (default 900), between repeats of a log event (default 600), or
    /// between failures of one place (default 60, 1,800 and 86,400 beside each other).
    pub window_s: Option<f64>,
    /// Value in seconds for durations of 0 in fits; by default such durations are dropped.
    pub zeros_s: Option<f64>,
}

impl StudyOptions {
    /// Returns the population: the given one, otherwise that of the data set. Fails if neither is known.
    pub(crate) fn population(&self, data: &Dataset) -> Result<f64, StudyError> {
        let stated = data.population.map(|all| all.count);
        self.population.or(stated).map(|count| count as f64).ok_or_else(|| {
            StudyError::missing(
                "the population is unknown, and those that failed are not all there were: no rate",
                "give the number of nodes or devices: --population N",
            )
        })
    }

    /// Returns the problem of a population smaller than the number of nodes that a table names.
    pub(crate) fn population_problem(&self, data: &Dataset, table: Canonical) -> Result<Option<String>, StudyError> {
        let population = self.population(data)?;
        let Ok(nodes) = data.labels(table, "node") else {
            return Ok(None);
        };
        let named = nodes.names.len();
        Ok((named as f64 > population).then(|| {
            format!(
                "the rows name {named} nodes, and the population is {population}: shares of nodes and rates of one node are wrong"
            )
        }))
    }

    /// Returns the column by which rows are grouped: the given one, otherwise `default`.
    pub(crate) fn by<'a>(&'a self, default: &'a str) -> &'a str {
        self.by.as_deref().unwrap_or(default)
    }
}

/// Returns the length of the data set's window in seconds. Fails if it is unknown or not positive.
pub(crate) fn length(data: &Dataset) -> Result<f64, StudyError> {
    let length = data.window.map(|(from, to)| to - from).filter(|length| *length > 0.0);
    length.ok_or_else(|| StudyError::missing("the data has no span of time: no rate", "give data with times"))
}

/// Study that can be run over any data set with the required tables.
#[derive(Clone, Copy)]
pub struct Study {
    /// Name on the command line.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Required canonical tables and columns.
    pub needs: &'static str,
    /// Function that runs the study. Fails if the data lacks a required input or cannot be read.
    pub run: fn(&Dataset, &StudyOptions) -> Result<StudyResult, StudyError>,
}

static STUDIES: &[Study] = &[
    mix::STUDY,
    mtbf::STUDY,
    repair::STUDY,
    availability::STUDY,
    fits::STUDY,
    survival::STUDY,
    coalesce::STUDY,
    bursts::STUDY,
    correlated::STUDY,
    lemons::STUDY,
    spatial::STUDY,
    jobs::STUDY,
    jobs::SIZES,
    retries::STUDY,
];

/// Returns all studies, in the order in which they are listed.
pub fn studies() -> &'static [Study] {
    STUDIES
}
