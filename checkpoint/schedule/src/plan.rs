//! Checkpoint plan of one job: interval per tier, cost, and alternatives.

use serde::{Deserialize, Serialize};

use crate::governor::{IntervalBound, IntervalLimits, in_steps};
use crate::levels::{CheckpointLevel, LevelPattern, MAX_LEVELS, pattern};
use crate::{ettr, interval};

/// Interval that operators usually set by hand, seconds; always listed as an alternative.
pub const FIXED_S: f64 = 1_800.0;

/// Minimum share of failures that only the last tier is assumed to survive, even if the measured coverage of the others
/// is higher. Without it the last tier would get no images, and one rare failure would lose all work.
pub const DOUBT: f64 = 1e-3;

/// Storage tier for images, with measured or configured costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StorageTier {
    /// Tier name (`arena`, `peer`, `disk`, `object`).
    pub name: String,
    /// Cost of an image on this tier to the trainer: the stall, and the slower steps while it is persisted. Seconds.
    pub blocking_s: f64,
    /// Time from the start of an image until it is usable, seconds.
    pub latency_s: f64,
    /// Share of failures that its images survive, 0 to 1. Limited to `1 - DOUBT` for every tier but the last
    /// ([`DOUBT`]).
    pub covers: f64,
    /// Time to read an image back, seconds.
    pub restore_s: f64,
}

/// Inputs of a checkpoint plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanInputs {
    /// Tiers in order of the failures they survive; the last survives every failure.
    pub tiers: Vec<StorageTier>,
    /// Failures per second of the whole job.
    pub rate: f64,
    /// Time from a failure to its detection, seconds.
    pub detect_s: f64,
    /// Time to restart the ranks without reading an image, seconds.
    pub restart_s: f64,
    /// Wait for a node at each failure (the scheduler's queue), seconds. Independent of the interval.
    pub queue_s: f64,
    /// Maximum number of snapshots in progress at a time on one tier.
    pub in_flight: u32,
    /// Duration of a step if known, seconds: intervals become whole steps.
    pub step_s: Option<f64>,
    /// Bounds of the shortest interval, and the overhead budget for all tiers together.
    pub limits: IntervalLimits,
}

/// Reason why no plan can be computed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The number of tiers is 0 or above [`MAX_LEVELS`].
    #[error("name one to {MAX_LEVELS} tiers; there are {0}")]
    Tiers(usize),
    /// An input value is out of range.
    #[error("{what} is {value}; it must be {wanted}")]
    Figure {
        /// Name of the input.
        what: String,
        /// Value that was given.
        value: f64,
        /// Range that is allowed.
        wanted: &'static str,
    },
    /// A tier does not cover more failures than the one before it.
    #[error(
        "tier {tier} covers {covers} of the failures, no more than tier {below} before it: order them by what they survive"
    )]
    Order {
        /// Name of the tier.
        tier: String,
        /// Share of failures that it covers.
        covers: f64,
        /// Name of the tier before it.
        below: String,
    },
    /// The last tier does not cover every failure.
    #[error(
        "tier {tier} is the last and covers {covers} of the failures: the others would lose all work; the last tier must cover 1"
    )]
    Uncovered {
        /// Name of the last tier.
        tier: String,
        /// Share of failures that it covers.
        covers: f64,
    },
}

/// Planned interval of one tier and its effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TierPlan {
    /// Name of the tier.
    pub name: String,
    /// Work between two images, seconds; `None` if the tier does not help.
    pub interval_s: Option<f64>,
    /// Steps between two images, if the step duration is known.
    pub every_steps: Option<u64>,
    /// Failures per second that are recovered from this tier.
    pub rate: f64,
    /// Share of work that images on this tier take.
    pub blocking: f64,
    /// Expected loss per failure recovered from this tier, including latency and detection, seconds.
    pub lost_s: f64,
}

/// Alternative plan that uses the last tier alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlternativePlan {
    /// Name of the rule and the tier.
    pub name: String,
    /// Work between two images of the last tier, seconds.
    pub interval_s: f64,
    /// Share of work that images take.
    pub blocking: f64,
    /// Predicted effective training time ratio.
    pub ettr: f64,
}

/// Checkpoint plan of one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointPlan {
    /// Plan of each tier, in the order of the question.
    pub tiers: Vec<TierPlan>,
    /// Share of work that images take, over all tiers.
    pub blocking: f64,
    /// Rule that determined the intervals.
    pub bound: IntervalBound,
    /// Predicted effective training time ratio.
    pub ettr: f64,
    /// Alternatives on the last tier alone.
    pub alternatives: Vec<AlternativePlan>,
}

impl PlanInputs {
    /// Computes the plan.
    pub fn solve(&self) -> Result<CheckpointPlan, PlanError> {
        self.check()?;
        let levels = self.levels();
        let free = pattern(&levels).ok_or(PlanError::Tiers(self.tiers.len()))?;
        let (found, bound) = self.bounded(&levels, free);
        let found = self.in_whole_steps(&levels, found);
        let tiers = self.tiers.iter().zip(&levels).enumerate();
        let tiers = tiers.map(|(at, (tier, level))| TierPlan {
            name: tier.name.clone(),
            interval_s: found.intervals_s[at],
            every_steps: self
                .step_s
                .and_then(|step| Some(in_steps(found.intervals_s[at]?, step))),
            rate: found.rates[at],
            blocking: found.intervals_s[at].map_or(0.0, |interval| level.cost_s / interval),
            lost_s: found.intervals_s[at].map_or(0.0, |interval| 0.5 * interval + level.latency_s + self.detect_s),
        });
        Ok(CheckpointPlan {
            tiers: tiers.collect(),
            blocking: found.blocking(&levels),
            bound,
            ettr: self.ettr(found.overhead),
            alternatives: self.alternatives(&levels),
        })
    }

    fn ettr(&self, overhead: f64) -> f64 {
        ettr::of_overhead(overhead + self.rate * self.queue_s)
    }

    fn check(&self) -> Result<(), PlanError> {
        if self.tiers.is_empty() || self.tiers.len() > MAX_LEVELS {
            return Err(PlanError::Tiers(self.tiers.len()));
        }
        let figure = |what: String, value: f64, wanted, fine: bool| {
            if fine {
                Ok(())
            } else {
                Err(PlanError::Figure { what, value, wanted })
            }
        };
        let time = |value: f64| value.is_finite() && value >= 0.0;
        let positive = |value: f64| value.is_finite() && value > 0.0;
        figure("the failure rate".into(), self.rate, "above 0", positive(self.rate))?;
        let seconds = "a number of seconds, not below 0";
        for (what, value) in [
            ("detection", self.detect_s),
            ("restart", self.restart_s),
            ("queue", self.queue_s),
        ] {
            figure(what.into(), value, seconds, time(value))?;
        }
        if let Some(step) = self.step_s {
            figure("the length of a step".into(), step, "above 0", positive(step))?;
        }
        if let Some(budget) = self.limits.budget {
            figure("the overhead budget".into(), budget, "above 0", positive(budget))?;
        }
        let mut below: Option<&StorageTier> = None;
        for (at, tier) in self.tiers.iter().enumerate() {
            let of = |field: &str| format!("{field} of tier {}", tier.name);
            figure(
                of("blocking time"),
                tier.blocking_s,
                "above 0 seconds",
                positive(tier.blocking_s),
            )?;
            figure(of("latency"), tier.latency_s, seconds, time(tier.latency_s))?;
            figure(of("restore time"), tier.restore_s, seconds, time(tier.restore_s))?;
            let share = positive(tier.covers) && tier.covers <= 1.0;
            figure(of("covered share"), tier.covers, "above 0 and at most 1", share)?;
            // A last tier that covers everything may follow a tier of equal coverage.
            let last = at + 1 == self.tiers.len() && tier.covers == 1.0;
            if let Some(below) = below.filter(|below| below.covers >= tier.covers && !last) {
                let (tier, covers, below) = (tier.name.clone(), tier.covers, below.name.clone());
                return Err(PlanError::Order { tier, covers, below });
            }
            below = Some(tier);
        }
        match below {
            Some(last) if last.covers < 1.0 => Err(PlanError::Uncovered {
                tier: last.name.clone(),
                covers: last.covers,
            }),
            _ => Ok(()),
        }
    }

    /// Returns the share of failures that a tier is assumed to survive; 0 if there is no such tier.
    pub fn limited_coverage(&self, at: usize) -> f64 {
        let most = if at + 1 == self.tiers.len() { 1.0 } else { 1.0 - DOUBT };
        self.tiers.get(at).map_or(0.0, |tier| tier.covers.min(most))
    }

    fn levels(&self) -> Vec<CheckpointLevel> {
        let mut covered = 0.0;
        let level = |(at, tier): (usize, &StorageTier)| {
            let believed = self.limited_coverage(at);
            let share = believed - covered;
            covered = believed;
            let latency_s = tier.latency_s.max(tier.blocking_s);
            let step = self.step_s.unwrap_or(0.0);
            CheckpointLevel {
                cost_s: tier.blocking_s,
                latency_s,
                restart_s: self.detect_s + self.restart_s + tier.restore_s,
                rate: share * self.rate,
                shortest_s: interval::shortest(tier.blocking_s, latency_s, self.in_flight).max(step),
            }
        };
        self.tiers.iter().enumerate().map(level).collect()
    }

    /// Applies bounds and budget by scaling the whole pattern, so that it remains nested.
    fn bounded(&self, levels: &[CheckpointLevel], free: LevelPattern) -> (LevelPattern, IntervalBound) {
        let shortest = free.intervals_s.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        // The budget covers all tiers, so apply it as if the shortest interval carried the whole cost.
        let (bounded, bound) = self.limits.apply(shortest, free.blocking(levels) * shortest);
        match bound {
            IntervalBound::Optimum => {
                let is_late = is_latency_bound(levels, &free);
                (free, if is_late { IntervalBound::Latency } else { bound })
            }
            // No bound may schedule images faster than the tier can take them.
            _ => (
                free.stretched(levels, (bounded / shortest).max(least_factor(levels, &free))),
                bound,
            ),
        }
    }

    /// Rounds the shortest interval to whole steps, never below the budget.
    fn in_whole_steps(&self, levels: &[CheckpointLevel], found: LevelPattern) -> LevelPattern {
        let shortest = found
            .intervals_s
            .iter()
            .flatten()
            .copied()
            .fold(f64::INFINITY, f64::min);
        let Some(step) = self.step_s else { return found };
        let nearest = (shortest / step).round().max(1.0);
        let too_short = self.limits.budget.is_some() || nearest * step / shortest < least_factor(levels, &found);
        // Tolerance of 1e-9 steps, so that a rounding error does not add a step.
        let up = (shortest / step - 1e-9).ceil().max(1.0);
        let steps = if too_short { up } else { nearest };
        found.stretched(levels, steps * step / shortest)
    }

    fn alternatives(&self, levels: &[CheckpointLevel]) -> Vec<AlternativePlan> {
        let Some(last) = levels.last() else { return Vec::new() };
        let alone = CheckpointLevel {
            rate: self.rate,
            ..*last
        };
        let mtbf = 1.0 / self.rate;
        let rules = [
            ("Young", interval::young(alone.cost_s, mtbf)),
            ("Daly", interval::daly(alone.cost_s, mtbf)),
            ("exact", interval::exact(alone.cost_s, mtbf)),
            ("fixed 30 min", FIXED_S),
        ];
        let rules = rules.into_iter().map(|(name, interval)| {
            // An image must end before the next begins, also under a fixed rule.
            let interval_s = interval.max(alone.shortest_s);
            let raised = if interval_s > interval {
                " raised to the shortest possible"
            } else {
                ""
            };
            AlternativePlan {
                name: format!("{name}{raised}, {} only", self.tiers[self.tiers.len() - 1].name),
                interval_s,
                blocking: alone.cost_s / interval_s,
                ettr: self.ettr(alone.overhead(interval_s)),
            }
        });
        rules.collect()
    }
}

/// Returns true if a tier takes images as often as it can, and its optimum alone is shorter.
fn is_latency_bound(levels: &[CheckpointLevel], found: &LevelPattern) -> bool {
    let used = levels.iter().zip(&found.intervals_s).zip(&found.rates);
    used.into_iter().any(|((level, interval), rate)| {
        let at_limit = interval.is_some_and(|interval| interval <= level.shortest_s * (1.0 + 1e-9));
        at_limit && *rate > 0.0 && interval::exact(level.cost_s, 1.0 / rate) < level.shortest_s
    })
}

/// Returns the smallest factor at which every tier can still take its images in time.
fn least_factor(levels: &[CheckpointLevel], found: &LevelPattern) -> f64 {
    let used = levels.iter().zip(&found.intervals_s);
    used.filter_map(|(level, interval)| Some(level.shortest_s / (*interval)?))
        .fold(0.0, f64::max)
}
