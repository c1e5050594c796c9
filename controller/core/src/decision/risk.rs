//! Nodes that may fail soon: an immediate checkpoint saves the work since the last one.

use std::time::Duration;

use rankguard_checkpoint_schedule::agreement::{CheckpointCallMessage, JobProgress};
use rankguard_faults::classes;
use rankguard_model::{AgentOrder, CheckpointCall, Evidence, JobId, NodeId, Role, Timestamp};

use super::DecisionContext;
use crate::Job;

/// Classes of recovered or announced faults: the ranks still run, but may fail soon.
const RISKS: [&str; 12] = [
    classes::GPU_ECC_CONTAINED,
    classes::GPU_ECC_DEGRADING,
    classes::GPU_ROW_REMAP_PENDING,
    classes::GPU_THERMAL,
    classes::HOST_THERMAL,
    classes::MAINTENANCE,
    classes::NIC_LINK_FLAP,
    classes::NODE_DAMAGE,
    classes::PCIE_CORRECTED_ERRORS,
    classes::PCIE_LINK_DEGRADED,
    classes::PREEMPTED,
    classes::SLURM_TIME_LIMIT,
];

/// Assumed step time before the first report, milliseconds.
const STEP_MS: f64 = 1_000.0;

impl DecisionContext<'_> {
    /// Calls a checkpoint if evidence reports a node at risk.
    pub(super) fn watch_risk(&mut self, evidence: &Evidence) {
        let Some(node) = evidence.entity.node().cloned() else {
            return;
        };
        let risk = evidence.marks.iter().find(|mark| {
            mark.role != Role::Noise && mark.role != Role::Cascade && RISKS.contains(&mark.class.as_str())
        });
        if let Some(mark) = risk {
            let why = format!("{node} shows {}", mark.class);
            self.snapshot_on_risk(&node, &why);
        }
    }

    /// Calls a checkpoint of the running job with ranks on a node, unless one was called within `risk_ms`.
    pub(super) fn snapshot_on_risk(&mut self, node: &NodeId, why: &str) {
        let pause = self.state.policy.risk_ms;
        let at = self.at;
        let Some(job) = self.saving_job_on(node).filter(|_| pause > 0) else {
            return;
        };
        let is_recent = |last: Timestamp| at < last.after(Duration::from_millis(pause));
        if !job.calls.at_risk.is_some_and(is_recent) {
            self.snapshot_at_once(node, why);
        }
    }

    /// Calls a checkpoint of the running job with ranks on a node.
    pub(super) fn snapshot_at_once(&mut self, node: &NodeId, why: &str) {
        let at = self.at;
        let Some(job) = self.saving_job_on(node).filter(|job| pace(at, job).is_some()) else {
            return;
        };
        let name = job.spec.id.clone();
        if let Some(job) = self.state.jobs.get_mut(&name) {
            job.calls.at_risk = Some(at);
        }
        if let Some(CheckpointCall::At { step }) = self.call_checkpoint(&name) {
            self.announce(format!("job {name} checkpoints step {step} at once: {why}"));
        }
    }

    /// Returns the running job with checkpoints that has ranks on a node.
    fn saving_job_on(&self, node: &NodeId) -> Option<&Job> {
        let mut jobs = self.state.jobs.values();
        jobs.find(|job| job.is_running() && job.spec.checkpoint.is_some() && job.nodes().contains(node))
    }

    /// Calls the nearest step that every rank can learn of in time. Returns `None` before this generation's first step.
    pub(super) fn call_checkpoint(&mut self, name: &JobId) -> Option<CheckpointCall> {
        let at = self.at;
        let job = self.state.jobs.get_mut(name)?;
        let pace = pace(at, job)?;
        let word = job.calls.call(&pace);
        let nodes = job.nodes().to_vec();
        for node in nodes {
            self.order(&node, call_order(name, &word));
        }
        Some(word.call)
    }
}

/// Returns the pace of a job; `None` before this generation's first step.
pub(super) fn pace(at: Timestamp, job: &Job) -> Option<JobProgress> {
    let report = job
        .progress()
        .last()
        .filter(|point| point.generation == job.generation());
    Some(JobProgress {
        newest: job.generation_step()?,
        since_ms: report.map_or(0.0, |point| at.millis_since(point.at) as f64),
        step_ms: report.map_or(STEP_MS, |point| point.step_ms),
    })
}

/// Converts a call to an order.
pub(super) fn call_order(job: &JobId, word: &CheckpointCallMessage) -> AgentOrder {
    AgentOrder::Checkpoint {
        job: job.clone(),
        generation: word.generation,
        number: word.number,
        call: word.call,
    }
}
