//! Survival curve of lifetimes of which some are censored (Kaplan and Meier 1958).

use serde::Serialize;

use crate::normal;

/// One observed lifetime, complete or censored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ObservedLifetime {
    /// Time until the failure or the censoring, in any unit.
    pub time: f64,
    /// True if the lifetime ended with a failure; false if it was censored, so that the failure time is unknown.
    pub failed: bool,
}

/// Step of the survival curve at an age with a failure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SurvivalStep {
    /// Age of the step, in the unit of the lifetimes.
    pub time: f64,
    /// Number of lifetimes that reach this age without failure or censoring.
    pub at_risk: usize,
    /// Number of failures at this age.
    pub failed: usize,
    /// Share that survives this age, 0 to 1.
    pub survival: f64,
    /// Standard error of `survival` by Greenwood's formula; 0 once all have failed.
    pub error: f64,
    /// Lower end of the confidence interval, computed on the log-log scale, so that it is within 0 and 1; 0 once all
    /// have failed.
    pub low: f64,
    /// Upper end of the confidence interval; 0 once all have failed.
    pub high: f64,
}

/// Returns a step for every age with a failure, in ascending order, with confidence intervals of `level`, 0 to 1. At
/// equal ages, failures come before censoring. Lifetimes with a negative or not finite time are ignored.
pub fn curve(lives: &[ObservedLifetime], level: f64) -> Vec<SurvivalStep> {
    let z = normal::half_width(level);
    let lives = ordered(lives);
    let mut survival = 1.0;
    let mut greenwood = 0.0;
    let mut steps = Vec::new();
    let mut at = 0;
    while at < lives.len() {
        let time = lives[at].time;
        let same = lives[at..].iter().take_while(|life| life.time == time).count();
        let failed = lives[at..at + same].iter().filter(|life| life.failed).count();
        let at_risk = lives.len() - at;
        at += same;
        if failed == 0 {
            continue;
        }
        let n = at_risk as f64;
        let d = failed as f64;
        survival *= 1.0 - d / n;
        greenwood += d / (n * (n - d));
        let (low, high, error) = if survival > 0.0 && survival < 1.0 {
            let spread = z * greenwood.sqrt() / survival.ln().abs();
            let end = |sign: f64| survival.powf((sign * spread).exp());
            (end(1.0), end(-1.0), survival * greenwood.sqrt())
        } else {
            // All at risk have failed, so Greenwood's formula divides by zero.
            (0.0, 0.0, 0.0)
        };
        steps.push(SurvivalStep {
            time,
            at_risk,
            failed,
            survival,
            error,
            low,
            high,
        });
    }
    steps
}

/// Returns the survival at an age: that of the last step up to it, or 1 before the first step.
pub fn at(curve: &[SurvivalStep], time: f64) -> f64 {
    let after = curve.partition_point(|step| step.time <= time);
    after.checked_sub(1).map_or(1.0, |last| curve[last].survival)
}

/// Returns the first age that at most half survive; `None` if more than half survive the last step.
pub fn median(curve: &[SurvivalStep]) -> Option<f64> {
    curve.iter().find(|step| step.survival <= 0.5).map(|step| step.time)
}

/// Returns the lifetimes with a finite time of at least 0, in ascending order.
pub(crate) fn ordered(lives: &[ObservedLifetime]) -> Vec<ObservedLifetime> {
    let mut lives: Vec<ObservedLifetime> = lives
        .iter()
        .copied()
        .filter(|life| life.time.is_finite() && life.time >= 0.0)
        .collect();
    lives.sort_by(|a, b| a.time.total_cmp(&b.time));
    lives
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Weeks in remission of leukaemia patients with 6-MP (Freireich and others, 1963), an example of many textbooks:
    /// time, and true for a relapse.
    pub(crate) const TREATED: [(f64, bool); 21] = [
        (6.0, true),
        (6.0, true),
        (6.0, true),
        (6.0, false),
        (7.0, true),
        (9.0, false),
        (10.0, true),
        (10.0, false),
        (11.0, false),
        (13.0, true),
        (16.0, true),
        (17.0, false),
        (19.0, false),
        (20.0, false),
        (22.0, true),
        (23.0, true),
        (25.0, false),
        (32.0, false),
        (32.0, false),
        (34.0, false),
        (35.0, false),
    ];

    /// Weeks in remission of the placebo group, in which all relapsed.
    pub(crate) const PLACEBO: [f64; 21] = [
        1.0, 1.0, 2.0, 2.0, 3.0, 4.0, 4.0, 5.0, 5.0, 8.0, 8.0, 8.0, 8.0, 11.0, 11.0, 12.0, 12.0, 15.0, 17.0, 22.0, 23.0,
    ];

    pub(crate) fn treated() -> Vec<ObservedLifetime> {
        TREATED
            .iter()
            .map(|(time, failed)| ObservedLifetime {
                time: *time,
                failed: *failed,
            })
            .collect()
    }

    pub(crate) fn placebo() -> Vec<ObservedLifetime> {
        PLACEBO
            .iter()
            .map(|time| ObservedLifetime {
                time: *time,
                failed: true,
            })
            .collect()
    }

    /// Compares survival and Greenwood's standard errors with the values printed in textbooks.
    #[test]
    fn the_textbook_curve() {
        let steps = curve(&treated(), 0.95);
        let wanted = [
            (6.0, 21, 0.8571, 0.0764),
            (7.0, 17, 0.8067, 0.0869),
            (10.0, 15, 0.7529, 0.0963),
            (13.0, 12, 0.6902, 0.1068),
            (16.0, 11, 0.6275, 0.1141),
            (22.0, 7, 0.5378, 0.1282),
            (23.0, 6, 0.4482, 0.1346),
        ];
        assert_eq!(steps.len(), wanted.len());
        for (step, (time, at_risk, survival, error)) in steps.iter().zip(wanted) {
            assert_eq!((step.time, step.at_risk), (time, at_risk));
            assert!((step.survival - survival).abs() < 5e-5, "{step:?}");
            assert!((step.error - error).abs() < 1e-4, "{step:?}");
            assert!(step.low < step.survival && step.survival < step.high);
        }
        assert_eq!(median(&steps), Some(23.0));
        assert_eq!((at(&steps, 5.9), at(&steps, 6.5)), (1.0, steps[0].survival));
    }

    #[test]
    fn without_censoring_it_is_the_share_that_is_left_and_ends_at_zero() {
        let steps = curve(&placebo(), 0.95);
        assert!((at(&steps, 8.0) - 8.0 / 21.0).abs() < 1e-12);
        let last = steps.last().expect("steps");
        assert_eq!((last.survival, last.low, last.high), (0.0, 0.0, 0.0));
        assert!(curve(&[], 0.95).is_empty());
    }
}
