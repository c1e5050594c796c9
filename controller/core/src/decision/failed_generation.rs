//! Failed generations: recovery does not wait for the verdict (RG-14).
//!
//! A generation of which a rank failed makes no progress any more: its other ranks end under any verdict. They get a
//! part of the settle time to report errors of their own, and are then ended while evidence is still being gathered.
//! Once no rank of the generation is left that could report something, the case settles in a part of the usual time.
//! The verdict decides where the next generation starts, and whether there is one.
//!
//! A node of the generation that has lost its session beside a failed rank counts as lost before the silence limit:
//! two independent signs of its end are known. Nothing of it is believed without the session.
//!
//! Ranks are not ended early if a collective operation timed out: agents gather the stacks and flight recorders of all
//! ranks then, which show the rank that the others waited for.

use rankguard_model::{AgentOrder, Entity, Evidence, EvidenceBody, Generation, JobId, NodeId};

use super::DecisionContext;
use crate::job::JobLookup;
use crate::{Job, TimerKey};

impl DecisionContext<'_> {
    /// Starts the grace period of the other ranks at the first failed rank of a generation.
    pub(super) fn take_failed_rank(&mut self, evidence: &Evidence) {
        let (
            Entity::Rank {
                job: name, generation, ..
            },
            EvidenceBody::RankExited {
                exit, ended_by_agent, ..
            },
        ) = (&evidence.entity, &evidence.body)
        else {
            return;
        };
        if !self.state.ends_failed_generations() {
            return;
        }
        let is_failure = !exit.is_success() && !ended_by_agent && !evidence.synthetic;
        let has_started = self
            .state
            .jobs
            .in_generation(name, *generation)
            .is_some_and(|job| job.has_started() && !job.is_ending());
        let timer = failed_generation(name, *generation);
        if is_failure && has_started && !self.state.timers.contains_key(&timer) {
            let due = self.at.after(self.state.policy.peer_grace());
            self.state.set_timer(timer, due, &mut self.actions);
        }
        self.settle_silent_generation(name, *generation);
    }

    /// Ends the other ranks of a failed generation after their grace period.
    pub(super) fn end_failed_generation(&mut self, name: &JobId, generation: Generation) {
        let is_settling = self.state.cases.is_settling(name);
        let awaits_dumps = self.state.diagnosis.awaits_dumps(name, generation);
        let Some(job) = self.state.jobs.in_generation(name, generation) else {
            return;
        };
        if !job.has_started() || !is_settling || awaits_dumps {
            return;
        }
        job.end_generation();
        for node in job.nodes().to_vec() {
            self.end_ranks_early(name, &node);
            self.watch_unreachable(&node);
        }
        self.settle_silent_generation(name, generation);
    }

    /// Orders a node to end its ranks of a failed generation, if it has some and a session. The images of their checkpoints stay:
    /// the job may go on from them. A fence precedes the next generation all the same (RG-3).
    pub(super) fn end_ranks_early(&mut self, name: &JobId, node: &NodeId) {
        let Some(job) = self.state.jobs.get(name) else { return };
        let has_ranks = job.ranks_on(node).into_iter().any(|rank| job.is_alive(rank));
        if !job.is_ending() || !has_ranks || !self.has_session(node) {
            return;
        }
        let generation = job.generation();
        self.order(
            node,
            AgentOrder::Stop {
                job: name.clone(),
                generation,
                grace_ms: 0,
                keeps_images: true,
            },
        );
    }

    /// Records that a node has ended its ranks of a failed generation.
    pub(super) fn ranks_ended_early(&mut self, node: &NodeId, name: &JobId, generation: Generation) {
        let at = self.at;
        let Some(job) = self.state.jobs.in_generation(name, generation) else {
            return;
        };
        if !job.is_ending() {
            return;
        }
        for rank in job.ranks_on(node) {
            if job.is_alive(rank) {
                job.rank_ended(at, rank);
            }
        }
        self.close_past_faults(name, &format!("the ranks on node {node} ended"));
        self.settle_silent_generation(name, generation);
    }

    /// Shortens the settle time of a generation without a rank that could report something.
    pub(super) fn settle_silent_generation(&mut self, name: &JobId, generation: Generation) {
        if !self.state.ends_failed_generations() {
            return;
        }
        let Some(job) = self.state.jobs.get(name).filter(|job| job.generation() == generation) else {
            return;
        };
        let may_report = |job: &Job| {
            let places = job.places().into_iter();
            let mut alive = places.filter(|(rank, _)| job.is_alive(*rank));
            job.awaits_exits() || alive.any(|(_, node)| self.state.fleet.is_live(&node))
        };
        if job.has_started() && !may_report(job) {
            let is_ordered = job.nodes().iter().all(|node| self.is_kernel_log_known(node));
            self.state.diagnosis.ranks_ended(self.at, name, generation, is_ordered);
        }
    }

    /// Returns true if nothing that the kernel of a node logged before the ends of its ranks is on its way: the agent
    /// reports it first, or the node is lost.
    fn is_kernel_log_known(&self, node: &NodeId) -> bool {
        let entry = self.state.fleet.get(node);
        entry.is_none_or(|entry| entry.lost_since.is_some() || entry.info.is_kernel_log_first)
    }

    /// Sets the time at which a node without a session counts as lost, if a job on it has a failed rank.
    pub(super) fn watch_unreachable(&mut self, node: &NodeId) {
        let entry = self.state.fleet.get(node).filter(|entry| entry.lost_since.is_none());
        let Some(ended) = entry.and_then(|entry| entry.session_ended) else {
            return;
        };
        if self.is_beside_failure(node) {
            let due = ended.after(self.state.policy.unreachable()).max(self.at);
            let timer = TimerKey::Unreachable { node: node.clone() };
            self.state.set_timer(timer, due, &mut self.actions);
        }
    }

    /// Declares a node lost that has had no session for some time while ranks of its job failed elsewhere.
    pub(super) fn node_unreachable(&mut self, node: &NodeId) {
        let entry = self.state.fleet.get(node).filter(|entry| entry.lost_since.is_none());
        let Some(ended) = entry.and_then(|entry| entry.session_ended.map(|ended| entry.last_heard.unwrap_or(ended)))
        else {
            return;
        };
        if self.is_beside_failure(node) {
            self.announce(format!(
                "node {node} has had no session since {ended}, and ranks of its job failed elsewhere: it counts as lost"
            ));
            self.lose_node(node, ended);
        }
    }

    /// Returns true if ranks of a failed generation may be left on the node.
    fn is_beside_failure(&self, node: &NodeId) -> bool {
        let mut jobs = self.state.jobs.values();
        jobs.any(|job| job.is_ending() && job.has_started() && self.works_on(job, node))
    }

    fn has_session(&self, node: &NodeId) -> bool {
        let entry = self.state.fleet.get(node);
        entry.is_some_and(|entry| entry.lost_since.is_none() && entry.session_ended.is_none())
    }
}

fn failed_generation(job: &JobId, generation: Generation) -> TimerKey {
    TimerKey::FailedGeneration {
        job: job.clone(),
        generation,
    }
}
