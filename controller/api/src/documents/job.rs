//! Documents of jobs, their steps and their checkpoints. The environment of a job is left out: it may contain credentials.

use rankguard_core::JobSummary;
use rankguard_model::{
    CheckpointView, JobView, JournalGap, ProgressPoint, RankPlacement, StragglerView, UnconfirmedNode,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{UtcTime, word};

/// Job in a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobSummaryDocument {
    name: String,
    /// `pending`, `starting`, `running`, `recovering`, `finished` or `stopped`.
    state: String,
    /// Reason for a stop, or the condition for which the job waits.
    reason: Option<String>,
    generation: u64,
    /// Step at which the job is: the newest step of its current generation. After a restart it begins behind
    /// `furthest_step`.
    step: Option<u64>,
    /// Newest step that any generation reported.
    furthest_step: Option<u64>,
    nodes_min: u32,
    nodes_max: u32,
    ranks_per_node: u32,
    /// Ranks of the current generation.
    world_size: Option<u32>,
    newest_checkpoint: Option<CheckpointDocument>,
    /// Case from which the job is recovering.
    case: Option<u64>,
    submitted_at: UtcTime,
    /// Time at which the job finished or was stopped.
    ended_at: Option<UtcTime>,
}

/// Job with its command, its ranks and its checkpoint counts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobDocument {
    #[serde(flatten)]
    summary: JobSummaryDocument,
    /// Program and arguments of each rank.
    command: Vec<String>,
    workdir: Option<String>,
    /// Local user of the ranks.
    user: Option<String>,
    max_restarts: u32,
    /// Directory of the checkpoint store.
    checkpoint_store: Option<String>,
    /// Steps between checkpoints.
    checkpoint_steps: Option<u64>,
    /// Run that owns the checkpoint folder.
    run: Option<String>,
    /// Checkpoint from which this attempt of the run started, in words.
    resumed_from: Option<String>,
    /// Number of committed checkpoints.
    checkpoints_committed: u64,
    /// Number of checkpoints that are void.
    checkpoints_void: u64,
    /// False if the journal was restored from a copy that lacks a part of the time of the job: both numbers are lower limits.
    checkpoint_counts_complete: bool,
    /// Step and cause of the newest void checkpoint.
    newest_void: Option<VoidDocument>,
    /// Tensors of the newest checkpoint with other values on each rank, the first few names: a start with another number
    /// of ranks refuses them.
    per_rank_tensors: Vec<String>,
    /// Newest step that all ranks have sealed and that is not committed yet.
    saving: Option<u64>,
    placements: Vec<PlacementDocument>,
    /// Ranks that are slower than the others, slowest first.
    stragglers: Vec<StragglerDocument>,
    /// Nodes that have not confirmed that ranks of ended generations are gone.
    unconfirmed: Vec<UnconfirmedDocument>,
}

/// Committed checkpoint, which the job may start from.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CheckpointDocument {
    step: u64,
    /// Generation that wrote it.
    generation: u64,
    /// Number of ranks that wrote it.
    world_size: u32,
    /// Size of all shards, bytes.
    bytes: u64,
    committed_at: UtcTime,
    /// Number of images with a replica in the memory of another node.
    copied: u32,
    /// Number of images that a parity in the memory of another node covers, counted once for every parity.
    in_parity: u32,
    /// Time at which the mirror was complete.
    mirrored_at: Option<UtcTime>,
    /// False if the retention rules of the job let it go: the store removes it, or has removed it. A removal by
    /// `rankguard checkpoint gc` is not reported to the controller and changes nothing here.
    retained: bool,
    /// Longest time for which the save blocked a rank, milliseconds; null if no rank reported it.
    stall_ms: Option<f64>,
}

/// Reported steps of a job.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProgressDocument {
    /// Steps, oldest first, at most 4,096. At this number the controller removes every second one.
    points: Vec<ProgressPointDocument>,
}

/// Step that a rank reported.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProgressPointDocument {
    /// Time of completion.
    at: UtcTime,
    generation: u64,
    step: u64,
    /// Loss of the step; null if it was not reported or is not finite.
    loss: Option<f64>,
    /// Wall time of the step, milliseconds.
    step_ms: f64,
}

/// Checkpoint that was begun and will not be committed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VoidDocument {
    step: u64,
    reason: String,
}

/// Place of a rank.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlacementDocument {
    rank: u32,
    local_rank: u32,
    node: String,
}

/// Rank that is slower than the others in several comparisons in a row.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StragglerDocument {
    rank: u32,
    node: String,
    /// Median step time of the rank, milliseconds.
    step_ms: f64,
    /// Median of the step times of all ranks, milliseconds.
    usual_ms: f64,
    since: UtcTime,
}

/// Node on which processes of an ended generation may still run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UnconfirmedDocument {
    node: String,
    /// `healthy`, `cordoned`, `lost` or `fencing`.
    state: String,
    since: UtcTime,
    reason: String,
}

impl JobSummaryDocument {
    pub(crate) fn of(job: &JobSummary) -> Self {
        Self {
            name: job.name.to_string(),
            state: word(&job.state),
            reason: job.reason.clone(),
            generation: job.generation.0,
            step: job.step.map(|step| step.0),
            furthest_step: job.furthest_step.map(|step| step.0),
            nodes_min: job.nodes.min,
            nodes_max: job.nodes.max,
            ranks_per_node: job.ranks_per_node,
            world_size: job.world_size,
            newest_checkpoint: job
                .newest_checkpoint
                .as_ref()
                .map(|newest| CheckpointDocument::of(newest, true)),
            case: job.case.map(|case| case.0),
            submitted_at: UtcTime(job.submitted_at),
            ended_at: job.ended_at.map(UtcTime),
        }
    }
}

impl JobDocument {
    /// Combines a job's summary and view; `gaps` are those of the journal.
    pub(crate) fn of(summary: &JobSummary, view: &JobView, gaps: &[JournalGap]) -> Self {
        let spec = &view.spec;
        let counts = &view.checkpoint_counts;
        let checkpoint = spec.checkpoint.as_ref();
        Self {
            summary: JobSummaryDocument::of(summary),
            command: spec.command.clone(),
            workdir: spec.workdir.clone(),
            user: spec.user.clone(),
            max_restarts: spec.max_restarts,
            checkpoint_store: checkpoint.map(|policy| policy.store.clone()),
            checkpoint_steps: checkpoint.map(|policy| policy.every_steps),
            run: view.run.as_ref().map(ToString::to_string),
            resumed_from: view.resumed_from.as_ref().map(ToString::to_string),
            checkpoints_committed: counts.committed,
            checkpoints_void: counts.void,
            checkpoint_counts_complete: !gaps.iter().any(|gap| is_of_job(gap, view)),
            newest_void: counts.newest_void.as_ref().map(|newest| VoidDocument {
                step: newest.step.0,
                reason: newest.reason.clone(),
            }),
            per_rank_tensors: view.per_rank_tensors.clone(),
            saving: view.saving.map(|step| step.0),
            placements: view.placements.iter().map(PlacementDocument::of).collect(),
            stragglers: view.stragglers.iter().map(StragglerDocument::of).collect(),
            unconfirmed: view.unconfirmed.iter().map(UnconfirmedDocument::of).collect(),
        }
    }
}

impl CheckpointDocument {
    pub(crate) fn of(checkpoint: &CheckpointView, retained: bool) -> Self {
        Self {
            step: checkpoint.step.0,
            generation: checkpoint.generation.0,
            world_size: checkpoint.world_size,
            bytes: checkpoint.bytes,
            committed_at: UtcTime(checkpoint.committed_at),
            copied: checkpoint.copied,
            in_parity: checkpoint.in_parity,
            mirrored_at: checkpoint.mirrored_at.map(UtcTime),
            retained,
            stall_ms: longest_stall(checkpoint),
        }
    }
}

/// Returns true if a journal may lack entries of a job. A job that ended before the gap was found had ended before the copy
/// was made.
fn is_of_job(gap: &JournalGap, job: &JobView) -> bool {
    job.submitted_at < gap.found_at && job.ended_at.is_none_or(|ended| ended >= gap.found_at)
}

fn longest_stall(checkpoint: &CheckpointView) -> Option<f64> {
    let stalls = checkpoint.stall_ms.iter().map(|(_, stall)| *stall);
    let longest = stalls.filter(|stall| stall.is_finite()).reduce(f64::max);
    // Microseconds: the digits beyond are of the conversion.
    longest.map(|stall| (stall * 1e3).round() / 1e3)
}

impl ProgressDocument {
    pub(crate) fn of(points: &[ProgressPoint]) -> Self {
        Self {
            points: points.iter().map(ProgressPointDocument::of).collect(),
        }
    }
}

impl ProgressPointDocument {
    fn of(point: &ProgressPoint) -> Self {
        Self {
            at: UtcTime(point.at),
            generation: point.generation.0,
            step: point.step.0,
            loss: point.loss.filter(|loss| loss.is_finite()),
            step_ms: point.step_ms,
        }
    }
}

impl PlacementDocument {
    fn of(place: &RankPlacement) -> Self {
        Self {
            rank: place.rank.0,
            local_rank: place.local_rank,
            node: place.node.to_string(),
        }
    }
}

impl StragglerDocument {
    fn of(straggler: &StragglerView) -> Self {
        Self {
            rank: straggler.rank.0,
            node: straggler.node.to_string(),
            step_ms: straggler.step_ms,
            usual_ms: straggler.usual_ms,
            since: UtcTime(straggler.since),
        }
    }
}

impl UnconfirmedDocument {
    fn of(node: &UnconfirmedNode) -> Self {
        Self {
            node: node.node.to_string(),
            state: word(&node.state),
            since: UtcTime(node.since),
            reason: node.reason.clone(),
        }
    }
}
