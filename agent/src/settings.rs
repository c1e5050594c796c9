//! What an agent is told before it starts. Settings are data; [`crate::run`] builds the parts from them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use rankguard_identity::Network;
use rankguard_model::{ClassId, NodeId};
use serde::Serialize;

use crate::Knowledge;
use crate::outlets::OtlpSettings;
use crate::ranks::DEFAULT_RANK_ENVIRONMENT;

/// Everything an agent needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The node's name.
    pub node: NodeId,
    /// Address at which other nodes reach this one (host or IP, no port).
    pub host: String,
    /// The controller (`host:port`).
    pub controller: String,
    /// How it speaks with the controller and with other agents: with an identity, which must be this node's, or over loopback.
    pub network: Network,
    /// Directory of the agent's own files: spool, fences, cursors, output of the ranks. One agent a directory.
    pub state_dir: PathBuf,
    /// Ranks this node can run at once.
    pub slots: u32,
    /// What fails together with this node (rack, switch, power feed); empty when not told.
    pub failure_domain: String,
    /// Where the peer service listens; port 0 takes a free one.
    pub peer_listen: String,
    /// Where numbers for Prometheus are served; nowhere when absent, port 0 takes a free one.
    pub metrics_listen: Option<String>,
    /// The OpenTelemetry collector that evidence and numbers are pushed to; none when absent.
    pub otlp: Option<OtlpSettings>,
    /// Where the kernel's lines come from.
    pub kernel_log: KernelLogSource,
    /// The program that prints the system's journal, `journalctl`: it is read where `/dev/kmsg` may not be, and for the end
    /// of the boot before. Not at all when empty.
    pub journal: Vec<OsString>,
    /// The sysfs tree.
    pub sysfs_root: PathBuf,
    /// The procfs tree.
    pub proc_root: PathBuf,
    /// The GPU management library; the system's own when absent.
    pub nvml_library: Option<PathBuf>,
    /// Program and words of the process that calls the GPU library: one that gives its standard input to
    /// [`crate::serve_gpu_calls`]. GPUs are not watched when empty.
    pub gpu_process: Vec<OsString>,
    /// Program and words of the process that reads Python stacks of ranks: it is given a process id and hands it to
    /// [`crate::serve_stack_calls`]. None are read when empty.
    pub stack_process: Vec<OsString>,
    /// Program and words of the process that holds arenas when this agent is killed: it is given the state directory and
    /// [`Intervals::arenas_kept`] in milliseconds, and hands both to [`crate::keep_arenas`]. Arenas end with the agent when
    /// empty.
    pub arena_process: Vec<OsString>,
    /// Program and words of the process that supervises the ranks of one generation: it calls [`crate::supervise_ranks`]. No
    /// ranks are run when empty.
    pub supervisor_process: Vec<OsString>,
    /// Longest time that ranks run without a sign of the controller, unless a majority of the other agents has lost it too, and
    /// after the last sign of life of this agent.
    pub lease: Duration,
    /// Whether ranks get control groups, where the agent may create them.
    pub rank_cgroups: bool,
    /// Names of variables of the agent's environment that ranks get; a name that ends in `*` stands for all that begin so.
    pub rank_environment: Vec<String>,
    /// User that ranks run as, by name or number; the agent's own when absent.
    pub rank_user: Option<String>,
    /// Users that jobs may name instead; a name that ends in `*` stands for all that begin so.
    pub job_users: Vec<String>,
    /// The scenario that a stand-in for the GPU library plays; what is found about GPUs is then marked as synthetic.
    pub simulate: Option<PathBuf>,
    /// Whether faults may be injected ([`crate::Injection`]).
    pub injection: bool,
    /// Whether ranks are told to make a pipe at which PyTorch's flight recorder is asked for a dump when they are silent. Jobs
    /// that name one themselves have it in any case. A rank that cannot make it ends.
    pub flight_recorder_pipe: bool,
    /// Which processes may speak for a rank at the agent's socket.
    pub rank_peers: RankPeers,
    /// What lines are tried against.
    pub knowledge: Knowledge,
    /// Log files to follow besides the output of the ranks; patterns name several.
    pub job_logs: Vec<PathBuf>,
    /// Programs of others that look at something.
    pub checks: Vec<PluginCheck>,
    /// Most bytes of unacknowledged evidence kept on disk; samples and progress go first when it is reached.
    pub spool_bytes: u64,
    /// Memory for images of the ranks.
    pub images: ImageSettings,
    /// How often things are done and how long they may take.
    pub intervals: Intervals,
}

impl Settings {
    /// The defaults for a node: loopback, one slot, the system's own log, trees and libraries.
    pub fn new(node: NodeId, controller: impl Into<String>, state_dir: impl Into<PathBuf>) -> Self {
        Self {
            node,
            host: "127.0.0.1".to_owned(),
            controller: controller.into(),
            network: Network::loopback(),
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
            rank_peers: RankPeers::OwnProcesses,
            knowledge: Knowledge::default(),
            job_logs: Vec::new(),
            checks: Vec::new(),
            spool_bytes: 64 << 20,
            images: ImageSettings::default(),
            intervals: Intervals::default(),
        }
    }
}

/// How much memory images of the ranks take, and what a save does when it is all in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSettings {
    /// Images of a rank in memory at a time, 1 to 3: each costs as much memory as its state. With one, a save waits until
    /// the last image is on disk, and a rank that dies while it saves is restored from there.
    pub slots: u32,
    /// What a save does when the images before it are not on disk yet, where the trainer asked for nothing else.
    pub when_full: WhenFull,
    /// The longest wait, where it waits; then it is skipped and counted.
    pub wait: Duration,
    /// Memory that stays free for the ranks and the system, bytes: arenas that would leave less are refused.
    pub memory_reserve: u64,
    /// Most bytes of images that are kept here for other nodes; a quarter of what is available at the start when absent.
    pub kept_for_others: Option<u64>,
    /// Most bytes a second that copies to other nodes and to object stores take together; as many as there are when absent.
    pub copy_rate: Option<u64>,
}

impl Default for ImageSettings {
    fn default() -> Self {
        Self {
            slots: 1,
            when_full: WhenFull::Wait,
            wait: Duration::from_secs(30),
            memory_reserve: 256 << 20,
            kept_for_others: None,
            copy_rate: None,
        }
    }
}

/// What a save does when every slot holds an image that is nowhere else yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// It waits.
    Wait,
    /// The oldest image that nobody has begun to write gives way, and its attempt is void.
    ReplaceOldest,
    /// It is left out, and its attempt is void.
    Skip,
}

/// Which processes may speak for a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankPeers {
    /// The process that was started and those that it started.
    OwnProcesses,
    /// Every process of the rank's user: for ranks that another service starts, in containers for instance.
    SameUser,
}

/// A program that looks at something and tells with its exit code what it saw: 0 fine, 1 warning, 2 critical, 3 unknown
/// (the convention of Nagios plug-ins).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PluginCheck {
    /// What the check is called.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// From the end of one run to the next, seconds.
    pub interval_s: u64,
    /// Longest run, seconds.
    pub timeout_s: u64,
    /// The failure class that a critical state speaks of.
    pub class: ClassId,
    /// Processor seconds of each of its processes; no limit when absent.
    pub cpu_s: Option<u64>,
    /// Megabytes (2^20) of address space of each of its processes; no limit when absent.
    pub memory_mb: Option<u64>,
}

/// Where the kernel's lines come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelLogSource {
    /// The ring itself, `/dev/kmsg`.
    DevKmsg,
    /// A file that something else appends to: records of `/dev/kmsg`, or lines as dmesg or syslog print them.
    File(PathBuf),
    /// Not read.
    Off,
}

/// How often, and how long at most.
#[derive(Debug, Clone)]
pub struct Intervals {
    /// Between heartbeats.
    pub heartbeat: Duration,
    /// Silence of the controller after which the session is given up and opened anew.
    pub controller_silence: Duration,
    /// First pause before a reconnect; doubles up to `reconnect_max`.
    pub reconnect_min: Duration,
    /// Longest pause before a reconnect.
    pub reconnect_max: Duration,
    /// Longest wait of evidence that is not urgent for others to share its commit.
    pub spool_linger: Duration,
    /// Least time between two progress reports of one rank.
    pub progress: Duration,
    /// Between two looks at followed log files.
    pub logs: Duration,
    /// Between two looks at memory, disks and load.
    pub host: Duration,
    /// Between two looks at the GPUs.
    pub gpu: Duration,
    /// Longest time one call into the GPU library may take before it is evidence itself.
    pub gpu_deadline: Duration,
    /// Between two looks at the network adapters.
    pub nic: Duration,
    /// Between two looks at the steps of the ranks.
    pub ranks: Duration,
    /// Between two exports of numbers by OTLP.
    pub otlp: Duration,
    /// Least silence of a rank that is strange, however fast its steps are.
    pub stall: Duration,
    /// Longest wait for killed ranks to be gone.
    pub kill: Duration,
    /// Time between SIGTERM and SIGKILL when the agent itself shuts down.
    pub shutdown_grace: Duration,
    /// Longest wait for one more checkpoint when the agent itself shuts down and its ranks take images.
    pub last_checkpoint: Duration,
    /// Longest wait for one chunk from a peer.
    pub peer_fetch: Duration,
    /// Least wait, by the first node of a job, for the shares of the others in a checkpoint that goes to the object store. It
    /// waits for as long as more of them comes.
    pub share_wait: Duration,
    /// How long a restore is tried again while a tier cannot be read. Less than a rank waits for its tensors, 120 s.
    pub restore_retry: Duration,
    /// How long sealed images wait for an agent that was killed to come back, and for their job; not at all when zero.
    pub arenas_kept: Duration,
}

impl Default for Intervals {
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
