//! View of a running agent. The same structure feeds the metrics and the local status socket.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use rankguard_model::{Evidence, EvidenceSource, Generation, JobId, NodeId, RankRef, Step, Timestamp};
use serde::{Deserialize, Serialize};

/// State of an agent at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentView {
    pub node: NodeId,
    pub version: String,
    pub pid: u32,
    /// Start time, on the node's clock.
    pub started: Timestamp,
    /// Time of this view, on the node's clock.
    pub now: Timestamp,
    /// Catalogue in use.
    pub catalogue: CatalogueView,
    /// Identity; absent if the agent has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<IdentityView>,
    pub uplink: UplinkView,
    /// Lease on ranks without the controller.
    #[serde(default)]
    pub lease: LeaseView,
    pub spool: SpoolView,
    /// Number of evidence records dropped before the spool since the agent started.
    pub dropped: u64,
    /// Collectors, by name.
    pub collectors: Vec<CollectorView>,
    /// Number of evidence records since the agent started, by source.
    pub evidence: BTreeMap<EvidenceSource, u64>,
    /// Gaps since the agent started, by source.
    pub gaps: BTreeMap<EvidenceSource, GapView>,
    /// Counts by failure class and entity.
    pub series: Vec<SeriesView>,
    /// Counts by driver error code and entity.
    pub codes: Vec<CodeView>,
    /// Number of marks beyond the limit of series.
    pub series_beyond_limit: u64,
    /// True if faults may be injected.
    pub injection: bool,
    /// Number of injections since the agent started, by kind.
    pub injections: BTreeMap<String, u64>,
    /// Newest injections, oldest first.
    pub newest_injections: Vec<InjectionRecord>,
    /// Ranks that run.
    pub ranks: Vec<RankView>,
    /// Rights and lease of ranks; absent from older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank_rights: Option<RankRightsView>,
    /// Standby processes of each job that requests them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub standbys: Vec<StandbyView>,
    /// Watched file systems, the agent's own among them.
    #[serde(default)]
    pub rooms: Vec<FileSystemView>,
    #[serde(default)]
    pub host: HostView,
    /// Counters of the OTLP export; absent if it is disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otlp: Option<OtlpView>,
    /// MIG devices; empty if no GPU is partitioned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mig_devices: Vec<MigView>,
    /// Latest result of each plug-in check.
    pub checks: Vec<CheckView>,
    /// Newest classified evidence and rank exits, oldest first. Numbered from 1 since the agent started; these are not
    /// the sequence numbers of the spool.
    pub findings: Vec<Evidence>,
    /// Newest generations of jobs that started ranks here, oldest first.
    #[serde(default)]
    pub generations: Vec<GenerationView>,
    /// Newest clearings of the node by operators (uncordon) that controllers reported, oldest first, on the node's clock.
    #[serde(default)]
    pub clearings: Vec<Timestamp>,
}

/// Generation of a job that started ranks on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationView {
    pub job: JobId,
    pub generation: Generation,
    /// Start of its first rank, on the node's clock.
    pub since: Timestamp,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankRightsView {
    /// User that ranks run as unless their job names one; absent: the agent's own.
    pub user: Option<String>,
    /// True if `user` is not the agent's user, so that ranks cannot read the agent's files.
    pub are_separate: bool,
    /// Control group below which ranks run; absent if the agent cannot create one.
    pub cgroup: Option<PathBuf>,
    /// Time for which ranks continue without the agent, in milliseconds.
    pub lease_ms: u64,
}

/// Standby processes of one job on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyView {
    pub job: JobId,
    /// Number of processes that the job requests for this node.
    pub wanted: u32,
    /// Ids of the processes that have imported their modules and wait.
    pub waiting: Vec<u32>,
    /// True while a process imports its modules.
    pub is_starting: bool,
    /// Memory of those that wait; memory that several processes share counts in equal parts.
    pub memory_bytes: u64,
    /// Reason of the newest failure since the launch.
    pub problem: Option<String>,
}

/// Catalogue in use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogueView {
    /// Digest of signatures, classes and codes: 16 hexadecimal digits.
    pub version: String,
    /// Number of signatures.
    pub signatures: u64,
    /// Files in addition to the built-in ones.
    pub files: Vec<PathBuf>,
    /// Load time, on the node's clock.
    pub loaded: Timestamp,
    /// Number of successful loads since the agent started.
    pub loads: u64,
    /// Number of refused loads.
    pub refused: u64,
    pub newest_refusal: Option<CatalogueRefusalView>,
}

/// Identity in use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityView {
    /// Name in the certificate.
    pub name: String,
    /// Expiry of the certificate.
    pub valid_until: Timestamp,
    /// Number of refused reloads of changed files since the agent started.
    pub refused_files: u64,
    /// Number of refused connections and calls since the agent started, by reason.
    pub refusals: BTreeMap<String, u64>,
}

/// Refused load of catalogue files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogueRefusalView {
    /// Time of the refusal, on the node's clock.
    pub at: Timestamp,
    /// All mistakes, one a line: file, line, key, problem and remedy.
    pub why: String,
}

/// Session with the controller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UplinkView {
    /// Address of the controller.
    pub controller: String,
    /// True if there is a session.
    pub connected: bool,
    /// Time of the last change of `connected`.
    pub since: Timestamp,
    /// Reason for which the last session ended.
    pub problem: Option<String>,
}

/// Lease on ranks without the controller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseView {
    /// Duration of the lease without a renewal, in milliseconds.
    pub length_ms: u64,
    /// Time until ranks end unless the lease is renewed, in milliseconds.
    pub expires_in_ms: u64,
    /// True if ranks may run.
    pub is_held: bool,
    /// Nodes of the agents that are queried while the controller does not answer.
    pub witnesses: Vec<NodeId>,
    /// Verdict from their newest answers, while the controller does not answer.
    pub verdict: Option<String>,
}

/// Counters of the OTLP export since the agent started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtlpView {
    /// Endpoint of the setting.
    pub endpoint: String,
    /// Log records in the queue.
    pub waiting: u64,
    /// Log records that the server accepted.
    pub sent: u64,
    /// Log records that the server rejected in exports that it otherwise accepted.
    pub rejected: u64,
    /// Log records dropped because the queue was full or the export failed for good.
    pub dropped: u64,
    /// Failed exports of records and metrics, counted for each attempt.
    pub failures: u64,
    /// Message of the last failure; absent after a success.
    pub problem: Option<String>,
}

/// Current state of the spool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpoolView {
    /// Bytes in use.
    pub bytes: u64,
    /// Bytes above which samples and progress are dropped first.
    pub limit_bytes: u64,
    /// Newest sequence number on disk.
    pub last: u64,
    /// Newest sequence number that may have been sent.
    pub sent: u64,
    /// Newest sequence number that the controller has journalled.
    pub acknowledged: u64,
}

/// Schedule of one collector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorView {
    /// Name of the collector.
    pub collector: String,
    /// End of the last poll.
    pub last_look: Timestamp,
    /// Due time of the next poll.
    pub next_look: Timestamp,
}

/// Gaps in the evidence of one source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapView {
    /// Number of gaps.
    pub count: u64,
    /// Number of lost records, as far as known.
    pub lost: u64,
    /// Time of the newest gap.
    pub at: Timestamp,
    /// Text of the newest gap.
    pub what: String,
}

/// Count of one failure class on one entity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesView {
    pub class: String,
    /// Role in a failure, as far as one line shows it.
    pub role: String,
    /// Kind of the entity: node, gpu, nic, nvswitch, disk, rank, job, unknown.
    pub kind: String,
    /// Entity: an address, `job/rank`, or a name.
    pub entity: String,
    /// True if an injection or a simulation caused it.
    pub synthetic: bool,
    /// Number of occurrences.
    pub count: u64,
    /// Time of the last occurrence.
    pub last: Timestamp,
}

/// Count of one driver error code on one entity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeView {
    /// Code family: xid, sxid.
    pub family: String,
    /// Error code of the driver.
    pub code: String,
    /// Kind of the entity, as in [`SeriesView`].
    pub kind: String,
    /// Entity, as in [`SeriesView`].
    pub entity: String,
    /// True if an injection or a simulation caused it.
    pub synthetic: bool,
    /// Number of occurrences.
    pub count: u64,
}

/// Rank that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankView {
    pub rank: RankRef,
    pub pid: u32,
    /// Newest step that it reported.
    pub step: Option<Step>,
    /// Number of ended child processes that it has not waited for.
    #[serde(default)]
    pub dead_children: u64,
    /// Kernel location in which it, a thread or a child of it is blocked, if that lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
    /// True if a standby process became the rank.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_standby: bool,
}

/// Watched file system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileSystemView {
    /// Folder on the file system.
    pub place: PathBuf,
    /// Available fraction of its bytes, 0 to 1.
    pub available: f64,
    pub available_bytes: u64,
    /// Available fraction of its inodes, 0 to 1.
    pub inodes_available: f64,
}

/// Load of the host. Values that the kernel does not provide are absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostView {
    /// Available fraction of the memory, 0 to 1.
    pub memory_available: Option<f64>,
    /// Runnable threads per processor, 5-minute average.
    pub load_per_processor: Option<f64>,
    /// Pressure by resource.
    pub pressures: Vec<PressureView>,
}

/// Pressure stall of one resource (`/proc/pressure`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PressureView {
    /// Resource: cpu, io or memory.
    pub resource: String,
    /// `full`: all tasks waited; `some`: at least one did.
    pub who: String,
    /// Percentage of the last 10 s.
    pub percent: f64,
    /// True if high pressure was reported and has not cleared since.
    pub high: bool,
}

/// MIG device: a partition of a GPU. Values that the driver does not provide are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigView {
    /// PCI address of the GPU.
    pub gpu: String,
    /// PCI address, GPU instance and compute instance: `0000:9b:00/5/0`.
    pub address: String,
    /// UUID by which programs select it.
    pub uuid: Option<String>,
    /// Memory size in bytes.
    pub memory_bytes: Option<u64>,
    /// Used memory in bytes.
    pub memory_used_bytes: Option<u64>,
    /// Uncorrected errors of its caches since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
    /// Number of compute processes.
    pub processes: Option<u64>,
    /// True if a scenario simulates it.
    #[serde(default)]
    pub synthetic: bool,
}

/// Result of a plug-in check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckView {
    /// Name of the check.
    pub check: String,
    /// 0 ok, 1 warning, 2 critical, 3 unknown.
    pub status: u8,
    /// First line of its output.
    pub text: String,
    /// End of the last run.
    pub at: Timestamp,
    /// Duration of the last run, in seconds.
    pub took_s: f64,
    /// Reported values by label, in the units of the check.
    pub values: BTreeMap<String, f64>,
}

/// Failure to query an agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentQueryError {
    /// There is no socket, or no process listens on it.
    #[error("no agent answers in the state directory {path}")]
    Absent {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The response was late or incomplete.
    #[error("the agent in the state directory {path} does not finish its answer")]
    Broken {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The response cannot be decoded.
    #[error("the answer of the agent in the state directory {path} is not understood")]
    Foreign {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

/// Injection that was carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectionRecord {
    /// Number since the agent's start.
    pub number: u64,
    /// Kind as named in commands and metrics.
    pub kind: String,
    /// Description, as a sentence.
    pub what: String,
    /// Start on the node's clock.
    pub at: Timestamp,
    /// End; absent for events, and for injections that last until the agent ends.
    pub until: Option<Timestamp>,
}
