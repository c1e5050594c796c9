//! Recovery from a failure until work resumes.

use rankguard_checkpoint_schedule::governor::HYSTERESIS;
use rankguard_checkpoint_schedule::plan::PlanError;

use super::{CheckpointTicks, PolicyRun, SpanEnd, TimeUse};
use crate::job::TierCosts;
use crate::policy::{FailureStatistics, IntervalPolicy, TierIntervals};

impl PolicyRun<'_> {
    /// Simulates detection, wait, restart and restore. Returns false if the schedule ends before work resumes.
    pub(super) fn recover(&mut self) -> Result<bool, PlanError> {
        self.replan()?;
        'again: loop {
            match self.spend_through(self.now + self.job.detect_s, TimeUse::Detect) {
                SpanEnd::Over => {}
                SpanEnd::Finished => return Ok(false),
                _ => continue 'again,
            }
            while self.job.working(self.vacant) == 0 {
                match self.spend(f64::INFINITY, TimeUse::Wait) {
                    SpanEnd::Finished => return Ok(false),
                    SpanEnd::Struck => continue 'again,
                    _ => {}
                }
            }
            let size = self.job.working(self.vacant);
            let oracle = self.policy == IntervalPolicy::Oracle;
            let source = self.source();
            let restore_s =
                self.job.restart_s + source.map_or(self.quickest_restore(), |at| self.job.tiers[at].restore_s);
            let stages = [
                (restore_s, TimeUse::Restore),
                (
                    if size == self.size || oracle {
                        0.0
                    } else {
                        self.job.reshard_s
                    },
                    TimeUse::Reshard,
                ),
            ];
            for (seconds, part) in stages {
                match self.spend_through(self.now + seconds, part) {
                    SpanEnd::Over => {}
                    SpanEnd::Finished => return Ok(false),
                    _ => continue 'again,
                }
            }
            self.size = size;
            self.lost.clear();
            self.cause = None;
            self.outcome.restarts += 1;
            // A restore leaves the state on every cheaper tier.
            let last = source.unwrap_or(self.job.tiers.len() - 1);
            for shelf in &mut self.tiers[..=last] {
                shelf.usable = Some(self.done);
            }
            // Nodes that came back during the restore join now.
            match self.reshape() {
                SpanEnd::Over => return Ok(true),
                SpanEnd::Finished => return Ok(false),
                _ => continue 'again,
            }
        }
    }

    /// Returns the tier to restore from: the one with the newest checkpoint, then the fastest. `None` for the bound.
    fn source(&self) -> Option<usize> {
        if self.policy == IntervalPolicy::Oracle {
            return None;
        }
        let order = |at: &usize| {
            (
                self.tiers[*at].usable.map_or(0.0, |done| done.work_s),
                -self.job.tiers[*at].restore_s,
            )
        };
        let all = (0..self.tiers.len()).filter(|at| self.tiers[*at].usable.is_some());
        all.max_by(|one, other| {
            let one = order(one);
            let other = order(other);
            one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1))
        })
        .or(Some(self.tiers.len() - 1))
    }

    pub(super) fn outliving(&self, lost: &[u32]) -> impl Iterator<Item = &TierCosts> {
        let lost = lost.to_vec();
        let tiers = self.job.tiers.iter();
        tiers.filter(move |tier| tier.survives.outlives(&lost, self.job.nodes))
    }

    pub(super) fn quickest_restore(&self) -> f64 {
        let times = self.outliving(&self.lost).map(|tier| tier.restore_s);
        times.fold(f64::INFINITY, f64::min)
    }

    /// Updates the failure rate of an adaptive job from its prior and its own failures; replans if the rate changes
    /// by more than the hysteresis of a live job.
    fn replan(&mut self) -> Result<(), PlanError> {
        if self.policy != IntervalPolicy::Adaptive {
            return Ok(());
        }
        let mut rate = self.beliefs.prior;
        let node_hours = self.now * f64::from(self.job.nodes) / 3_600.0;
        rate.observe(self.outcome.failures, node_hours);
        let per_second = rate.mean() * f64::from(self.job.nodes) / 3_600.0;
        if (per_second / self.planned_rate - 1.0).abs() > HYSTERESIS {
            self.planned_rate = per_second;
            let known = FailureStatistics {
                rate: per_second,
                ..self.beliefs.clone()
            };
            self.ticks = CheckpointTicks::of(&TierIntervals::of(self.policy, self.job, &known)?);
        }
        Ok(())
    }
}
