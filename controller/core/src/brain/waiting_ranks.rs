//! Ranks that run on while their job waits for nodes.
//!
//! A verdict may blame a node whose ranks are alive, and there may be no other node to move them to. They are not ended: a job
//! that waits computes nothing. Where all of them complete, the job has finished. Where its nodes may be used again while all of
//! them make progress, the job goes on with them. Where they make none, or one of them has ended, a new generation is started
//! when there are nodes for it.

use std::collections::BTreeSet;

use rankguard_model::{JobId, NodeId};

use super::Turn;
use crate::{Job, Phase, Plan};

impl Turn<'_> {
    /// Notes where a job stands that begins to wait for nodes.
    pub(super) fn note_waiting_step(&mut self, name: &JobId) {
        if let Some(job) = self.state.jobs.get_mut(name) {
            job.waiting_since_step = job.generation_step;
        }
    }

    /// Whether a job that waits may go on with its ranks: these nodes are the ones they run on.
    pub(super) fn can_resume(&self, job: &Job, nodes: &[NodeId]) -> bool {
        let chosen: BTreeSet<&NodeId> = nodes.iter().collect();
        let own: BTreeSet<&NodeId> = job.nodes().iter().collect();
        chosen == own && self.works_while_waiting(job)
    }

    /// Lets a job that waits go on with its ranks.
    pub(super) fn resume_waiting(&mut self, name: &JobId) {
        self.drop_timer(name);
        if let Some(job) = self.state.jobs.get_mut(name) {
            job.phase = Phase::Running;
            job.deadline = None;
        }
        self.announce(format!(
            "job {name} goes on: its ranks have run on, and their nodes may be used again"
        ));
        self.note_recovered(name, self.at, "its ranks went on, and their nodes may be used again");
        self.watch_stall(name);
    }

    /// Waits on for nodes: the ranks of the job have made progress since the wait began.
    pub(super) fn wait_longer(&mut self, name: &JobId) {
        self.note_waiting_step(name);
        self.wait_at_most(name, self.state.policy.pending_ms);
    }

    /// Whether all ranks of a job that waits are alive or have completed, and have made progress since it began to wait. A job
    /// that has reported no step is believed while a rank shows a sign of life.
    pub(super) fn works_while_waiting(&self, job: &Job) -> bool {
        let is_waiting = matches!(job.phase, Phase::Pending { .. });
        if !is_waiting || !self.state.completes_waiting_jobs() {
            return false;
        }
        let size = job.plan.as_ref().map_or(0, Plan::world_size) as usize;
        let is_whole = size > 0 && job.running.len() + job.completed.len() == size;
        let are_live = job.nodes().iter().all(|node| self.state.fleet.is_live(node));
        let moves = match job.generation_step {
            Some(step) => Some(step) > job.waiting_since_step,
            None => job.activity.is_active(),
        };
        is_whole && are_live && moves
    }
}
