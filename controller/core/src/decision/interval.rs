//! Adaptive checkpoint interval: once enough images were measured, the exact optimum for their cost and the job's
//! failure rate, within a budget, is called as a new rule from a future step on.

use rankguard_checkpoint_schedule::governor::{IntervalBound, IntervalLimits};
use rankguard_checkpoint_schedule::interval::exact;
use rankguard_checkpoint_schedule::rates::FailureExtent;
use rankguard_model::{JobId, Timestamp, Verdict};

use super::DecisionContext;
use super::risk::{call_order, pace};
use crate::Plan;

/// Measured images before their cost is used.
const IMAGES_MIN: u32 = 3;
const NS_PER_HOUR: f64 = 3.6e12;

/// Returns the scope of a failure: the node if its hardware is blamed, else the process. One verdict cannot show that
/// several nodes failed together.
pub fn scope_of(verdict: &Verdict) -> FailureExtent {
    if verdict.blamed.node().is_some() && verdict.layer == "hardware" {
        FailureExtent::Node
    } else {
        FailureExtent::Process
    }
}

impl DecisionContext<'_> {
    /// Updates the measured cost and the failure-free time after a commit, and calls a new interval if it changed.
    pub(super) fn adapt_interval(&mut self, name: &JobId) {
        if !self.state.policy.adapt {
            return;
        }
        let limits = IntervalLimits {
            min_s: 0.0,
            max_s: self.state.policy.checkpoint_max_ms as f64 / 1e3,
            budget: Some(f64::from(self.state.policy.checkpoint_budget.0) / 100.0),
        };
        self.watch_hours(name);
        let at = self.at;
        let Some(job) = self.state.jobs.get_mut(name).filter(|job| job.is_running()) else {
            return;
        };
        // All ranks wait for the slowest at the next collective.
        let stall_ms = job.checkpoints.newest().map_or(0.0, |newest| {
            newest.stall_ms.iter().map(|(_, stall)| *stall).fold(0.0, f64::max)
        });
        job.rhythm.image_s.add(stall_ms / 1e3);
        job.rhythm.images = job.rhythm.images.saturating_add(1);
        let nodes = u32::try_from(job.nodes().len()).unwrap_or(u32::MAX);
        let (Some(cost_s), Some(pace)) = (job.rhythm.image_s.get(), pace(at, job)) else {
            return;
        };
        if job.rhythm.images < IMAGES_MIN || cost_s <= 0.0 {
            return;
        }
        let mtbf_s = 1.0 / job.rhythm.rates.per_second(nodes);
        let best_s = exact(cost_s, mtbf_s);
        let (interval_s, bound) = limits.apply(best_s, cost_s);
        let before = job.rhythm.governor.every();
        let Some(every) = job.rhythm.governor.update_interval(interval_s, pace.step_ms / 1e3) else {
            return;
        };
        let word = job.calls.rule(&pace, every);
        let nodes = job.nodes().to_vec();
        let why = match bound {
            IntervalBound::Budget => ", which the budget makes longer",
            IntervalBound::Max => ", which is longer than is allowed",
            IntervalBound::Optimum | IntervalBound::Latency | IntervalBound::Min => "",
        };
        self.announce(format!(
            "job {name} checkpoints every {every} steps instead of every {before}: an image costs {:.0} ms and a failure is \
             expected every {:.1} h, so {best_s:.0} s are best{why}",
            cost_s * 1e3,
            mtbf_s / 3_600.0
        ));
        for node in nodes {
            self.order(&node, call_order(name, &word));
        }
    }

    /// Records the failure that caused a new plan in the failure rates.
    pub(super) fn observe_failure(&mut self, plan: &Plan) {
        let Some(case) = plan.case.and_then(|id| self.state.cases.all().get(&id)) else {
            return;
        };
        let scope = scope_of(&case.verdict);
        self.watch_hours(&plan.job);
        if let Some(job) = self.state.jobs.get_mut(&plan.job) {
            job.rhythm.rates.observe_failures(scope, 1);
        }
    }

    /// Adds the node-hours since the last call to the failure rates.
    fn watch_hours(&mut self, name: &JobId) {
        let at = self.at;
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let since: Timestamp = job.rhythm.watched_to.replace(at).unwrap_or(job.submitted_at);
        let hours = at.0.saturating_sub(since.0).max(0) as f64 / NS_PER_HOUR;
        job.rhythm.rates.observe_hours(hours * job.nodes().len() as f64);
    }
}
