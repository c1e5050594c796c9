//! Settings of an agent. They are data; [`crate::run`] builds the parts from them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use rankguard_identity::PeerTransport;
use rankguard_model::{ClassId, NodeId};
use serde::Serialize;

use crate::allowed_environment::DEFAULT_RANK_ENVIRONMENT;
use crate::catalogue_handle::CatalogueHandle;
use crate::outlets::OtlpSettings;

/// Settings of one agent.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    pub node: NodeId,
    /// Address at which other nodes reach this one (host or IP, no port).
    pub host: String,
    /// Address of the controller (`host:port`).
    pub controller: String,
    /// Transport to the controller and other agents: with an identity, which must be this node's, or over loopback.
    pub network: PeerTransport,
    /// Directory of the agent's own files: spool, fences, cursors, output of the ranks. One agent per directory.
    pub state_dir: PathBuf,
    /// Maximum ranks that run on this node at once.
    pub slots: u32,
    /// Failure domain of this node (rack, switch, power feed); empty if unknown.
    pub failure_domain: String,
    /// Address on which the peer service listens; port 0 selects a free one.
    pub peer_listen: String,
    /// Address of the metrics endpoint for Prometheus; disabled if absent, port 0 selects a free port.
    pub metrics_listen: Option<String>,
    /// Export to an OpenTelemetry collector; disabled if absent.
    pub otlp: Option<OtlpSettings>,
    pub kernel_log: KernelLogSource,
    /// Program that prints the system's journal, `journalctl`: used where `/dev/kmsg` is unreadable, and for the end
    /// of the previous boot. Disabled if empty.
    pub journal: Vec<OsString>,
    /// Root of sysfs.
    pub sysfs_root: PathBuf,
    /// Root of procfs.
    pub proc_root: PathBuf,
    /// Path of the GPU management library; default: the system's own.
    pub nvml_library: Option<PathBuf>,
    /// Program and arguments of the process that calls the GPU library: it passes its standard input to
    /// [`crate::serve_gpu_calls`]. GPUs are not watched if empty.
    pub gpu_process: Vec<OsString>,
    /// Program and arguments of the process that reads Python stacks of ranks: it receives a process id and passes it
    /// to [`crate::serve_stack_calls`]. No stacks are read if empty.
    pub stack_process: Vec<OsString>,
    /// Program and arguments of the process that holds arenas when this agent is killed: it receives the state
    /// directory and [`AgentIntervals::arenas_kept`] in milliseconds, and passes both to [`crate::keep_arenas`]. If empty,
    /// arenas end with the agent.
    pub arena_process: Vec<OsString>,
    /// Program and arguments of the process that supervises the ranks of one generation: it calls
    /// [`crate::supervise_ranks`]. If empty, no ranks can run.
    pub supervisor_process: Vec<OsString>,
    /// Longest time that ranks run without proof of contact with the controller, unless a majority of the other agents
    /// has lost it too, and after the end or stop of this agent.
    pub lease: Duration,
    /// Enables control groups for ranks, where the agent may create them.
    pub rank_cgroups: bool,
    /// Names of the agent's environment variables that ranks receive; a name that ends in `*` matches all names with
    /// that prefix.
    pub rank_environment: Vec<String>,
    /// User that ranks run as, by name or id; default: the agent's own.
    pub rank_user: Option<String>,
    /// Users that jobs may name instead; a name that ends in `*` matches all names with that prefix.
    pub job_users: Vec<String>,
    /// Scenario file that a simulated GPU library plays; GPU evidence is then marked as synthetic.
    pub simulate: Option<PathBuf>,
    /// Enables fault injection ([`crate::FaultInjection`]).
    pub injection: bool,
    /// Enables a flight-recorder pipe for ranks, which requests a dump when they are silent. Jobs that configure one
    /// have it in any case. A rank that cannot create its pipe ends.
    pub flight_recorder_pipe: bool,
    /// Processes that may act for a rank at the agent's socket.
    pub rank_peers: RankPeerPolicy,
    /// Catalogue that lines are matched against.
    pub knowledge: CatalogueHandle,
    /// Log files to follow in addition to the output of ranks; glob patterns are allowed.
    pub job_logs: Vec<PathBuf>,
    /// Plug-in checks to run.
    pub checks: Vec<PluginCheck>,
    /// Sources of notices that this machine is about to be taken away.
    pub removal: RemovalSettings,
    /// Maximum bytes of unacknowledged evidence on disk; beyond it samples and progress are dropped first.
    pub spool_bytes: u64,
    /// Memory settings for images of the ranks.
    pub images: ImageSettings,
    /// Intervals and deadlines.
    pub intervals: AgentIntervals,
}

impl AgentSettings {
    /// Returns the defaults for a node: loopback, one slot, the system's own log, file trees and libraries.
    pub fn new(node: NodeId, controller: impl Into<String>, state_dir: impl Into<PathBuf>) -> Self {
        Self {
            node,
            host: "127.0.0.1".to_owned(),
            controller: controller.into(),
            network: PeerTransport::loopback(),
            state_dir: state_dir.into(),
            slots: 1,
            failure_domain: String::new(),
            peer_listen: "127.0.0.1:0".to_owned(),
            metrics_listen: None,
            otlp: None,
            kernel_log: KernelLogSource::DevKmsg,
            journal: vec!["journalctl".into()],
            sysfs_root: PathBuf::from("/sys"),
            proc_root: PathBuf::from("/proc"),
            nvml_library: None,
            gpu_process: Vec::new(),
            stack_process: Vec::new(),
            arena_process: Vec::new(),
            supervisor_process: Vec::new(),
            lease: Duration::from_secs(30),
            rank_environment: DEFAULT_RANK_ENVIRONMENT.iter().map(|name| (*name).to_owned()).collect(),
            rank_cgroups: true,
            rank_user: None,
            job_users: Vec::new(),
            simulate: None,
            injection: false,
            flight_recorder_pipe: false,
            rank_peers: RankPeerPolicy::OwnProcesses,
            knowledge: CatalogueHandle::default(),
            job_logs: Vec::new(),
            checks: Vec::new(),
            removal: RemovalSettings::default(),
            spool_bytes: 64 << 20,
            images: ImageSettings::default(),
            intervals: AgentIntervals::default(),
        }
    }
}

/// Sources of notices that a machine is about to be taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovalSettings {
    /// Cloud of the metadata service; none is read if absent.
    pub cloud: Option<CloudKind>,
    /// Address of the metadata service (`host:port`); default: that of the cloud.
    pub metadata: Option<String>,
    /// File that is a notice while it exists; its first line is the cause.
    pub file: Option<PathBuf>,
    /// Time before a planned removal from which the node is drained.
    pub lead: Duration,
}

impl Default for RemovalSettings {
    fn default() -> Self {
        Self {
            cloud: None,
            metadata: None,
            file: None,
            lead: Duration::from_secs(600),
        }
    }
}

/// Cloud with a metadata service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudKind {
    Aws,
    Azure,
    Gcp,
}

/// Memory for images of the ranks, and the behaviour of a save when it is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSettings {
    /// Slots of a rank's arena, 1 to 3; each takes as much memory as the state. With one, a save waits until the last
    /// image is on disk, and a rank that dies while it saves is restored from there.
    pub slots: u32,
    /// Behaviour of a save while earlier images are not on disk yet, unless the trainer sets another.
    pub when_full: FullArenaPolicy,
    /// Longest wait of a save; then it is skipped and counted.
    pub wait: Duration,
    /// Bytes of memory left free for ranks and system: arenas that would leave less are refused.
    pub memory_reserve: u64,
    /// Maximum bytes of images held for other nodes; default: a quarter of the memory available at the start.
    pub kept_for_others: Option<u64>,
    /// Maximum bytes per second of all copies to other nodes and object stores; unlimited if absent.
    pub copy_rate: Option<u64>,
}

impl Default for ImageSettings {
    fn default() -> Self {
        Self {
            slots: 1,
            when_full: FullArenaPolicy::Wait,
            wait: Duration::from_secs(30),
            memory_reserve: 256 << 20,
            kept_for_others: None,
            copy_rate: None,
        }
    }
}

/// Behaviour of a save while every slot holds an image that is not stored elsewhere yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FullArenaPolicy {
    /// Waits for a slot.
    Wait,
    /// Replaces the oldest image that is not being written; that attempt is void.
    ReplaceOldest,
    /// Skips the save; its attempt is void.
    Skip,
}

/// Processes that may act for a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankPeerPolicy {
    /// Only the rank's process and processes that it started.
    OwnProcesses,
    /// Every process of the rank's user: for ranks that another service starts, for example in containers.
    SameUser,
}

/// Plug-in check: a program that reports its result by exit code: 0 ok, 1 warning, 2 critical, 3 unknown (the
/// convention of Nagios plug-ins).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PluginCheck {
    /// Name of the check.
    pub name: String,
    pub command: Vec<String>,
    /// Seconds from the end of one run to the start of the next.
    pub interval_s: u64,
    /// Longest run in seconds.
    pub timeout_s: u64,
    /// Failure class of a critical result.
    pub class: ClassId,
    /// Limit of processor seconds for each of its processes; unlimited if absent.
    pub cpu_s: Option<u64>,
    /// Limit of address space for each of its processes, in MiB; unlimited if absent.
    pub memory_mb: Option<u64>,
}

/// Source of the kernel log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelLogSource {
    /// The kernel's ring buffer, `/dev/kmsg`.
    DevKmsg,
    /// File that another program appends to: records of `/dev/kmsg`, or lines as dmesg or syslog print them.
    File(PathBuf),
    /// No kernel log.
    Off,
}

/// Intervals and deadlines of the agent.
#[derive(Debug, Clone)]
pub struct AgentIntervals {
    /// Interval between heartbeats.
    pub heartbeat: Duration,
    /// Silence of the controller after which the session is closed and opened again.
    pub controller_silence: Duration,
    /// First pause before a reconnect; doubles up to `reconnect_max`.
    pub reconnect_min: Duration,
    /// Longest pause before a reconnect.
    pub reconnect_max: Duration,
    /// Longest wait of non-urgent evidence for others to share its commit.
    pub spool_linger: Duration,
    /// Minimum time between two progress reports of one rank.
    pub progress: Duration,
    /// Poll interval of followed log files.
    pub logs: Duration,
    /// Poll interval of memory, disks and load.
    pub host: Duration,
    /// Poll interval of the GPUs.
    pub gpu: Duration,
    /// Deadline of one call into the GPU library; a call that exceeds it becomes evidence.
    pub gpu_deadline: Duration,
    /// Poll interval of the network adapters.
    pub nic: Duration,
    /// Poll interval of the ranks' steps.
    pub ranks: Duration,
    /// Poll interval of notices that the machine is about to be taken away. AWS recommends 5 s.
    pub removal: Duration,
    /// Interval between two OTLP exports of metrics.
    pub otlp: Duration,
    /// Minimum silence of a rank that counts as abnormal, even if its steps are faster.
    pub stall: Duration,
    /// Longest wait for killed ranks to end.
    pub kill: Duration,
    /// Time between SIGTERM and SIGKILL when the agent itself shuts down.
    pub shutdown_grace: Duration,
    /// Longest wait for one more checkpoint when the agent shuts down and its ranks take images.
    pub last_checkpoint: Duration,
    /// Deadline of reading one chunk from a peer.
    pub peer_fetch: Duration,
    /// Minimum wait of a job's first node for the shares of the other nodes in a mirrored checkpoint. The wait
    /// continues while shares arrive.
    pub share_wait: Duration,
    /// Time for which a restore is retried while a tier is unreadable. Must be less than a rank's wait for its
    /// tensors, 120 s.
    pub restore_retry: Duration,
    /// Time for which sealed images of a killed agent wait for its restart and for their job; zero disables it.
    pub arenas_kept: Duration,
}

impl Default for AgentIntervals {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(300),
            controller_silence: Duration::from_secs(3),
            reconnect_min: Duration::from_millis(100),
            reconnect_max: Duration::from_secs(2),
            spool_linger: Duration::from_millis(100),
            progress: Duration::from_millis(200),
            logs: Duration::from_millis(50),
            host: Duration::from_secs(5),
            gpu: Duration::from_secs(2),
            gpu_deadline: Duration::from_secs(5),
            nic: Duration::from_secs(2),
            ranks: Duration::from_secs(1),
            removal: Duration::from_secs(5),
            otlp: Duration::from_secs(15),
            stall: Duration::from_secs(30),
            kill: Duration::from_secs(10),
            shutdown_grace: Duration::from_secs(2),
            last_checkpoint: Duration::from_secs(15),
            peer_fetch: Duration::from_secs(2),
            share_wait: Duration::from_secs(10),
            restore_retry: Duration::from_secs(45),
            arenas_kept: Duration::from_secs(120),
        }
    }
}
