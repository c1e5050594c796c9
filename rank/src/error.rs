//! Errors between a rank and its agent.

use std::io;
use std::path::PathBuf;

use rankguard_checkpoint::arena::{ArenaError, FillError};
use rankguard_model::Rank;
use rankguard_proto::frame::FrameError;

use crate::CallInterrupted;

/// Error of a call to the agent.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum ClientError {
    #[error("cannot connect to the agent at {}, which RANKGUARD_SOCKET names; start the program with `rankguard run`, or unset the variable to run without an agent", path.display())]
    Connect { path: PathBuf, source: io::Error },
    #[error("the agent is gone")]
    Lost { source: io::Error },
    #[error(transparent)]
    Interrupted(#[from] CallInterrupted),
    #[error("the deadline for {what} passed")]
    Deadline { what: &'static str },
    #[error("cannot read the agent's frame")]
    Frame(#[source] FrameError),
    #[error("the agent's frame is of a kind that this version does not know")]
    Unknown,
    #[error("the agent answered with {got} where {wanted} was awaited")]
    Answer { wanted: &'static str, got: &'static str },
    #[error("the agent refuses: {reason}")]
    Refused { reason: String },
    #[error("no file descriptor came with the arena")]
    NoDescriptor,
    #[error("cannot use the arena")]
    Arena(#[from] ArenaError),
    #[error("cannot save into the arena")]
    Fill(#[from] FillError),
    #[error("cannot start a thread that saves beside the training")]
    Thread(#[source] io::Error),
    #[error("cannot restore tensor {name}: it has {needs} bytes and the buffer {has}")]
    Buffer { name: String, has: u64, needs: u64 },
    #[error("the agent restored {got} bytes where {wanted} were asked for")]
    RestoredBytes { wanted: u64, got: u64 },
    #[error("the restored state of rank {rank} is no JSON")]
    RestoredState { rank: Rank, source: serde_json::Error },
    #[error("cannot ask for tensor {name}: its size cannot be told")]
    Box { name: String },
}
