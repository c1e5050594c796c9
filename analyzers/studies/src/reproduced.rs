//! Reproduction of published figures, each with its definition. A figure without a known publication has no published
//! value: it is computed, and compared with the earlier result of the same definition.

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
pub struct ReproducedFigure {
    /// Source name of the data set.
    pub source: &'static str,
    /// Study that it belongs to.
    pub study: &'static str,
    /// Description with unit.
    pub name: String,
    /// Value as printed by the authors, with its publication; absent if only the definition is known.
    pub published: Option<String>,
    /// Bounds of a value that is published as a range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<PublishedRange>,
    pub computed: f64,
    /// Expected value: the published one, or the earlier result of the definition.
    pub expected: f64,
    /// Tolerance: half of the last printed digit, or the authors' rounding.
    pub tolerance: f64,
    /// Definition of the counted items and the method.
    pub definition: &'static str,
}

impl ReproducedFigure {
    /// Returns true if the computed value is within the tolerance of the expected one.
    pub fn agrees(&self) -> bool {
        (self.computed - self.expected).abs() <= self.tolerance * (1.0 + 1e-9) + 1e-12
    }

    /// Compares the figure with its publication.
    pub fn comparison(&self) -> FigureComparison {
        if !self.agrees() {
            return FigureComparison::Differs;
        }
        match (&self.range, &self.published) {
            (Some(range), _) if range.contains(self.computed) => FigureComparison::Inside,
            (Some(_), _) => FigureComparison::Outside,
            (None, Some(_)) => FigureComparison::Equal,
            (None, None) => FigureComparison::Computed,
        }
    }
}

/// Bounds that authors print instead of a value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PublishedRange {
    pub low: f64,
    /// Greatest value; absent if the authors print only the least.
    pub high: Option<f64>,
}

impl PublishedRange {
    fn contains(&self, value: f64) -> bool {
        value >= self.low && self.high.is_none_or(|high| value <= high)
    }
}

/// Comparison of a figure with its publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureComparison {
    /// Equal to the published value.
    Equal,
    /// Within the published range.
    Inside,
    /// Outside the published range, and equal to the earlier result of the definition.
    Outside,
    /// Equal to the earlier result of the definition; no published value is known.
    Computed,
    /// Different from the expected value.
    Differs,
}

/// Collector of the figures of one data set.
pub(crate) struct FigureCollector {
    source: &'static str,
    all: Vec<ReproducedFigure>,
}

impl FigureCollector {
    fn add(
        &mut self,
        study: &'static str,
        name: &str,
        computed: f64,
        expected: f64,
        tolerance: f64,
    ) -> &mut ReproducedFigure {
        let at = self.all.len();
        self.all.push(ReproducedFigure {
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

impl ReproducedFigure {
    /// Sets the value that the authors print.
    fn printed(&mut self, value: &str, by: &str) -> &mut Self {
        self.published = Some(format!("{value} ({by})"));
        self
    }

    /// Sets the bounds that the authors print.
    fn bounded(&mut self, low: f64, high: Option<f64>) -> &mut Self {
        self.range = Some(PublishedRange { low, high });
        self
    }

    fn defined(&mut self, definition: &'static str) -> &mut Self {
        self.definition = definition;
        self
    }
}

/// Computes the figures known for a data set's source; empty for a source without figures.
pub fn figures(data: &Dataset) -> Result<Vec<ReproducedFigure>, StudyError> {
    let mut figures = FigureCollector {
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

    fn figure(computed: f64) -> ReproducedFigure {
        let mut figures = FigureCollector {
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
        assert_eq!(within(1_195.7, 20.0, Some(1_000.0)), FigureComparison::Outside);
        assert_eq!(within(19.9, 20.0, Some(1_000.0)), FigureComparison::Outside);
        assert_eq!(within(20.0, 20.0, Some(1_000.0)), FigureComparison::Inside);
        assert_eq!(within(1_000.0, 20.0, Some(1_000.0)), FigureComparison::Inside);
        assert_eq!(within(30_207.0, 30_000.0, None), FigureComparison::Inside);
        assert_eq!(within(29_999.0, 30_000.0, None), FigureComparison::Outside);
    }

    #[test]
    fn a_value_is_equal_computed_or_differs() {
        assert_eq!(figure(5.0).comparison(), FigureComparison::Computed);
        assert_eq!(
            figure(5.0).printed("5", "made up").comparison(),
            FigureComparison::Equal
        );
        let mut changed = figure(5.0);
        changed.bounded(1.0, Some(9.0)).expected = 4.0;
        assert_eq!(changed.comparison(), FigureComparison::Differs);
    }
}
