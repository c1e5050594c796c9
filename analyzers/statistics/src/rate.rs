//! Failure rates: failures over exposure, with intervals.

use rankguard_checkpoint_schedule::rates::RateBelief;
use serde::Serialize;

/// Constant rate estimated from a count.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RateEstimate {
    /// Number of failures.
    pub failures: u64,
    /// Exposure, in the unit of the caller (node-hours, device-years).
    pub exposure: f64,
    /// Failures per unit of exposure.
    pub rate: f64,
    /// Lower end of the exact interval (Garwood 1936).
    pub low: f64,
    /// Upper end of the exact interval.
    pub high: f64,
}

impl RateEstimate {
    /// Estimates a rate with an interval of confidence at least `level`; `None` without exposure.
    pub fn new(failures: u64, exposure: f64, level: f64) -> Option<Self> {
        if !(exposure > 0.0 && exposure.is_finite()) {
            return None;
        }
        let tail = 0.5 * (1.0 - level.clamp(0.0, 1.0));
        let end = |shape: f64, p: f64| {
            let gamma = RateBelief {
                failures: shape,
                node_hours: exposure,
            };
            gamma.quantile(p)
        };
        Some(Self {
            failures,
            exposure,
            rate: failures as f64 / exposure,
            low: if failures == 0 { 0.0 } else { end(failures as f64, tail) },
            high: end(failures as f64 + 1.0, 1.0 - tail),
        })
    }

    /// Returns the mean exposure between failures; `None` without failures.
    pub fn mean_between(&self) -> Option<f64> {
        (self.failures > 0).then(|| self.exposure / self.failures as f64)
    }
}

/// Returns the posterior rate of one of many similar units: a Gamma prior at the average rate with the weight
/// of `weight` failures, updated with the unit's own record.
pub fn posterior(failures: u64, exposure: f64, average: f64, weight: f64) -> Option<RateBelief> {
    if !(exposure >= 0.0 && average > 0.0 && weight > 0.0) {
        return None;
    }
    let mut rate = RateBelief {
        failures: weight,
        node_hours: weight / average,
    };
    rate.observe(failures, exposure);
    Some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Garwood's table: 0 gives 3.689, 1 gives 0.0253 to 5.572, 10 gives 4.795 to 18.390.
    #[test]
    fn the_intervals_are_those_of_the_table() {
        for (count, low, high) in [(0, 0.0, 3.689), (1, 0.0253, 5.572), (10, 4.795, 18.390)] {
            let rate = RateEstimate::new(count, 1.0, 0.95).expect("exposure");
            assert!(
                (rate.low - low).abs() < 6e-4 && (rate.high - high).abs() < 6e-4,
                "{rate:?}"
            );
        }
        assert_eq!(RateEstimate::new(3, 0.0, 0.95), None);
        assert_eq!(
            RateEstimate::new(4, 2.0, 0.95).and_then(|rate| rate.mean_between()),
            Some(0.5)
        );
    }

    #[test]
    fn a_short_record_leans_on_the_average_and_a_long_one_does_not() {
        let short = posterior(1, 10.0, 0.01, 2.0).expect("a belief").mean();
        assert!((short - 3.0 / 210.0).abs() < 1e-12);
        let long = posterior(10_000, 100_000.0, 0.01, 2.0).expect("a belief").mean();
        assert!((long - 0.1).abs() < 1e-3);
    }
}
