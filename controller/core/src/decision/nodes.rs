//! Joins, losses and returns of nodes.

use std::collections::BTreeSet;

use rankguard_diagnosis::CallerFact;
use rankguard_model::{JobId, NodeId, NodeInfo, Rank, StateSpan, Timestamp};

use super::agent_returns::{BootChange, loss_of_ranks};
use super::risk::call_order;
use super::{DecisionContext, fence_order};
use crate::{JobPhase, TimerKey};

/// Node spans retained for reports; beyond it the oldest are dropped.
const NODE_SPANS_MAX: usize = 4_096;

impl DecisionContext<'_> {
    pub(super) fn node_joined(&mut self, info: &NodeInfo) {
        let node = info.node.clone();
        let restarted = self
            .state
            .fleet
            .get(&node)
            .is_some_and(|known| known.info.incarnation != info.incarnation);
        let has_booted = self.take_boot(info);
        let has_run_on = self.has_run_on(info);
        let boot = match (has_run_on, has_booted) {
            (true, _) => BootChange::Same,
            (false, true) => BootChange::New,
            (false, false) => BootChange::Unknown,
        };
        let last_heard = self.last_heard(&node);
        let lost_since = self.state.fleet.get(&node).and_then(|known| known.lost_since);
        if let Some(lost_since) = lost_since {
            self.record_absence(lost_since, true);
        }
        let accepted = self.accepted(info);
        self.state.fleet.join(self.at, accepted);
        self.close_past_faults_of_node(&node, &format!("node {node} started again"));
        self.agent_returned(&node, has_run_on);
        self.node_span(&node);
        if restarted {
            self.forget_refusals(&node);
            self.drop_measured_conditions(&node);
            // The new agent reports it again if it is still so.
            self.withdraw_removal_notice(&node);
            // The ranks of the old agent died with it, and so did its reports of their ends.
            self.ranks_vanished(info, last_heard, boot);
        }
        self.take_generations(info);
        self.take_absent_ranks(info, restarted);
        let names: Vec<JobId> = self.state.jobs.keys().cloned().collect();
        for name in names {
            self.repeat_orders(&name, &node);
            self.repeat_preparation(&name, &node, restarted);
        }
        self.forget_spare(&node);
        self.fence_returned(info);
        self.release_joined_node(&node);
        self.offer_node();
    }

    /// Ends the evidence against a node with a new boot: a crash of its kernel, links that were down, memory that ran
    /// out. Faults of hardware have been answered, or are reported again.
    /// Returns true if the boot is new.
    fn take_boot(&mut self, info: &NodeInfo) -> bool {
        let known = self.state.fleet.get(&info.node).map(|known| &known.info.boot_id);
        let has_booted =
            known.is_some_and(|boot| !boot.is_empty() && !info.boot_id.is_empty() && *boot != info.boot_id);
        let has_booted = has_booted && self.state.has_fault_ends();
        if has_booted {
            let state = &mut *self.state;
            let changes = state.diagnosis.node_booted(self.at, &info.node, state.catalogue.get());
            self.take_changes(changes);
        }
        has_booted
    }

    /// Returns the time of the last message of a node before its session ended. If it ended while the controller was away, that
    /// is the newest entry of the journal before. Under older rules, and if the time is unknown, the present time.
    fn last_heard(&self, node: &NodeId) -> Timestamp {
        let node = self.state.fleet.get(node).filter(|_| self.state.follows_ended_ranks());
        let last_heard = node.and_then(|node| node.last_heard.or(node.session_ended));
        let is_unjoined = node.is_some_and(|node| node.unjoined_since.is_some()) && self.state.has_exact_cases();
        let before_start = self.state.lives.current_period().filter(|_| is_unjoined);
        let before_start = before_start.map(|(newest, _)| newest);
        last_heard.or(before_start).unwrap_or(self.at)
    }

    /// Reports a node as failed if its restarted agent lacks ranks that the state records as running.
    pub(super) fn ranks_vanished(&mut self, info: &NodeInfo, since: Timestamp, boot: BootChange) {
        let vanished = self.state.jobs.iter().any(|(name, job)| {
            let awaited = !job.is_pending() && !job.is_between_generations();
            let alive: BTreeSet<Rank> = info
                .running
                .iter()
                .filter(|running| running.rank.job == *name && running.rank.generation == job.generation())
                .map(|running| running.rank.rank)
                .collect();
            awaited
                && !job.is_over()
                && job
                    .ranks_on(&info.node)
                    .iter()
                    .any(|rank| job.is_alive(*rank) && !job.has_completed(*rank) && !alive.contains(rank))
        });
        if vanished {
            self.witness_fact(&loss_of_ranks(info.node.clone(), since, boot));
        }
    }

    pub(super) fn node_fell_silent(&mut self, node: &NodeId, last_heard: Timestamp) {
        if !self.state.fleet.is_live(node) {
            return;
        }
        let entry = self.state.fleet.get(node);
        let unjoined = entry.and_then(|entry| entry.unjoined_since);
        self.announce(match unjoined {
            Some(since) => format!("node {node} has not joined since the controller started at {since}"),
            None => format!("node {node} has been silent since {last_heard}"),
        });
        self.lose_node(node, last_heard);
    }

    /// `(Healthy | Cordoned) => Lost`: the node has been silent beyond the limit, or its agent has ended.
    pub(super) fn lose_node(&mut self, node: &NodeId, last_heard: Timestamp) {
        let entry = self.state.fleet.get(node);
        let has_ended = entry.is_some_and(|entry| entry.session_ended.is_some() && entry.farewell.is_none());
        let has_ended = has_ended && self.state.distinguishes_ended_agents();
        let unjoined = entry.and_then(|entry| entry.unjoined_since);
        // Its session had ended before the controller started.
        let known = entry.and_then(|entry| entry.last_heard.or(entry.session_ended));
        let last_heard = unjoined.and(known).unwrap_or(last_heard);
        self.state.fleet.lose(self.at, node);
        let dates_silence = self.state.dates_silence();
        if let Some(entry) = self
            .state
            .fleet
            .get_mut(node)
            .filter(|_| dates_silence && unjoined.is_none())
        {
            entry.last_heard.get_or_insert(last_heard);
        }
        self.state.timers.remove(&TimerKey::Fence { node: node.clone() });
        self.watch_departed();
        self.node_span(node);
        let mut jobs = self.state.jobs.values().filter(|job| !job.is_over());
        if jobs.any(|job| self.works_on(job, node)) {
            let since = last_heard;
            let node = node.clone();
            self.witness_fact(&if has_ended {
                CallerFact::AgentEnded { node, since }
            } else if let Some(since) = unjoined {
                CallerFact::NodeUnjoined { node, since }
            } else {
                CallerFact::NodeSilent { node, since }
            });
        }
        let names: Vec<JobId> = self.state.jobs.keys().cloned().collect();
        for name in names {
            if let Some(job) = self.state.jobs.get_mut(&name) {
                job.close_spans(last_heard, |span| span.node == *node);
                job.node_lost(node);
            }
            self.advance(&name);
            self.lose_preparation(&name, node);
            if let Some(generation) = self.state.jobs.get(&name).map(|job| job.generation()) {
                self.settle_silent_generation(&name, generation);
            }
        }
        if unjoined.is_some() && self.state.awaits_joins() {
            self.offer_to_waiting_jobs();
        }
        self.prepare_spares_of_all();
    }

    /// Places the jobs that waited for a node to join or to confirm the end of ranks: it counts as lost, or is late. A verdict
    /// that is awaited places its job itself.
    pub(super) fn offer_to_waiting_jobs(&mut self) {
        for name in self.state.names_by_age() {
            let is_waiting = self.state.jobs.get(&name).is_some_and(crate::Job::is_pending);
            if is_waiting && !self.state.cases.is_settling(&name) {
                self.place(&name, None, Vec::new());
            }
        }
    }

    /// Repeats the orders for which a job waits on a node. Repeating them is harmless.
    pub(super) fn repeat_orders(&mut self, name: &JobId, node: &NodeId) {
        let Some(job) = self.state.jobs.get(name) else { return };
        match job.phase() {
            JobPhase::Fencing { waiting, .. } if waiting.contains(node) => {
                let order = fence_order(name, job, node);
                let asked = job.answers.waiting.contains(node);
                self.order(node, order);
                if asked {
                    self.ask_node(name, node);
                }
            }
            JobPhase::Fencing { .. } if job.answers.waiting.contains(node) => self.ask_node(name, node),
            JobPhase::Adopting { .. } => self.order_to_finish(name, node),
            JobPhase::Launching { waiting, port } => {
                let port = *port;
                if job.ranks_on(node).iter().any(|rank| waiting.contains(rank)) {
                    self.launch_node(name, node, port);
                }
            }
            JobPhase::Starting | JobPhase::Running if job.is_ending() => self.end_ranks_early(name, node),
            // Calls may have been lost with the session; agents ignore those they know.
            JobPhase::Starting | JobPhase::Running if job.nodes().contains(node) => {
                let words = job.calls.open().to_vec();
                for word in words {
                    self.order(node, call_order(name, &word));
                }
            }
            // The fences of the node end the ranks of a job that is over.
            _ => {}
        }
    }

    /// Offers a node that may have become usable to jobs that wait for nodes or may grow.
    pub(crate) fn offer_node(&mut self) {
        for name in self.state.names_by_age() {
            let Some(job) = self.state.jobs.get(&name) else {
                continue;
            };
            match job.phase() {
                JobPhase::Pending { .. } => self.place(&name, None, Vec::new()),
                JobPhase::Starting | JobPhase::Running if job.nodes().len() < job.node_range().max as usize => {
                    self.ask_growth(&name);
                }
                _ => {}
            }
        }
        self.prepare_spares_of_all();
    }

    pub(crate) fn node_span(&mut self, node: &NodeId) {
        let Some(entry) = self.state.fleet.get(node) else {
            return;
        };
        let state = match entry.state() {
            rankguard_model::NodeState::Healthy => "healthy",
            rankguard_model::NodeState::Cordoned => "cordoned",
            rankguard_model::NodeState::Lost => "lost",
            rankguard_model::NodeState::Fencing => "fencing",
        };
        let spans = &mut self.state.node_spans;
        if let Some(open) = spans.iter_mut().find(|span| span.node == *node && span.to.is_none()) {
            if open.state == state {
                return;
            }
            open.to = Some(self.at);
        }
        if spans.len() >= NODE_SPANS_MAX {
            spans.remove(0);
        }
        spans.push(StateSpan {
            node: node.clone(),
            rank: None,
            generation: None,
            state: state.to_owned(),
            from: self.at,
            to: None,
        });
    }
}
