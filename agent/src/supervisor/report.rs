//! Rank events that supervisors report to the agent.

use std::fmt;
use std::io;
use std::time::Duration;

use rankguard_model::{ProcessExit, RankRef, Timestamp};

use super::messages::StartStage;

/// Receiver of rank events.
pub(crate) trait RankEvents: fmt::Debug + Send + Sync {
    /// Records the process of a rank. Called before the start is confirmed, and before its exit.
    fn started(&self, rank: &RankRef, process: RankProcess);
    /// Records the exit of a rank's process, or that it has left its generation. Called once for each that started.
    fn exited(&self, rank: &RankRef, end: RankEnd);
}

/// End of a rank's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RankEnd {
    pub(crate) pid: u32,
    pub(crate) exit: ProcessExit,
    /// Time on the node's wall clock at which its supervisor noticed the end; absent if only its report is known.
    pub(crate) noticed_at: Option<Timestamp>,
    /// Loss of its supervisor, with which it ended.
    pub(crate) lost: Option<SupervisorLoss>,
}

impl RankEnd {
    pub(crate) fn new(pid: u32, exit: ProcessExit) -> Self {
        Self {
            pid,
            exit,
            noticed_at: None,
            lost: None,
        }
    }
}

/// Supervisor that a signal ended which the agent did not send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SupervisorLoss {
    /// Process id of the supervisor.
    pub(crate) supervisor: u32,
    pub(crate) signal: i32,
}

/// Process of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RankProcess {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    /// Process id of its parent.
    pub(crate) supervisor: u32,
    /// True if a standby process became the rank.
    pub(crate) from_standby: bool,
}

/// Failure to start a rank.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("no supervisor process is configured")]
    NoProgram,
    #[error("cannot start the supervisor process: {0}")]
    Spawn(io::Error),
    #[error("the supervisor process ended")]
    Ended,
    #[error("the supervisor process did not answer within {0:?}")]
    Silent(Duration),
    #[error("{problem}")]
    Refused {
        stage: StartStage,
        problem: String,
        errno: Option<i32>,
    },
}
