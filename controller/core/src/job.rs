//! Jobs and their lives.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_checkpoint_format::CheckpointId;
use rankguard_checkpoint_schedule::rates::Rates;
use rankguard_checkpoint_schedule::retention::Retention;
use rankguard_model::{
    CaseId, CheckpointPolicy, Generation, JobSpec, JobState, NodeId, ProgressPoint, Rank, RestoreBytes, RunId,
    RunStart, Span, Step, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::Plan;
use crate::brain::{Adoption, Answers, Hang};
use crate::calls::Calls;
use crate::checkpoints::Checkpoints;
use crate::growth::Growth;
use crate::job_activity::JobActivity;
use crate::launch_record::LaunchRecord;
use crate::progress_mark::ProgressMark;
use crate::rhythm::Rhythm;
use crate::tempo::Tempo;

/// Progress points kept for reports; beyond it every second one is forgotten, so that the whole run stays visible.
const PROGRESS_POINTS_MAX: usize = 4_096;
/// Spans kept for reports; beyond it the oldest are forgotten.
const SPANS_MAX: usize = 4_096;

/// Where a job stands, with what that stage waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "kebab-case")]
pub enum Phase {
    /// `Pending => (Fencing | Stopped)`: it waits for nodes.
    Pending {
        /// What is missing, in words.
        missing: String,
        /// It may start with fewer nodes than its most.
        gathered: bool,
    },
    /// `Fencing => (Adopting | Launching | Fencing of a later generation | Stopped)`: old ranks are being ended.
    Fencing {
        /// Nodes that have not answered.
        waiting: BTreeSet<NodeId>,
        /// The rendezvous port on the first node, once reserved.
        port: Option<u16>,
    },
    /// `Adopting => (Launching | Fencing of a later generation | Stopped)`: what the last generation has sealed is brought to
    /// a commit.
    Adopting {
        /// The rendezvous port.
        port: u16,
        /// How far that is.
        stage: Adoption,
    },
    /// `Launching => (Starting | Fencing | Stopped)`: ranks are being started.
    Launching {
        /// Ranks that have not started.
        waiting: BTreeSet<Rank>,
        /// The rendezvous port.
        port: u16,
    },
    /// `Starting => (Running | Fencing | Finished | Stopped)`: ranks load and make their first step.
    Starting,
    /// `Running => (Fencing | Finished | Stopped)`.
    Running,
    /// All ranks completed.
    Finished,
    /// It was stopped for good.
    Stopped {
        /// Why, for the user.
        reason: String,
    },
}

/// One job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// What was asked for.
    pub spec: JobSpec,
    /// Where it stands.
    pub phase: Phase,
    /// The generation that may act; 0 before the first plan.
    pub generation: Generation,
    /// The plan of that generation.
    pub plan: Option<Plan>,
    /// When the phase must have ended, if it waits.
    pub deadline: Option<Timestamp>,
    /// Ranks of this generation that the agents said are running.
    pub running: BTreeSet<Rank>,
    /// Processes and restore points of its ranks, on which later reports are believed.
    pub launch_record: LaunchRecord,
    /// Ranks of this generation that ended well.
    pub completed: BTreeSet<Rank>,
    /// Newest step any generation reported.
    pub step: Option<Step>,
    /// Newest step this generation reported, before a failure it is what will be lost.
    pub generation_step: Option<Step>,
    /// The run that its checkpoint folder belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The checkpoint that this attempt of the run started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<RunStart>,
    /// Its checkpoints.
    pub checkpoints: Checkpoints,
    /// Steps that were called, besides those of the rule.
    pub calls: Calls,
    /// What decides how often it checkpoints.
    pub rhythm: Rhythm,
    /// How often each failure signature was answered by a retry.
    pub retries: BTreeMap<String, u32>,
    /// Restarts after failures since the last committed checkpoint: however different the failures look, work that is
    /// always lost again is not worth its GPU hours.
    pub fruitless: u32,
    /// Progress that refills both.
    #[serde(default)]
    pub progress_mark: ProgressMark,
    /// Signs of life of this generation besides steps.
    #[serde(default)]
    pub activity: JobActivity,
    /// The checkpoint that is called before it takes in more nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth: Option<Growth>,
    /// Step at which it began to wait for nodes while its ranks ran on, see [`crate::brain`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since_step: Option<Step>,
    /// What the nodes of the coming generation said when they were asked.
    pub answers: Answers,
    /// Nodes that were found not to have what it needs.
    pub refused: BTreeSet<NodeId>,
    /// How often each node has moved it to another generation ([`crate::GenerationFloors`]).
    pub floor_raises: BTreeMap<NodeId, u32>,
    /// How often what stood in its store has.
    pub store_raises: u32,
    /// Its ranks that are silent although they live.
    pub hang: Hang,
    /// How long the steps of its ranks take.
    pub tempo: Tempo,
    /// What the ranks of this generation loaded, by tier.
    pub restored: RestoreBytes,
    /// The case that is being recovered from.
    pub case: Option<CaseId>,
    /// Thinned progress, oldest first.
    pub progress: Vec<ProgressPoint>,
    /// States of ranks over time.
    pub spans: Vec<Span>,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// When it finished or stopped.
    pub ended_at: Option<Timestamp>,
}

impl Job {
    /// A job that was just submitted, and what is believed of failures.
    pub fn new(spec: JobSpec, at: Timestamp, rates: Rates) -> Self {
        let every = spec.checkpoint.as_ref().map_or(0, |policy| policy.every_steps);
        Self {
            spec,
            phase: Phase::Pending {
                missing: "not placed yet".to_owned(),
                gathered: false,
            },
            generation: Generation(0),
            plan: None,
            deadline: None,
            running: BTreeSet::new(),
            launch_record: LaunchRecord::default(),
            completed: BTreeSet::new(),
            step: None,
            generation_step: None,
            run: None,
            resumed_from: None,
            checkpoints: Checkpoints::default(),
            calls: Calls::new(Generation(0)),
            rhythm: Rhythm::new(every, rates),
            retries: BTreeMap::new(),
            fruitless: 0,
            progress_mark: ProgressMark::default(),
            activity: JobActivity::default(),
            growth: None,
            waiting_since_step: None,
            answers: Answers::default(),
            refused: BTreeSet::new(),
            floor_raises: BTreeMap::new(),
            store_raises: 0,
            hang: Hang::default(),
            tempo: Tempo::default(),
            restored: RestoreBytes::default(),
            case: None,
            progress: Vec::new(),
            spans: Vec::new(),
            submitted_at: at,
            ended_at: None,
        }
    }

    /// Whether it has ended, well or not.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Finished | Phase::Stopped { .. })
    }

    /// The generation whose checkpoints may be committed now: none while old ranks are being ended, the last one before the
    /// next starts (RG-3). Of a job that has finished its own: agents write what ranks sealed after those have exited.
    pub fn committable(&self) -> Option<Generation> {
        match self.phase {
            Phase::Fencing { .. } => None,
            Phase::Adopting {
                stage: Adoption::Committing,
                ..
            } => Some(self.checkpoints.trained()),
            Phase::Adopting { .. } => None,
            Phase::Stopped { .. } => None,
            _ => Some(self.generation),
        }
    }

    /// Whether its ranks work and no generation of it has reported a step.
    pub fn reports_no_steps(&self) -> bool {
        matches!(self.phase, Phase::Running) && self.step.is_none()
    }

    /// Nodes of its generation, in group order.
    pub fn nodes(&self) -> &[NodeId] {
        self.plan.as_ref().map_or(&[], |plan| &plan.nodes)
    }

    /// The nodes of the ranks of its generation.
    pub(crate) fn places(&self) -> BTreeMap<Rank, NodeId> {
        let placements = self.plan.iter().flat_map(Plan::placements);
        placements.map(|place| (place.rank, place.node)).collect()
    }

    /// What an operator sees.
    pub fn state(&self) -> JobState {
        match &self.phase {
            Phase::Pending { .. } => JobState::Pending,
            Phase::Finished => JobState::Finished,
            Phase::Stopped { .. } => JobState::Stopped,
            _ if self.case.is_some() => JobState::Recovering,
            Phase::Running => JobState::Running,
            Phase::Fencing { .. } | Phase::Adopting { .. } | Phase::Launching { .. } | Phase::Starting => {
                JobState::Starting
            }
        }
    }

    /// Remembers a step for reports.
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

    /// What was measured at a step: the newest report of its generation that is not later.
    pub fn metrics_at(&self, generation: Generation, step: Step) -> BTreeMap<String, f64> {
        let before = |point: &&ProgressPoint| point.generation == generation && point.step <= step;
        let point = self.progress.iter().rev().find(before);
        point
            .and_then(|point| point.loss)
            .map(|loss| BTreeMap::from([("loss".to_owned(), loss)]))
            .unwrap_or_default()
    }

    /// What the rules leave of the committed checkpoints, and of those that are about to be.
    pub fn stays(&self, policy: &CheckpointPolicy, now: Timestamp) -> Vec<CheckpointId> {
        let metrics = |generation, step| self.metrics_at(generation, step);
        self.checkpoints.stay(&rules(policy), now, metrics)
    }

    /// Begins a stretch of a rank's life; what it did before ends.
    pub fn open_span(&mut self, at: Timestamp, node: &NodeId, rank: Rank, state: &str) {
        let generation = self.generation;
        self.close_spans(at, |span| span.rank == Some(rank));
        if self.spans.len() >= SPANS_MAX {
            self.spans.remove(0);
        }
        self.spans.push(Span {
            node: node.clone(),
            rank: Some(rank),
            generation: Some(generation),
            state: state.to_owned(),
            from: at,
            to: None,
        });
    }

    /// Ends the open stretches that match.
    pub fn close_spans(&mut self, at: Timestamp, which: impl Fn(&Span) -> bool) {
        for span in self.spans.iter_mut().filter(|span| span.to.is_none() && which(span)) {
            span.to = Some(at);
        }
    }
}

/// All rules of a job about what stays.
pub(crate) fn rules(policy: &CheckpointPolicy) -> Retention {
    Retention {
        last: policy.keep,
        ..policy.retention.clone()
    }
}
