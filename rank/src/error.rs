//! What can go wrong between a rank and its agent.

use std::io;
use std::path::PathBuf;

use rankguard_checkpoint::arena::{ArenaError, FillError};
use rankguard_model::Rank;
use rankguard_proto::frame::FrameError;

/// Why the agent could not be asked, or did not give.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum ClientError {
    #[error("connect to the agent at {}; is it still running?", path.display())]
    Connect { path: PathBuf, source: io::Error },
    #[error("speak to the agent: it is gone")]
    Lost { source: io::Error },
    #[error("wait for {what}: the deadline passed")]
    Deadline { what: &'static str },
    #[error("read the agent's frame")]
    Frame(#[source] FrameError),
    #[error("read the agent's frame: it is of a kind that this version does not know")]
    Unknown,
    #[error("wait for {wanted}: the agent answered with {got} instead")]
    Answer { wanted: &'static str, got: &'static str },
    #[error("be served by the agent: refused, {reason}")]
    Refused { reason: String },
    #[error("take the arena: no file descriptor came with it")]
    NoDescriptor,
    #[error("use the arena")]
    Arena(#[from] ArenaError),
    #[error("save into the arena")]
    Fill(#[from] FillError),
    #[error("save beside the training: cannot start a thread")]
    Thread(#[source] io::Error),
    #[error("restore tensor {name}: it has {needs} bytes and the buffer {has}")]
    Buffer { name: String, has: u64, needs: u64 },
    #[error("restore: asked for {wanted} bytes, the agent gave {got}")]
    RestoredBytes { wanted: u64, got: u64 },
    #[error("restore: the state of rank {rank} is no JSON")]
    RestoredState { rank: Rank, source: serde_json::Error },
    #[error("ask for tensor {name}: its size cannot be told")]
    Box { name: String },
}
