//! Evidence: what was seen. One type for everything that nodes report, live, simulated or replayed.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::{
    ClassId, Entity, Exit, Fields, Generation, HeldIn, JobId, NodeId, OrderId, Rank, Sequence, Step, Timestamp,
};

/// Where in the cluster's history a piece of evidence stands: which node reported it, and as which one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EvidenceId {
    /// The node that saw it. Files read offline use the file's node, or its path.
    pub node: NodeId,
    /// Its number in that node's spool, from 1 without gaps (RG-4).
    pub seq: Sequence,
}

impl fmt::Display for EvidenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.node, self.seq)
    }
}

/// The collector that saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The kernel's log ring.
    KernelLog,
    /// Standard output or error of a rank, or a log file of the job.
    JobLog,
    /// The launcher above the ranks (torchrun, srun, mpirun ...).
    Launcher,
    /// The batch scheduler or orchestrator (Slurm, Kubernetes ...).
    Scheduler,
    /// The agent's own view of the ranks it runs.
    Ranks,
    /// Processors, memory, disks, limits of the host.
    Host,
    /// The GPU management library.
    Gpu,
    /// Network adapters.
    Nic,
    /// The agent's checkpoint service.
    Checkpoint,
    /// The record of collectives that PyTorch keeps on each rank and dumps when one times out.
    FlightRecorder,
    /// The agent about itself: gaps, overflows, absent collectors.
    Agent,
}

/// One thing that was seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Its identity; the same id is the same evidence, however often it arrives.
    pub id: EvidenceId,
    /// When it happened, on the controller's clock: the agent has subtracted its measured offset.
    pub at: Timestamp,
    /// Which collector saw it.
    pub source: Source,
    /// What it is about.
    pub entity: Entity,
    /// What was seen.
    pub body: Body,
    /// What triage made of it: empty when no signature knows it.
    pub marks: Vec<Mark>,
    /// Whether it is the work of an injection or a simulation: nothing was really wrong.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub synthetic: bool,
}

/// What was seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Body {
    /// A line of a log, or several that belong together (a traceback, the three lines of an OOM kill).
    Line {
        /// The deciding line, as read, lossily decoded.
        text: String,
        /// Lines around it that a person wants to see, oldest first; without `text` itself.
        context: Vec<String>,
        /// How often the same line was seen within the deduplication window, at least 1.
        repeats: u32,
    },
    /// A measured value beyond its threshold, or one that changed state.
    Sample {
        /// Name of the metric (`gpu.temperature`, `nic.link_downed` ...).
        metric: String,
        /// The value.
        value: f64,
        /// Its unit (`celsius`, `count`, `bytes`, `ratio` ...).
        unit: String,
    },
    /// Something was lost before it could be read, or a collector is absent (RG-4).
    Gap {
        /// What is missing and why.
        what: String,
        /// How many records, where that is known.
        lost: Option<u64>,
    },
    /// A rank's process was started.
    RankStarted {
        /// Its process id on the node.
        pid: u32,
    },
    /// A rank's process ended.
    RankExited {
        /// Its process id on the node.
        pid: u32,
        /// How it ended.
        exit: Exit,
        /// The agent ended it, by order or because its lease was over: the exit is an act of Rankguard and evidence of nothing.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ended_by_agent: bool,
    },
    /// A rank completed steps. Sent at most a few times a second, for the newest step.
    Progress {
        /// The newest completed step.
        step: Step,
        /// Loss of that step, where the trainer told it.
        loss: Option<f64>,
        /// Wall time of that step in milliseconds.
        step_ms: f64,
        /// The part of it that the rank worked rather than waited for others, where the trainer told it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        own_ms: Option<f64>,
    },
    /// The agent has ended all processes of older generations and refuses their orders and seals (RG-3).
    Fenced {
        /// The job.
        job: JobId,
        /// The generation that may act from now on.
        generation: Generation,
        /// A free TCP port on the node, when the order asked for one.
        master_port: Option<u16>,
        /// Processes of older generations that were ended, ranks included.
        #[serde(default, skip_serializing_if = "is_zero")]
        ended: u32,
        /// Processes that could not be ended, each with its number, name and state; empty in a complete fence.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        left: Vec<String>,
    },
    /// The answer to a stop: no process of the job is left up to this generation, except those in `left`.
    Stopped {
        /// The job.
        job: JobId,
        /// The newest generation that was stopped.
        generation: Generation,
        /// Processes that were ended, ranks included.
        #[serde(default, skip_serializing_if = "is_zero")]
        ended: u32,
        /// Processes that could not be ended, each with its number, name and state.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        left: Vec<String>,
    },
    /// A rank sealed its shard in its arena: training went on.
    ShardSealed {
        /// Step of the image.
        step: Step,
        /// How long the trainer waited, milliseconds.
        stall_ms: f64,
        /// Size of the image, bytes.
        bytes: u64,
    },
    /// A sealed shard is on disk, synced, under its digest.
    ShardDurable {
        /// What the manifest needs to know of it.
        seal: ShardSeal,
    },
    /// A shard could not be kept; this attempt at the checkpoint is void, older ones are untouched.
    ShardFailed {
        /// Step of the image.
        step: Step,
        /// Why (`no space left on device` ...).
        reason: String,
    },
    /// An image is in the memory of another node, or a committed checkpoint in an object store, whole and compared with its
    /// digests; or it could not be brought there.
    Copied {
        /// The generation that wrote it.
        generation: Generation,
        /// Its step.
        step: Step,
        /// How far away the copy is.
        tier: CopyTier,
        /// Which node or store, as people call it.
        to: String,
        /// Bytes that were sent.
        bytes: u64,
        /// How long it took, milliseconds.
        took_ms: f64,
        /// Why there is no copy.
        failed: Option<String>,
    },
    /// What the ranks of an ended generation had sealed is in the store as far as this node has it.
    ShardsFinished {
        /// The job.
        job: JobId,
        /// The generation that is to start.
        generation: Generation,
        /// Where it had it.
        from: HeldIn,
        /// Shards that it wrote, or found written.
        shards: u32,
        /// Why the first of the others could not be.
        failed: Option<String>,
    },
    /// A rank loaded its part of a checkpoint.
    Restored {
        /// Step it starts from.
        step: Step,
        /// Where the bytes came from.
        from: RestoreBytes,
        /// How long it took, milliseconds.
        took_ms: f64,
    },
    /// What a rank dumped of its flight recorder: which collectives it called last, and how far each came.
    FlightDump {
        /// The dump, cut down to its newest operations, in the recorder's JSON form.
        dump: String,
        /// Older operations that were left out.
        left_out: u64,
    },
    /// A rank reported completion of all its work.
    RankFinished,
    /// What a look at the node before a generation found.
    Preflighted {
        /// The job.
        job: JobId,
        /// The generation that is to start.
        generation: Generation,
        /// Checks that failed; what cannot be told is not among them.
        failed: Vec<FailedCheck>,
        /// What must be the same on all nodes of a job, by name: versions, digests, variables.
        environment: BTreeMap<String, String>,
    },
    /// An order could not be carried out.
    OrderFailed {
        /// Which order.
        order: OrderId,
        /// Its job.
        job: JobId,
        /// Its generation.
        generation: Generation,
        /// Why.
        reason: String,
        /// The newest generation that the agent knows, where the order was refused because its own is none that may act.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        newest: Option<Generation>,
    },
}

/// Signature of the evidence that an agent ended ranks because its lease was over. Its fields are `job` and `generation`.
pub const LEASE_SIGNATURE: &str = "agent.lease";

/// Signature of the last line on standard error of a rank that ended itself with an error code and without a traceback. Its
/// fields are `exit` and `message`.
pub const EXIT_MESSAGE: &str = "agent.exit-message";

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A tier besides the checkpoint store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyTier {
    /// Memory of another node: an image of one rank.
    Peer,
    /// An object store: a whole committed checkpoint.
    Mirror,
    /// Parity in the memory of another node: an image of one rank is in it.
    Parity,
}

/// A check that says that the job would fail on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCheck {
    /// What was looked at: `path`, `gpu`, `command` ...
    pub check: String,
    /// Which one: the path, the device, the program.
    pub subject: String,
    /// The failure class that it prevents.
    pub class: ClassId,
    /// What was found.
    pub found: String,
    /// What to do about it.
    pub advice: String,
}

/// A durable shard as the manifest names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardSeal {
    /// The rank that wrote it.
    pub rank: Rank,
    /// Step of the image.
    pub step: Step,
    /// World size of the generation that wrote it: a checkpoint is whole when it has this many shards.
    pub world_size: u32,
    /// BLAKE3 of the shard's index, 64 hex digits; the index names every chunk by its own digest.
    pub index: String,
    /// Size of the image, bytes.
    pub bytes: u64,
    /// The part of the job's stream of samples that is in the image, where the rank says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Ledger>,
    /// What the rank's small state is: a name with a version; empty where the rank gave none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub schema: String,
}

/// An interval of a job's stream of samples: what training has seen of it. The same at every world size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Its first sample.
    pub first: u64,
    /// The sample after its last.
    pub end: u64,
}

/// Bytes of one restore by the tier that supplied them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreBytes {
    /// From an arena on the same node.
    pub arena: u64,
    /// From another node's agent.
    pub peer: u64,
    /// From the checkpoint store.
    pub disk: u64,
}

/// What triage says of a piece of evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// The failure class it speaks of.
    pub class: ClassId,
    /// Its part in a failure, as far as one line can tell; diagnosis may change it.
    pub role: Role,
    /// How sure the signature is, 0 to 1.
    pub confidence: f64,
    /// Which signature matched.
    pub signature: SmolStr,
    /// What the signature took out of the text (`xid`, `pid`, `exception`, `file`, `line` ...).
    pub fields: Fields,
}

/// The part that a finding plays in a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It may have started the failure.
    Root,
    /// It follows from something else and is never blamed (RG-7).
    Cascade,
    /// A second witness of a root.
    Confirmation,
    /// It means nothing.
    Noise,
}

/// Evidence that has been given a meaning within a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The evidence.
    pub evidence: EvidenceId,
    /// When it happened.
    pub at: Timestamp,
    /// Who saw it.
    pub source: Source,
    /// What it is about.
    pub entity: Entity,
    /// Class it speaks of.
    pub class: ClassId,
    /// Its part in this case.
    pub role: Role,
    /// How sure diagnosis is, 0 to 1.
    pub confidence: f64,
    /// The text a person should read.
    pub text: String,
    /// Why it has this role.
    pub why: String,
    /// As the evidence says ([`Evidence::synthetic`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub synthetic: bool,
}
