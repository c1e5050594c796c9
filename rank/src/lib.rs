//! The trainer's side: one socket to the agent, step marks, checkpoint and restore.
//!
//! A trainer reads its place with [`RankEnv`], connects with [`RankClient::connect`], asks once for the boxes it wants
//! ([`RankClient::restore`]), then calls [`RankClient::step`] after every step and [`RankClient::checkpoint`] every so
//! many, or whenever [`RankClient::due`] says so: then it follows the steps that the controller calls, too. Images go through an arena in shared memory that the agent owns: saving is one pass of copy and checksum, and
//! what was sealed outlives the rank. With [`RankClient::begin`] and [`RankClient::finish`] the copy runs beside forward and
//! backward and blocks only for what is left of it before the optimizer's step.
//!
//! Without an agent, [`LocalRank`] does the agent's work in the trainer: its arena goes with it, and rank 0 commits.
//!
//! Invariants:
//! - no new failure mode: without an agent there is no client, and the trainer just trains; an agent that is lost later
//!   never stops a step, it is counted;
//! - [`RankClient::step`] never waits: when the agent does not read, marks are dropped and counted;
//! - every other call ends within its deadline, with an error that names what it waited for (RG-9);
//! - a restore gives the whole of what was asked for, or an error (RG-2).
//!
//! Calls are synchronous; threads copy and write, and none of them calls back. Absent: reconnecting (ranks end
//! with the agent that started them, since a rank without an owner cannot be fenced).

mod calls;
mod client;
mod demand;
mod env;
mod error;
mod failed_saves;
mod folder_run;
mod interrupt;
mod interruptible;
mod local;
mod local_error;
mod slots;
mod wire;
mod writer;

pub use client::{RankClient, Restored, RestoredInto};
pub use env::{EnvError, RankEnv};
pub use error::ClientError;
pub use interrupt::{Interrupted, check_interrupts, with_interrupts};
pub use local::{LocalOptions, LocalRank};
pub use local_error::LocalError;
pub use slots::{BackPressure, Counts, Notes, Part, SaveOutcome, Saved};
