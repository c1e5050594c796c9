//! Jobs and their life cycle.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_checkpoint_format::CheckpointId;
use rankguard_checkpoint_schedule::rates::FailureRates;
use rankguard_checkpoint_schedule::retention::RetentionPolicy;
use rankguard_model::{
    CaseId, CheckpointPolicy, Generation, JobSpec, JobState, NodeId, ProgressPoint, Rank, RestoreBytes, RunId,
    RunStart, StateSpan, Step, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::Plan;
use crate::calls::CheckpointCalls;
use crate::checkpoints::JobCheckpoints;
use crate::decision::{AdoptionStage, PreflightResults, SilentRanks};
use crate::growth::PendingGrowth;
use crate::interval_inputs::IntervalInputs;
use crate::job_activity::JobActivity;
use crate::launch_record::LaunchRecord;
use crate::progress_mark::ProgressMark;
use crate::start_record::StartRecord;
use crate::step_times::StepTimes;

/// Progress points retained for reports; beyond it every second one is dropped, so that the whole run remains visible.
const PROGRESS_POINTS_MAX: usize = 4_096;
/// Spans retained for reports; beyond it the oldest are dropped.
const SPANS_MAX: usize = 4_096;

/// Life-cycle phase of a job, with the state of that phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "kebab-case")]
pub enum JobPhase {
    /// `Pending => (Fencing | Stopped)`: the job waits for nodes.
    Pending {
        /// Missing condition, in words.
        missing: String,
        /// True if the job may start with fewer nodes than its maximum.
        gathered: bool,
    },
    /// `Fencing => (Adopting | Launching | Fencing of a later generation | Stopped)`: old ranks are being ended.
    Fencing {
        /// Nodes that have not answered.
        waiting: BTreeSet<NodeId>,
        /// Rendezvous port on the first node, once reserved.
        port: Option<u16>,
    },
    /// `Adopting => (Launching | Fencing of a later generation | Stopped)`: complete checkpoints of the last generation
    /// are committed.
    Adopting { port: u16, stage: AdoptionStage },
    /// `Launching => (Starting | Fencing | Stopped)`: ranks are being started.
    Launching {
        /// Ranks that have not started.
        waiting: BTreeSet<Rank>,
        port: u16,
    },
    /// `Starting => (Running | Fencing | Finished | Stopped)`: ranks load and make their first step.
    Starting,
    /// `Running => (Fencing | Finished | Stopped)`.
    Running,
    /// All ranks completed.
    Finished,
    /// The job was stopped for good.
    Stopped {
        /// Reason for the user.
        reason: String,
    },
}

/// State of one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub spec: JobSpec,
    pub phase: JobPhase,
    /// Current generation; 0 before the first plan.
    pub generation: Generation,
    /// Plan of the current generation.
    pub plan: Option<Plan>,
    /// Deadline of the current phase, if it has one.
    pub deadline: Option<Timestamp>,
    /// Ranks of this generation that agents reported as started.
    pub running: BTreeSet<Rank>,
    /// Processes and restore points of its ranks, for the authorisation of later evidence.
    pub launch_record: LaunchRecord,
    /// Ranks of this generation that exited with code 0.
    pub completed: BTreeSet<Rank>,
    /// Ranks of this generation that their agent no longer runs and whose exits it has not reported yet.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub exits_due: BTreeSet<Rank>,
    /// Newest step that any generation reported.
    pub step: Option<Step>,
    /// Newest step that this generation reported; at a failure, the difference to the checkpoint is lost.
    pub generation_step: Option<Step>,
    /// Run that owns its checkpoint folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Checkpoint from which this attempt of the run started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<RunStart>,
    /// Newer checkpoints that this attempt passed over, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<String>,
    pub checkpoints: JobCheckpoints,
    /// Called steps, in addition to those of the interval rule.
    pub calls: CheckpointCalls,
    /// Inputs of the checkpoint interval.
    pub rhythm: IntervalInputs,
    /// Retries by failure signature.
    pub retries: BTreeMap<String, u32>,
    /// Restarts after failures since the last committed checkpoint. The limit holds across different failures: work
    /// that is lost every time is not worth its GPU hours.
    pub fruitless: u32,
    /// Progress that refills `retries` and `fruitless`.
    #[serde(default)]
    pub progress_mark: ProgressMark,
    /// Signs of life of this generation besides steps.
    #[serde(default)]
    pub activity: JobActivity,
    /// Pending growth onto more nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth: Option<PendingGrowth>,
    /// Step at which the job began to wait for nodes while its ranks ran on, see [`crate::brain`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since_step: Option<Step>,
    /// Preflight results of the nodes of the coming generation.
    pub answers: PreflightResults,
    /// Nodes that failed preflight for this job.
    pub refused: BTreeSet<NodeId>,
    /// Starts of its ranks by node.
    #[serde(default, skip_serializing_if = "StartRecord::is_empty")]
    pub starts: StartRecord,
    /// Number of times each node has moved the job to another generation ([`crate::GenerationFloors`]).
    pub floor_raises: BTreeMap<NodeId, u32>,
    /// Number of times the content of its store has moved the job to another generation.
    pub store_raises: u32,
    /// Ranks that are silent although their processes live.
    pub hang: SilentRanks,
    /// Step times of its ranks.
    pub tempo: StepTimes,
    /// Bytes that the ranks of this generation restored, by tier.
    pub restored: RestoreBytes,
    /// Case from which the job is recovering.
    pub case: Option<CaseId>,
    /// Thinned progress points, oldest first.
    pub progress: Vec<ProgressPoint>,
    /// State spans of its ranks.
    pub spans: Vec<StateSpan>,
    pub submitted_at: Timestamp,
    /// Time at which it finished or was stopped.
    pub ended_at: Option<Timestamp>,
}

impl Job {
    /// Creates a submitted job; `rates` are the prior failure rates.
    pub fn new(spec: JobSpec, at: Timestamp, rates: FailureRates) -> Self {
        let every = spec.checkpoint.as_ref().map_or(0, |policy| policy.every_steps);
        Self {
            spec,
            phase: JobPhase::Pending {
                missing: "not placed yet".to_owned(),
                gathered: false,
            },
            generation: Generation(0),
            plan: None,
            deadline: None,
            running: BTreeSet::new(),
            launch_record: LaunchRecord::default(),
            completed: BTreeSet::new(),
            exits_due: BTreeSet::new(),
            step: None,
            generation_step: None,
            run: None,
            resumed_from: None,
            passed_over: Vec::new(),
            checkpoints: JobCheckpoints::default(),
            calls: CheckpointCalls::new(Generation(0)),
            rhythm: IntervalInputs::new(every, rates),
            retries: BTreeMap::new(),
            fruitless: 0,
            progress_mark: ProgressMark::default(),
            activity: JobActivity::default(),
            growth: None,
            waiting_since_step: None,
            answers: PreflightResults::default(),
            refused: BTreeSet::new(),
            starts: StartRecord::default(),
            floor_raises: BTreeMap::new(),
            store_raises: 0,
            hang: SilentRanks::default(),
            tempo: StepTimes::default(),
            restored: RestoreBytes::default(),
            case: None,
            progress: Vec::new(),
            spans: Vec::new(),
            submitted_at: at,
            ended_at: None,
        }
    }

    /// Returns true if the job finished or was stopped.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, JobPhase::Finished | JobPhase::Stopped { .. })
    }

    /// Returns the generation that may commit checkpoints now (RG-3): none while old ranks are being ended, the last
    /// one before the next starts. A finished job may still commit its own, because agents write sealed shards after
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
            _ => Some(self.generation),
        }
    }

    /// Returns true if the job is running and no generation has reported a step.
    pub fn reports_no_steps(&self) -> bool {
        matches!(self.phase, JobPhase::Running) && self.step.is_none()
    }

    /// Returns the nodes of its generation, in group order.
    pub fn nodes(&self) -> &[NodeId] {
        self.plan.as_ref().map_or(&[], |plan| &plan.nodes)
    }

    /// Returns the node of each rank of its generation.
    pub(crate) fn places(&self) -> BTreeMap<Rank, NodeId> {
        let placements = self.plan.iter().flat_map(Plan::placements);
        placements.map(|place| (place.rank, place.node)).collect()
    }

    /// Returns the nodes with ranks of its generation that have not completed.
    pub(crate) fn nodes_with_work(&self) -> BTreeSet<NodeId> {
        let open = self.places().into_iter();
        let open = open.filter(|(rank, _)| !self.completed.contains(rank));
        open.map(|(_, node)| node).collect()
    }

    /// Returns the ranks that ended without completion, with their nodes. Empty before all ranks have started.
    pub(crate) fn ended_ranks(&self) -> Vec<(Rank, NodeId)> {
        if !matches!(self.phase, JobPhase::Starting | JobPhase::Running) {
            return Vec::new();
        }
        let is_gone = |(rank, _): &(Rank, NodeId)| !self.running.contains(rank) && !self.completed.contains(rank);
        self.places().into_iter().filter(is_gone).collect()
    }

    /// Returns the state for operators.
    pub fn state(&self) -> JobState {
        match &self.phase {
            JobPhase::Pending { .. } => JobState::Pending,
            JobPhase::Finished => JobState::Finished,
            JobPhase::Stopped { .. } => JobState::Stopped,
            _ if self.case.is_some() && self.activity.case != self.case => JobState::Recovering,
            JobPhase::Running => JobState::Running,
            JobPhase::Fencing { .. } | JobPhase::Adopting { .. } | JobPhase::Launching { .. } | JobPhase::Starting => {
                JobState::Starting
            }
        }
    }

    /// Records a step for reports.
    pub fn record_progress(&mut self, point: ProgressPoint) {
        if self.progress.len() >= PROGRESS_POINTS_MAX {
            let mut keep = false;
            self.progress.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.progress.push(point);
    }

    /// Returns the metrics of a step: those of the newest report of its generation that is not later.
    pub fn metrics_at(&self, generation: Generation, step: Step) -> BTreeMap<String, f64> {
        let before = |point: &&ProgressPoint| point.generation == generation && point.step <= step;
        let point = self.progress.iter().rev().find(before);
        point
            .and_then(|point| point.loss)
            .map(|loss| BTreeMap::from([("loss".to_owned(), loss)]))
            .unwrap_or_default()
    }

    /// Returns the committed checkpoints and complete attempts that retention keeps.
    pub fn retained_checkpoints(&self, policy: &CheckpointPolicy, now: Timestamp) -> Vec<CheckpointId> {
        let metrics = |generation, step| self.metrics_at(generation, step);
        self.checkpoints.retained_checkpoints(&rules(policy), now, metrics)
    }

    /// Opens a span of a rank and closes its previous one.
    pub fn open_span(&mut self, at: Timestamp, node: &NodeId, rank: Rank, state: &str) {
        let generation = self.generation;
        self.close_spans(at, |span| span.rank == Some(rank));
        if self.spans.len() >= SPANS_MAX {
            self.spans.remove(0);
        }
        self.spans.push(StateSpan {
            node: node.clone(),
            rank: Some(rank),
            generation: Some(generation),
            state: state.to_owned(),
            from: at,
            to: None,
        });
    }

    /// Closes the open spans that match.
    pub fn close_spans(&mut self, at: Timestamp, which: impl Fn(&StateSpan) -> bool) {
        for span in self.spans.iter_mut().filter(|span| span.to.is_none() && which(span)) {
            span.to = Some(at);
        }
    }
}

/// Returns all retention rules of a job.
pub(crate) fn rules(policy: &CheckpointPolicy) -> RetentionPolicy {
    RetentionPolicy {
        last: policy.keep,
        ..policy.retention.clone()
    }
}
