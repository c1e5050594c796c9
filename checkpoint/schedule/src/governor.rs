//! Governor of the checkpoint interval in force. It changes the interval only if the change is worth it: measurements
//! are noisy, and every change is an order to all ranks.

use serde::{Deserialize, Serialize};

use crate::average::WeightedMean;

/// Changes of at most this share of the interval in force are ignored.
pub const HYSTERESIS: f64 = 0.2;

/// Bounds and overhead budget of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct IntervalLimits {
    /// Shortest interval, seconds. Default 0.
    pub min_s: f64,
    /// Longest interval, seconds. Default 4 hours.
    pub max_s: f64,
    /// Maximum share of work that images may take; `None` for no limit.
    pub budget: Option<f64>,
}

impl Default for IntervalLimits {
    fn default() -> Self {
        Self {
            min_s: 0.0,
            max_s: 4.0 * 3_600.0,
            budget: None,
        }
    }
}

/// Rule that determined an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IntervalBound {
    /// The computed optimum.
    Optimum,
    /// The shortest interval that a tier can take: an image must be usable before too many others begin.
    Latency,
    /// The shortest allowed interval.
    Min,
    /// The longest allowed interval.
    Max,
    /// The overhead budget; it takes precedence over every other bound.
    Budget,
}

impl IntervalLimits {
    /// Returns the allowed interval nearest to `wanted_s`, for images that cost `cost_s` each.
    pub fn apply(&self, wanted_s: f64, cost_s: f64) -> (f64, IntervalBound) {
        let mut interval = wanted_s;
        let mut bound = IntervalBound::Optimum;
        if interval > self.max_s {
            (interval, bound) = (self.max_s, IntervalBound::Max);
        }
        if interval < self.min_s {
            (interval, bound) = (self.min_s, IntervalBound::Min);
        }
        if let Some(budget) = self.budget {
            let least = cost_s / budget.max(f64::MIN_POSITIVE);
            if interval < least {
                (interval, bound) = (least, IntervalBound::Budget);
            }
        }
        (interval, bound)
    }
}

/// Measured costs of a tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredCosts {
    /// Cost of an image to the trainer, seconds.
    pub cost_s: WeightedMean,
    /// Time from the start of an image until it is usable, seconds.
    pub latency_s: WeightedMean,
}

/// Interval in force, in steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalGovernor {
    every: u64,
}

impl IntervalGovernor {
    /// Starts with an interval of `every` steps, at least one.
    pub fn new(every: u64) -> Self {
        Self { every: every.max(1) }
    }

    /// Returns the number of steps between checkpoints.
    pub fn every(&self) -> u64 {
        self.every
    }

    /// Processes a requested interval at the current step duration. Returns the new interval in steps if it changes.
    pub fn update_interval(&mut self, interval_s: f64, step_s: f64) -> Option<u64> {
        let steps = interval_s / step_s;
        if !steps.is_finite() {
            return None;
        }
        let change = (steps / self.every as f64 - 1.0).abs();
        let wanted = in_steps(interval_s, step_s);
        if change <= HYSTERESIS || wanted == self.every {
            return None;
        }
        self.every = wanted;
        Some(wanted)
    }
}

/// Returns the interval in steps, rounded to the nearest whole number, at least one.
pub fn in_steps(interval_s: f64, step_s: f64) -> u64 {
    // A float beyond the range of u64 saturates.
    ((interval_s / step_s).round() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_changes_are_not_made_and_large_ones_are() {
        let mut governor = IntervalGovernor::new(100);
        assert_eq!(governor.update_interval(119.0, 1.0), None);
        assert_eq!(governor.update_interval(81.0, 1.0), None);
        assert_eq!(governor.update_interval(121.0, 1.0), Some(121));
        assert_eq!(governor.update_interval(100.0, 1.0), None);
        assert_eq!(governor.update_interval(f64::NAN, 1.0), None);
        assert_eq!(governor.update_interval(10.0, 0.0), None);
        assert_eq!(governor.update_interval(0.0, 1.0), Some(1));
    }

    #[test]
    fn the_budget_goes_before_every_other_bound() {
        let limits = IntervalLimits {
            min_s: 10.0,
            max_s: 100.0,
            budget: Some(0.01),
        };
        assert_eq!(limits.apply(5.0, 0.05), (10.0, IntervalBound::Min));
        assert_eq!(limits.apply(50.0, 0.1), (50.0, IntervalBound::Optimum));
        assert_eq!(limits.apply(500.0, 0.1), (100.0, IntervalBound::Max));
        assert_eq!(limits.apply(50.0, 2.0), (200.0, IntervalBound::Budget));
    }

    proptest! {
        /// Requests that vary by less than the hysteresis change the interval at most once.
        #[test]
        fn wobbling_wishes_do_not_flap(centre in 20.0..1e6_f64, wobble in prop::collection::vec(-0.08..0.08_f64, 1..100), start in 1..1_000_000_u64) {
            let mut governor = IntervalGovernor::new(start);
            let changes = wobble.iter().filter(|w| governor.update_interval(centre * (1.0 + **w), 1.0).is_some()).count();
            prop_assert!(changes <= 1, "{changes}");
        }

        #[test]
        fn bounds_and_budget_hold(wanted in 0.0..1e9_f64, cost in 0.0..1e4_f64, min in 0.0..100.0_f64, budget in 1e-4..0.5_f64) {
            let limits = IntervalLimits { min_s: min, max_s: 1e4, budget: Some(budget) };
            let (interval, _) = limits.apply(wanted, cost);
            prop_assert!(interval >= min && cost <= budget * interval * (1.0 + 1e-12));
            prop_assert!(interval <= 1e4_f64.max(cost / budget));
        }
    }
}
