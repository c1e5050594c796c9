//! The agent as it describes itself. The same structure feeds the numbers and the answer at the socket.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use rankguard_model::{Evidence, NodeId, RankRef, Source, Step, Timestamp};
use serde::{Deserialize, Serialize};

use crate::inject::Injected;

/// Everything an agent tells of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentView {
    /// The node's name.
    pub node: NodeId,
    /// Version of the agent.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// When it started, on the node's clock.
    pub started: Timestamp,
    /// When this was told, on the node's clock.
    pub now: Timestamp,
    /// What its lines are tried against.
    pub catalogue: CatalogueView,
    /// Its identity, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<IdentityView>,
    /// The session with the controller.
    pub uplink: UplinkView,
    /// How long ranks may run without it.
    #[serde(default)]
    pub lease: LeaseView,
    /// Evidence on disk.
    pub spool: SpoolView,
    /// Pieces of evidence that were dropped before the spool since the agent started.
    pub dropped: u64,
    /// Its collectors, by name.
    pub collectors: Vec<CollectorView>,
    /// Pieces of evidence since the agent started, by the collector that saw them.
    pub evidence: BTreeMap<Source, u64>,
    /// Gaps since the agent started, by the collector that told them.
    pub gaps: BTreeMap<Source, GapView>,
    /// Counts by failure class and what it is about.
    pub series: Vec<SeriesView>,
    /// Counts by the driver's own numbers and what they are about.
    pub codes: Vec<CodeView>,
    /// Marks that found no room among the series.
    pub series_beyond_limit: u64,
    /// Whether faults may be injected.
    pub injection: bool,
    /// Injections since the agent started, by kind.
    pub injections: BTreeMap<String, u64>,
    /// The newest injections, oldest first.
    pub newest_injections: Vec<Injected>,
    /// Ranks that run.
    pub ranks: Vec<RankView>,
    /// Rights and lease of ranks; absent from older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank_rights: Option<RankRightsView>,
    /// File systems whose room is watched, the agent's own among them.
    #[serde(default)]
    pub rooms: Vec<RoomView>,
    /// How busy the host is.
    #[serde(default)]
    pub host: HostView,
    /// What became of what is exported by OTLP, where that is switched on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otlp: Option<OtlpView>,
    /// MIG devices, where GPUs are cut into some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mig_devices: Vec<MigView>,
    /// Plug-in checks as they last came out.
    pub checks: Vec<CheckView>,
    /// The newest evidence that speaks of failures, oldest first. Numbered from 1 in the order in which this process saw
    /// it; these are not the numbers of the spool.
    pub findings: Vec<Evidence>,
}

/// Rights and lease of the ranks of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankRightsView {
    /// User that ranks run as unless their job names one; the agent's own when absent.
    pub user: Option<String>,
    /// Whether that is another user than the agent's, which cannot read the agent's files.
    pub are_separate: bool,
    /// The control group below which ranks run; absent where the agent may create none.
    pub cgroup: Option<PathBuf>,
    /// How long ranks run on after the agent's last sign of life, milliseconds.
    pub lease_ms: u64,
}

/// The catalogue that is in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogueView {
    /// The same for the same signatures, classes and codes, 16 hexadecimal digits.
    pub version: String,
    /// Signatures in it.
    pub signatures: u64,
    /// Files besides the built-in ones.
    pub files: Vec<PathBuf>,
    /// When it was read, on the node's clock.
    pub loaded: Timestamp,
    /// How often one was taken into use since the agent started.
    pub loads: u64,
    /// How often files were refused.
    pub refused: u64,
    /// The newest time that files were refused.
    pub newest_refusal: Option<RefusedView>,
}

/// The identity that is in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityView {
    /// The name in its certificate.
    pub name: String,
    /// Until when that is valid.
    pub valid_until: Timestamp,
    /// How often changed files were refused since the agent started.
    pub refused_files: u64,
    /// Connections and calls that were refused since the agent started, by reason.
    pub refusals: BTreeMap<String, u64>,
}

/// Files that were refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedView {
    /// When, on the node's clock.
    pub at: Timestamp,
    /// Every mistake on a line of its own: file, line, key, what is wrong and what to do.
    pub why: String,
}

/// The session with the controller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UplinkView {
    /// Address of the controller.
    pub controller: String,
    /// Whether there is a session now.
    pub connected: bool,
    /// Since when there is one, or none.
    pub since: Timestamp,
    /// Why the last one ended.
    pub problem: Option<String>,
}

/// How long ranks may run without a sign of the controller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseView {
    /// How long the lease lasts without a renewal, milliseconds.
    pub length_ms: u64,
    /// Time until ranks end unless it is renewed, milliseconds.
    pub expires_in_ms: u64,
    /// Whether ranks may run.
    pub is_held: bool,
    /// Nodes whose agents are asked while the controller does not answer.
    pub witnesses: Vec<NodeId>,
    /// What their newest answers mean, while the controller does not answer.
    pub verdict: Option<String>,
}

/// What became of what is exported by OTLP since the agent started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtlpView {
    /// Where it goes.
    pub endpoint: String,
    /// Log records that wait.
    pub waiting: u64,
    /// Log records that were taken.
    pub sent: u64,
    /// Log records that the server refused out of exports that it took.
    pub rejected: u64,
    /// Log records that were given up: for want of room, or because the server would not take them.
    pub dropped: u64,
    /// Exports that failed, each try, of records and numbers.
    pub failures: u64,
    /// What the server last complained of; nothing once it is content again.
    pub problem: Option<String>,
}

/// The spool as it is now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpoolView {
    /// Bytes in use.
    pub bytes: u64,
    /// Bytes from which on samples and progress go first.
    pub limit_bytes: u64,
    /// Newest number that is on disk.
    pub last: u64,
    /// Newest number that may have been sent.
    pub sent: u64,
    /// Newest number that the controller has journalled.
    pub acknowledged: u64,
}

/// A collector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorView {
    /// Its name.
    pub collector: String,
    /// When it last ended a look.
    pub last_look: Timestamp,
    /// When the next is due.
    pub next_look: Timestamp,
}

/// What a collector could not see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapView {
    /// Gaps that were told.
    pub count: u64,
    /// Records that were lost, where that was known.
    pub lost: u64,
    /// When the newest was told.
    pub at: Timestamp,
    /// The newest, as a sentence.
    pub what: String,
}

/// How often one failure class was seen of one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesView {
    /// The failure class.
    pub class: String,
    /// Its part in a failure, as far as one line can tell.
    pub role: String,
    /// Kind of what it is about: node, gpu, nic, nvswitch, disk, rank, job, unknown.
    pub kind: String,
    /// What it is about: an address, `job/rank`, a name.
    pub entity: String,
    /// Whether it is the work of an injection or a simulation.
    pub synthetic: bool,
    /// How often.
    pub count: u64,
    /// When last.
    pub last: Timestamp,
}

/// How often a driver's own number was seen of one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeView {
    /// Whose number it is: xid, sxid.
    pub family: String,
    /// The number.
    pub code: String,
    /// Kind of what it is about, as in [`SeriesView`].
    pub kind: String,
    /// What it is about, as in [`SeriesView`].
    pub entity: String,
    /// Whether it is the work of an injection or a simulation.
    pub synthetic: bool,
    /// How often.
    pub count: u64,
}

/// A rank that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankView {
    /// Which one.
    pub rank: RankRef,
    /// Its process id.
    pub pid: u32,
    /// Newest step it reported.
    pub step: Option<Step>,
    /// Children that have ended and that it does not wait for.
    #[serde(default)]
    pub dead_children: u64,
    /// Where it, a thread or a child of it is blocked in the kernel, if that lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
}

/// A file system that the agent watches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoomView {
    /// A folder on it.
    pub place: PathBuf,
    /// Part of its bytes that is available.
    pub available: f64,
    /// The same in bytes.
    pub available_bytes: u64,
    /// Part of its files that it can hold yet.
    pub inodes_available: f64,
}

/// How busy the host is. What the kernel does not tell is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostView {
    /// Part of its memory that is available.
    pub memory_available: Option<f64>,
    /// Runnable threads per processor, over 5 minutes.
    pub load_per_processor: Option<f64>,
    /// Time that tasks waited for something.
    pub pressures: Vec<PressureView>,
}

/// Time that tasks waited for one resource (`/proc/pressure`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PressureView {
    /// cpu, io, memory.
    pub resource: String,
    /// `full`: every task waited; `some`: at least one did.
    pub who: String,
    /// Percent of the last 10 s.
    pub percent: f64,
    /// Whether that was told as too much, and has not been told as over.
    pub high: bool,
}

/// A MIG device: a part of a GPU. What its driver does not tell is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigView {
    /// PCI address of the GPU.
    pub gpu: String,
    /// That address, the GPU instance and the compute instance: `0000:9b:00/5/0`.
    pub address: String,
    /// What programs choose it by.
    pub uuid: Option<String>,
    /// Bytes of memory that it has.
    pub memory_bytes: Option<u64>,
    /// Bytes of them in use.
    pub memory_used_bytes: Option<u64>,
    /// Uncorrected errors of its caches since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
    /// Processes that compute on it.
    pub processes: Option<u64>,
    /// Whether a scenario makes it up.
    #[serde(default)]
    pub synthetic: bool,
}

/// A plug-in check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckView {
    /// Its name.
    pub check: String,
    /// 0 ok, 1 warning, 2 critical, 3 unknown.
    pub status: u8,
    /// Its first line.
    pub text: String,
    /// When it last ended.
    pub at: Timestamp,
    /// How long it took, seconds.
    pub took_s: f64,
    /// The values that it told, by label, in the units of the check.
    pub values: BTreeMap<String, f64>,
}

/// Why an agent could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// There is no socket, or nobody listens at it.
    #[error("no agent answers in the state directory {path}")]
    Absent {
        /// The state directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It did not answer in time, or broke off.
    #[error("the agent in the state directory {path} does not finish its answer")]
    Broken {
        /// The state directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Its answer is not understood.
    #[error("the answer of the agent in the state directory {path} is not understood")]
    Foreign {
        /// The state directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}
