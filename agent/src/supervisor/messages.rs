//! Messages between the agent and a supervisor.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use rankguard_model::{StandbyCommand, Timestamp};
use serde::{Deserialize, Serialize};

/// Message from the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SupervisorRequest {
    /// Starts a rank. Files: its [`RankStart`] as JSON, standard output, standard error.
    Start { rank: u32 },
    /// Starts a standby process. File: its [`StandbyStart`] as JSON.
    StartStandby { number: u32 },
    /// Ends all standby processes, also those that were ranks.
    EndStandbys,
    /// Lets the process of a rank that has left its generation wait as a standby process. File: its socket.
    Keep { rank: u32 },
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
        /// True if a standby process became the rank.
        #[serde(default)]
        from_standby: bool,
        /// Reasons for which standby processes did not become it.
        #[serde(default)]
        unused: Vec<String>,
    },
    /// A standby process has imported its modules.
    StandbyReady { number: u32, pid: u32, threads: u32 },
    /// A standby process ended, or was not started.
    StandbyEnded { number: u32, problem: String },
    /// The process of a rank waits as a standby process.
    Kept { rank: u32, pid: u32 },
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
        /// Time on the node's wall clock at which the supervisor noticed the end; absent in reports of older supervisors. The
        /// agent may read the report much later.
        #[serde(default)]
        noticed_at: Option<Timestamp>,
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
    /// Command of a standby process that may become the rank; `None` if it must be started.
    #[serde(default)]
    pub(crate) standby: Option<StandbyCommand>,
}

/// Parameters of the start of a standby process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StandbyStart {
    /// Start of a rank of the job, without the variables of one rank.
    pub(crate) start: RankStart,
    pub(crate) command: StandbyCommand,
    /// Python modules to import.
    pub(crate) imports: Vec<String>,
}
