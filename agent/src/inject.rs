//! Fault injection into a running agent, for tests of its detection.
//!
//! The socket exists only if the agent was started with it ([`crate::AgentSettings::injection`]), and it serves only its own
//! user and root. Faults use the real paths: lines go through the same triage as lines that are read, ranks are killed,
//! stopped and slowed by signals, a disk is filled by an unlinked file that ends with the agent, values of adapters are
//! changed after they are read, and GPUs fail if a scenario simulates them.
//!
//! Invariants:
//! - Every injection, and everything on this node that results from it, is evidence marked as synthetic.
//! - Every injection ends without operator action, also if the agent ends or is killed.
//!
//! Absent: faults on other nodes that follow (they are real), faults of real GPUs, of the network itself.

mod begin;
mod context;
mod disk;
mod executor;
mod facts;
mod lines;
mod socket;

use rankguard_model::{JobId, Rank};
use serde::{Deserialize, Serialize};

pub(crate) use context::InjectionContext;
pub(crate) use executor::{InjectionExecutor, InjectionThread};
pub(crate) use socket::InjectSocket;
pub use socket::{InjectError, inject};

/// Longest duration of one injection, milliseconds.
pub const LAST_MAX_MS: u64 = 3_600_000;

/// Fault to inject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum FaultInjection {
    /// Lines of the kernel, written now.
    KernelLine {
        /// Lines without newlines.
        lines: Vec<String>,
    },
    /// Lines of a rank, or of an unknown rank, written now.
    LogLine {
        /// Writer of the lines; absent for an unknown rank.
        rank: Option<RankSelector>,
        /// Lines without newlines.
        lines: Vec<String>,
    },
    /// Facts of the scenario that simulated GPUs play ([`crate::scenario`]).
    Nvml {
        /// Facts in the scenario language, without a time.
        facts: Vec<String>,
        /// Duration, milliseconds; until the agent ends if absent. XIDs are events and have none.
        for_ms: Option<u64>,
    },
    /// Value of a network adapter, changed after it is read.
    Nic {
        /// Adapter, such as `mlx5_0` or `ens1`.
        device: String,
        /// Metric as samples name it: `nic.port_state port 1`.
        metric: String,
        /// New value of a state; amount that is added to a counter.
        value: f64,
        /// Duration of the fault, milliseconds.
        for_ms: u64,
    },
    /// Signal that ends a rank.
    RankKill {
        /// Rank to end.
        rank: RankSelector,
        /// Signal number, one that ends a process, such as 9, 11, 15.
        signal: i32,
    },
    /// Stop of a rank, which continues afterwards.
    RankHang {
        /// Rank to stop.
        rank: RankSelector,
        /// Duration of the fault, milliseconds.
        for_ms: u64,
    },
    /// Stop of a rank for a part of every tenth of a second.
    RankSlow {
        /// Rank to slow.
        rank: RankSelector,
        /// Stopped part of the time, 0.05 to 0.95.
        stopped: f64,
        /// Duration of the fault, milliseconds.
        for_ms: u64,
    },
    /// Unlinked file of this size that fills a file system.
    DiskFull {
        /// Directory on that file system.
        directory: std::path::PathBuf,
        /// Size of the file, bytes.
        bytes: u64,
        /// Duration of the fault, milliseconds.
        for_ms: u64,
    },
}

/// Rank that runs on this node, in its newest generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankSelector {
    /// Job of the rank; optional if only one job runs here.
    pub job: Option<JobId>,
    /// Rank number in the job.
    pub rank: Rank,
}

impl FaultInjection {
    /// Returns the kind as named in commands and metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::KernelLine { .. } => "kernel-line",
            Self::LogLine { .. } => "log-line",
            Self::Nvml { .. } => "nvml",
            Self::Nic { .. } => "nic",
            Self::RankKill { .. } => "rank-kill",
            Self::RankHang { .. } => "rank-hang",
            Self::RankSlow { .. } => "rank-slow",
            Self::DiskFull { .. } => "disk-full",
        }
    }

    /// Returns the duration, milliseconds; none for events and for injections without an end.
    fn for_ms(&self) -> Option<u64> {
        match self {
            Self::Nic { for_ms, .. }
            | Self::RankHang { for_ms, .. }
            | Self::RankSlow { for_ms, .. }
            | Self::DiskFull { for_ms, .. } => Some(*for_ms),
            Self::Nvml { for_ms, .. } => *for_ms,
            Self::KernelLine { .. } | Self::LogLine { .. } | Self::RankKill { .. } => None,
        }
    }
}
