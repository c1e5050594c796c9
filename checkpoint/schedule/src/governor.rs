//! Keeps the interval in force and changes it only when that is worth the change: measurements wobble, and every change
//! is an order to all ranks.

use serde::{Deserialize, Serialize};

use crate::average::Average;

/// A change smaller than this share of the interval in force is not made.
pub const HYSTERESIS: f64 = 0.2;

/// Bounds and budget of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Shortest interval, seconds.
    pub min_s: f64,
    /// Longest interval, seconds.
    pub max_s: f64,
    /// Most of the time that images may take, as a share of work; nothing for no limit.
    pub budget: Option<f64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            min_s: 0.0,
            max_s: 4.0 * 3_600.0,
            budget: None,
        }
    }
}

/// What decided an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The optimum itself.
    Optimum,
    /// The shortest interval that is allowed.
    Min,
    /// The longest.
    Max,
    /// The overhead budget; it goes before every other bound.
    Budget,
}

impl Limits {
    /// The allowed interval nearest to the wanted one, for images that each cost so much.
    pub fn apply(&self, wanted_s: f64, cost_s: f64) -> (f64, Bound) {
        let (mut interval, mut bound) = (wanted_s, Bound::Optimum);
        if interval > self.max_s {
            (interval, bound) = (self.max_s, Bound::Max);
        }
        if interval < self.min_s {
            (interval, bound) = (self.min_s, Bound::Min);
        }
        if let Some(budget) = self.budget {
            let least = cost_s / budget.max(f64::MIN_POSITIVE);
            if interval < least {
                (interval, bound) = (least, Bound::Budget);
            }
        }
        (interval, bound)
    }
}

/// What a tier was measured to take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What an image costs the trainer, seconds.
    pub cost_s: Average,
    /// From the beginning of an image until it can be used, seconds.
    pub latency_s: Average,
}

/// The interval in force, in steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Governor {
    every: u64,
}

impl Governor {
    /// Begins with an interval of so many steps, at least one.
    pub fn new(every: u64) -> Self {
        Self { every: every.max(1) }
    }

    /// Steps between checkpoints.
    pub fn every(&self) -> u64 {
        self.every
    }

    /// Takes in a wish of seconds at the present length of a step. Gives the new interval when it changes.
    pub fn wish(&mut self, interval_s: f64, step_s: f64) -> Option<u64> {
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

/// Whole steps nearest to an interval, at least one.
pub fn in_steps(interval_s: f64, step_s: f64) -> u64 {
    // A float beyond the range of u64 becomes its largest value.
    ((interval_s / step_s).round() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_changes_are_not_made_and_large_ones_are() {
        let mut governor = Governor::new(100);
        assert_eq!(governor.wish(119.0, 1.0), None);
        assert_eq!(governor.wish(81.0, 1.0), None);
        assert_eq!(governor.wish(121.0, 1.0), Some(121));
        assert_eq!(governor.wish(100.0, 1.0), None);
        assert_eq!(governor.wish(f64::NAN, 1.0), None);
        assert_eq!(governor.wish(10.0, 0.0), None);
        assert_eq!(governor.wish(0.0, 1.0), Some(1));
    }

    #[test]
    fn the_budget_goes_before_every_other_bound() {
        let limits = Limits {
            min_s: 10.0,
            max_s: 100.0,
            budget: Some(0.01),
        };
        assert_eq!(limits.apply(5.0, 0.05), (10.0, Bound::Min));
        assert_eq!(limits.apply(50.0, 0.1), (50.0, Bound::Optimum));
        assert_eq!(limits.apply(500.0, 0.1), (100.0, Bound::Max));
        assert_eq!(limits.apply(50.0, 2.0), (200.0, Bound::Budget));
    }

    proptest! {
        /// Wishes that wobble by less than the hysteresis change the interval at most once.
        #[test]
        fn wobbling_wishes_do_not_flap(centre in 20.0..1e6_f64, wobble in prop::collection::vec(-0.08..0.08_f64, 1..100), start in 1..1_000_000_u64) {
            let mut governor = Governor::new(start);
            let changes = wobble.iter().filter(|w| governor.wish(centre * (1.0 + **w), 1.0).is_some()).count();
            prop_assert!(changes <= 1, "{changes}");
        }

        #[test]
        fn bounds_and_budget_hold(wanted in 0.0..1e9_f64, cost in 0.0..1e4_f64, min in 0.0..100.0_f64, budget in 1e-4..0.5_f64) {
            let limits = Limits { min_s: min, max_s: 1e4, budget: Some(budget) };
            let (interval, _) = limits.apply(wanted, cost);
            prop_assert!(interval >= min && cost <= budget * interval * (1.0 + 1e-12));
            prop_assert!(interval <= 1e4_f64.max(cost / budget));
        }
    }
}
