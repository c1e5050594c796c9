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
    /// The bounds of a published value that is a range; the figure is inside it or outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<PublishedRange>,
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

    /// How it compares with its publication.
    pub fn comparison(&self) -> Comparison {
        if !self.agrees() {
            return Comparison::Differs;
        }
        match (&self.range, &self.published) {
            (Some(range), _) if range.contains(self.computed) => Comparison::Inside,
            (Some(_), _) => Comparison::Outside,
            (None, Some(_)) => Comparison::Equal,
            (None, None) => Comparison::Computed,
        }
    }
}

/// Bounds that authors print instead of a value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PublishedRange {
    /// The least value.
    pub low: f64,
    /// The greatest value; absent where the authors print only the least.
    pub high: Option<f64>,
}

impl PublishedRange {
    fn contains(&self, value: f64) -> bool {
        value >= self.low && self.high.is_none_or(|high| value <= high)
    }
}

/// How a figure compares with its publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// It is the published value.
    Equal,
    /// It lies in the published range.
    Inside,
    /// It lies outside the published range, and is what the definition gave before.
    Outside,
    /// No published value is known; it is what the definition gave before.
    Computed,
    /// It is not what it must equal.
    Differs,
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
            range: None,
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

    /// The authors print bounds.
    fn bounded(&mut self, low: f64, high: Option<f64>) -> &mut Self {
        self.range = Some(PublishedRange { low, high });
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

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(computed: f64) -> Figure {
        let mut figures = Figures {
            source: "made-up",
            all: Vec::new(),
        };
        figures.add("mtbf", "failures a year", computed, computed, 0.0).clone()
    }

    #[test]
    fn a_published_range_is_never_called_equal() {
        let within = |value, low, high| {
            figure(value)
                .printed("a range", "made up")
                .bounded(low, high)
                .comparison()
        };
        assert_eq!(within(1_195.7, 20.0, Some(1_000.0)), Comparison::Outside);
        assert_eq!(within(19.9, 20.0, Some(1_000.0)), Comparison::Outside);
        assert_eq!(within(20.0, 20.0, Some(1_000.0)), Comparison::Inside);
        assert_eq!(within(1_000.0, 20.0, Some(1_000.0)), Comparison::Inside);
        assert_eq!(within(30_207.0, 30_000.0, None), Comparison::Inside);
        assert_eq!(within(29_999.0, 30_000.0, None), Comparison::Outside);
    }

    #[test]
    fn a_value_is_equal_computed_or_differs() {
        assert_eq!(figure(5.0).comparison(), Comparison::Computed);
        assert_eq!(figure(5.0).printed("5", "made up").comparison(), Comparison::Equal);
        let mut changed = figure(5.0);
        changed.bounded(1.0, Some(9.0)).expected = 4.0;
        assert_eq!(changed.comparison(), Comparison::Differs);
    }
}
