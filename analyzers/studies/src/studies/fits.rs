//! Which distribution times between failures, or of intervals, follow.

use rankguard_datasets::{Dataset, Table as Canonical};
use rankguard_statistics::fit::{Distribution, Sample, Zeros};
use rankguard_statistics::sample;

use crate::error::StudyError;
use crate::outcome::{Outcome, Table};
use crate::studies::availability::intervals;
use crate::studies::{Options, Study};

pub(super) const STUDY: Study = Study {
    name: "fits",
    about: "exponential, Weibull, lognormal and gamma by maximum likelihood, of gaps and of up and down intervals",
    needs: "failures: time; or outages: start, end, state",
    run,
};

/// Lengths of the intervals in one state, hours.
pub(crate) fn hours(intervals: &[(String, f64, f64, bool)], up: bool) -> Vec<f64> {
    let chosen = intervals.iter().filter(|interval| interval.3 == up);
    chosen.map(|(_, start, end, _)| (end - start) / 3_600.0).collect()
}

/// Times between neighbouring failures of the whole data set, seconds.
pub(crate) fn gaps(data: &Dataset) -> Result<Vec<f64>, StudyError> {
    let times: Vec<f64> = data.f64s(Canonical::Failures, "time")?.into_iter().flatten().collect();
    Ok(sample::gaps(&times))
}

fn run(data: &Dataset, options: &Options) -> Result<Outcome, StudyError> {
    let zeros = options.zeros_s.map_or(Zeros::Dropped, Zeros::Replaced);
    let mut samples = Vec::new();
    if data.frame(Canonical::Failures).is_some() {
        samples.push(("time between failures, s", gaps(data)?));
    }
    if data.frame(Canonical::Outages).is_some() {
        let intervals = intervals(data)?;
        samples.push(("interval up, h", hours(&intervals, true)));
        samples.push(("interval down, h", hours(&intervals, false)));
    }
    let definition = format!(
        "maximum likelihood, location 0, {zeros}; smallest AIC first; first and last intervals are not treated as censored; KS is a distance, not a test"
    );
    let mut outcome = Outcome::new("fits", data, definition);
    for (title, durations) in samples {
        let Some(sample) = Sample::new(&durations, zeros) else {
            continue;
        };
        let mut table = Table::new(
            format!("{title}: {} values, {} zeros", sample.durations().len(), sample.zeros),
            &[
                "family",
                "shape or mu",
                "scale, mean or sigma",
                "ln likelihood",
                "AIC",
                "KS",
            ],
        );
        for fit in sample.fit_all() {
            let (first, second) = match fit.distribution {
                Distribution::Exponential { mean } => (None, mean),
                Distribution::Weibull { shape, scale } | Distribution::Gamma { shape, scale } => (Some(shape), scale),
                Distribution::Lognormal { mu, sigma } => (Some(mu), sigma),
            };
            table.row([
                fit.distribution.name().into(),
                first.into(),
                second.into(),
                fit.ln_likelihood.into(),
                fit.aic.into(),
                fit.ks.into(),
            ]);
        }
        outcome.tables.push(table);
    }
    if outcome.tables.is_empty() {
        return Err(StudyError::missing(
            "fewer than two different durations: nothing to fit",
            "give data with times of failures, or with intervals",
        ));
    }
    Ok(outcome)
}
