//! Growth of jobs onto free nodes. It requires a restart, so it follows a commit.
//!
//! A job with checkpoints is called to checkpoint and grows after the commit. If the commit is late, the job grows
//! after the next commit instead: a restart would repeat everything since the last one, which costs more than the new
//! nodes bring. A job that never committed and lost no checkpoint has none to wait for: it grows once it has worked for
//! a while, before there is more to repeat.
//!
//! Where the job has standby processes, those of the new nodes are prepared before ([`super::preparation`]): the
//! checkpoint is called once they wait, so that the ranks that work on lose no time for their imports.
//!
//! A job grows no sooner than `grow_ms` after a shrink for a failure; each further shrink within an hour doubles the
//! pause, up to an hour. With the default of 30 s a node that comes and goes causes at most eight growths an hour.

use std::time::Duration;

use rankguard_model::{CheckpointCall, Generation, JobId, NodeId, Step};

use super::DecisionContext;
use crate::growth::PendingGrowth;
use crate::{Plan, PlanKind, TimerKey};

impl DecisionContext<'_> {
    pub(super) fn grow(&mut self, name: &JobId) {
        if !self.can_grow(name) {
            // The activity that prevents growth ends in a new generation, in steps, or with its case; all request growth again.
            return self.prepared_without_growth(name);
        }
        let Some(job) = self.state.jobs.get(name) else { return };
        let pause = job.shrinks.growth_from(self.at, self.state.policy.grow_ms);
        if let Some(from) = pause.filter(|from| *from > self.at) {
            return self.ask_growth_at(name, from);
        }
        if !self.state.refills_budgets() {
            return self.place_grown(name);
        }
        if self.awaits_preparation(name, &self.added_nodes(name)) {
            return self.ask_growth_after_preparation(name);
        }
        let Some(job) = self.state.jobs.get(name) else { return };
        let is_saved = job.spec.checkpoint.is_some();
        match job.growth() {
            None if is_saved => self.call_before_growth(name),
            Some(growth) if growth.until > self.at => self.ask_growth_at(name, growth.until),
            Some(_) if !job.checkpoints.committed.is_empty() || job.checkpoints.counts.void > 0 => {
                self.announce(format!(
                    "job {name} waits for its next checkpoint before it takes in more nodes"
                ));
            }
            _ => self.grow_uncommitted(name),
        }
    }

    /// Grows a job without a checkpoint to wait for: at once if it makes steps, else after its ranks have worked for a
    /// while.
    fn grow_uncommitted(&mut self, name: &JobId) {
        let limit = self.life_ms();
        let Some(job) = self.state.jobs.get(name) else { return };
        let worked = job.activity.worked_ms(self.at);
        if job.generation_step().is_some() || worked >= limit {
            return self.place_grown(name);
        }
        let again = self.at.after(Duration::from_millis(limit - worked));
        self.ask_growth_at(name, again);
    }

    fn call_before_growth(&mut self, name: &JobId) {
        let wait = if self
            .state
            .jobs
            .get(name)
            .is_some_and(|job| job.generation_step().is_some())
        {
            self.state.policy.adopt_ms
        } else {
            self.life_ms()
        };
        let until = self.at.after(Duration::from_millis(wait));
        let called = self.call_checkpoint(name);
        if let Some(CheckpointCall::At { step }) = called {
            self.announce(format!(
                "job {name} checkpoints step {step} and then takes in nodes that have become free"
            ));
        }
        if let Some(job) = self.state.jobs.get_mut(name) {
            let step = match called {
                Some(CheckpointCall::At { step }) => Some(step),
                _ => None,
            };
            job.plan_growth(PendingGrowth { step, until });
        }
        self.ask_growth_at(name, until);
    }

    /// Grows a job that waits for this commit.
    pub(super) fn grow_after_commit(&mut self, name: &JobId, generation: Generation, step: Step) {
        let Some(job) = self.state.jobs.get(name) else { return };
        let at = self.at;
        let is_awaited = job.growth().is_some_and(|growth| growth.allows(at, step));
        let is_newest = job.checkpoints.newest().is_some_and(|newest| newest.step == step);
        if job.generation() != generation || !is_awaited || !is_newest {
            return;
        }
        if self.can_grow(name) {
            if self.awaits_preparation(name, &self.added_nodes(name)) {
                // A node has joined since the checkpoint was called.
                self.end_growth(name);
                return self.ask_growth_after_preparation(name);
            }
            return self.place_grown(name);
        }
        self.end_growth(name);
        // If nodes are still free afterwards, the job requests growth again.
        self.offer_node();
    }

    fn end_growth(&mut self, name: &JobId) {
        if let Some(job) = self.state.jobs.get_mut(name) {
            job.end_growth();
        }
    }

    /// Returns the nodes that the job does not have and may use.
    fn added_nodes(&self, name: &JobId) -> Vec<NodeId> {
        let job = self.state.jobs.get(name);
        job.and_then(|job| self.state.nodes_to_grow_onto(job))
            .unwrap_or_default()
    }

    /// Sets the growth timer to the deadline of the preparation.
    pub(super) fn ask_growth_after_preparation(&mut self, name: &JobId) {
        let job = self.state.jobs.get(name);
        if let Some(until) = job.and_then(|job| job.preparation.as_ref()).map(|it| it.until()) {
            self.ask_growth_at(name, until);
        }
    }

    /// Records the shrink of a job that recovers from a failure, which delays its growth.
    pub(super) fn record_shrink(&mut self, plan: &Plan) {
        if !self.state.plans_by_cost() || plan.kind != PlanKind::Shrink {
            return;
        }
        let at = self.at;
        if let Some(job) = self.state.jobs.get_mut(&plan.job)
            && (plan.case.is_some() || job.case().is_some())
        {
            job.shrinks.add(at);
        }
    }

    fn can_grow(&self, name: &JobId) -> bool {
        let Some(job) = self.state.jobs.get(name) else {
            return false;
        };
        if !job.is_running() || job.case().is_some() || self.state.cases.is_settling(name) {
            return false;
        }
        !self.added_nodes(name).is_empty()
    }

    fn place_grown(&mut self, name: &JobId) {
        let reason = "nodes have become free and the job is smaller than it may be";
        self.place(name, None, vec![reason.to_owned()]);
    }

    /// Requests growth again for a job that goes on after a case without a restart: a request while the case was open was
    /// dropped.
    pub(crate) fn ask_growth_after_case(&mut self, name: &JobId) {
        let Some(job) = self.state.jobs.get(name) else { return };
        let may_grow = job.is_running() && job.nodes().len() < job.node_range().max as usize;
        if may_grow && job.case().is_none() && self.state.asks_growth_after_cases() {
            self.ask_growth(name);
        }
    }

    /// Sets the growth timer to `grow_ms`. An earlier timer is retained: a job that commits more often than every
    /// `grow_ms` requests growth with each commit, and would otherwise postpone it without end.
    pub(super) fn ask_growth(&mut self, name: &JobId) {
        let at = self.at.after(Duration::from_millis(self.state.policy.grow_ms));
        let timer = TimerKey::Grow { job: name.clone() };
        let is_due_sooner = self.state.timers.get(&timer).is_some_and(|due| *due <= at);
        if self.state.keeps_growth_timers() && is_due_sooner {
            return;
        }
        self.ask_growth_at(name, at);
    }

    fn ask_growth_at(&mut self, name: &JobId, at: rankguard_model::Timestamp) {
        let timer = TimerKey::Grow { job: name.clone() };
        self.state.set_timer(timer, at, &mut self.actions);
    }
}
