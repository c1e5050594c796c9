//! Analysis of NCCL flight-recorder dumps: finds the ranks for which a group waits.
//!
//! PyTorch retains the last collectives of each rank in a ring and writes them out when one times out. Terms:
//!
//! - a **dump** is the record of one rank: groups, progress in each group, and entries, the recorded operations;
//! - a **sequence** number counts the collectives of one group on one rank; the same number on two members is the
//!   same operation. Send and receive have a counter of their own, which counts differently on each rank;
//! - a rank is **missing** from an operation if it never enqueued an operation in which others of its group already
//!   wait;
//! - a **culprit** is a rank at the end of a chain of waits: others wait for it, it waits for none.
//!
//! Invariants: pure, no clock, no files, no sockets. A dump is foreign: its pickle is read by an interpreter that
//! knows plain values only and executes nothing; memory is linear in the bytes read and bounded; odd fields become
//! problems and never panics (RG-11). The same dumps give the same report in the same order (RG-8).
//!
//! Absent: the root of a broadcast, which the recorder does not write; times as proof of order, because clocks of
//! nodes differ; the state of NCCL's own communicators (`nccl_comm_state`).
//!
//! Format: `FlightRecorder` in PyTorch's `torch/csrc/distributed/c10d`, versions 2.0 to 2.10; the rules of comparison
//! follow `torch/distributed/flight_recorder/components`.

mod analysis;
mod dump;
mod excerpt;
mod extract;
mod json;
mod limits;
mod operation;
mod phrases;
mod render;
mod report;

pub use analysis::analyze;
pub use dump::{DumpEntry, GroupConfig, GroupStatus, OperationState, RecorderDump, StackFrame, rank_of_file_name};
pub use excerpt::DumpExcerpt;
pub use limits::{DumpLimits, DumpProblem, ReadError};
pub use operation::{OpKind, OperationName, SequenceKind};
pub use report::{
    AnalysisReport, CallMismatch, CulpritRank, GroupFinding, GroupState, MemberState, MismatchKind, MismatchSide,
    SuspectRank,
};
