//! Ended sessions: verdicts about a job wait until the state of a node without a session is known.
//!
//! `Healthy => Lost` takes the silence limit, and ranks on other nodes fail before that. An immediate verdict would
//! restart the job on the absent node, and again without it. So verdicts wait, for a bounded time, until the node has
//! joined again or counts as lost, and nothing is placed on a node without a session.

use std::time::Duration;

use rankguard_model::{NodeId, Timestamp};

use super::DecisionContext;

/// Longest wait of a verdict for a node without a session; longer than the usual silence limit.
const FATE: Duration = Duration::from_secs(10);

impl DecisionContext<'_> {
    pub(super) fn session_ended(&mut self, node: &NodeId) {
        self.state.fleet.end_session(self.at, node);
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
        let away = self.state.fleet.away().filter(|(node, _)| is_awaited(node));
        let open = away.map(|(_, ended)| ended.after(FATE));
        open.max().unwrap_or(Timestamp(0))
    }
}
