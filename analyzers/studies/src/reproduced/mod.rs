//! Published figures computed again, each with its definition. A figure whose publication was not read has no published
//! value here: it is computed, and compared with what the same definition gave before.

mod capacity;
mod disks;
mod faults;
mod logs;
mod summaries;
mod training;

use rankguard_datasets::Dataset;
use serde::Serialize;

use crate::error::StudyError;

/// One figure of a data set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// The data set's source.
    pub source: &'static str,
    /// The study that it belongs to.
    pub study: &'static str,
    /// What it is, with its unit.
    pub name: String,
    /// As printed by the authors, and where; absent where only the definition is known.
    pub published: Option<String>,
    /// What was computed.
    pub computed: f64,
    /// What it must equal: the published value, or what the definition gave before.
    pub expected: f64,
    /// How far it may differ: half of the last printed digit, or what the authors' rounding allows.
    pub tolerance: f64,
    /// What is counted, and how.
    pub definition: &'static str,
}

impl Figure {
    /// Whether it is what it must equal.
    pub fn agrees(&self) -> bool {
        (self.computed - self.expected).abs() <= self.tolerance * (1.0 + 1e-9) + 1e-12
    }
}

/// Gathers figures of one data set.
pub(crate) struct Figures {
    source: &'static str,
    all: Vec<Figure>,
}

impl Figures {
    fn add(&mut self, study: &'static str, name: &str, computed: f64, expected: f64, tolerance: f64) -> &mut Figure {
        let at = self.all.len();
        self.all.push(Figure {
            source: self.source,
            study,
            name: name.to_owned(),
            published: None,
            computed,
            expected,
            tolerance,
            definition: "",
        });
        &mut self.all[at]
    }
}

impl Figure {
    /// The authors print it.
    fn printed(&mut self, value: &str, by: &str) -> &mut Self {
        self.published = Some(format!("{value} ({by})"));
        self
    }

    fn defined(&mut self, definition: &'static str) -> &mut Self {
        self.definition = definition;
        self
    }
}

/// The figures that are known for a data set's source; none for a source without.
pub fn figures(data: &Dataset) -> Result<Vec<Figure>, StudyError> {
    let mut figures = Figures {
        source: data.source,
        all: Vec::new(),
    };
    match data.source {
        "infinitehbd" => faults::infinitehbd(data, &mut figures)?,
        "lanl" => faults::lanl(data, &mut figures)?,
        "titan" => faults::titan(data, &mut figures)?,
        "alpine" => disks::alpine(data, &mut figures)?,
        "alibaba-ssd" => disks::alibaba(data, &mut figures)?,
        "grid5000" => disks::grid5000(data, &mut figures)?,
        "bgl" => logs::bgl(data, &mut figures)?,
        "loghub" => logs::loghub(data, &mut figures)?,
        "openb" => logs::openb(data, &mut figures)?,
        "skypilot" => capacity::skypilot(data, &mut figures)?,
        "nrel-eagle" => logs::eagle(data, &mut figures)?,
        "published-tables" => summaries::tables(data, &mut figures)?,
        "gpu-cluster-summaries" => summaries::clusters(data, &mut figures)?,
        "bytedance-stragglers" => training::stragglers(data, &mut figures)?,
        "nccl-flight-recorder" => training::flight(data, &mut figures)?,
        "bamboo" => capacity::bamboo(data, &mut figures)?,
        _ => {}
    }
    Ok(figures.all)
}
