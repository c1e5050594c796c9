//! Event simulation of one job through one failure schedule.
//!
//! A failure stops all ranks. Work resumes after detection, once enough nodes are available, the ranks have restarted
//! and a checkpoint was read; a failure meanwhile restarts this sequence. A checkpoint holds the state at its start
//! and is usable once it is ready; checkpoints in progress at a failure are discarded. After recovery the state is on
//! every tier cheaper than the one it was read from, because restoring leaves it there.
//!
//! Absent: bandwidth shared between jobs, failed checkpoints, slow nodes.

mod bound;
mod recovery;

use std::collections::VecDeque;

use rankguard_checkpoint_schedule::plan::PlanError;

use crate::failure_schedule::{FailureSchedule, JobFailure, ScheduleEvent};
use crate::job::SimulatedJob;
use crate::outcome::{CauseWaste, TimeBreakdown};
use crate::policy::{FailureStatistics, IntervalPolicy, TierIntervals};

/// Runs a job. `causes` is the number of causes of the trace.
pub fn run(
    job: &SimulatedJob,
    weather: &FailureSchedule,
    policy: IntervalPolicy,
    known: &FailureStatistics,
    causes: usize,
) -> Result<TimeBreakdown, PlanError> {
    let mut known = known.clone();
    if policy == IntervalPolicy::Adaptive {
        known.rate = known.prior.mean() * f64::from(job.nodes) / 3_600.0;
    }
    let schedule = TierIntervals::of(policy, job, &known)?;
    let mut run = PolicyRun {
        job,
        weather,
        policy,
        beliefs: known,
        planned_rate: 0.0,
        ticks: CheckpointTicks::of(&schedule),
        now: 0.0,
        next: 0,
        vacant: weather.vacant,
        size: job.nodes,
        lost: Vec::new(),
        done: WorkProgress::default(),
        tiers: vec![TierCheckpoints::default(); job.tiers.len()],
        cause: None,
        outcome: TimeBreakdown {
            wall_s: weather.span_s,
            causes: vec![CauseWaste::default(); causes],
            ..TimeBreakdown::default()
        },
    };
    run.planned_rate = run.beliefs.rate;
    run.all()?;
    Ok(run.outcome)
}

/// Work done and not lost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct WorkProgress {
    /// Work in seconds of the full job.
    work_s: f64,
    /// Training in seconds of wall time.
    trained_s: f64,
}

/// Checkpoints of one tier.
#[derive(Debug, Clone, Default)]
struct TierCheckpoints {
    usable: Option<WorkProgress>,
    under_way: VecDeque<(f64, WorkProgress)>,
}

impl TierCheckpoints {
    /// Marks checkpoints that are ready by `now` as usable.
    fn settle(&mut self, now: f64) {
        while let Some((_, done)) = self.under_way.pop_front_if(|(ready, _)| *ready <= now) {
            self.usable = Some(done);
        }
    }
}

/// Due times of checkpoints: every tier at a multiple of one tick.
struct CheckpointTicks {
    tick_s: f64,
    every: Vec<Option<u64>>,
}

impl CheckpointTicks {
    fn of(schedule: &TierIntervals) -> Self {
        let tick_s = schedule.0.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        let every = |interval: &Option<f64>| interval.map(|interval| (interval / tick_s).round().max(1.0) as u64);
        Self {
            tick_s,
            every: schedule.0.iter().map(every).collect(),
        }
    }
}

/// Use of a span of time.
#[derive(Debug, Clone, Copy)]
enum TimeUse {
    Train,
    Save,
    Detect,
    Wait,
    Restore,
    Reshard,
}

/// Event that ends a span of time.
enum SpanEnd {
    /// The span has elapsed.
    Over,
    /// Nodes came back.
    Came,
    /// A failure struck the job.
    Struck,
    /// The schedule has ended.
    Finished,
}

struct PolicyRun<'a> {
    job: &'a SimulatedJob,
    weather: &'a FailureSchedule,
    policy: IntervalPolicy,
    beliefs: FailureStatistics,
    planned_rate: f64,
    ticks: CheckpointTicks,
    now: f64,
    next: usize,
    vacant: u32,
    size: u32,
    lost: Vec<u32>,
    done: WorkProgress,
    tiers: Vec<TierCheckpoints>,
    cause: Option<u16>,
    outcome: TimeBreakdown,
}

impl PolicyRun<'_> {
    fn all(&mut self) -> Result<(), PlanError> {
        let mut running = self.start();
        while running {
            running = match self.train() {
                SpanEnd::Finished => false,
                _ => self.recover()?,
            };
        }
        self.outcome.useful_s = self.done.trained_s;
        self.outcome.work_s = self.done.work_s;
        Ok(())
    }

    /// Starts the job; the first start costs only the wait for nodes.
    fn start(&mut self) -> bool {
        loop {
            if self.job.working(self.vacant) > 0 {
                self.size = self.job.working(self.vacant);
                return true;
            }
            if matches!(self.spend(f64::INFINITY, TimeUse::Wait), SpanEnd::Finished) {
                return false;
            }
        }
    }

    /// Trains and saves until a failure or the end.
    fn train(&mut self) -> SpanEnd {
        if self.policy == IntervalPolicy::Oracle {
            return self.train_knowing();
        }
        // Ticks count from here: a checkpoint of this moment exists already.
        let mut tick = 0_u64;
        let begun = self.done.work_s;
        loop {
            let due = begun + (tick + 1) as f64 * self.ticks.tick_s;
            let speed = f64::from(self.size) / f64::from(self.job.nodes);
            match self.spend(((due - self.done.work_s) / speed).max(0.0), TimeUse::Train) {
                SpanEnd::Over => {
                    tick += 1;
                    match self.save(tick) {
                        SpanEnd::Over => {}
                        end => return end,
                    }
                }
                SpanEnd::Came => match self.reshape() {
                    SpanEnd::Over => {}
                    end => return end,
                },
                end => return end,
            }
        }
    }

    /// Writes the checkpoints of all tiers that are due at a tick.
    fn save(&mut self, tick: u64) -> SpanEnd {
        let begun = self.now;
        let held = self.done;
        let mut stall = 0.0;
        for at in 0..self.job.tiers.len() {
            if !self.ticks.every[at].is_some_and(|every| tick.is_multiple_of(every)) {
                continue;
            }
            let tier = &self.job.tiers[at];
            stall += tier.blocking_s;
            match self.spend_through(begun + stall, TimeUse::Save) {
                SpanEnd::Over => {}
                end => return end,
            }
            self.tiers[at].settle(begun);
            self.tiers[at]
                .under_way
                .push_back((begun + stall.max(tier.ready_s()), held));
            self.outcome.images += 1;
        }
        // Nodes that came back meanwhile join now.
        self.reshape()
    }

    /// Adds nodes that came back while the job runs.
    fn reshape(&mut self) -> SpanEnd {
        loop {
            let wanted = self.job.working(self.vacant);
            if wanted <= self.size {
                return SpanEnd::Over;
            }
            self.size = wanted;
            if self.policy == IntervalPolicy::Oracle {
                return SpanEnd::Over;
            }
            match self.spend_through(self.now + self.job.reshard_s, TimeUse::Reshard) {
                SpanEnd::Over => {}
                end => return end,
            }
        }
    }

    /// Like [`spend`](Self::spend) up to a moment, but returning nodes do not end the span.
    fn spend_through(&mut self, until: f64, part: TimeUse) -> SpanEnd {
        loop {
            match self.spend(until - self.now, part) {
                SpanEnd::Came => {}
                end => return end,
            }
        }
    }

    /// Advances the clock by `seconds`, or to the next event if that is earlier.
    fn spend(&mut self, seconds: f64, part: TimeUse) -> SpanEnd {
        let wanted = self.now + seconds.max(0.0);
        let event = self.weather.events.get(self.next);
        let until = wanted
            .min(self.weather.span_s)
            .min(event.map_or(f64::INFINITY, |event| event.at_s));
        self.count(until - self.now, part);
        self.now = until;
        if until >= self.weather.span_s {
            return SpanEnd::Finished;
        }
        match event {
            Some(event) if event.at_s <= until => {
                self.next += 1;
                self.happen(event)
            }
            _ => SpanEnd::Over,
        }
    }

    fn count(&mut self, seconds: f64, part: TimeUse) {
        let outcome = &mut self.outcome;
        let total = match part {
            TimeUse::Train => {
                self.done.trained_s += seconds;
                self.done.work_s += seconds * f64::from(self.size) / f64::from(self.job.nodes);
                return;
            }
            TimeUse::Save => &mut outcome.saving_s,
            TimeUse::Detect => &mut outcome.detecting_s,
            TimeUse::Wait => &mut outcome.waiting_s,
            TimeUse::Restore => &mut outcome.restoring_s,
            TimeUse::Reshard => &mut outcome.resharding_s,
        };
        *total += seconds;
        if let Some(cause) = self.cause {
            self.outcome.causes[usize::from(cause)].seconds += seconds;
        }
    }

    fn happen(&mut self, event: &ScheduleEvent) -> SpanEnd {
        self.vacant = event.vacant;
        match &event.strike {
            None => SpanEnd::Came,
            Some(strike) => {
                self.strike(strike);
                SpanEnd::Struck
            }
        }
    }

    /// Discards the work since the newest checkpoint that survives.
    fn strike(&mut self, strike: &JobFailure) {
        self.lost.extend(&strike.lost);
        self.lost.sort_unstable();
        self.lost.dedup();
        let now = self.now;
        let nodes = self.job.nodes;
        let oracle = self.policy == IntervalPolicy::Oracle;
        for (tier, shelf) in self.job.tiers.iter().zip(&mut self.tiers) {
            shelf.settle(now);
            shelf.under_way.clear();
            // The bound's checkpoints survive every failure by definition.
            if !oracle && !tier.survives.outlives(&self.lost, nodes) {
                shelf.usable = None;
            }
        }
        let usable = self.tiers.iter().filter_map(|shelf| shelf.usable);
        let kept = usable
            .max_by(|one, other| one.work_s.total_cmp(&other.work_s))
            .unwrap_or_default();
        let lost_s = self.done.trained_s - kept.trained_s;
        self.done = kept;
        self.outcome.lost_s += lost_s;
        self.outcome.failures += 1;
        self.cause = Some(strike.cause);
        let waste = &mut self.outcome.causes[usize::from(strike.cause)];
        waste.failures += 1;
        waste.seconds += lost_s;
    }
}
