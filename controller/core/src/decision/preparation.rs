//! Preparation of nodes that a job is to take in: standby processes import the modules of the job there, while its ranks
//! work on. The restart then waits for no import.
//!
//! The preflight of all nodes of the coming generation is made meanwhile ([`super::gate`]).
//!
//! It concerns jobs with standby processes only. A job waits for the reports of the nodes with a deadline (RG-9), and then
//! starts without them, as it does where an agent cannot prepare processes or does not know the order. Processes on nodes
//! that the job does not take in are ended.

use rankguard_model::{AgentOrder, Generation, JobId, NodeId, PrepareOrder, StandbyPolicy};

use super::DecisionContext;
use crate::growth_preparation::GrowthPreparation;
use crate::job::JobLookup;

impl DecisionContext<'_> {
    /// Orders the preparation of nodes that were not ordered to prepare. Returns true while the job waits for one of them.
    pub(super) fn awaits_preparation(&mut self, name: &JobId, added: &[NodeId]) -> bool {
        let prepares = self.state.prepares_nodes();
        let at = self.at;
        let Some(job) = self.state.jobs.get_mut(name).filter(|_| prepares) else {
            return false;
        };
        if job.spec.standby.is_none() || added.is_empty() {
            return false;
        }
        let preparation = job.preparation.get_or_insert_with(|| GrowthPreparation::new(at));
        let new: Vec<NodeId> = added.iter().filter(|node| preparation.add(at, node)).cloned().collect();
        let is_awaited = added.iter().any(|node| preparation.awaits(at, node));
        if !new.is_empty() {
            let names: Vec<&str> = new.iter().map(NodeId::as_str).collect();
            let names = names.join(", ");
            self.announce(format!("job {name}: standby processes are prepared on {names}"));
        }
        if !new.is_empty() {
            self.preflight_ahead(name, added);
        }
        for node in new {
            self.order_to_prepare(name, &node);
        }
        is_awaited
    }

    /// Sends the order to a node; repeating it is harmless.
    pub(super) fn order_to_prepare(&mut self, name: &JobId, node: &NodeId) {
        let Some(job) = self.state.jobs.get(name) else { return };
        let standby = job.spec.standby.as_ref().map(|policy| StandbyPolicy {
            count: job.spec.ranks_per_node,
            imports: policy.imports.clone(),
        });
        let order = prepare_order(job, standby);
        self.order(node, AgentOrder::Prepare(order));
    }

    /// Repeats the order to a node that has joined, unless it has reported. A new agent process has no standby processes.
    pub(super) fn repeat_preparation(&mut self, name: &JobId, node: &NodeId, is_new_agent: bool) {
        let at = self.at;
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let Some(preparation) = &mut job.preparation else {
            return;
        };
        if is_new_agent {
            preparation.remove(node);
        } else if preparation.awaits(at, node) {
            self.order_to_prepare(name, node);
        }
    }

    /// Waits no longer for a lost node.
    pub(super) fn lose_preparation(&mut self, name: &JobId, node: &NodeId) {
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let Some(preparation) = &mut job.preparation else {
            return;
        };
        let is_awaited = preparation.awaits(self.at, node);
        preparation.remove(node);
        if is_awaited {
            self.ask_growth(name);
        }
    }

    /// Handles the report of a node; the job goes on once all nodes have reported.
    pub(super) fn node_prepared(
        &mut self,
        name: &JobId,
        generation: Generation,
        node: &NodeId,
        waiting: u32,
        problem: Option<&str>,
    ) {
        let at = self.at;
        let Some(job) = self.state.jobs.in_generation(name, generation) else {
            return;
        };
        let Some(preparation) = &mut job.preparation else {
            return;
        };
        if !preparation.reported(node) {
            return;
        }
        let is_awaited = preparation.awaits_any(at);
        if let Some(problem) = problem {
            self.announce(format!(
                "job {name}: {waiting} standby processes wait on {node}, fewer than ranks; the others are started: {problem}"
            ));
        }
        if !is_awaited {
            self.grow(name);
        }
    }

    /// Goes on with a job that cannot grow now: a job that leaves drained nodes is called to checkpoint, any other ends the
    /// preparation.
    pub(super) fn prepared_without_growth(&mut self, name: &JobId) {
        let Some(job) = self.state.jobs.get(name).filter(|job| job.preparation.is_some()) else {
            return;
        };
        let is_drained = job.nodes().iter().any(|node| self.state.fleet.is_draining(node));
        let is_undisturbed = job.is_running() && job.case().is_none() && !self.state.cases.is_settling(name);
        if is_drained && is_undisturbed {
            self.call_before_drain(name);
        } else if is_undisturbed {
            self.end_preparation(name, &[]);
        }
    }

    /// Calls a job that leaves drained nodes to checkpoint, once its new nodes have reported or are overdue.
    fn call_before_drain(&mut self, name: &JobId) {
        let at = self.at;
        let job = self.state.jobs.get_mut(name);
        let Some(preparation) = job.and_then(|job| job.preparation.as_mut()) else {
            return;
        };
        if preparation.awaits_any(at) {
            return self.ask_growth_after_preparation(name);
        }
        preparation.end_wait();
        self.call_checkpoint(name);
    }

    /// Ends the preparation, and the processes on nodes that the job does not take in.
    pub(super) fn end_preparation(&mut self, name: &JobId, taken: &[NodeId]) {
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let Some(preparation) = job.preparation.take() else {
            return;
        };
        let order = prepare_order(job, None);
        for node in preparation.nodes().filter(|node| !taken.contains(node)) {
            self.order(node, AgentOrder::Prepare(order.clone()));
        }
    }
}

pub(super) fn prepare_order(job: &crate::Job, standby: Option<StandbyPolicy>) -> PrepareOrder {
    PrepareOrder {
        job: job.spec.id.clone(),
        generation: job.generation(),
        command: job.spec.command.clone(),
        env: job.spec.env.clone(),
        workdir: job.spec.workdir.clone(),
        user: job.spec.user.clone(),
        standby,
    }
}
