//! Comparison of policies on the same failure schedules, with confidence intervals over replicates.

use rankguard_checkpoint_schedule::plan::PlanError;
use rankguard_checkpoint_schedule::rates::RateBelief;
use serde::Serialize;

use crate::failure_schedule::FailureSchedule;
use crate::job::{JobError, SimulatedJob};
use crate::outcome::{CauseWaste, TimeBreakdown};
use crate::policy::{FailureStatistics, IntervalPolicy, TierIntervals};
use crate::random::RandomGenerator;
use crate::run::run;
use crate::synthetic::TraceParameters;
use crate::trace::{FailureTrace, NodeOrder, TraceError};

/// Number of resamples of a bootstrap.
const RESAMPLES: usize = 2_000;

/// Source of failure schedules.
#[derive(Debug, Clone, Copy)]
pub enum ScheduleSource<'a> {
    /// Draws from a recorded trace: random nodes, random start time.
    History(&'a FailureTrace),
    /// Generates a new trace for each replicate.
    Synthetic(&'a TraceParameters),
}

/// Parameters of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct PolicyExperiment<'a> {
    pub job: &'a SimulatedJob,
    pub source: ScheduleSource<'a>,
    /// Policies to compare.
    pub policies: &'a [IntervalPolicy],
    /// Number of failure schedules; at least 1.
    pub replicates: u32,
    /// Seed of the random generator.
    pub seed: u64,
    /// Prior failure rate for [`IntervalPolicy::Adaptive`], failures a node-hour.
    pub prior: RateBelief,
}

/// Error of a comparison.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CompareError {
    /// The job is not valid.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The trace is not valid.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The planner rejects the parameters.
    #[error("no plan: {0}")]
    Plan(#[from] PlanError),
    /// The job needs more nodes than the trace has.
    #[error("the job wants {wanted} nodes with its spares and the trace has {there}")]
    TooFewNodes {
        /// Nodes and spares of the job.
        wanted: u32,
        /// Nodes of the trace.
        there: u32,
    },
}

/// Mean over replicates with its 95 % confidence interval (percentile bootstrap).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MeanEstimate {
    pub mean: f64,
    /// 2.5th percentile of the means of resamples.
    pub low: f64,
    /// 97.5th percentile of the means of resamples.
    pub high: f64,
}

impl MeanEstimate {
    /// Estimates from these values; a single value is its own interval.
    pub fn of(values: &[f64], random: &mut RandomGenerator) -> Self {
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

/// Result of one policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyResult {
    pub policy: IntervalPolicy,
    /// Work between two checkpoints of each tier in seconds; for the adaptive policy, its initial
    /// intervals.
    pub intervals_s: Vec<Option<f64>>,
    /// Effective training time ratio.
    pub ettr: MeanEstimate,
    /// Work relative to the full job without failures and checkpoints.
    pub goodput: MeanEstimate,
    /// Goodput missing relative to the bound, on the same failure schedules.
    pub behind_bound: MeanEstimate,
    /// Mean shares of wall time that are not useful.
    pub waste: WasteShares,
    /// Mean restarts a day.
    pub restarts_per_day: f64,
    /// Share of wall time and failures of each cause in all replicates; largest share first.
    pub causes: Vec<CauseShare>,
}

/// Mean shares of wall time that are not useful, 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct WasteShares {
    /// Training lost at failures.
    pub lost: f64,
    /// Stall of the trainer for checkpoints.
    pub saving: f64,
    /// Time from failures to their detection.
    pub detecting: f64,
    /// Waiting for nodes.
    pub waiting: f64,
    /// Restart of ranks and restore.
    pub restoring: f64,
    /// Resharding to another number of nodes.
    pub resharding: f64,
}

/// Waste of one cause.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CauseShare {
    pub name: String,
    /// Number of failures of the job in all replicates.
    pub failures: u64,
    /// Share of the wall time of all replicates, 0 to 1.
    pub share: f64,
}

/// Result of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyComparison {
    /// Mean time between failures of the job in hours; `None` without failures.
    pub mtbf_h: Option<f64>,
    /// Share of failures that the checkpoints of each tier survive, 0 to 1.
    pub covers: Vec<f64>,
    /// Number of failure schedules.
    pub replicates: u32,
    /// Length of each schedule in seconds.
    pub span_s: f64,
    /// One row for each policy, in the order of the experiment.
    pub rows: Vec<PolicyResult>,
}

impl PolicyExperiment<'_> {
    /// Runs every policy through every failure schedule.
    pub fn compare(&self) -> Result<PolicyComparison, CompareError> {
        self.job.check()?;
        let mut random = RandomGenerator::new(self.seed);
        let (weathers, causes) = self.weathers(&mut random)?;
        let known = self.known(&weathers);
        let span_s = weathers.iter().map(|weather| weather.span_s).sum::<f64>();
        let strikes: usize = weathers.iter().map(|weather| weather.strikes().count()).sum();
        let all = |policy| -> Result<Vec<TimeBreakdown>, CompareError> {
            let one = |weather| Ok(run(self.job, weather, policy, &known, causes.len())?);
            weathers.iter().map(one).collect()
        };
        let bound: Vec<f64> = all(IntervalPolicy::Oracle)?
            .iter()
            .map(TimeBreakdown::goodput)
            .collect();
        let mut rows = Vec::new();
        for policy in self.policies {
            let outcomes = all(*policy)?;
            rows.push(self.row(*policy, &outcomes, &bound, &causes, &known, &mut random)?);
        }
        Ok(PolicyComparison {
            mtbf_h: (strikes > 0).then(|| span_s / strikes as f64 / 3_600.0),
            covers: known.covers.clone(),
            replicates: weathers.len() as u32,
            span_s: span_s / weathers.len() as f64,
            rows,
        })
    }

    fn weathers(&self, random: &mut RandomGenerator) -> Result<(Vec<FailureSchedule>, Vec<String>), CompareError> {
        let wanted = self.job.nodes.saturating_add(self.job.spares);
        let there = match self.source {
            ScheduleSource::History(trace) => trace.nodes(),
            ScheduleSource::Synthetic(synthetic) => synthetic.nodes,
        };
        // A count of nodes may be smaller than the job needs: the job then waits or shrinks.
        let counted = matches!(self.source, ScheduleSource::History(trace) if trace.order() == NodeOrder::Count);
        if wanted > there && !counted {
            return Err(CompareError::TooFewNodes { wanted, there });
        }
        let mut weathers = Vec::new();
        let mut causes = Vec::new();
        for _ in 0..self.replicates.max(1) {
            let trace = match self.source {
                ScheduleSource::History(trace) => trace.draw(wanted, random),
                ScheduleSource::Synthetic(synthetic) => synthetic.trace(random)?,
            };
            weathers.push(FailureSchedule::of(&trace, self.job));
            causes = trace.causes().to_vec();
        }
        Ok((weathers, causes))
    }

    /// Estimates the failure rate and the coverage of each tier over all schedules. Without failures,
    /// half a failure counts.
    fn known(&self, weathers: &[FailureSchedule]) -> FailureStatistics {
        let span_s: f64 = weathers.iter().map(|weather| weather.span_s).sum();
        let all: Vec<_> = weathers.iter().flat_map(FailureSchedule::strikes).collect();
        // Mean of the Jeffreys posterior: an event that was never observed is not impossible.
        let share = |count: usize| (count as f64 + 0.5) / (all.len() as f64 + 1.0);
        let covers = self.job.tiers.iter().map(|tier| {
            let outlived = |(_, strike): &&(f64, &crate::failure_schedule::JobFailure)| {
                tier.survives.outlives(&strike.lost, self.job.nodes)
            };
            if tier.survives == crate::job::SurvivedFailures::All {
                1.0
            } else {
                share(all.iter().filter(outlived).count())
            }
        });
        FailureStatistics {
            rate: (all.len() as f64).max(0.5) / span_s,
            covers: covers.collect(),
            prior: self.prior,
        }
    }

    fn row(
        &self,
        policy: IntervalPolicy,
        outcomes: &[TimeBreakdown],
        bound: &[f64],
        causes: &[String],
        known: &FailureStatistics,
        random: &mut RandomGenerator,
    ) -> Result<PolicyResult, CompareError> {
        let ettr: Vec<f64> = outcomes.iter().map(TimeBreakdown::ettr).collect();
        let goodput: Vec<f64> = outcomes.iter().map(TimeBreakdown::goodput).collect();
        let behind: Vec<f64> = bound.iter().zip(&goodput).map(|(bound, own)| bound - own).collect();
        let wall: f64 = outcomes.iter().map(|outcome| outcome.wall_s).sum();
        let share = |part: fn(&TimeBreakdown) -> f64| outcomes.iter().map(part).sum::<f64>() / wall;
        let restarts: u64 = outcomes.iter().map(|outcome| outcome.restarts).sum();
        let mut by_cause: Vec<CauseShare> = Vec::new();
        for (at, name) in causes.iter().enumerate() {
            let of =
                |part: fn(&CauseWaste) -> f64| outcomes.iter().map(|outcome| part(&outcome.causes[at])).sum::<f64>();
            by_cause.push(CauseShare {
                name: name.clone(),
                failures: of(|cause| cause.failures as f64) as u64,
                share: of(|cause| cause.seconds) / wall,
            });
        }
        by_cause.retain(|cause| cause.failures > 0);
        by_cause.sort_by(|one, other| other.share.total_cmp(&one.share));
        let mut begin = known.clone();
        if policy == IntervalPolicy::Adaptive {
            begin.rate = known.prior.mean() * f64::from(self.job.nodes) / 3_600.0;
        }
        Ok(PolicyResult {
            policy,
            intervals_s: TierIntervals::of(policy, self.job, &begin)?.0,
            ettr: MeanEstimate::of(&ettr, random),
            goodput: MeanEstimate::of(&goodput, random),
            behind_bound: MeanEstimate::of(&behind, random),
            waste: WasteShares {
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
