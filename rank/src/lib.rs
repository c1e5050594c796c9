//! Trainer side of Rankguard: one socket to the agent, step marks, checkpoint and restore.
//!
//! A trainer reads its place with [`RankEnv`], connects with [`RankClient::connect`] and restores its boxes once
//! ([`RankClient::restore`]). It calls [`RankClient::step`] after every step and [`RankClient::checkpoint`] at a fixed
//! interval, or whenever [`RankClient::due`] returns true, which includes the steps that the controller calls.
//!
//! Images are written to an arena in shared memory that the agent owns: a save is one pass of copy and checksum, and
//! sealed images outlive the rank. With [`RankClient::begin`] and [`RankClient::finish`] the copy runs during forward
//! and backward, and blocks only for its rest before the optimizer's step.
//!
//! Without an agent, [`LocalRank`] does the agent's work in the trainer: its arena ends with the trainer, and rank 0
//! commits.
//!
//! Invariants:
//! - no new failure mode: without an agent there is no client, and the training runs unchanged; an agent that is lost
//!   later never stops a step, but is counted;
//! - [`RankClient::step`] never waits: when the agent does not read, marks are dropped and counted;
//! - every other call ends within its deadline, with an error that names the missing answer (RG-9);
//! - a restore returns all requested bytes, or an error (RG-2).
//!
//! Calls are synchronous; background threads copy and write, and never call back. Absent: reconnecting (ranks end with
//! the agent that started them, because a rank without an owner cannot be fenced).

#![warn(missing_docs)]

mod calls;
mod client;
mod demand;
mod departure;
mod env;
mod error;
mod failed_saves;
mod folder_run;
mod interrupt;
mod interruptible;
mod local;
mod local_error;
mod slots;
mod void_marks;
mod wire;
mod writer;

pub use client::{RankClient, RestoreSummary, RestoredTensors};
pub use departure::{DepartureNews, DepartureSender, RankDeparture};
pub use env::{EnvError, RankEnv};
pub use error::ClientError;
pub use interrupt::{CallInterrupted, check_interrupts, with_interrupts};
pub use local::{LocalOptions, LocalRank};
pub use local_error::LocalError;
pub use slots::{BackPressure, SaveCounts, SaveNotes, SaveOutcome, SaveReport, TensorPart};
