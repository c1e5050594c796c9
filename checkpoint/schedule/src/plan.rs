//! The whole question for one job: how often on which tier, what that costs, and what else could be done.

use serde::{Deserialize, Serialize};

use crate::governor::{Bound, Limits, in_steps};
use crate::levels::{Level, MAX_LEVELS, Pattern, pattern};
use crate::{ettr, interval};

/// The interval that people set by hand, seconds: it stands beside every answer.
pub const FIXED_S: f64 = 1_800.0;

/// Share of failures that nobody believes to be survived by any tier but the last, however well the others have done so
/// far: who believed in none would never save to the last tier, and one bad day would take everything.
pub const DOUBT: f64 = 1e-3;

/// Where images are kept, as it was measured or told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tier {
    /// Its name (`arena`, `peer`, `disk`, `object`).
    pub name: String,
    /// What an image on it costs the trainer: the stall, and the slower steps while it is persisted. Seconds.
    pub blocking_s: f64,
    /// From the beginning of an image until it can be used, seconds.
    pub latency_s: f64,
    /// Share of failures after which its images are still there, 0 to 1. Of more than `1 - DOUBT` only the last tier is
    /// believed ([`DOUBT`]).
    pub covers: f64,
    /// Reading an image back, seconds.
    pub restore_s: f64,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Tiers, from the one that survives least; the last survives everything.
    pub tiers: Vec<Tier>,
    /// Failures a second of the whole job.
    pub rate: f64,
    /// From a failure until it is noticed, seconds.
    pub detect_s: f64,
    /// Starting the ranks again, without reading an image, seconds.
    pub restart_s: f64,
    /// Waiting for a node at each failure (the scheduler's queue), seconds. No interval changes it.
    pub queue_s: f64,
    /// Snapshots that may be under way at a time on one tier.
    pub in_flight: u32,
    /// Length of a step where it is known, seconds: intervals become whole steps.
    pub step_s: Option<f64>,
    /// Bounds of the shortest interval, and the overhead budget for all tiers together.
    pub limits: Limits,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Nothing to plan.
    #[error("name one to {MAX_LEVELS} tiers; there are {0}")]
    Tiers(usize),
    /// A figure is no use.
    #[error("{what} is {value}; it must be {wanted}")]
    Figure {
        /// Which one.
        what: String,
        /// Its value.
        value: f64,
        /// What it must be.
        wanted: &'static str,
    },
    /// A tier that costs more must survive more.
    #[error(
        "tier {tier} covers {covers} of the failures, no more than tier {below} before it: order them by what they survive"
    )]
    Order {
        /// The tier.
        tier: String,
        /// Its share.
        covers: f64,
        /// The one before it.
        below: String,
    },
    /// Some failures would lose everything.
    #[error(
        "tier {tier} is the last and covers {covers} of the failures: the others would lose all work; the last tier must cover 1"
    )]
    Uncovered {
        /// The last tier.
        tier: String,
        /// Its share.
        covers: f64,
    },
}

/// What is to be done on one tier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TierPlan {
    /// Its name.
    pub name: String,
    /// Work between two images, seconds; nothing where the tier does not help.
    pub interval_s: Option<f64>,
    /// The same in steps, where the length of a step is known.
    pub every_steps: Option<u64>,
    /// Failures a second that are recovered from it.
    pub rate: f64,
    /// Share of work that its images take.
    pub blocking: f64,
    /// Expected work that is lost at such a failure, with latency and detection, seconds.
    pub lost_s: f64,
}

/// Another way to do it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// Its name.
    pub name: String,
    /// Work between two images of the last tier, the only one that it uses, seconds.
    pub interval_s: f64,
    /// Share of work that images take.
    pub blocking: f64,
    /// Predicted effective training time ratio.
    pub ettr: f64,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Tier by tier, in the order of the question.
    pub tiers: Vec<TierPlan>,
    /// Share of work that images take, all tiers together.
    pub blocking: f64,
    /// What decided the intervals.
    pub bound: Bound,
    /// Predicted effective training time ratio.
    pub ettr: f64,
    /// What else could be done, on the last tier alone.
    pub alternatives: Vec<Alternative>,
}

impl Question {
    /// Answers it.
    pub fn answer(&self) -> Result<Plan, PlanError> {
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
        Ok(Plan {
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
        let mut below: Option<&Tier> = None;
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
            // A tier that is said to survive everything takes nothing from the last one's place.
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

    /// The share of failures that a tier is believed to survive; 0 where there is no such tier.
    pub fn believed(&self, at: usize) -> f64 {
        let most = if at + 1 == self.tiers.len() { 1.0 } else { 1.0 - DOUBT };
        self.tiers.get(at).map_or(0.0, |tier| tier.covers.min(most))
    }

    fn levels(&self) -> Vec<Level> {
        let mut covered = 0.0;
        let level = |(at, tier): (usize, &Tier)| {
            let believed = self.believed(at);
            let share = believed - covered;
            covered = believed;
            let latency_s = tier.latency_s.max(tier.blocking_s);
            let step = self.step_s.unwrap_or(0.0);
            Level {
                cost_s: tier.blocking_s,
                latency_s,
                restart_s: self.detect_s + self.restart_s + tier.restore_s,
                rate: share * self.rate,
                shortest_s: interval::shortest(tier.blocking_s, latency_s, self.in_flight).max(step),
            }
        };
        self.tiers.iter().enumerate().map(level).collect()
    }

    /// Bounds and budget stretch or shrink the whole pattern, so that it stays nested.
    fn bounded(&self, levels: &[Level], free: Pattern) -> (Pattern, Bound) {
        let shortest = free.intervals_s.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        // The budget is for all tiers: as if the shortest interval bore the whole cost.
        let (bounded, bound) = self.limits.apply(shortest, free.blocking(levels) * shortest);
        match bound {
            Bound::Optimum => (free, bound),
            // No bound makes a tier faster than it is.
            _ => (
                free.stretched(levels, (bounded / shortest).max(least_factor(levels, &free))),
                bound,
            ),
        }
    }

    /// Makes the shortest interval a whole number of steps, never shorter than a budget allows.
    fn in_whole_steps(&self, levels: &[Level], found: Pattern) -> Pattern {
        let shortest = found
            .intervals_s
            .iter()
            .flatten()
            .copied()
            .fold(f64::INFINITY, f64::min);
        let Some(step) = self.step_s else { return found };
        let nearest = (shortest / step).round().max(1.0);
        let too_short = self.limits.budget.is_some() || nearest * step / shortest < least_factor(levels, &found);
        // A little is forgiven: a whole number must not become the next one by the last digit.
        let up = (shortest / step - 1e-9).ceil().max(1.0);
        let steps = if too_short { up } else { nearest };
        found.stretched(levels, steps * step / shortest)
    }

    fn alternatives(&self, levels: &[Level]) -> Vec<Alternative> {
        let Some(last) = levels.last() else { return Vec::new() };
        let alone = Level {
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
            // What is under way must end before the next begins, whatever the rule says.
            let interval_s = interval.max(alone.shortest_s);
            Alternative {
                name: format!("{name}, {} only", self.tiers[self.tiers.len() - 1].name),
                interval_s,
                blocking: alone.cost_s / interval_s,
                ettr: self.ettr(alone.overhead(interval_s)),
            }
        });
        rules.collect()
    }
}

/// The factor below which some tier would have to take images faster than it can.
fn least_factor(levels: &[Level], found: &Pattern) -> f64 {
    let used = levels.iter().zip(&found.intervals_s);
    used.filter_map(|(level, interval)| Some(level.shortest_s / (*interval)?))
        .fold(0.0, f64::max)
}
