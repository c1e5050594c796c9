//! A job with its life cycle: the aggregate that all decisions about a job read and change.
//!
//! The fields of the life cycle are private to this module. `phases` has one method for each transition, `ranks`
//! tracks which ranks run, ended and completed, `budget` counts restarts, and `records` retains what reports show.
//! The other fields are state machines with methods of their own.

mod budget;
mod generation_steps;
mod phases;
mod ranks;
mod records;
mod required_size;

use std::collections::{BTreeMap, BTreeSet};

use generation_steps::GenerationSteps;
pub(crate) use phases::GenerationStart;
use rankguard_checkpoint_format::CheckpointId;
use rankguard_checkpoint_schedule::rates::FailureRates;
use rankguard_checkpoint_schedule::retention::RetentionPolicy;
use rankguard_model::{
    CaseId, CheckpointPolicy, Generation, JobId, JobSpec, JobState, NodeId, ProgressPoint, Rank, RestoreBytes, RunId,
    RunStart, StateSpan, Step, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::Plan;
use crate::calls::CheckpointCalls;
use crate::checkpoints::{DeadAttempts, JobCheckpoints};
use crate::decision::{AdoptionStage, PreflightResults, SilentRanks};
use crate::growth::{PendingGrowth, ShrinkRecord};
use crate::growth_preparation::GrowthPreparation;
use crate::interval_inputs::IntervalInputs;
use crate::job_activity::JobActivity;
use crate::launch_record::LaunchRecord;
use crate::planned_wait::PlannedWait;
use crate::planner::restarts::RestartRecord;
use crate::progress_mark::ProgressMark;
use crate::rank_notes::RankNotes;
use crate::restore_report::RestoreReport;
use crate::start_record::StartRecord;
use crate::step_times::StepTimes;

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
    phase: JobPhase,
    /// Current generation; 0 before the first plan.
    generation: Generation,
    /// Plan of the current generation.
    plan: Option<Plan>,
    /// Deadline of the current phase, if it has one.
    deadline: Option<Timestamp>,
    /// Ranks of this generation that agents reported as started.
    running: BTreeSet<Rank>,
    /// Processes and restore points of its ranks, for the authorisation of later evidence.
    pub(crate) launch_record: LaunchRecord,
    /// Ranks of this generation that exited with code 0.
    completed: BTreeSet<Rank>,
    /// Ranks of this generation that their agent no longer runs and that it has not reported as ended yet.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    exits_due: BTreeSet<Rank>,
    /// Nodes of its generation on which another job was placed while it waited for nodes.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    given_up: BTreeSet<NodeId>,
    /// Nodes of earlier generations that may still hold images of its checkpoints.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) former_nodes: BTreeSet<NodeId>,
    /// True if the ranks of this generation are being ended, because one of them failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ending: bool,
    /// Newest step that any generation reported.
    step: Option<Step>,
    /// Newest step that this generation reported; at a failure, the difference to the checkpoint is lost.
    generation_step: Option<Step>,
    /// Time at which this generation reported its newest step, on the controller's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stepped_at: Option<Timestamp>,
    /// Run that owns its checkpoint folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<RunId>,
    /// Checkpoint from which this attempt of the run started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<RunStart>,
    /// Newer checkpoints that this attempt passed over, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) passed_over: Vec<String>,
    pub checkpoints: JobCheckpoints,
    /// Called steps, in addition to those of the interval rule.
    pub(crate) calls: CheckpointCalls,
    /// Inputs of the checkpoint interval.
    pub(crate) rhythm: IntervalInputs,
    /// Retries by failure signature.
    retries: BTreeMap<String, u32>,
    /// Restarts after failures since the last committed checkpoint. The limit holds across different failures: work
    /// that is lost every time is not worth its GPU hours.
    fruitless: u32,
    /// Progress that refills `retries` and `fruitless`.
    #[serde(default)]
    pub(crate) progress_mark: ProgressMark,
    /// Signs of life of this generation besides steps.
    #[serde(default)]
    pub(crate) activity: JobActivity,
    /// Reports of the ranks of this generation that are shown and restart nothing.
    #[serde(default, skip_serializing_if = "RankNotes::is_empty")]
    pub(crate) rank_notes: RankNotes,
    /// Pending growth onto more nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    growth: Option<PendingGrowth>,
    /// Nodes on which standby processes are prepared, because the job is to take them in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) preparation: Option<GrowthPreparation>,
    /// Nodes without ranks of the job on which standby processes wait for the loss of one of its nodes.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) spares: BTreeSet<NodeId>,
    /// Wait for the return of nodes that is cheaper than a start without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    planned_wait: Option<PlannedWait>,
    /// Measured restarts.
    #[serde(default, skip_serializing_if = "RestartRecord::is_empty")]
    pub(crate) restarts: RestartRecord,
    /// Times of the newest shrinks, oldest first, for the delay of growth.
    #[serde(default, skip_serializing_if = "ShrinkRecord::is_empty")]
    pub(crate) shrinks: ShrinkRecord,
    /// Step at which the job began to wait for nodes while its ranks ran on, see [`crate::decision`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waiting_since_step: Option<Step>,
    /// Preflight results of the nodes of the coming generation.
    pub(crate) answers: PreflightResults,
    /// Nodes that failed preflight for this job.
    pub refused: BTreeSet<NodeId>,
    /// Starts of its ranks by node.
    #[serde(default, skip_serializing_if = "StartRecord::is_empty")]
    pub(crate) starts: StartRecord,
    /// Number of times each node has moved the job to another generation ([`crate::GenerationFloors`]).
    pub(crate) floor_raises: BTreeMap<NodeId, u32>,
    /// Number of times the content of its store has moved the job to another generation.
    pub(crate) store_raises: u32,
    /// Ranks that are silent although their processes live.
    pub(crate) hang: SilentRanks,
    /// Step times of its ranks.
    pub(crate) tempo: StepTimes,
    /// Bytes that the ranks of this generation restored, by tier.
    pub(crate) restored: RestoreBytes,
    /// Ranks of this generation that restored, and the case that reports it.
    #[serde(default, skip_serializing_if = "RestoreReport::is_empty")]
    pub(crate) restore_report: RestoreReport,
    /// Time at which the nodes of the plan had ended all old ranks (since rules 9); absent in other phases than those between
    /// generations, and while old ranks may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ranks_ended_at: Option<Timestamp>,
    /// Case from which the job is recovering.
    case: Option<CaseId>,
    /// Thinned progress points, oldest first.
    progress: Vec<ProgressPoint>,
    /// First and newest step of each generation, by any rank.
    #[serde(default, skip_serializing_if = "GenerationSteps::is_empty")]
    generation_steps: GenerationSteps,
    /// State spans of its ranks.
    spans: Vec<StateSpan>,
    pub submitted_at: Timestamp,
    /// Time at which it finished or was stopped.
    ended_at: Option<Timestamp>,
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
            given_up: BTreeSet::new(),
            former_nodes: BTreeSet::new(),
            ending: false,
            step: None,
            generation_step: None,
            stepped_at: None,
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
            rank_notes: RankNotes::default(),
            growth: None,
            preparation: None,
            spares: BTreeSet::new(),
            planned_wait: None,
            restarts: RestartRecord::default(),
            shrinks: ShrinkRecord::default(),
            waiting_since_step: None,
            answers: PreflightResults::default(),
            refused: BTreeSet::new(),
            starts: StartRecord::default(),
            floor_raises: BTreeMap::new(),
            store_raises: 0,
            hang: SilentRanks::default(),
            tempo: StepTimes::default(),
            restored: RestoreBytes::default(),
            restore_report: RestoreReport::default(),
            ranks_ended_at: None,
            case: None,
            progress: Vec::new(),
            generation_steps: GenerationSteps::default(),
            spans: Vec::new(),
            submitted_at: at,
            ended_at: None,
        }
    }

    /// Returns its phase.
    pub fn phase(&self) -> &JobPhase {
        &self.phase
    }

    /// Returns the current generation; 0 before the first plan.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the plan of the current generation.
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// Returns the deadline of the current phase, if it has one.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// Sets the deadline of the current phase.
    pub(crate) fn set_deadline(&mut self, at: Timestamp) {
        self.deadline = Some(at);
    }

    /// Returns the newest step that any generation reported.
    pub fn step(&self) -> Option<Step> {
        self.step
    }

    /// Returns the newest step that this generation reported.
    pub fn generation_step(&self) -> Option<Step> {
        self.generation_step
    }

    /// Returns the newest step that the ranks of this generation reported: none before they start, although the generation has
    /// begun.
    pub(crate) fn step_of_started_ranks(&self) -> Option<Step> {
        self.generation_step.filter(|_| !self.is_between_generations())
    }

    /// Returns the time at which this generation reported its newest step, or at which it had started.
    pub(crate) fn newest_step_at(&self) -> Option<Timestamp> {
        self.stepped_at.or(self.activity.started())
    }

    /// Returns the case from which the job is recovering.
    pub fn case(&self) -> Option<CaseId> {
        self.case
    }

    /// Records the case from which the job is recovering.
    pub(crate) fn recover_from(&mut self, case: CaseId) {
        self.case = Some(case);
    }

    /// Ends the recovery.
    pub(crate) fn end_recovery(&mut self) {
        self.case = None;
    }

    /// Ends the recovery if it is the recovery from this case.
    pub(crate) fn end_recovery_from(&mut self, case: CaseId) {
        self.case = self.case.filter(|open| *open != case);
    }

    /// Returns the pending growth onto more nodes.
    pub(crate) fn growth(&self) -> Option<&PendingGrowth> {
        self.growth.as_ref()
    }

    /// Begins to wait for the checkpoint at which the job grows.
    pub(crate) fn plan_growth(&mut self, growth: PendingGrowth) {
        self.growth = Some(growth);
    }

    /// Ends the wait for a growth.
    pub(crate) fn end_growth(&mut self) {
        self.growth = None;
    }

    /// Returns the wait for the return of nodes that is cheaper than a start without them.
    pub(crate) fn planned_wait(&self) -> Option<&PlannedWait> {
        self.planned_wait.as_ref()
    }

    /// Begins to wait for the return of nodes.
    pub(crate) fn plan_wait(&mut self, wait: PlannedWait) {
        self.planned_wait = Some(wait);
    }

    /// Ends the wait for the return of nodes and returns it.
    pub(crate) fn end_planned_wait(&mut self) -> Option<PlannedWait> {
        self.planned_wait.take()
    }

    /// Records the checkpoint that the ranks of its generation are ordered to load.
    pub(crate) fn note_restore_point(&mut self, checkpoint: (Generation, Step)) {
        self.launch_record.restores(self.generation, checkpoint);
    }

    /// Returns the step of the newest checkpoint that ranks of the last generation before this one were ordered to load.
    pub(crate) fn last_restored_step(&self) -> Option<Step> {
        self.launch_record.restored_before(self.generation)
    }

    /// Returns the time at which the job finished or was stopped.
    pub fn ended_at(&self) -> Option<Timestamp> {
        self.ended_at
    }

    /// Returns true if the job finished or was stopped.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, JobPhase::Finished | JobPhase::Stopped { .. })
    }

    /// Returns true if the job is running and no generation has reported a step.
    pub fn reports_no_steps(&self) -> bool {
        self.is_running() && self.step.is_none()
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

    /// Returns the attempts at checkpoints that are never committed. A stopped job commits none of its own.
    pub fn dead_attempts(&self) -> DeadAttempts {
        let dead = self.checkpoints.dead_attempts();
        if matches!(self.phase, JobPhase::Stopped { .. }) {
            return dead.and_before(self.generation.next());
        }
        dead
    }

    /// Returns the committed checkpoints and complete attempts that retention keeps.
    pub fn retained_checkpoints(&self, policy: &CheckpointPolicy, now: Timestamp) -> Vec<CheckpointId> {
        let metrics = |generation, step| self.metrics_at(generation, step);
        let mut kept = self.checkpoints.retained_checkpoints(&rules(policy), now, metrics);
        kept.extend(
            self.newest_before_failed_loss()
                .filter(|good| !kept.contains(good))
                .into_iter()
                .collect::<Vec<_>>(),
        );
        kept
    }

    /// Returns the newest committed checkpoint with weights that gave a finite loss, if the newest loss is not finite: the
    /// loss of a step is that of the weights before it.
    pub(crate) fn newest_before_failed_loss(&self) -> Option<CheckpointId> {
        let since = self.rank_notes.loss_failed_since()?;
        let committed = self.checkpoints.committed.iter();
        let good = committed.filter(|view| view.step.0 + 1 < since.0);
        let newest = good.max_by_key(|view| (view.step, view.generation))?;
        Some(CheckpointId {
            step: newest.step,
            generation: newest.generation,
        })
    }

    /// Returns the checkpoints and attempts that a collection leaves: those that retention keeps and, with
    /// `settles_attempts`, the complete attempts, which are committed first.
    pub(crate) fn uncollected_checkpoints(
        &self,
        policy: &CheckpointPolicy,
        now: Timestamp,
        settles_attempts: bool,
    ) -> Vec<CheckpointId> {
        let mut left = self.retained_checkpoints(policy, now);
        if settles_attempts {
            let complete = self.checkpoints.complete_attempts();
            left.extend(complete.filter(|id| !left.contains(id)).collect::<Vec<_>>());
        }
        left
    }

    /// Counts the attempts of its generation as void that a rank did not save before it completed.
    pub(crate) fn count_left_out(&mut self) {
        for (step, rank) in self.left_out() {
            let reason = left_out_reason(rank);
            self.checkpoints.count_passed(self.generation, step, &reason);
        }
    }

    /// Returns the reason of an attempt that a rank did not save before it completed.
    pub fn left_out_reason(&self, step: Step) -> Option<String> {
        let mut left_out = self.left_out().into_iter();
        left_out
            .find(|(of, _)| *of == step)
            .map(|(_, rank)| left_out_reason(rank))
    }

    /// Returns the sealed attempts of its generation that a completed rank did not seal, each with that rank.
    ///
    /// The seal of a rank may be reported after its exit. So an attempt is left out only if the rank reported no step as
    /// late as that, or if it left out several.
    fn left_out(&self) -> Vec<(Step, Rank)> {
        let mut all = Vec::new();
        for rank in &self.completed {
            let steps = self.checkpoints.steps_without(self.generation, *rank);
            let several = steps.len() > 1;
            let reached = self.tempo.newest_step(*rank);
            let is_certain = |step: &Step| several || reached.is_some_and(|reached| reached < *step);
            all.extend(steps.into_iter().filter(is_certain).map(|step| (step, *rank)));
        }
        all
    }
}

fn left_out_reason(rank: Rank) -> String {
    format!("rank {rank} ended with exit code 0 before it had saved this step")
}

/// Lookups of a job for events that may concern a job that is over, or an earlier generation.
pub(crate) trait JobLookup {
    /// Returns the job if this is its current generation.
    fn in_generation(&mut self, name: &JobId, generation: Generation) -> Option<&mut Job>;
    /// Returns the job unless it is over.
    fn live(&self, name: &JobId) -> Option<&Job>;
    /// Returns the job unless it is over.
    fn live_mut(&mut self, name: &JobId) -> Option<&mut Job>;
}

impl JobLookup for BTreeMap<JobId, Job> {
    fn in_generation(&mut self, name: &JobId, generation: Generation) -> Option<&mut Job> {
        self.get_mut(name).filter(|job| job.generation == generation)
    }

    fn live(&self, name: &JobId) -> Option<&Job> {
        self.get(name).filter(|job| !job.is_over())
    }

    fn live_mut(&mut self, name: &JobId) -> Option<&mut Job> {
        self.get_mut(name).filter(|job| !job.is_over())
    }
}

/// Returns all retention rules of a job.
pub(crate) fn rules(policy: &CheckpointPolicy) -> RetentionPolicy {
    RetentionPolicy {
        last: policy.keep,
        ..policy.retention.clone()
    }
}
