//! Ranks that run on while their job waits for nodes.
//!
//! A verdict may blame a node with live ranks while there is no other node to move them to. They are not ended, because
//! a waiting job would compute nothing. If all of them complete, the job has finished. If its nodes become usable again
//! while all ranks make progress, the job continues with them. If they make none, or one of them has ended, a new
//! generation is started when there are nodes for it. Which ranks of a node that was away still run is known from the
//! join of its agent, and its other ranks count as ended ([`super::ended_ranks`]).

use std::collections::BTreeSet;

use rankguard_model::{JobId, NodeId};

use super::DecisionContext;
use crate::Job;

impl DecisionContext<'_> {
    /// Records the step of a job that begins to wait for nodes.
    pub(super) fn note_waiting_step(&mut self, name: &JobId) {
        if let Some(job) = self.state.jobs.get_mut(name) {
            job.note_waiting_step();
        }
    }

    /// Returns true if a waiting job may continue with its ranks: `nodes` are the nodes they run on.
    pub(super) fn can_resume(&self, job: &Job, nodes: &[NodeId]) -> bool {
        let chosen: BTreeSet<&NodeId> = nodes.iter().collect();
        let own: BTreeSet<&NodeId> = job.nodes().iter().collect();
        chosen == own && !job.has_given_up() && self.works_while_waiting(job)
    }

    /// `Pending => Running` with the ranks that ran on.
    pub(super) fn resume_waiting(&mut self, name: &JobId) {
        self.drop_timer(name);
        if let Some(job) = self.state.jobs.get_mut(name) {
            job.resume();
        }
        self.announce(format!(
            "job {name} goes on: its ranks have run on, and their nodes could be used again"
        ));
        self.note_recovered(name, self.at, "its ranks went on, and their nodes could be used again");
        self.watch_stall(name);
    }

    /// Extends the wait for nodes after the ranks made progress.
    pub(super) fn wait_longer(&mut self, name: &JobId) {
        self.note_waiting_step(name);
        self.wait_at_most(name, self.state.policy.pending_ms);
    }

    /// Returns true if all ranks of a waiting job are alive or completed, and made progress since the wait began. For a
    /// job that has reported no step a sign of life of any rank suffices. Ranks of a generation that a node knows as an
    /// earlier one do not count (RG-3).
    pub(super) fn works_while_waiting(&self, job: &Job) -> bool {
        if !job.is_pending() || !self.state.completes_waiting_jobs() {
            return false;
        }
        if self.state.resumes_above_floors() && job.generation() <= self.state.floors.of(&job.spec.id) {
            return false;
        }
        let are_live = if self.state.ignores_completed_ranks() {
            job.nodes_with_work().iter().all(|node| self.state.fleet.is_live(node))
        } else {
            job.nodes().iter().all(|node| self.state.fleet.is_live(node))
        };
        job.is_whole() && are_live && job.moved_while_waiting()
    }
}
