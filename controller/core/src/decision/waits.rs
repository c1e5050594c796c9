//! Deadlines: every wait has one, and an action when it expires (RG-9).

use std::collections::BTreeSet;
use std::time::Duration;

use rankguard_diagnosis::CallerFact;
use rankguard_model::{Generation, JobId, NodeId};

use super::{DecisionContext, node_of};
use crate::{AdoptionStage, Job, JobPhase, TimerKey};

impl DecisionContext<'_> {
    pub(super) fn wait_at_most(&mut self, name: &JobId, millis: u64) {
        let at = self.at.after(Duration::from_millis(millis));
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        job.set_deadline(at);
        let timer = TimerKey::PhaseDeadline {
            job: name.clone(),
            generation: job.generation(),
        };
        self.state.set_timer(timer, at, &mut self.actions);
    }

    pub(super) fn drop_timer(&mut self, name: &JobId) {
        self.state
            .timers
            .retain(|timer, _| !matches!(timer, TimerKey::PhaseDeadline { job, .. } if job == name));
    }

    pub(super) fn timer_fired(&mut self, timer: &TimerKey) {
        // A timer that was replaced or dropped may still fire once in the shell.
        if self.state.timers.get(timer).is_none_or(|due| *due > self.at) {
            return;
        }
        self.state.timers.remove(timer);
        match timer {
            TimerKey::Settle => self.conclude(),
            TimerKey::Gather { job } => {
                if self.state.jobs.get_mut(job).is_some_and(Job::end_gathering) {
                    self.place(job, None, Vec::new());
                }
            }
            TimerKey::Grow { job } => self.grow(job),
            TimerKey::Spares { job } => self.repeat_spares(job),
            TimerKey::Hang { job, generation } => self.hang_due(job, *generation),
            TimerKey::PhaseDeadline { job, generation } => self.phase_overdue(job, *generation),
            TimerKey::EndedRanks { job, generation } => self.ended_ranks_due(job, *generation),
            TimerKey::FailedGeneration { job, generation } => self.end_failed_generation(job, *generation),
            TimerKey::Unreachable { node } => self.node_unreachable(node),
            TimerKey::Fence { node } => self.fence_overdue(node),
            TimerKey::Forget => self.forget_departed(),
        }
    }

    pub(super) fn phase_overdue(&mut self, name: &JobId, generation: Generation) {
        let Some(job) = self.state.jobs.get(name).filter(|job| job.generation() == generation) else {
            return;
        };
        match job.phase() {
            JobPhase::Pending { .. } if job.planned_wait().is_some() => self.planned_wait_overdue(name),
            JobPhase::Pending { .. } if self.works_while_waiting(job) => self.wait_longer(name),
            JobPhase::Pending { .. } => self.stop_waiting(name),
            JobPhase::Fencing { waiting, .. } => {
                let late = super::gate::awaited(job, waiting);
                self.declare_lost(name, &late, "did not end its old ranks, or look at itself, in time");
            }
            // The manifest writer has a deadline of its own.
            JobPhase::Adopting {
                stage: AdoptionStage::Committing,
                ..
            } => self.wait_at_most(name, self.state.policy.adopt_ms),
            JobPhase::Adopting { .. } => {
                self.announce(format!(
                    "job {name}: what generation {} had sealed could not be finished in time",
                    job.checkpoints.trained()
                ));
                self.wait_at_most(name, self.state.policy.adopt_ms);
                self.end_adoption(name);
            }
            JobPhase::Launching { waiting, .. } => {
                let late: BTreeSet<NodeId> = waiting.iter().filter_map(|rank| node_of(job, *rank)).collect();
                self.declare_lost(
                    name,
                    &late.into_iter().collect::<Vec<_>>(),
                    "did not start its ranks in time",
                );
            }
            JobPhase::Starting | JobPhase::Running => {
                if job.hang.case.is_some() {
                    return self.restart_hung(name, "it has made no step for as long as any job may".to_owned());
                }
                if self.is_judged_by_activity(name) {
                    return self.judge_activity(name);
                }
                // A program without step marks and checkpoints is judged by its exits alone.
                if job.step().is_some() || job.spec.checkpoint.is_some() {
                    let newest = job.newest_step_at().filter(|_| self.state.withdraws_stalls());
                    let since = newest.unwrap_or(self.at);
                    self.witness_fact(&CallerFact::JobStalled {
                        job: name.clone(),
                        generation,
                        since,
                        suspect: None,
                        equal_suspects: Vec::new(),
                        stood_at: None,
                    });
                } else {
                    self.run_quietly(name);
                }
            }
            JobPhase::Finished => self.release_finished(name),
            JobPhase::Stopped { .. } => {}
        }
    }

    /// Stops a job that has waited for nodes for as long as it may.
    fn stop_waiting(&mut self, name: &JobId) {
        if self.tries_nodes_again(name) {
            return;
        }
        let Some(job) = self.state.jobs.get(name) else { return };
        let JobPhase::Pending { missing, .. } = job.phase() else {
            return;
        };
        let since = job.case().map(|case| format!(" (case {case})")).unwrap_or_default();
        let limit = Duration::from_millis(self.state.policy.pending_ms).as_secs_f64();
        let missing = self.state.missing_now(job).unwrap_or_else(|| missing.clone());
        let waited = missing.replacen("waits for", "waited for", 1);
        let reason = if self.state.notes_stops() {
            format!("{waited}; it has waited for {limit} s, the longest wait{since}")
        } else {
            format!("{waited}; it waits for at most {limit} s{since}")
        };
        self.stop_job(name, reason);
    }

    /// Declares nodes lost that did not carry out an order in time; the job continues without them.
    pub(super) fn declare_lost(&mut self, name: &JobId, nodes: &[NodeId], what: &str) {
        for node in nodes {
            self.announce(format!("node {node} {what}"));
            if self.state.fleet.is_live(node) {
                self.state.fleet.lose(self.at, node);
                self.state.timers.remove(&TimerKey::Fence { node: node.clone() });
                self.watch_departed();
                self.node_span(node);
                self.witness_fact(&CallerFact::NodeSilent {
                    node: node.clone(),
                    since: self.at,
                });
            }
        }
        // If no case results, the job must not wait without a limit (RG-9).
        self.wait_at_most(name, self.state.policy.fence_ms);
        if nodes.is_empty() {
            self.advance(name);
        }
    }
}
