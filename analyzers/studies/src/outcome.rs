//! Result of a study.

use std::fmt;

use rankguard_datasets::Dataset;
use serde::Serialize;

use crate::plot::StudyPlot;

/// Value of a table cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ResultCell {
    Text(String),
    Count(u64),
    /// Measured value; the heading gives its unit.
    Number(f64),
    /// Unknown or undefined.
    Absent,
}

impl fmt::Display for ResultCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Count(count) => write!(f, "{count}"),
            Self::Number(x) if x.fract() == 0.0 && x.abs() < 1e9 => write!(f, "{x:.0}"),
            Self::Number(x) if x.abs() >= 1e9 || x.abs() < 1e-3 => write!(f, "{x:.4e}"),
            Self::Number(x) => {
                let digits = (4.0 - x.abs().log10().floor()).clamp(0.0, 6.0) as usize;
                write!(f, "{x:.digits$}")
            }
            Self::Absent => f.write_str("-"),
        }
    }
}

impl From<&str> for ResultCell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for ResultCell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<usize> for ResultCell {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<u64> for ResultCell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for ResultCell {
    fn from(x: f64) -> Self {
        if x.is_finite() { Self::Number(x) } else { Self::Absent }
    }
}

impl From<Option<f64>> for ResultCell {
    fn from(x: Option<f64>) -> Self {
        x.map_or(Self::Absent, Self::from)
    }
}

/// Table of results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResultTable {
    pub title: String,
    /// Headings, with units.
    pub columns: Vec<&'static str>,
    /// Rows, each as long as the headings.
    pub rows: Vec<Vec<ResultCell>>,
}

impl ResultTable {
    pub(crate) fn new(title: impl Into<String>, columns: &[&'static str]) -> Self {
        Self {
            title: title.into(),
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = ResultCell>) {
        self.rows.push(cells.into_iter().collect());
    }
}

/// Result of one study.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StudyResult {
    /// Name of the study.
    pub study: &'static str,
    /// Source name of the data set.
    pub source: &'static str,
    /// Definition of the counted items and the method.
    pub definition: String,
    /// Population and its origin.
    pub population: Option<String>,
    /// First and last moment in seconds of the data set's clock.
    pub window: Option<(f64, f64)>,
    /// Description of the data set's clock.
    pub clock: String,
    pub tables: Vec<ResultTable>,
    pub plots: Vec<StudyPlot>,
    /// Limitations of the data, and rows that were left out.
    pub problems: Vec<String>,
}

impl StudyResult {
    pub(crate) fn new(study: &'static str, data: &Dataset, definition: impl Into<String>) -> Self {
        let problems = data.problems.kinds.iter().map(|(kind, group)| {
            let first = group.first.first().map_or("", |problem| problem.what.as_str());
            let plural = |count: u64| if count == 1 { "" } else { "s" };
            format!(
                "{kind}: {} time{}, {} row{} lost; the first: {first}",
                group.count,
                plural(group.count),
                group.rows_lost,
                plural(group.rows_lost)
            )
        });
        Self {
            study,
            source: data.source,
            definition: definition.into(),
            population: data
                .population
                .map(|all| format!("{} {} ({})", all.count, all.unit, all.from)),
            window: data.window,
            clock: data.clock.to_string(),
            tables: Vec::new(),
            plots: Vec::new(),
            problems: problems.collect(),
        }
    }
}
