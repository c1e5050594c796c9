//! Messages between the agent and a supervisor.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// From the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SupervisorRequest {
    /// Start a rank. Files: its [`RankStart`] as JSON, standard output, standard error.
    Start { rank: u32 },
    /// The lease holds until this time since the boot. Absolute, so that a message that waited in the socket extends nothing.
    Renew { until: Duration },
    /// No more ranks: end what is left, and exit.
    End,
}

/// From the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SupervisorReport {
    Started {
        rank: u32,
        pid: u32,
        /// User of the rank.
        uid: u32,
    },
    Refused {
        rank: u32,
        stage: StartStage,
        problem: String,
        /// As in `errno`, where the kernel gave one.
        errno: Option<i32>,
    },
    Exited {
        rank: u32,
        pid: u32,
        /// As `wait` gives it.
        status: i32,
    },
}

/// The step of a start that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StartStage {
    /// Reading the request.
    Request,
    /// The agent's lease is over.
    Lease,
    /// Finding or becoming the user.
    User,
    /// Dropping capabilities and privileges.
    Rights,
    /// Entering the working directory.
    Workdir,
    /// The agent or the supervisor ended meanwhile.
    Parent,
    /// Executing the program.
    Program,
}

/// Everything a supervisor needs to start one rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankStart {
    pub(crate) rank: u32,
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    /// The whole environment of the rank.
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) workdir: Option<String>,
    /// Name or number of the user; the agent's own when absent.
    pub(crate) user: Option<String>,
    /// Users that no rank may run as.
    pub(crate) refused_users: Vec<u32>,
    /// Folder of the rank's output, which becomes the user's.
    pub(crate) folder: PathBuf,
    /// The agent: it and its helpers may read the rank's stacks.
    pub(crate) tracer: u32,
    pub(crate) umask: u32,
    /// The rank's own group, created.
    pub(crate) cgroup: Option<PathBuf>,
}
