//! Evidence: observations that nodes report. Live, simulated and replayed evidence share one type.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::{
    ClassId, Entity, FieldValues, Generation, ImageLocation, JobId, NodeId, OrderId, ProcessExit, Rank, Sequence, Step,
    Timestamp,
};

/// Identity of evidence: reporting node and sequence number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EvidenceId {
    /// Reporting node. Files read offline use the node named in the file, or the path.
    pub node: NodeId,
    /// Number in that node's spool, counted from 1 without gaps (RG-4).
    pub seq: Sequence,
}

impl fmt::Display for EvidenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.node, self.seq)
    }
}

/// Collector that observed the evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EvidenceSource {
    /// Kernel log ring.
    KernelLog,
    /// Standard output or error of a rank, or a log file of the job.
    JobLog,
    /// Launcher above the ranks (torchrun, srun, mpirun ...).
    Launcher,
    /// Batch scheduler or orchestrator (Slurm, Kubernetes ...).
    Scheduler,
    /// Supervision of the agent's own ranks.
    Ranks,
    /// Processors, memory, disks and limits of the host.
    Host,
    /// GPU management library.
    Gpu,
    /// Network adapters and their ports.
    Nic,
    /// Checkpoint service of the agent.
    Checkpoint,
    /// PyTorch flight recorder: the log of collectives that each rank dumps when one times out.
    FlightRecorder,
    /// Agent's own state: gaps, overflows, absent collectors.
    Agent,
}

/// Observation by a node, with its classifications.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Identity; evidence with the same id is the same observation, however often it arrives.
    pub id: EvidenceId,
    /// Time of the observation on the controller's clock: the agent has subtracted its measured offset.
    pub at: Timestamp,
    /// Collector that observed it.
    pub source: EvidenceSource,
    /// Subject of the observation.
    pub entity: Entity,
    /// Content of the observation.
    pub body: EvidenceBody,
    /// Classifications by triage; empty when no signature matches.
    pub marks: Vec<Classification>,
    /// True if an injection or a simulation produced it; nothing really failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub synthetic: bool,
}

/// Observation by type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum EvidenceBody {
    /// Log line, or several lines that belong together (a traceback, the three lines of an OOM kill).
    Line {
        /// Decisive line as read, decoded lossily.
        text: String,
        /// Surrounding lines for display, oldest first, without `text` itself.
        context: Vec<String>,
        /// Occurrences of the line within the deduplication window, at least 1.
        repeats: u32,
    },
    /// Metric value beyond its threshold, or a metric that changed state.
    Sample {
        /// Metric name (`gpu.temperature`, `nic.link_downed` ...).
        metric: String,
        /// Measured value, in `unit`.
        value: f64,
        /// Unit (`celsius`, `count`, `bytes`, `ratio` ...).
        unit: String,
    },
    /// Data was lost before it could be read, or a collector is absent (RG-4).
    Gap {
        /// Missing data and the cause, in words.
        what: String,
        /// Lost records, if known.
        lost: Option<u64>,
    },
    /// The process of a rank was started.
    RankStarted {
        /// Process id on the node.
        pid: u32,
        /// True if a standby process became the rank.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        from_standby: bool,
    },
    /// The process of a rank ended.
    RankExited {
        /// Process id on the node.
        pid: u32,
        /// Exit status of the process.
        exit: ProcessExit,
        /// True if the agent ended the process, by order or because its lease expired. Such an exit is no evidence of a
        /// failure.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ended_by_agent: bool,
    },
    /// A rank completed steps. Sent at most a few times a second, for the newest step.
    Progress {
        /// Newest completed step.
        step: Step,
        /// Loss of that step, if the trainer reports it.
        loss: Option<f64>,
        /// Wall time of that step, milliseconds.
        step_ms: f64,
        /// Part of the step that the rank worked rather than waited for others, milliseconds, if the trainer reports
        /// it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        own_ms: Option<f64>,
    },
    /// Fence confirmation: the agent has ended all processes of older generations and refuses their orders and seals
    /// (RG-3).
    Fenced {
        /// Job of the fence.
        job: JobId,
        /// Generation that may act from now on.
        generation: Generation,
        /// Free TCP port on the node, if the order asked for one.
        master_port: Option<u16>,
        /// Processes of older generations that were ended, ranks included.
        #[serde(default, skip_serializing_if = "is_zero")]
        ended: u32,
        /// Processes that could not be ended, each with its number, name and state; empty in a complete fence.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        left: Vec<String>,
    },
    /// Stop confirmation: no process of the job is left up to this generation, except those in `left`.
    Stopped {
        /// Job that was stopped.
        job: JobId,
        /// Newest generation that was stopped.
        generation: Generation,
        /// Processes that were ended, ranks included.
        #[serde(default, skip_serializing_if = "is_zero")]
        ended: u32,
        /// Processes that could not be ended, each with its number, name and state.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        left: Vec<String>,
    },
    /// A rank sealed its shard in its arena; training continued.
    ShardSealed {
        /// Step of the image.
        step: Step,
        /// Time for which the trainer was stalled, milliseconds.
        stall_ms: f64,
        /// Image size, bytes.
        bytes: u64,
    },
    /// A sealed shard is on disk and synced, under its digest.
    ShardDurable {
        /// Shard entry for the manifest.
        seal: ShardSeal,
    },
    /// A shard could not be stored. This checkpoint attempt is void; older checkpoints are untouched.
    ShardFailed {
        /// Step of the image.
        step: Step,
        /// Cause (`no space left on device` ...).
        reason: String,
    },
    /// Result of a copy: an image in the memory of another node, or a committed checkpoint in an object store, complete
    /// and verified by digest; or the failure to make it.
    Copied {
        /// Generation that wrote the image.
        generation: Generation,
        /// Step of the image.
        step: Step,
        /// Tier of the copy.
        tier: CopyTier,
        /// Target node or store, for display.
        to: String,
        /// Bytes sent to the target.
        bytes: u64,
        /// Duration of the operation, milliseconds.
        took_ms: f64,
        /// Cause of the failure; absent for a successful copy.
        failed: Option<String>,
    },
    /// The node has written to the store what it has of the shards that an ended generation sealed.
    ShardsFinished {
        /// Job of the shards.
        job: JobId,
        /// Generation that is to start.
        generation: Generation,
        /// Place where the node had the images.
        from: ImageLocation,
        /// Shards that were written, or found written.
        shards: u32,
        /// Cause for the first shard that could not be written.
        failed: Option<String>,
    },
    /// A rank loaded its part of a checkpoint.
    Restored {
        /// Step from which the rank starts.
        step: Step,
        /// Bytes by tier.
        from: RestoreBytes,
        /// Duration of the operation, milliseconds.
        took_ms: f64,
    },
    /// Flight recorder dump of a rank: its latest collectives and the progress of each.
    FlightDump {
        /// Dump in the recorder's JSON form, cut down to its newest operations.
        dump: String,
        /// Older operations that were left out.
        left_out: u64,
    },
    /// A rank reported completion of all its work.
    RankFinished,
    /// Result of the preflight checks of a node before a generation.
    Preflighted {
        /// Job to be started.
        job: JobId,
        /// Generation that is to start.
        generation: Generation,
        /// Failed checks; checks without a result are not among them.
        failed: Vec<FailedCheck>,
        /// Values that must be equal on all nodes of a job, by name: versions, digests, variables.
        environment: BTreeMap<String, String>,
    },
    /// The standby processes of a node that a job may take in have imported their modules, or could not.
    Prepared {
        /// Job of the processes.
        job: JobId,
        /// Generation that runs on other nodes.
        generation: Generation,
        /// Processes that wait to become ranks.
        waiting: u32,
        /// Cause for which there are fewer than ranks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
    /// An order could not be carried out.
    OrderFailed {
        /// Number of the order.
        order: OrderId,
        /// Job of the order.
        job: JobId,
        /// Generation of the order.
        generation: Generation,
        /// Cause of the failure.
        reason: String,
        /// Newest generation that the agent knows, if it refused the order because the order's generation may not act.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        newest: Option<Generation>,
    },
}

/// Signature of the evidence that an agent ended ranks because its lease expired. Its fields are `job` and
/// `generation`.
pub const LEASE_SIGNATURE: &str = "agent.lease";

/// Signature of an agent's report that it was asked to end and ends its ranks.
pub const FAREWELL_SIGNATURE: &str = "agent-asked-to-end";

/// Signature of the mark on the exit of a rank that ended with its supervisor process, which a signal ended. Its fields
/// are `supervisor` (process id) and `signal`.
pub const SUPERVISOR_LOST: &str = "agent.supervisor-lost";

/// Signature of an agent's report that its state directory is full.
pub const STATE_DIR_FULL: &str = "agent.state_dir_full";

/// Signature of an agent's report that its state directory has room again.
pub const STATE_DIR_HAS_ROOM: &str = "agent.state_dir_has_room";

/// Signature of an agent's report that its machine is about to be taken away: a spot instance that ends, a host that is
/// serviced.
pub const REMOVAL_NOTICE: &str = "agent.removal-notice";

/// Signature of an agent's report that its machine is no longer about to be taken away.
pub const REMOVAL_NOTICE_WITHDRAWN: &str = "agent.removal-notice-withdrawn";

/// Signature of the last line on standard error of a rank that ended itself with an error code and without a traceback.
/// Its fields are `exit` and `message`.
pub const EXIT_MESSAGE: &str = "agent.exit-message";

/// Signature of the mark on the exit of a rank that a signal ended: the time from its last output to its end.
pub const LAST_OUTPUT: &str = "agent.last-output";
/// Field of [`LAST_OUTPUT`], in milliseconds.
pub const OUTPUT_AGE_FIELD: &str = "output_age_ms";

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Checkpoint tier other than the checkpoint store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyTier {
    /// Memory of another node: an image of one rank.
    Peer,
    /// Object store: a whole committed checkpoint.
    Mirror,
    /// Parity in the memory of another node that covers an image of one rank.
    Parity,
}

/// Preflight check that predicts a failure of the job on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCheck {
    /// Check name: `path`, `gpu`, `command` ...
    pub check: String,
    /// Checked path, device or program.
    pub subject: String,
    /// Failure class that the check prevents.
    pub class: ClassId,
    /// State that was found.
    pub found: String,
    /// Advice to the operator.
    pub advice: String,
}

/// Durable shard, as the manifest lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardSeal {
    /// Rank that wrote it.
    pub rank: Rank,
    /// Step of the image.
    pub step: Step,
    /// World size of the generation that wrote it: a checkpoint is complete when it has this many shards.
    pub world_size: u32,
    /// BLAKE3 of the shard's index, 64 hex digits; the index lists every chunk by its own digest.
    pub index: String,
    /// Image size, bytes.
    pub bytes: u64,
    /// Part of the job's sample stream that the image covers, if the rank reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<SampleRange>,
    /// Schema of the rank's small state: a name with a version; empty if the rank gave none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub schema: String,
}

/// Interval of a job's sample stream that training has consumed. Independent of the world size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleRange {
    /// First sample of the interval.
    pub first: u64,
    /// Sample after the last.
    pub end: u64,
}

/// Bytes of one restore by the tier that supplied them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreBytes {
    /// Bytes from an arena on the same node.
    pub arena: u64,
    /// Bytes from another node's agent.
    pub peer: u64,
    /// Bytes from the checkpoint store.
    pub disk: u64,
}

/// Classification of evidence by triage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Classification {
    /// Failure class of the catalogue.
    pub class: ClassId,
    /// Role in a failure, as far as one line determines it; diagnosis may change it.
    pub role: Role,
    /// Confidence of the signature, 0 to 1.
    pub confidence: f64,
    /// Id of the signature that matched.
    pub signature: SmolStr,
    /// Values that the signature extracted from the text (`xid`, `pid`, `exception`, `file`, `line` ...).
    pub fields: FieldValues,
}

/// Role of a finding in a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Possible first cause of the failure.
    Root,
    /// Consequence of another failure; never blamed (RG-7).
    Cascade,
    /// Second observation of a root.
    Confirmation,
    /// Irrelevant to any failure.
    Noise,
}

/// Evidence with its role in a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseFinding {
    /// Id of the evidence.
    pub evidence: EvidenceId,
    /// Time of the observation.
    pub at: Timestamp,
    /// Collector that observed it.
    pub source: EvidenceSource,
    /// Subject of the evidence.
    pub entity: Entity,
    /// Failure class of the catalogue.
    pub class: ClassId,
    /// Role in this case.
    pub role: Role,
    /// Confidence of diagnosis, 0 to 1.
    pub confidence: f64,
    /// Text for display.
    pub text: String,
    /// Reason for the role.
    pub why: String,
    /// Copy of [`Evidence::synthetic`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub synthetic: bool,
}
