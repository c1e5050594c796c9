//! Fencing of nodes outside the current plan: a node that returns, or that a job has left, takes no work until its
//! agent has confirmed that the old ranks ended (RG-3).
//!
//! A request exists from the time at which a job leaves a node (a new plan without it, a stop) or at which a node
//! reports ranks that the current plan does not place there. It survives sessions and restarts of the agent, and ends
//! only with a `Fenced` or `Stopped` without remaining processes. A node that is away receives its orders when it
//! joins.

use std::time::Duration;

use rankguard_model::{AgentOrder, CaseId, Generation, JobId, NodeId, NodeInfo, RankRef, RunningRank};

use super::{DecisionContext, node_of};
use crate::fence::FenceRequest;
use crate::{JobPhase, TimerKey};

/// Factor of the fence wait before an agent with an overdue answer is asked again; each repetition is a journal entry.
const OVERDUE_WAITS: u64 = 4;

impl DecisionContext<'_> {
    /// Requires that ranks of the job below this generation end on a node, and sets the deadline of the answer. The
    /// caller sends the order.
    pub(super) fn require_fence(&mut self, node: &NodeId, job: &JobId, generation: Generation, case: Option<CaseId>) {
        if !self.state.fences_returning_nodes() {
            return;
        }
        let request = FenceRequest::new(generation, self.at, case);
        let Some(requests) = self.state.fleet.fences_mut(node) else {
            return;
        };
        match requests.get_mut(job) {
            Some(known) => known.raise(request),
            None => drop(requests.insert(job.clone(), request)),
        }
        self.node_span(node);
        self.watch_fences(node, 1);
    }

    /// Compares the ranks of a joining node with the plans, and fences those that no plan places there.
    pub(super) fn fence_returned(&mut self, info: &NodeInfo) {
        self.hold_foreign_ranks(info);
        for RunningRank { rank, .. } in &info.running {
            if self.is_foreign(&info.node, rank) {
                continue;
            }
            if let Some(generation) = self.stale_below(&info.node, rank) {
                let case = self.case_of_node(&rank.job, &info.node);
                self.require_fence(&info.node, &rank.job, generation, case);
            }
        }
        self.order_fences(&info.node);
        self.watch_fences(&info.node, 1);
    }

    /// Returns the generation below which ranks must end, for a reported rank; `None` if the plan places the rank
    /// there, or if the job's own next generation waits for this fence already.
    fn stale_below(&self, node: &NodeId, rank: &RankRef) -> Option<Generation> {
        let Some(job) = self.state.jobs.get(&rank.job) else {
            return Some(rank.generation.next());
        };
        let current = rank.generation == job.generation();
        if job.is_over() {
            // The report may be older than the exit that completed the job.
            let completed = current && job.has_completed(rank.rank);
            return (!completed).then(|| job.generation().max(rank.generation).next());
        }
        if current && node_of(job, rank.rank).as_ref() == Some(node) {
            return None;
        }
        if matches!(job.phase(), JobPhase::Fencing { waiting, .. } if waiting.contains(node))
            && rank.generation < job.generation()
        {
            return None;
        }
        if rank.generation < job.generation() {
            Some(job.generation())
        } else {
            Some(rank.generation.next())
        }
    }

    /// Sends all fence requests of a node. Repeating the orders is harmless.
    pub(super) fn order_fences(&mut self, node: &NodeId) {
        let requests = self.state.fleet.get(node).map(|entry| entry.fences.clone());
        for (job, request) in requests.unwrap_or_default() {
            let current = self
                .state
                .jobs
                .get(&job)
                .filter(|job| job.generation() == request.generation);
            // No other node takes part in a generation without a plan.
            let nodes = current.map_or_else(|| vec![node.clone()], |job| job.launch_record.members().to_vec());
            let order = AgentOrder::Fence {
                job,
                generation: request.generation,
                reserve_port: false,
                nodes,
            };
            self.order(node, order);
        }
    }

    /// Sets or removes the fence deadline of a node.
    fn watch_fences(&mut self, node: &NodeId, waits: u64) {
        let waits_for = |entry: &&crate::Node| entry.lost_since.is_none() && !entry.fences.is_empty();
        let timer = TimerKey::Fence { node: node.clone() };
        if self.state.fleet.get(node).filter(waits_for).is_none() {
            self.state.timers.remove(&timer);
        } else {
            let wait = Duration::from_millis(self.state.policy.fence_ms.saturating_mul(waits));
            self.state.set_timer(timer, self.at.after(wait), &mut self.actions);
        }
    }

    /// Marks overdue requests and sends them again; the node remains unusable.
    pub(super) fn fence_overdue(&mut self, node: &NodeId) {
        let mut late = Vec::new();
        for (job, request) in self.state.fleet.fences_mut(node).into_iter().flatten() {
            if !request.overdue {
                request.overdue = true;
                late.push((job.clone(), request.generation));
            }
        }
        for (job, generation) in late {
            self.announce(format!(
                "node {node} has not confirmed that ranks of job {job} below generation {generation} ended; it takes no \
                 work until it does, and is asked again"
            ));
        }
        self.order_fences(node);
        self.watch_fences(node, OVERDUE_WAITS);
        if self.state.awaits_joins() {
            self.offer_to_waiting_jobs();
        }
    }

    /// Records a node's answer: ranks of the job below this generation ended, except for the processes in `left`.
    pub(super) fn ranks_ended(
        &mut self,
        node: &NodeId,
        name: &JobId,
        generation: Generation,
        ended: u32,
        left: &[String],
    ) {
        self.note_ended_with_agent(node, name, generation, left);
        let requests = self.state.fleet.fences_mut(node);
        let request = requests.and_then(|requests| requests.get_mut(name));
        let request = request.filter(|request| request.generation <= generation);
        let job = self.state.jobs.get(name);
        let case = match (&request, job) {
            (Some(request), _) => request.case,
            (None, Some(job)) if job.is_ending() => self.state.cases.settling(name),
            (None, job) => job.and_then(|job| job.case()),
        };
        let confirmed = request.is_some() && left.is_empty();
        if let Some(request) = request {
            left.clone_into(&mut request.left);
        }
        if ended > 0 {
            let noun = if ended == 1 { "process" } else { "processes" };
            let text = format!("node {node} ended {ended} {noun} of job {name} below generation {generation}");
            if case.is_none() {
                self.announce(text.clone());
            }
            self.note(case, text);
        }
        if !left.is_empty() {
            let text = format!(
                "node {node} could not end processes of job {name} below generation {generation}: {}",
                left.join(", ")
            );
            self.announce(text.clone());
            self.note(case, text);
        }
        if confirmed {
            self.fence_confirmed(node, name);
        }
    }

    /// Records the reason why a node could not carry out a fence, for display until the next answer.
    pub(super) fn fence_failed(&mut self, node: &NodeId, name: &JobId, generation: Generation, reason: &str) {
        let requests = self.state.fleet.fences_mut(node);
        let request = requests.and_then(|requests| requests.get_mut(name));
        if let Some(request) = request.filter(|request| request.generation == generation) {
            request.left = vec![reason.to_owned()];
        }
    }

    fn fence_confirmed(&mut self, node: &NodeId, name: &JobId) {
        self.forget_foreign_ranks(node, |rank| rank.job == *name);
        let Some(requests) = self.state.fleet.fences_mut(node) else {
            return;
        };
        requests.remove(name);
        if requests.is_empty() {
            self.watch_fences(node, 1);
            self.node_span(node);
            self.offer_node();
        }
    }

    /// Returns the case for notes about a node's processes: the newest that blames the node, else the newest of the
    /// job.
    pub(super) fn case_of_node(&self, name: &JobId, node: &NodeId) -> Option<CaseId> {
        let cases = self.state.cases.all().values().rev();
        let mut cases = cases.filter(|case| case.job.as_ref() == Some(name));
        let newest = cases.clone().next().map(|case| case.id);
        let blamed = cases.find(|case| case.verdict.blamed.node() == Some(node));
        blamed.map(|case| case.id).or(newest)
    }
}
