//! Injection: faults that a person lets happen to a running agent, to see what becomes of them.
//!
//! There is a door only where the agent was started with it ([`crate::Settings::injection`]), and it answers its own user
//! and root only. What is injected is what an agent can really do: lines go through the same triage as those that are
//! read, ranks are really killed, stopped and slowed, a disk is really filled by a file that has no name and goes with the
//! agent, counters of adapters are laid over those that are read, and GPUs fail where they are made up by a scenario.
//!
//! Invariants:
//! - Every injection, and everything that comes of it on this node, is evidence marked as synthetic.
//! - Every injection has an end that nobody needs to remember, also when the agent ends or is killed.
//!
//! Absent: faults of other nodes that follow (they are real), of real GPUs, of the network itself.

mod begin;
mod cover;
mod desk;
mod disk;
mod facts;
mod lines;
mod means;
mod overlay;
mod socket;

use rankguard_model::{JobId, Rank, Timestamp};
use serde::{Deserialize, Serialize};

pub(crate) use cover::Covers;
pub(crate) use desk::{Desk, Ends};
pub(crate) use means::Means;
pub(crate) use overlay::Overlay;
pub(crate) use socket::InjectSocket;
pub use socket::{InjectError, inject};

/// Longest time that one injection lasts, milliseconds.
pub const LAST_MAX_MS: u64 = 3_600_000;

/// A fault that is wanted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Injection {
    /// Lines as the kernel would write them now.
    KernelLine {
        /// The lines, without newlines.
        lines: Vec<String>,
    },
    /// Lines as a rank, or a job of which nothing more is known, would write them now.
    LogLine {
        /// Whose lines they are.
        rank: Option<WhichRank>,
        /// The lines, without newlines.
        lines: Vec<String>,
    },
    /// Facts of the scenario that made-up GPUs play ([`crate::scenario`]).
    Nvml {
        /// The facts, in its language, without a moment.
        facts: Vec<String>,
        /// When they end; XIDs are moments and have none. They stay when absent.
        for_ms: Option<u64>,
    },
    /// A value laid over what a network adapter says.
    Nic {
        /// The adapter: `mlx5_0`, `ens1`.
        device: String,
        /// Its metric as samples name it: `nic.port_state port 1`.
        metric: String,
        /// The value; counters are raised by it.
        value: f64,
        /// When it ends.
        for_ms: u64,
    },
    /// A rank is killed.
    RankKill {
        /// Which one.
        rank: WhichRank,
        /// By this signal: one that ends a process, as 9, 11, 15.
        signal: i32,
    },
    /// A rank is stopped, and goes on afterwards.
    RankHang {
        /// Which one.
        rank: WhichRank,
        /// When it goes on.
        for_ms: u64,
    },
    /// A rank is stopped for a part of every tenth of a second.
    RankSlow {
        /// Which one.
        rank: WhichRank,
        /// The part, 0.05 to 0.95.
        stopped: f64,
        /// When it runs freely again.
        for_ms: u64,
    },
    /// A file of this size takes the room on a file system. It has no name.
    DiskFull {
        /// A directory on that file system.
        directory: std::path::PathBuf,
        /// Bytes.
        bytes: u64,
        /// When it goes.
        for_ms: u64,
    },
}

/// A rank that runs on this node, in its newest generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhichRank {
    /// Its job; may be absent where only one job runs here.
    pub job: Option<JobId>,
    /// Its number.
    pub rank: Rank,
}

impl Injection {
    /// Its name, as in commands and metrics.
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

    /// How long it lasts.
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

/// An injection that was carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injected {
    /// Its number since the agent started.
    pub number: u64,
    /// Its name.
    pub kind: String,
    /// What was done, as a sentence.
    pub what: String,
    /// When it was done, on the node's clock.
    pub at: Timestamp,
    /// When it ends; absent where it was a moment, or lasts.
    pub until: Option<Timestamp>,
}
