//! Removal of nodes that have been lost for long, which would otherwise accumulate.

use std::collections::BTreeSet;
use std::time::Duration;

use rankguard_model::NodeId;

use super::DecisionContext;
use crate::TimerKey;

impl DecisionContext<'_> {
    /// Sets the timer of the next removal check, unless one is set.
    pub(super) fn watch_departed(&mut self) {
        if self.state.rules >= 1 && !self.state.timers.contains_key(&TimerKey::Forget) {
            let at = self.at.after(Duration::from_millis(self.state.policy.forget_ms));
            self.state.set_timer(TimerKey::Forget, at, &mut self.actions);
        }
    }

    /// Removes nodes that have been lost for longer than [`crate::Policy::forget_ms`], and sets the next check while
    /// others are lost.
    pub(super) fn forget_departed(&mut self) {
        let living = self.state.jobs.values().filter(|job| !job.is_over());
        let in_use: BTreeSet<NodeId> = living.flat_map(|job| job.nodes().iter().cloned()).collect();
        let limit = self.state.policy.forget_ms;
        let forgotten = self.state.fleet.forget_departed(self.at, limit, &in_use);
        for node in &forgotten {
            self.record_absence(self.at.before(Duration::from_millis(limit)), false);
            self.announce(format!("node {node} has been away for too long and is forgotten"));
            let removed = format!("node {node} has been away for too long and was removed");
            self.settle_uncordoned_fault(node, &removed);
            self.close_past_faults_of_node(node, &removed);
            let open = |span: &&mut rankguard_model::StateSpan| span.node == *node && span.to.is_none();
            if let Some(span) = self.state.node_spans.iter_mut().find(open) {
                span.to = Some(self.at);
            }
        }
        if !forgotten.is_empty() {
            self.refresh_cordon_refusals();
        }
        let lost = self.state.fleet.iter().filter_map(|(_, node)| node.lost_since);
        if let Some(oldest) = lost.min() {
            // A node that is retained for its job or cordon is checked again after a sixteenth of the limit.
            let due = oldest.after(Duration::from_millis(limit));
            let again = self.at.after(Duration::from_millis((limit / 16).max(1)));
            self.state
                .set_timer(TimerKey::Forget, due.max(again), &mut self.actions);
        }
    }
}
