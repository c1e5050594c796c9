//! Checkpoint policies, computed by the code that plans a live job (`rankguard-checkpoint-schedule`).

use std::fmt;
use std::str::FromStr;

use rankguard_checkpoint_schedule::governor::{IntervalLimits, in_steps};
use rankguard_checkpoint_schedule::interval;
use rankguard_checkpoint_schedule::plan::{PlanError, PlanInputs, StorageTier as PlannedTier};
use rankguard_checkpoint_schedule::rates::RateBelief;
use serde::Serialize;

use crate::job::SimulatedJob;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum IntervalPolicy {
    /// Fixed interval in seconds of work, on the last tier.
    Fixed(f64),
    /// Young's interval, on the last tier.
    Young,
    /// Daly's higher-order interval, on the last tier.
    Daly,
    /// The exact optimum of Daly's model, on the last tier.
    Exact,
    /// The planner's nested pattern over all tiers, with the failure rate of the whole trace.
    MultiLevel,
    /// The same pattern, with a published prior that the job's own failures correct, as for a live job.
    Adaptive,
    /// CheckFreq (FAST 2021; the rule of its artefact): back-to-back checkpoints, spaced by two more steps until the
    /// stall is below this share of work; on the last tier.
    CheckFreq(f64),
    /// SCR: a checkpoint as soon as it takes less than this share of the time since the previous one; on the last tier.
    Scr(f64),
    /// The bound: knows every failure, starts the fastest checkpoint that survives it just in time, and restores from
    /// the fastest tier. No policy exceeds it on the same failure schedule.
    Oracle,
}

impl IntervalPolicy {
    /// Default policies of a comparison.
    pub const USUAL: [Self; 11] = [
        Self::Fixed(600.0),
        Self::Fixed(1_800.0),
        Self::Fixed(3_600.0),
        Self::Young,
        Self::Daly,
        Self::Exact,
        Self::CheckFreq(0.05),
        Self::Scr(0.05),
        Self::MultiLevel,
        Self::Adaptive,
        Self::Oracle,
    ];
}

impl fmt::Display for IntervalPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(seconds) => write!(f, "fixed:{seconds}"),
            Self::Young => f.write_str("young"),
            Self::Daly => f.write_str("daly"),
            Self::Exact => f.write_str("exact"),
            Self::MultiLevel => f.write_str("multi-level"),
            Self::Adaptive => f.write_str("adaptive"),
            Self::CheckFreq(share) => write!(f, "checkfreq:{share}"),
            Self::Scr(share) => write!(f, "scr:{share}"),
            Self::Oracle => f.write_str("oracle"),
        }
    }
}

impl Serialize for IntervalPolicy {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for IntervalPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = match text.split_once(':') {
            Some((name, value)) => {
                let value: f64 = value.parse().map_err(|_| format!("{value:?} is no number"))?;
                (name, Some(value))
            }
            None => (text, None),
        };
        let share = |value: Option<f64>| match value.unwrap_or(0.05) {
            share if share > 0.0 && share < 1.0 => Ok(share),
            share => Err(format!("{share} is no share between 0 and 1")),
        };
        let plain = |policy| match value {
            None => Ok(policy),
            Some(_) => Err(format!("{name} takes no value")),
        };
        match name {
            "fixed" => match value {
                Some(seconds) if seconds.is_finite() && seconds > 0.0 => Ok(Self::Fixed(seconds)),
                _ => Err("say how many seconds of work: fixed:1800".to_owned()),
            },
            "young" => plain(Self::Young),
            "daly" => plain(Self::Daly),
            "exact" => plain(Self::Exact),
            "multi-level" => plain(Self::MultiLevel),
            "adaptive" => plain(Self::Adaptive),
            "oracle" => plain(Self::Oracle),
            "checkfreq" => share(value).map(Self::CheckFreq),
            "scr" => share(value).map(Self::Scr),
            _ => Err(format!(
                "there is no policy {name:?}; there are fixed:SECONDS, young, daly, exact, multi-level, adaptive, checkfreq[:SHARE], scr[:SHARE], oracle"
            )),
        }
    }
}

/// Failure statistics given to the planner.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FailureStatistics {
    /// Failures of the job a second.
    pub rate: f64,
    /// Share of failures that the checkpoints of each tier survive. Below 1 for all tiers but the last: with 1, the
    /// planner would never write to the last tier, and one failure beyond the copies would lose all work.
    pub covers: Vec<f64>,
    /// Prior failure rate, failures a node-hour; used by [`IntervalPolicy::Adaptive`] only.
    pub prior: RateBelief,
}

/// Work between two checkpoints of each tier in seconds; `None` for an unused tier.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TierIntervals(pub Vec<Option<f64>>);

impl TierIntervals {
    /// Returns the schedule of a policy. The bound has none.
    pub fn of(policy: IntervalPolicy, job: &SimulatedJob, known: &FailureStatistics) -> Result<Self, PlanError> {
        let Some(last) = job.tiers.last() else {
            return Err(PlanError::Tiers(0));
        };
        let mtbf_s = 1.0 / known.rate;
        let shortest = interval::shortest(last.blocking_s, last.ready_s(), job.in_flight);
        let alone = |wanted: f64| {
            let mut all = vec![None; job.tiers.len()];
            let steps = in_steps(wanted.max(shortest).min(1e12), job.step_s);
            all[job.tiers.len() - 1] = Some(steps as f64 * job.step_s);
            Ok(Self(all))
        };
        match policy {
            IntervalPolicy::Fixed(seconds) => alone(seconds),
            IntervalPolicy::Young => alone(interval::young(last.blocking_s, mtbf_s)),
            IntervalPolicy::Daly => alone(interval::daly(last.blocking_s, mtbf_s)),
            IntervalPolicy::Exact => alone(interval::exact(last.blocking_s, mtbf_s)),
            IntervalPolicy::CheckFreq(most) => alone(check_freq(last.ready_s(), last.blocking_s, job.step_s, most)),
            IntervalPolicy::Scr(allowed) => alone(last.blocking_s * (1.0 / allowed - 1.0)),
            IntervalPolicy::MultiLevel | IntervalPolicy::Adaptive => Self::planned(job, known),
            IntervalPolicy::Oracle => Ok(Self(vec![None; job.tiers.len()])),
        }
    }

    /// Returns the planner's schedule. Tiers that survive no more than a cheaper one are left out, except the last.
    fn planned(job: &SimulatedJob, known: &FailureStatistics) -> Result<Self, PlanError> {
        let mut asked = Vec::new();
        let mut below = 0.0;
        let last = job.tiers.len().saturating_sub(1);
        for (at, tier) in job.tiers.iter().enumerate() {
            let covers = if at == last {
                1.0
            } else {
                known.covers.get(at).copied().unwrap_or(0.0)
            };
            if covers > below && (at == last || covers < 1.0) {
                asked.push((at, tier, covers));
                below = covers;
            }
        }
        let tiers = asked.iter().map(|(_, tier, covers)| PlannedTier {
            name: tier.name.clone(),
            blocking_s: tier.blocking_s,
            latency_s: tier.ready_s(),
            covers: *covers,
            restore_s: tier.restore_s,
        });
        let question = PlanInputs {
            tiers: tiers.collect(),
            rate: known.rate,
            detect_s: job.detect_s,
            restart_s: job.restart_s,
            queue_s: 0.0,
            in_flight: job.in_flight,
            step_s: Some(job.step_s),
            limits: IntervalLimits {
                max_s: f64::INFINITY,
                ..IntervalLimits::default()
            },
        };
        let plan = question.solve()?;
        let mut all = vec![None; job.tiers.len()];
        for ((at, _, _), tier) in asked.iter().zip(&plan.tiers) {
            all[*at] = tier.interval_s;
        }
        Ok(Self(all))
    }
}

/// Returns CheckFreq's interval in seconds of work: `k = max(ceil((t_f - o) / t_i), 1)` steps for a persist time, a
/// stall and a step, and `k + 2` while the stall exceeds its share.
pub fn check_freq(persist_s: f64, stall_s: f64, step_s: f64, most: f64) -> f64 {
    let mut steps = ((persist_s - stall_s) / step_s).ceil().max(1.0);
    let enough = stall_s / (most * step_s);
    if steps < enough {
        steps += 2.0 * ((enough - steps) / 2.0).ceil();
    }
    steps * step_s
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{CopyPlacement, SurvivedFailures, TierCosts};

    /// The artefact of CheckFreq: a persist time of 12 s, a stall of 0.9 s and a step of 0.5 s give 23 steps.
    #[test]
    fn checkfreq_is_that_of_its_artefact() {
        assert!((check_freq(12.0, 0.9, 0.5, 1.0) - 23.0 * 0.5).abs() < 1e-9);
        // 0.9 of 11.5 is 7.8 %: 5 % requires 36 steps or more, in twos from 23.
        assert!((check_freq(12.0, 0.9, 0.5, 0.05) - 37.0 * 0.5).abs() < 1e-9);
    }

    #[test]
    fn names_are_read_back() {
        for policy in IntervalPolicy::USUAL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        for wrong in ["fixed", "fixed:-1", "fixed:x", "young:3", "scr:2", "best"] {
            assert!(wrong.parse::<IntervalPolicy>().is_err(), "{wrong}");
        }
    }

    fn tier(name: &str, blocking_s: f64, survives: SurvivedFailures) -> TierCosts {
        TierCosts {
            name: name.to_owned(),
            blocking_s,
            latency_s: blocking_s,
            restore_s: 0.0,
            survives,
        }
    }

    /// One failure an hour, 75, 22 and 3 % by tier, checkpoints of 0.2, 2 and 120 s: the first-order optimum is one on
    /// the first tier each 43.8 s, on the second each 256 s, on the third each 89 min.
    #[test]
    fn the_pattern_is_the_planners() {
        let job = SimulatedJob {
            step_s: 0.1,
            tiers: vec![
                tier("arena", 0.2, SurvivedFailures::Process),
                tier(
                    "peer",
                    2.0,
                    SurvivedFailures::Peers(CopyPlacement { copies: 2, stride: 1 }),
                ),
                tier("store", 120.0, SurvivedFailures::All),
            ],
            ..SimulatedJob::bloom(64, 0.0, 0.0)
        };
        let known = FailureStatistics {
            rate: 1.0 / 3_600.0,
            covers: vec![0.75, 0.97, 1.0],
            prior: RateBelief {
                failures: 2.0,
                node_hours: 2.0,
            },
        };
        let found = TierIntervals::of(IntervalPolicy::MultiLevel, &job, &known)
            .expect("a plan")
            .0;
        for (found, wanted) in found.iter().zip([43.8, 256.0, 5_366.6]) {
            let found = found.expect("every tier helps");
            assert!((found / wanted - 1.0).abs() < 0.12, "{found} {wanted}");
        }
        // Tiers that survive nothing more are left out, except the last.
        let useless = FailureStatistics {
            covers: vec![0.0, 0.0, 1.0],
            ..known
        };
        let found = TierIntervals::of(IntervalPolicy::MultiLevel, &job, &useless)
            .expect("a plan")
            .0;
        assert_eq!((found[0], found[1]), (None, None));
        assert!(
            (found[2].expect("the last tier") / 900.0 - 1.0).abs() < 0.1,
            "{found:?}"
        );
    }
}
