//! Standby processes on a spare node: the node that replaces a lost one of a job has imported the modules of the job before the
//! loss.
//!
//! It concerns jobs with standby processes that have all the nodes that they may have; others take free nodes in
//! ([`super::growth`]). One node waits for each job: the first in the order in which recovery selects nodes. An agent ends
//! processes that wait for long without a launch, so the order is repeated; processes of a job that the controller no longer knows
//! thus end by themselves (RG-9).

use std::collections::BTreeSet;
use std::time::Duration;

use rankguard_model::{AgentOrder, JobId, NodeId};

use super::DecisionContext;
use super::preparation::prepare_order;
use crate::job::JobLookup;
use crate::{DecisionState, Job, JobPhase, TimerKey};

/// Interval of the orders to spare nodes: half of the time for which agents let processes wait.
const REPEAT_AFTER: Duration = Duration::from_secs(300);

impl DecisionContext<'_> {
    /// Prepares the spare nodes of all jobs, the oldest first.
    pub(super) fn prepare_spares_of_all(&mut self) {
        if !self.state.prepares_ahead() {
            return;
        }
        for name in self.state.names_by_age() {
            self.prepare_spares(&name);
        }
    }

    /// Starts standby processes on the spare node of a job, and ends those on nodes that are its spare no longer.
    pub(super) fn prepare_spares(&mut self, name: &JobId) {
        let Some(job) = self.state.jobs.get(name).filter(|_| self.state.prepares_ahead()) else {
            return;
        };
        if job.spec.standby.is_none() || !matches!(job.phase(), JobPhase::Starting | JobPhase::Running) {
            return;
        }
        let spares = self.state.spares_for(job);
        let ended: Vec<NodeId> = job.spares.difference(&spares).cloned().collect();
        let new: Vec<NodeId> = spares.difference(&job.spares).cloned().collect();
        if let Some(job) = self.state.jobs.get_mut(name) {
            job.spares = spares;
        }
        self.end_processes_on(name, ended);
        if new.is_empty() {
            return;
        }
        for node in &new {
            self.announce(format!(
                "job {name}: standby processes are prepared on the spare node {node}"
            ));
            self.order_to_prepare(name, node);
        }
        self.ask_spares_again(name);
    }

    /// Sends the order to the spare nodes of a job again.
    pub(super) fn repeat_spares(&mut self, name: &JobId) {
        let Some(job) = self.state.jobs.live(name) else {
            return;
        };
        let nodes: Vec<NodeId> = job.spares.iter().cloned().collect();
        for node in &nodes {
            self.order_to_prepare(name, node);
        }
        if !nodes.is_empty() {
            self.ask_spares_again(name);
        }
    }

    fn ask_spares_again(&mut self, name: &JobId) {
        let timer = TimerKey::Spares { job: name.clone() };
        let at = self.at.after(REPEAT_AFTER);
        self.state.set_timer(timer, at, &mut self.actions);
    }

    /// Removes a node from the spares of all jobs: it takes work, or its agent has joined and may have no processes.
    pub(super) fn forget_spare(&mut self, node: &NodeId) {
        for job in self.state.jobs.values_mut() {
            job.spares.remove(node);
        }
    }

    /// Ends the standby processes of a job on its spare nodes.
    pub(super) fn end_spares(&mut self, name: &JobId) {
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let nodes = std::mem::take(&mut job.spares);
        self.end_processes_on(name, nodes);
        self.state.timers.remove(&TimerKey::Spares { job: name.clone() });
    }

    fn end_processes_on(&mut self, name: &JobId, nodes: impl IntoIterator<Item = NodeId>) {
        let Some(job) = self.state.jobs.get(name) else { return };
        let order = prepare_order(job, None);
        for node in nodes {
            // Processes on a lost node end after a while.
            if self.state.fleet.is_live(&node) {
                self.order(&node, AgentOrder::Prepare(order.clone()));
            }
        }
    }
}

impl DecisionState {
    /// Returns the nodes that would replace the next lost node of a job: at most one.
    fn spares_for(&self, job: &Job) -> BTreeSet<NodeId> {
        let size = job.nodes().len();
        if size < job.node_range().max as usize {
            return BTreeSet::new();
        }
        let mut taken = self.nodes_of_other_jobs(&job.spec.id);
        taken.extend(job.refused.iter().cloned());
        let others = self.jobs.values().filter(|other| other.spec.id != job.spec.id);
        taken.extend(others.flat_map(|other| other.spares.iter().cloned()));
        let nodes = self
            .fleet
            .choose(job.nodes(), &taken, job.spec.ranks_per_node, size + 1);
        let spare = nodes.into_iter().find(|node| !job.nodes().contains(node));
        // The order to a former node to drop its images ends the processes as well; they start after it.
        spare
            .filter(|node| !job.former_nodes.contains(node))
            .into_iter()
            .collect()
    }
}
