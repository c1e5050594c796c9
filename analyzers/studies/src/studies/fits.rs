//! Distribution fits of times between failures and of interval lengths.

use rankguard_datasets::{Dataset, TableKind as Canonical};
use rankguard_statistics::fit::{Distribution, DurationSample, ZeroTreatment};
use rankguard_statistics::kaplan_meier::ObservedLifetime;
use rankguard_statistics::sample;

use crate::error::StudyError;
use crate::outcome::{ResultTable, StudyResult};
use crate::studies::intervals::IntervalTable;
use crate::studies::{Study, StudyOptions, survival};

pub(super) const STUDY: Study = Study {
    name: "fits",
    about: "exponential, Weibull, lognormal and gamma by maximum likelihood, of gaps, up and down intervals, and lives; intervals and lives that have not ended are censored",
    needs: "failures: time; or outages: start, end, state; or nodes: x_time_s, x_dead",
    run,
};

/// Returns times between consecutive failures of the whole data set in seconds.
pub(crate) fn gaps(data: &Dataset) -> Result<Vec<f64>, StudyError> {
    Ok(sample::gaps(&data.numbers(Canonical::Failures, "time")?))
}

/// Title and sample to fit; `None` for a sample without spread.
type TitledSample = (&'static str, Option<DurationSample>);

/// Collects times between failures, interval lengths, and lives, as far as the data has them.
fn samples(data: &Dataset, zeros: ZeroTreatment) -> Result<Vec<TitledSample>, StudyError> {
    let mut samples = Vec::new();
    if data.has(Canonical::Failures) {
        samples.push(("time between failures, s", DurationSample::new(&gaps(data)?, zeros)));
    }
    if data.has(Canonical::Outages) {
        let intervals = IntervalTable::of(data)?;
        // If the end of observation is unknown, an interval without an end has no known length.
        let seen_until = data.window.map_or(f64::NAN, |(_, end)| end);
        for (title, up) in [("interval up, h", true), ("interval down, h", false)] {
            samples.push((title, DurationSample::of_lives(&intervals.lives(up, seen_until), zeros)));
        }
    }
    if let Ok(lives) = survival::lives(data) {
        let lives: Vec<ObservedLifetime> = lives.into_iter().flatten().collect();
        samples.push(("life, years", DurationSample::of_lives(&lives, zeros)));
    }
    Ok(samples)
}

fn run(data: &Dataset, options: &StudyOptions) -> Result<StudyResult, StudyError> {
    let zeros = options.zeros_s.map_or(ZeroTreatment::Dropped, ZeroTreatment::Replaced);
    let samples = samples(data, zeros)?;
    let censored: usize = samples
        .iter()
        .flat_map(|(_, sample)| sample)
        .map(|sample| sample.censored)
        .sum();
    let running = match censored {
        0 => "none is censored, first and last intervals neither".to_owned(),
        count => format!(
            "{count} are right-censored: intervals that went on when the data was taken, and lives without a death; they count with the probability of lasting longer, no gamma is fitted to a sample that has any, and KS is then the distance to Kaplan and Meier's curve; first and last intervals with both ends are not treated as censored"
        ),
    };
    let definition =
        format!("maximum likelihood, location 0, {zeros}; smallest AIC first; {running}; KS is a distance, not a test");
    let mut outcome = StudyResult::new("fits", data, definition);
    for (title, sample) in samples {
        let Some(sample) = sample else {
            continue;
        };
        let running = match sample.censored {
            0 => String::new(),
            count => format!(", {count} censored"),
        };
        let mut table = ResultTable::new(
            format!("{title}: {} values, {} zeros{running}", sample.count(), sample.zeros),
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
