//! Events: the inputs of the decision core.

use rankguard_checkpoint_schedule::replica_differences::ReplicaDifference;
use rankguard_faults::CatalogueFile;
use rankguard_model::{
    CaseId, CaseNote, CheckpointView, Evidence, Generation, JobId, JobSpec, JournalMark, NodeId, NodeInfo, ShardSeal,
    Step, StoreClaim, Timestamp,
};
use serde::{Deserialize, Serialize};

/// Event with its time on the controller's clock; the entry type of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StampedEvent {
    /// Time at which the controller received it.
    pub at: Timestamp,
    pub event: Event,
}

/// Input of the decision core.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The controller started, on an empty or a replayed state.
    ControllerStarted,
    /// A controller start received its id, under which agents record its journal and its generations.
    LifeBegan {
        /// Random id, never 0.
        life: u64,
        /// Entries that the journal had before.
        position: u64,
        /// Time of the newest of these entries; absent in a new journal, and in older ones.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        newest_at: Option<Timestamp>,
    },
    /// The controller did not run for a time: it was stopped, or its machine or its disk did not respond.
    ControllerPaused {
        /// Time at which it ran last.
        since: Timestamp,
    },
    /// An agent knows journal entries that this journal lacks: it was restored from a copy, or is another journal.
    JournalDiffers {
        /// Node of the agent.
        node: NodeId,
        /// Newest entry that the agent knows.
        mark: JournalMark,
    },
    /// An agent opened a session.
    NodeJoined {
        /// Description of the node by its agent.
        info: NodeInfo,
    },
    /// A node sent nothing for longer than the silence limit.
    NodeFellSilent {
        node: NodeId,
        /// Time of its last message.
        last_heard: Timestamp,
    },
    /// The session of an agent ended and no other has begun: the process, the node or the network may have failed.
    SessionEnded {
        node: NodeId,
        /// Time of its last message; absent in older journals.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_heard: Option<Timestamp>,
    },
    /// Verdicts use other catalogue files from now on, in addition to the built-in ones.
    CatalogueGiven {
        /// All additional files.
        files: Vec<CatalogueFile>,
    },
    /// A node reported evidence; each sequence number arrives here once.
    EvidenceArrived { evidence: Evidence },
    /// A user submitted a job.
    JobSubmitted {
        spec: JobSpec,
        /// Claim of the checkpoint folder; absent without checkpoints, and in journals from before claims existed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claim: Option<Box<StoreClaim>>,
    },
    /// An operator cancelled a job.
    JobCancelled {
        job: JobId,
        /// Name in the operator's certificate; absent without one, and in older journals.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// The manifest is on disk: the checkpoint exists (RG-1).
    ManifestCommitted {
        job: JobId,
        step: Step,
        /// Generation that wrote it.
        generation: Generation,
        /// Replicas that must be equal and differ, the first few: in older journals, and of a manifest that existed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        differing: Vec<ReplicaDifference>,
        /// Tensors with other values on each rank, the first few names.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        per_rank: Vec<String>,
        /// Tensors for which only the same number of ranks can restore it, the first few names.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        same_size: Vec<String>,
    },
    /// The manifest was not written; older checkpoints are untouched.
    ManifestRefused {
        job: JobId,
        step: Step,
        /// Generation that wrote it.
        generation: Generation,
        reason: String,
        /// Replicas that must be equal and differ, for which it was refused; the first few.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        differing: Vec<ReplicaDifference>,
    },
    /// The controller listed the shards of an ended generation in a store.
    ShardsFound {
        job: JobId,
        /// Generation that acts now.
        generation: Generation,
        /// Complete shards, with their indexes.
        seals: Vec<ShardSeal>,
        /// Newest generation that wrote to the folder.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        newest: Option<Generation>,
        /// Committed checkpoints that are newer than those of the journal, oldest first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        committed: Vec<CheckpointView>,
        /// The newest of them that only the same number of ranks can restore.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        same_size: Vec<SameSizeCheckpoint>,
        /// Newer committed checkpoints that cannot be used, newest first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unusable: Vec<UnusableCheckpoint>,
        /// Cause of an incomplete listing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
    /// The controller read a checkpoint that a node reported as damaged.
    CheckpointChecked {
        job: JobId,
        step: Step,
        /// Generation that wrote it.
        generation: Generation,
        finding: CheckFinding,
    },
    /// A timer of [`crate::Action::SetTimer`] is due.
    TimerFired { timer: TimerKey },
    /// An operator cordoned a node.
    NodeCordoned { node: NodeId, reason: String },
    /// An operator drained a node: it takes no more work, and its job moves after its next checkpoint.
    NodeDrained { node: NodeId, reason: String },
    /// An operator removed the record of a node that is gone for good.
    NodeForgotten { node: NodeId },
    /// An operator added a note to a case.
    CaseNoted {
        case: CaseId,
        /// Note; its time is that of the event.
        note: CaseNote,
    },
    /// An operator lifted the cordon of a node.
    NodeUncordoned { node: NodeId },
    /// A journal that began under older decision rules adopts newer ones from here on.
    RulesAdopted {
        /// Rules version, see [`crate::Policy::rules`].
        rules: u32,
    },
    /// The controller was started with other settings than those of its journal; they hold from here on.
    PolicyAdopted {
        /// New settings; [`crate::Policy::rules`] and [`crate::Policy::replay_only`] remain those of the journal.
        policy: Box<crate::Policy>,
    },
}

/// Committed checkpoint of a store that only as many ranks as have saved it can restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SameSizeCheckpoint {
    pub step: Step,
    /// Generation that wrote it.
    pub generation: Generation,
    /// Tensors with other values on each rank, the first few names.
    pub tensors: Vec<String>,
}

/// Committed checkpoint of a store that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnusableCheckpoint {
    pub step: Step,
    /// Generation that wrote it.
    pub generation: Generation,
    /// Problem of its files.
    pub reason: String,
}

/// Result of the controller's own read of a checkpoint that was reported as damaged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "finding", rename_all = "kebab-case")]
pub enum CheckFinding {
    /// The reported place is intact.
    Intact,
    /// The place is damaged, confirmed by two reads.
    Damaged {
        /// Place and kind of the damage.
        what: String,
    },
    /// The place could not be read, which proves nothing.
    Unavailable { reason: String },
}

/// Purpose of a timer. A timer that is set again replaces the earlier one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "timer", rename_all = "kebab-case")]
pub enum TimerKey {
    /// The evidence of a failure has settled.
    Settle,
    /// The current phase of a job has reached its time limit.
    PhaseDeadline {
        job: JobId,
        /// Generation of the phase.
        generation: Generation,
    },
    /// A pending job has waited long enough for its full size and may start smaller.
    Gather { job: JobId },
    /// A check is due for a job of which ranks are silent.
    Hang {
        job: JobId,
        /// Generation of the silent ranks.
        generation: Generation,
    },
    /// A job may grow onto nodes that came back.
    Grow { job: JobId },
    /// Agents of the spare nodes of a job receive the order to prepare again.
    Spares { job: JobId },
    /// Ranks of a job have ended, and no open case explains them.
    EndedRanks {
        job: JobId,
        /// Generation of the ranks.
        generation: Generation,
    },
    /// A rank of this generation failed a moment ago; the other ranks are ended now.
    FailedGeneration {
        job: JobId,
        /// Generation of the ranks.
        generation: Generation,
    },
    /// A node has had no session for some time while ranks of its job failed elsewhere.
    Unreachable { node: NodeId },
    /// A node's fence confirmation is due.
    Fence { node: NodeId },
    /// Nodes that have been lost for long may be removed.
    Forget,
}
