//! Ended sessions: verdicts about a job wait until the state of a node without a session is known.
//!
//! `Healthy => Lost` takes the silence limit, and ranks on other nodes fail before that. An immediate verdict would
//! restart the job on the absent node, and again without it. So verdicts wait, for a bounded time, until the node has
//! joined again or counts as lost, and nothing is placed on a node without a session.
//!
//! After a start of the controller no agent is connected, and the same holds for each node until it has joined.
//!
//! `Healthy => Lost` follows the end of the session at once if the agent was asked to end and has reported the ends of
//! its ranks.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_model::{Evidence, EvidenceSource, FAREWELL_SIGNATURE, Generation, JobId, NodeId, Timestamp};

use super::DecisionContext;
use crate::AgentFarewell;

/// Longest wait of a verdict for a node without a session; longer than the usual silence limit.
const FATE: Duration = Duration::from_secs(10);

impl DecisionContext<'_> {
    pub(super) fn session_ended(&mut self, node: &NodeId, last_heard: Option<Timestamp>) {
        self.state.fleet.end_session(self.at, node, last_heard);
        if self.has_departed(node) {
            self.announce(format!("the agent of node {node} was asked to end and has ended"));
            self.lose_node(node, self.at);
        }
        self.watch_unreachable(node);
    }

    /// Returns true if the agent of a node was asked to end and has reported the ends of all its ranks. The silence
    /// limit would add nothing to that.
    fn has_departed(&self, node: &NodeId) -> bool {
        let entry = self.state.fleet.get(node).filter(|node| node.lost_since.is_none());
        let has_farewell = entry.is_some_and(|node| node.farewell.is_some());
        let mut jobs = self.state.jobs.values().filter(|job| !job.is_over());
        let runs = |job: &crate::Job| {
            let mut places = job.places().into_iter();
            places.any(|(rank, place)| place == *node && job.is_alive(rank))
        };
        has_farewell && !jobs.any(runs)
    }

    /// Records an agent's report that it was asked to end.
    pub(super) fn take_farewell(&mut self, evidence: &Evidence) {
        let is_farewell = evidence.source == EvidenceSource::Agent
            && evidence.marks.iter().any(|mark| mark.signature == FAREWELL_SIGNATURE);
        if !is_farewell || evidence.synthetic || !self.state.takes_farewells() {
            return;
        }
        let farewell = AgentFarewell {
            at: evidence.at,
            ended: BTreeMap::new(),
        };
        if let Some(node) = self.state.fleet.get_mut(&evidence.id.node) {
            node.farewell.get_or_insert(farewell);
        }
    }

    /// Records that an ending agent has ended all processes of a job below a generation.
    pub(super) fn note_ended_with_agent(
        &mut self,
        node: &NodeId,
        job: &JobId,
        generation: Generation,
        left: &[String],
    ) {
        let node = self.state.fleet.get_mut(node);
        let Some(farewell) = node.and_then(|node| node.farewell.as_mut()).filter(|_| left.is_empty()) else {
            return;
        };
        let below = farewell.ended.entry(job.clone()).or_default();
        *below = generation.max(*below);
    }

    /// Returns the earliest time for verdicts about jobs on nodes without a session; time 0 if there are none.
    pub(crate) fn fates_known_at(&self) -> Timestamp {
        let jobs = &self.state.jobs;
        let is_awaited = |node: &NodeId| {
            let mut jobs = jobs
                .iter()
                .filter(|(_, job)| !job.is_over() && job.nodes().contains(node));
            jobs.any(|(name, _)| self.state.cases.is_settling(name))
        };
        let away = self
            .state
            .fleet
            .nodes_without_session()
            .filter(|(node, _)| is_awaited(node));
        let open = away.map(|(_, ended)| ended.after(FATE));
        open.max().unwrap_or(Timestamp(0))
    }
}
