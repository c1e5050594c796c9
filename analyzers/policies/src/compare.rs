//! Policies side by side on the same weathers, with confidence intervals over replicates.

use rankguard_checkpoint_schedule::plan::PlanError;
use rankguard_checkpoint_schedule::rates::Rate;
use serde::Serialize;

use crate::job::{Job, JobError};
use crate::outcome::{CauseWaste, Outcome};
use crate::policy::{Knowledge, Policy, Schedule};
use crate::random::Random;
use crate::run::run;
use crate::synthetic::Synthetic;
use crate::trace::{Order, Trace, TraceError};
use crate::weather::Weather;

/// Draws of a bootstrap.
const RESAMPLES: usize = 2_000;

/// Where weathers come from.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// Draws from a history: nodes at random, the clock begun at random.
    History(&'a Trace),
    /// A new history each time.
    Synthetic(&'a Synthetic),
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Experiment<'a> {
    /// The job.
    pub job: &'a Job,
    /// Where weathers come from.
    pub source: Source<'a>,
    /// What is compared.
    pub policies: &'a [Policy],
    /// Weathers; at least 1.
    pub replicates: u32,
    /// Where chance begins.
    pub seed: u64,
    /// What is believed before a job ran, for [`Policy::Adaptive`]: failures a node-hour.
    pub prior: Rate,
}

/// Why there is no comparison.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CompareError {
    /// The job is none.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The trace is none.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The planner refuses.
    #[error("no plan: {0}")]
    Plan(#[from] PlanError),
    /// More nodes than the trace has.
    #[error("the job wants {wanted} nodes with its spares and the trace has {there}")]
    TooFewNodes {
        /// Nodes and spares of the job.
        wanted: u32,
        /// Nodes of the trace.
        there: u32,
    },
}

/// A mean over replicates and its 95 % confidence interval (percentile bootstrap).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// The 2.5th percentile of the means of resamples.
    pub low: f64,
    /// The 97.5th.
    pub high: f64,
}

impl Estimate {
    /// Of these values; of one value there is no interval but itself.
    pub fn of(values: &[f64], random: &mut Random) -> Self {
        let mean = |sum: f64| sum / values.len().max(1) as f64;
        let middle = mean(values.iter().sum());
        let mut means: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                let draw = |_| values[random.below(values.len() as u64) as usize];
                mean((0..values.len()).map(draw).sum())
            })
            .collect();
        means.sort_by(f64::total_cmp);
        let at = |share: f64| means[((RESAMPLES - 1) as f64 * share).round() as usize];
        Self {
            mean: middle,
            low: at(0.025),
            high: at(0.975),
        }
    }
}

/// One policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Which.
    pub policy: Policy,
    /// Work between two images of each tier, seconds; of the adaptive policy what it begins with.
    pub intervals_s: Vec<Option<f64>>,
    /// Effective training time ratio.
    pub ettr: Estimate,
    /// Work over that of the full job without failures and images.
    pub goodput: Estimate,
    /// How much of the bound's goodput is missing, on the same weathers.
    pub behind_bound: Estimate,
    /// Mean shares of wall time: lost, saving, detecting, waiting, restoring, resharding.
    pub waste: Waste,
    /// Restarts a day.
    pub restarts_per_day: f64,
    /// Share of wall time that each cause took, with its failures in all replicates; dearest first.
    pub causes: Vec<Cause>,
}

/// Mean shares of wall time that are not useful.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Waste {
    /// Training that was lost.
    pub lost: f64,
    /// The trainer waiting for images.
    pub saving: f64,
    /// Failures that nobody had noticed yet.
    pub detecting: f64,
    /// Too few nodes.
    pub waiting: f64,
    /// Starting and reading.
    pub restoring: f64,
    /// Changing the number of nodes.
    pub resharding: f64,
}

/// What one cause took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cause {
    /// Its name.
    pub name: String,
    /// Failures of the job in all replicates.
    pub failures: u64,
    /// Share of the wall time of all replicates.
    pub share: f64,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Mean time between failures of the job, hours; nothing when there were none.
    pub mtbf_h: Option<f64>,
    /// For each tier the share of failures that its images outlive.
    pub covers: Vec<f64>,
    /// Weathers.
    pub replicates: u32,
    /// Length of each, seconds.
    pub span_s: f64,
    /// By policy, in the order of the question.
    pub rows: Vec<Row>,
}

impl Experiment<'_> {
    /// Runs every policy through every weather.
    pub fn compare(&self) -> Result<Comparison, CompareError> {
        self.job.check()?;
        let mut random = Random::new(self.seed);
        let (weathers, causes) = self.weathers(&mut random)?;
        let known = self.known(&weathers);
        let span_s = weathers.iter().map(|weather| weather.span_s).sum::<f64>();
        let strikes: usize = weathers.iter().map(|weather| weather.strikes().count()).sum();
        let all = |policy| -> Result<Vec<Outcome>, CompareError> {
            let one = |weather| Ok(run(self.job, weather, policy, &known, causes.len())?);
            weathers.iter().map(one).collect()
        };
        let bound: Vec<f64> = all(Policy::Oracle)?.iter().map(Outcome::goodput).collect();
        let mut rows = Vec::new();
        for policy in self.policies {
            let outcomes = all(*policy)?;
            rows.push(self.row(*policy, &outcomes, &bound, &causes, &known, &mut random)?);
        }
        Ok(Comparison {
            mtbf_h: (strikes > 0).then(|| span_s / strikes as f64 / 3_600.0),
            covers: known.covers.clone(),
            replicates: weathers.len() as u32,
            span_s: span_s / weathers.len() as f64,
            rows,
        })
    }

    fn weathers(&self, random: &mut Random) -> Result<(Vec<Weather>, Vec<String>), CompareError> {
        let wanted = self.job.nodes.saturating_add(self.job.spares);
        let there = match self.source {
            Source::History(trace) => trace.nodes(),
            Source::Synthetic(synthetic) => synthetic.nodes,
        };
        // A count of nodes may well be smaller than what the job wants: it waits, or shrinks.
        let counted = matches!(self.source, Source::History(trace) if trace.order() == Order::Count);
        if wanted > there && !counted {
            return Err(CompareError::TooFewNodes { wanted, there });
        }
        let mut weathers = Vec::new();
        let mut causes = Vec::new();
        for _ in 0..self.replicates.max(1) {
            let trace = match self.source {
                Source::History(trace) => trace.draw(wanted, random),
                Source::Synthetic(synthetic) => synthetic.trace(random)?,
            };
            weathers.push(Weather::of(&trace, self.job));
            causes = trace.causes().to_vec();
        }
        Ok((weathers, causes))
    }

    /// The rate and what tiers outlive, counted over all weathers. Where nothing failed, half a failure.
    fn known(&self, weathers: &[Weather]) -> Knowledge {
        let span_s: f64 = weathers.iter().map(|weather| weather.span_s).sum();
        let all: Vec<_> = weathers.iter().flat_map(Weather::strikes).collect();
        // The mean of Jeffreys' posterior: what was never seen is not impossible.
        let share = |count: usize| (count as f64 + 0.5) / (all.len() as f64 + 1.0);
        let covers = self.job.tiers.iter().map(|tier| {
            let outlived =
                |(_, strike): &&(f64, &crate::weather::Strike)| tier.survives.outlives(&strike.lost, self.job.nodes);
            if tier.survives == crate::job::Survives::All {
                1.0
            } else {
                share(all.iter().filter(outlived).count())
            }
        });
        Knowledge {
            rate: (all.len() as f64).max(0.5) / span_s,
            covers: covers.collect(),
            prior: self.prior,
        }
    }

    fn row(
        &self,
        policy: Policy,
        outcomes: &[Outcome],
        bound: &[f64],
        causes: &[String],
        known: &Knowledge,
        random: &mut Random,
    ) -> Result<Row, CompareError> {
        let ettr: Vec<f64> = outcomes.iter().map(Outcome::ettr).collect();
        let goodput: Vec<f64> = outcomes.iter().map(Outcome::goodput).collect();
        let behind: Vec<f64> = bound.iter().zip(&goodput).map(|(bound, own)| bound - own).collect();
        let wall: f64 = outcomes.iter().map(|outcome| outcome.wall_s).sum();
        let share = |part: fn(&Outcome) -> f64| outcomes.iter().map(part).sum::<f64>() / wall;
        let restarts: u64 = outcomes.iter().map(|outcome| outcome.restarts).sum();
        let mut by_cause: Vec<Cause> = Vec::new();
        for (at, name) in causes.iter().enumerate() {
            let of =
                |part: fn(&CauseWaste) -> f64| outcomes.iter().map(|outcome| part(&outcome.causes[at])).sum::<f64>();
            by_cause.push(Cause {
                name: name.clone(),
                failures: of(|cause| cause.failures as f64) as u64,
                share: of(|cause| cause.seconds) / wall,
            });
        }
        by_cause.retain(|cause| cause.failures > 0);
        by_cause.sort_by(|one, other| other.share.total_cmp(&one.share));
        let mut begin = known.clone();
        if policy == Policy::Adaptive {
            begin.rate = known.prior.mean() * f64::from(self.job.nodes) / 3_600.0;
        }
        Ok(Row {
            policy,
            intervals_s: Schedule::of(policy, self.job, &begin)?.0,
            ettr: Estimate::of(&ettr, random),
            goodput: Estimate::of(&goodput, random),
            behind_bound: Estimate::of(&behind, random),
            waste: Waste {
                lost: share(|outcome| outcome.lost_s),
                saving: share(|outcome| outcome.saving_s),
                detecting: share(|outcome| outcome.detecting_s),
                waiting: share(|outcome| outcome.waiting_s),
                restoring: share(|outcome| outcome.restoring_s),
                resharding: share(|outcome| outcome.resharding_s),
            },
            restarts_per_day: restarts as f64 / (wall / 86_400.0),
            causes: by_cause,
        })
    }
}
