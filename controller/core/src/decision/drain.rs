//! Cordon, drain and removal of nodes by operators, and the drain of a machine that is about to be taken away.
//!
//! A drained node is cordoned, its job is called to checkpoint, and moves to free nodes right after the commit. If
//! there are too few free nodes, the job moves after a later commit. A job without checkpoints never moves, because it
//! would restart from scratch.
//!
//! Standby processes on the new nodes are prepared before ([`super::preparation`]); the job is then called to checkpoint
//! once more.

use rankguard_model::{
    Evidence, EvidenceBody, EvidenceSource, Generation, JobId, NodeId, REMOVAL_NOTICE, REMOVAL_NOTICE_WITHDRAWN, Step,
};

use super::DecisionContext;
use crate::fleet::{Cordon, ReasonPlace};

impl DecisionContext<'_> {
    pub(super) fn cordon_by_operator(&mut self, node: &NodeId, reason: &str, drains: bool) {
        if self.state.keeps_cordon_reasons() {
            self.add_cordon_reason(node, reason, ReasonPlace::First);
        } else if self.state.replaces_cordon_reasons() {
            self.state.fleet.replace_cordon_reason(node, reason);
        }
        self.state.fleet.cordon(
            node,
            Cordon {
                since: self.at,
                reason: reason.to_owned(),
                case: None,
                limit: 0,
                drains,
            },
        );
        if drains {
            self.state.fleet.drain(node);
        }
        self.node_span(node);
        self.settle_uncordoned_fault(node, &format!("an operator cordoned node {node}"));
        // The job will have to move.
        self.snapshot_on_risk(node, &format!("an operator took {node} out of use"));
    }

    /// Drains a node after the report that its machine is about to be taken away, until the agent reports otherwise.
    pub(super) fn watch_removal_notice(&mut self, evidence: &Evidence) {
        let node = &evidence.id.node;
        if evidence.source != EvidenceSource::Host || evidence.entity.node() != Some(node) {
            return;
        }
        let EvidenceBody::Line { text, .. } = &evidence.body else {
            return;
        };
        let signatures = || evidence.marks.iter().map(|mark| mark.signature.as_str());
        if signatures().any(|signature| signature == REMOVAL_NOTICE) {
            self.drain_before_removal(node, text);
        } else if signatures().any(|signature| signature == REMOVAL_NOTICE_WITHDRAWN) {
            self.withdraw_removal_notice(node);
        }
    }

    fn drain_before_removal(&mut self, node: &NodeId, reason: &str) {
        self.state.fleet.withdraw_removal(node);
        self.add_cordon_reason(node, reason, ReasonPlace::First);
        self.state.fleet.cordon(
            node,
            Cordon {
                since: self.at,
                reason: reason.to_owned(),
                case: None,
                limit: 0,
                drains: false,
            },
        );
        self.state.fleet.note_removal(node, reason);
        self.node_span(node);
        let why = format!("the machine of node {node} is about to be taken away");
        self.settle_uncordoned_fault(node, &why);
        self.announce(format!("node {node} is drained: {reason}"));
        self.snapshot_at_once(node, &why);
    }

    /// Returns a node to use after its notice was withdrawn, unless it is out of use for another reason.
    pub(super) fn withdraw_removal_notice(&mut self, node: &NodeId) {
        if !self.state.fleet.withdraw_removal(node) {
            return;
        }
        self.announce(format!("the machine of node {node} is not taken away"));
        self.node_span(node);
        self.offer_node();
    }

    /// Moves a job away from drained nodes after a commit.
    pub(super) fn drain_after_commit(&mut self, name: &JobId, generation: Generation, step: Step) {
        let Some(job) = self.state.jobs.get(name) else { return };
        let is_newest = job.checkpoints.newest().is_some_and(|newest| newest.step == step);
        let runs = job.has_started();
        let is_free = job.case().is_none() && !self.state.cases.is_settling(name);
        let works_on = job.nodes_with_work();
        let counts_completed = !self.state.ignores_completed_ranks();
        let drained: Vec<NodeId> = job
            .nodes()
            .iter()
            .filter(|node| self.state.fleet.is_draining(node))
            .filter(|node| counts_completed || works_on.contains(node))
            .cloned()
            .collect();
        if drained.is_empty() || job.generation() != generation || !is_newest || !runs || !is_free {
            return;
        }
        let mut taken = self.state.nodes_of_other_jobs(name);
        taken.extend(job.refused.iter().cloned());
        let range = job.node_range();
        let slots = job.spec.ranks_per_node;
        let nodes = self.state.fleet.choose(job.nodes(), &taken, slots, range.max as usize);
        if nodes.len() < range.min as usize {
            return;
        }
        let added: Vec<NodeId> = nodes.into_iter().filter(|node| !job.nodes().contains(node)).collect();
        // A machine that is about to be taken away leaves no time for it.
        let is_urgent = drained.iter().any(|node| self.state.fleet.is_to_be_removed(node));
        if !is_urgent && self.awaits_preparation(name, &added) {
            return self.ask_growth_after_preparation(name);
        }
        let drained: Vec<&NodeId> = drained.iter().collect();
        let reasons = self.state.fleet.describe_drains(&drained);
        self.place(name, None, vec![reasons]);
    }

    /// Removes a lost node that has no part in a job.
    pub(super) fn forget_node(&mut self, node: &NodeId) {
        let is_used = self
            .state
            .jobs
            .values()
            .any(|job| !job.is_over() && job.nodes().contains(node));
        if is_used || !self.state.fleet.remove_lost(node) {
            return self.announce(format!("node {node} is in use or speaks, and is not forgotten"));
        }
        self.state.timers.remove(&crate::TimerKey::Fence { node: node.clone() });
        let open = |span: &&mut rankguard_model::StateSpan| span.node == *node && span.to.is_none();
        if let Some(span) = self.state.node_spans.iter_mut().find(open) {
            span.to = Some(self.at);
        }
        self.settle_uncordoned_fault(node, &format!("an operator removed node {node}"));
        self.close_past_faults_of_node(node, &format!("an operator removed node {node}"));
        self.refresh_cordon_refusals();
        self.announce(format!("node {node} is forgotten by an operator"));
    }
}
