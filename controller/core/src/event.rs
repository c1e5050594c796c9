//! Everything that can happen.

use rankguard_checkpoint_schedule::twins::Difference;
use rankguard_faults::CatalogueFile;
use rankguard_model::{
    CaseId, CaseNote, Evidence, Generation, JobId, JobSpec, JournalMark, NodeId, NodeInfo, ShardSeal, Step, StoreClaim,
    Timestamp,
};
use serde::{Deserialize, Serialize};

/// An event with its moment on the controller's clock. This is what the journal holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stamped {
    /// When the controller took notice of it.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The controller began to run, on an empty or a replayed state.
    ControllerStarted,
    /// The start of the controller has a name, under which agents remember its journal and its generations.
    LifeBegan {
        /// Random, never 0.
        life: u64,
        /// Entries that the journal had before.
        position: u64,
    },
    /// An agent knows entries of a journal that are not in this one: it was restored from a copy, or is another journal.
    JournalDiffers {
        /// The agent's node.
        node: NodeId,
        /// The newest entry that it knows of.
        mark: JournalMark,
    },
    /// An agent opened a session.
    NodeJoined {
        /// What it says of its node.
        info: NodeInfo,
    },
    /// Nothing was heard of a node for longer than the silence limit.
    NodeFellSilent {
        /// Which one.
        node: NodeId,
        /// When it last spoke.
        last_heard: Timestamp,
    },
    /// The session of an agent ended and no other has begun: its process, its node or the way to it may be gone.
    SessionEnded {
        /// Its node.
        node: NodeId,
    },
    /// Verdicts rest on other files from now on, besides the built-in ones.
    CatalogueGiven {
        /// All of them.
        files: Vec<CatalogueFile>,
    },
    /// A node reported something; each sequence number arrives here once.
    EvidenceArrived {
        /// What it reported.
        evidence: Evidence,
    },
    /// A user submitted a job.
    JobSubmitted {
        /// What was asked for.
        spec: JobSpec,
        /// Its claim of its checkpoint folder; absent without checkpoints, and in journals of before there were claims.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claim: Option<Box<StoreClaim>>,
    },
    /// A user asked for a job to end.
    JobCancelled {
        /// Which one.
        job: JobId,
    },
    /// The manifest is on disk: the checkpoint exists (RG-1).
    ManifestCommitted {
        /// Its job.
        job: JobId,
        /// Its step.
        step: Step,
        /// The generation that wrote it.
        generation: Generation,
        /// Replicas in it that must be equal and are not, the first few.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        differing: Vec<Difference>,
    },
    /// The manifest could not be written; older checkpoints are untouched.
    ManifestRefused {
        /// Its job.
        job: JobId,
        /// Its step.
        step: Step,
        /// The generation that wrote it.
        generation: Generation,
        /// Why.
        reason: String,
    },
    /// What stands in a store of the work of an ended generation.
    ShardsFound {
        /// Its job.
        job: JobId,
        /// The generation that acts now.
        generation: Generation,
        /// Shards that are whole, with their indexes.
        seals: Vec<ShardSeal>,
        /// The newest generation that has written there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        newest: Option<Generation>,
        /// Why there may be more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
    /// What the controller read of a checkpoint that a node has reported damaged.
    CheckpointChecked {
        /// Its job.
        job: JobId,
        /// Its step.
        step: Step,
        /// The generation that wrote it.
        generation: Generation,
        /// What was found.
        finding: CheckFinding,
    },
    /// A timer that [`crate::Action::SetTimer`] asked for is due.
    TimerFired {
        /// Which one.
        timer: Timer,
    },
    /// An operator took a node out of use.
    NodeCordoned {
        /// Which one.
        node: NodeId,
        /// Why.
        reason: String,
    },
    /// An operator wants a node empty: it takes no more work, and its job moves after its next checkpoint.
    NodeDrained {
        /// Which one.
        node: NodeId,
        /// Why.
        reason: String,
    },
    /// An operator wants a node forgotten that has gone for good.
    NodeForgotten {
        /// Which one.
        node: NodeId,
    },
    /// A person noted something about a case.
    CaseNoted {
        /// Which one.
        case: CaseId,
        /// The note; its time is that of the event.
        note: CaseNote,
    },
    /// An operator gave a node back.
    NodeUncordoned {
        /// Which one.
        node: NodeId,
    },
    /// The journal was begun under older decision rules, and newer ones hold from now on.
    RulesAdopted {
        /// Their version, see [`crate::Policy::rules`].
        rules: u32,
    },
}

/// What a second reader found of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "finding", rename_all = "kebab-case")]
pub enum CheckFinding {
    /// What was reported damaged is as committed.
    Intact,
    /// It is damaged, by two reads.
    Damaged {
        /// The place, and what is wrong there.
        what: String,
    },
    /// It could not be read, which proves nothing.
    Unavailable {
        /// Why.
        reason: String,
    },
}

/// What a timer is for. Setting one again replaces it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "timer", rename_all = "kebab-case")]
pub enum Timer {
    /// A failure's evidence has settled.
    Settle,
    /// A job's current phase has lasted as long as it may.
    PhaseDeadline {
        /// The job.
        job: JobId,
        /// The generation whose phase it is.
        generation: Generation,
    },
    /// A pending job has waited long enough for its full size and may start smaller.
    Gather {
        /// The job.
        job: JobId,
    },
    /// It may be that no rank of a job moves any more, or has not for too long.
    Hang {
        /// The job.
        job: JobId,
        /// The generation whose ranks are silent.
        generation: Generation,
    },
    /// A job may take in nodes that came back.
    Grow {
        /// The job.
        job: JobId,
    },
    /// A node must have confirmed by now that old ranks ended.
    Fence {
        /// The node.
        node: NodeId,
    },
    /// Nodes that departed long ago are forgotten.
    Forget,
}
