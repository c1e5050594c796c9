//! Messages between the agent and a supervisor.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Message from the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SupervisorRequest {
    /// Starts a rank. Files: its [`RankStart`] as JSON, standard output, standard error.
    Start { rank: u32 },
    /// Extends the lease to this time since boot. Absolute, so that a message that waited in the socket extends
    /// nothing.
    Renew { until: Duration },
    /// Ends the remaining ranks and the supervisor.
    End,
}

/// Message from the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SupervisorReport {
    Started {
        rank: u32,
        pid: u32,
        uid: u32,
    },
    Refused {
        rank: u32,
        stage: StartStage,
        problem: String,
        /// Value of `errno`, if the kernel reported one.
        errno: Option<i32>,
    },
    Exited {
        rank: u32,
        pid: u32,
        /// Status as returned by `wait`.
        status: i32,
    },
}

/// Step of a start that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StartStage {
    /// Read the request.
    Request,
    /// Check the agent's lease.
    Lease,
    /// Look up or change to the user.
    User,
    /// Drop capabilities and privileges.
    Rights,
    /// Enter the working directory.
    Workdir,
    /// Check that agent and supervisor still run.
    Parent,
    /// Execute the program.
    Program,
}

/// Parameters of the start of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankStart {
    pub(crate) rank: u32,
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    /// Complete environment of the rank.
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) workdir: Option<String>,
    /// Name or id of the user; `None` for the agent's own.
    pub(crate) user: Option<String>,
    /// Ids of users that no rank may run as.
    pub(crate) refused_users: Vec<u32>,
    /// Folder of the rank's output, which is given to the user.
    pub(crate) folder: PathBuf,
    /// Process id of the agent: it and its helpers may read the rank's stacks.
    pub(crate) tracer: u32,
    pub(crate) umask: u32,
    /// The rank's own control group, which exists.
    pub(crate) cgroup: Option<PathBuf>,
}
