//! What can be asked, one question a file.

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

use rankguard_datasets::Dataset;

use crate::error::StudyError;
use crate::outcome::Outcome;

/// Probability with which intervals hold the truth.
pub(crate) const LEVEL: f64 = 0.95;

/// What a question can be narrowed by.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// Nodes or devices in all, where the data does not state it or states another.
    pub population: Option<u64>,
    /// The column to group by.
    pub by: Option<String>,
    /// The window of bursts, repeats and neighbours, seconds.
    pub window_s: Option<f64>,
    /// What durations of 0 become in fits, seconds; they are dropped where absent.
    pub zeros_s: Option<f64>,
}

impl Options {
    /// How many there were in all: what was given, else what the data states.
    pub(crate) fn population(&self, data: &Dataset) -> Result<f64, StudyError> {
        let stated = data.population.map(|all| all.count);
        self.population.or(stated).map(|count| count as f64).ok_or_else(|| {
            StudyError::missing(
                "the population is unknown, and those that failed are not all there were: no rate",
                "give the number of nodes or devices: --population N",
            )
        })
    }

    pub(crate) fn by<'a>(&'a self, default: &'a str) -> &'a str {
        self.by.as_deref().unwrap_or(default)
    }
}

/// Length of the data set's window, seconds.
pub(crate) fn length(data: &Dataset) -> Result<f64, StudyError> {
    let length = data.window.map(|(from, to)| to - from).filter(|length| *length > 0.0);
    length.ok_or_else(|| StudyError::missing("the data has no span of time: no rate", "give data with times"))
}

/// One question.
#[derive(Clone, Copy)]
pub struct Study {
    /// What it is called by.
    pub name: &'static str,
    /// What it answers.
    pub about: &'static str,
    /// Which canonical tables and columns it reads.
    pub needs: &'static str,
    /// Asks it.
    pub run: fn(&Dataset, &Options) -> Result<Outcome, StudyError>,
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

/// All of them.
pub fn studies() -> &'static [Study] {
    STUDIES
}
