//! Shared data types of all crates.
//!
//! One stream of evidence, one decision core, three runtimes: live operation, simulation and replay all use the same
//! evidence type ([`Evidence`]). This crate holds data types only; it performs no action.
//!
//! Invariant: the crate is pure. It uses no clock, randomness, files or sockets; time is passed in as a [`Timestamp`].

#![warn(missing_docs)]

mod case;
mod causes;
mod checkpoint_counts;
mod entity;
mod evidence;
mod fields;
mod fold;
mod history;
mod ids;
mod job;
mod order;
mod printable;
mod resume;
mod retention;
mod shared;
mod time;
mod view;

pub use case::{Case, CaseNote, CaseNoteKind, CaseState, Delays, Mitigation, Reason, Severity, Verdict};
pub use causes::with_causes;
pub use checkpoint_counts::{CheckpointCounts, VoidCheckpoint};
pub use entity::{Device, DeviceKind, Entity};
pub use evidence::{
    Body, CopyTier, EXIT_MESSAGE, Evidence, EvidenceId, FailedCheck, Finding, LEASE_SIGNATURE, Ledger, Mark,
    RestoreBytes, Role, ShardSeal, Source,
};
pub use fields::Fields;
pub use fold::{ByName, Fold};
pub use history::{JobFence, JournalMark, NodeHistory, RestoredSpool, SpoolEpoch, restored_spool};
pub use ids::{CaseId, ClassId, Generation, JobId, NodeId, OrderId, PlanId, Rank, RunId, Sequence, Step};
pub use job::{
    CheckpointParity, CheckpointPolicy, CheckpointTiers, CommitLevel, Exit, JobSpec, NodeInfo, NodeRange, Placement,
    RankRef, RunningRank,
};
pub use order::{CheckpointCall, Finish, HeldIn, Launch, Order, Peer, Preflight, RankSlot, RestorePoint};
pub use printable::{Printable, is_hidden, printable, printable_lines};
pub use resume::{ResumePlace, ResumeSource, RunStart, StoreClaim};
pub use retention::{Best, Good, Retention, Stays};
pub use shared::Shared;
pub use smol_str::SmolStr;
pub use time::{ClockOffset, Timestamp};
pub use view::{
    CheckpointView, JobState, JobView, NodeState, NodeView, ProgressPoint, Span, StatusView, StragglerView,
    UnconfirmedNode,
};
