//! Phase transitions of a job. The phase changes nowhere else.

use std::collections::BTreeSet;
use std::time::Duration;

use rankguard_model::{Generation, NodeId, Rank, RestoreBytes, Step, Timestamp};

use super::{Job, JobPhase};
use crate::Plan;
use crate::calls::CheckpointCalls;
use crate::decision::{AdoptionStage, PreflightResults, SilentRanks};
use crate::job_activity::JobActivity;
use crate::rank_notes::RankNotes;
use crate::restore_report::RestoreReport;
use crate::step_times::StepTimes;

/// Shortest wait for a store that is reported.
const STORE_WAIT_MIN: Duration = Duration::from_secs(1);

/// A generation that begins.
pub(crate) struct GenerationStart {
    pub(crate) plan: Plan,
    /// Nodes that may read and write images of the job.
    pub(crate) members: BTreeSet<NodeId>,
    /// Nodes that must end their old ranks first.
    pub(crate) fenced: BTreeSet<NodeId>,
    /// True if the plan counts as a restart that brought the job no further.
    pub(crate) is_fruitless: bool,
}

impl Job {
    /// Returns true if the job waits for nodes.
    pub fn is_pending(&self) -> bool {
        matches!(self.phase, JobPhase::Pending { .. })
    }

    /// Returns true if all its ranks have started.
    pub fn has_started(&self) -> bool {
        matches!(self.phase, JobPhase::Starting | JobPhase::Running)
    }

    /// Returns true if the job runs: it made a step, or works without reporting steps.
    pub fn is_running(&self) -> bool {
        matches!(self.phase, JobPhase::Running)
    }

    /// Returns true if old ranks are being ended or their checkpoints adopted, before the new ranks start.
    pub fn is_between_generations(&self) -> bool {
        matches!(self.phase, JobPhase::Fencing { .. } | JobPhase::Adopting { .. })
    }

    /// Returns true if a pending job may start with fewer nodes than its maximum. A job that already ran does not wait
    /// for its full size.
    pub(crate) fn may_start_smaller(&self) -> bool {
        match self.phase {
            JobPhase::Pending { gathered, .. } => gathered,
            _ => true,
        }
    }

    /// Lets a pending job start with fewer nodes than its maximum. Returns false in another phase.
    pub(crate) fn end_gathering(&mut self) -> bool {
        match &mut self.phase {
            JobPhase::Pending { gathered, .. } => {
                *gathered = true;
                true
            }
            _ => false,
        }
    }

    /// `=> Pending` or another condition of it: the job waits for nodes. Returns true if it did not wait before.
    pub(crate) fn wait_for_nodes(&mut self, missing: String, gathered: bool) -> bool {
        let is_new = !self.is_pending();
        self.phase = JobPhase::Pending { missing, gathered };
        if is_new {
            self.note_waiting_step();
        }
        is_new
    }

    /// Records the step of a job that waits for nodes while its ranks run on.
    pub(crate) fn note_waiting_step(&mut self) {
        self.waiting_since_step = self.generation_step;
    }

    /// Returns true if the ranks of a waiting job made progress since the wait began. For a job that has reported no
    /// step a sign of life of any rank suffices.
    pub(crate) fn moved_while_waiting(&self) -> bool {
        match self.generation_step {
            Some(step) => Some(step) > self.waiting_since_step,
            None => self.activity.is_active(),
        }
    }

    /// `Pending => Running` with the ranks that ran on.
    pub(crate) fn resume(&mut self) {
        self.planned_wait = None;
        self.phase = JobPhase::Running;
        self.deadline = None;
    }

    /// `=> Fencing`: begins a generation by ending the old ranks.
    pub(crate) fn begin(&mut self, start: GenerationStart, at: Timestamp) {
        let GenerationStart {
            plan,
            members,
            fenced,
            is_fruitless,
        } = start;
        self.generation = plan.generation;
        self.fruitless += u32::from(is_fruitless);
        if plan.case.is_some() {
            self.progress_mark.restart(self.step);
        }
        self.activity = JobActivity::default();
        self.rank_notes = RankNotes::default();
        self.growth = None;
        self.planned_wait = None;
        self.plan = Some(plan);
        self.running.clear();
        self.launch_record.begin(members);
        self.hang = SilentRanks::default();
        self.tempo = StepTimes::default();
        self.answers = PreflightResults::default();
        self.restored = RestoreBytes::default();
        self.restore_report = RestoreReport::default();
        self.ranks_ended_at = None;
        self.completed.clear();
        self.exits_due.clear();
        self.given_up.clear();
        self.ending = false;
        self.checkpoints.fence();
        self.calls = CheckpointCalls::new(self.generation);
        self.close_spans(at, |_| true);
        self.phase = JobPhase::Fencing {
            waiting: fenced,
            port: None,
        };
    }

    /// Records that a node ended its old ranks; the first node of the plan reserves the rendezvous port.
    pub(crate) fn node_fenced(&mut self, node: &NodeId, master_port: Option<u16>) {
        let is_first = self.nodes().first() == Some(node);
        if let JobPhase::Fencing { waiting, port } = &mut self.phase {
            if is_first {
                *port = port.or(master_port);
            }
            // The first node has answered only once it has also reserved a port.
            if !is_first || port.is_some() {
                waiting.remove(node);
            }
        }
    }

    /// Records the time at which all old ranks have ended and the nodes have passed preflight: from then on the job waits for its
    /// store only.
    pub(crate) fn note_ended_ranks(&mut self, at: Timestamp) {
        if let JobPhase::Fencing { waiting, port } = &self.phase
            && waiting.is_empty()
            && self.answers.waiting.is_empty()
            && port.is_some()
        {
            self.ranks_ended_at.get_or_insert(at);
        }
    }

    /// Returns the time since which the job waits for its store only, between generations and at the launch after them; `None` for
    /// less than a second.
    pub(crate) fn store_wait_since(&self, at: Timestamp) -> Option<Timestamp> {
        let since = self.ranks_ended_at.filter(|_| self.spec.checkpoint.is_some())?;
        (at.since(since) >= STORE_WAIT_MIN).then_some(since)
    }

    /// Returns the folder of its checkpoints.
    pub(crate) fn store(&self) -> Option<&str> {
        self.spec.checkpoint.as_ref().map(|policy| policy.store.as_str())
    }

    /// Waits no longer for a lost node. Its old ranks cannot be fenced; they cannot commit either (RG-3).
    pub(crate) fn node_lost(&mut self, node: &NodeId) {
        let is_planned = self.nodes().contains(node);
        match &mut self.phase {
            JobPhase::Fencing { waiting, .. } if !is_planned => drop(waiting.remove(node)),
            JobPhase::Adopting {
                stage: AdoptionStage::Asking { waiting, .. },
                ..
            } => drop(waiting.remove(node)),
            _ => {}
        }
    }

    /// Returns the rendezvous port once all old ranks have ended and the nodes have passed preflight. A manifest that is
    /// being written, or a checkpoint that is being checked, decides where the next generation starts.
    pub(crate) fn fenced_port(&self) -> Option<u16> {
        let JobPhase::Fencing { waiting, port } = &self.phase else {
            return None;
        };
        let is_ready = waiting.is_empty()
            && self.answers.waiting.is_empty()
            && self.checkpoints.committing.is_none()
            && !self.checkpoints.suspicions.is_checking();
        port.filter(|_| is_ready)
    }

    /// `Fencing => Adopting`: the store is searched for complete checkpoints of the last generation.
    pub(crate) fn adopt(&mut self, port: u16) {
        let stage = AdoptionStage::Looking { asked: None };
        self.phase = JobPhase::Adopting { port, stage };
    }

    /// Returns the stage of the adoption; none in another phase.
    pub(crate) fn adoption(&self) -> Option<&AdoptionStage> {
        match &self.phase {
            JobPhase::Adopting { stage, .. } => Some(stage),
            _ => None,
        }
    }

    /// Moves to a stage of the adoption; does nothing in another phase.
    pub(crate) fn set_adoption(&mut self, next: AdoptionStage) {
        if let JobPhase::Adopting { stage, .. } = &mut self.phase {
            *stage = next;
        }
    }

    /// Records that a node has written its shards from the source that was asked for.
    pub(crate) fn shards_written(&mut self, node: &NodeId, source: rankguard_model::ImageLocation) {
        if let JobPhase::Adopting {
            stage: AdoptionStage::Asking { from, waiting },
            ..
        } = &mut self.phase
            && *from == source
        {
            waiting.remove(node);
        }
    }

    /// `Fencing or Adopting => Launching`: the ranks are being started. Returns the newest step of the last generation.
    pub(crate) fn launch(&mut self, port: u16) -> Option<Step> {
        let waiting = self.places().into_keys().collect();
        self.phase = JobPhase::Launching { waiting, port };
        self.checkpoints.launched(self.generation);
        self.stepped_at = None;
        self.generation_step.take()
    }

    /// `Launching => Starting`: all ranks have started.
    pub(crate) fn start(&mut self, at: Timestamp) {
        self.phase = JobPhase::Starting;
        self.activity.start(at);
    }

    /// `Starting => Running`: the listed ranks work.
    pub(crate) fn run(&mut self, at: Timestamp, ranks: impl IntoIterator<Item = (Rank, NodeId)>) {
        self.phase = JobPhase::Running;
        self.checkpoints.suspicions.readable();
        for (rank, node) in ranks {
            self.open_span(at, &node, rank, "running");
        }
    }

    /// `=> Finished`: all ranks have completed.
    pub(crate) fn finish(&mut self, at: Timestamp) {
        self.phase = JobPhase::Finished;
        self.planned_wait = None;
        self.ended_at = Some(at);
        self.deadline = None;
    }

    /// `=> Stopped`: the job is ended for good.
    pub(crate) fn stop(&mut self, reason: String, at: Timestamp) {
        self.phase = JobPhase::Stopped { reason };
        self.planned_wait = None;
        self.ended_at = Some(at);
        self.deadline = None;
        self.close_spans(at, |_| true);
    }

    /// Returns the generation that may commit checkpoints now (RG-3): none while old ranks are being ended, nor one that was
    /// begun and never started, the last one before the next starts. A finished job may still commit its own, because agents write sealed shards after
    /// the ranks have exited.
    pub fn committable(&self) -> Option<Generation> {
        match self.phase {
            JobPhase::Fencing { .. } => None,
            JobPhase::Adopting {
                stage: AdoptionStage::Committing,
                ..
            } => Some(self.checkpoints.trained()),
            JobPhase::Adopting { .. } => None,
            JobPhase::Stopped { .. } => None,
            JobPhase::Pending { .. } if self.checkpoints.trained() < self.generation => None,
            _ => Some(self.generation),
        }
    }
}
