//! Shared data types of all crates.
//!
//! One stream of evidence, one decision core, three runtimes: live operation, simulation and replay all use the same
//! evidence type ([`Evidence`]). This crate holds data types only; it performs no action.
//!
//! Invariant: the crate is pure. It uses no clock, randomness, files or sockets; time is passed in as a [`Timestamp`].

#![warn(missing_docs)]

mod cancellation;
mod case;
mod case_query;
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
mod recovery;
mod resume;
mod retention;
mod shared;
mod standby;
mod time;
mod view;

pub use cancellation::{cancellation_reason, is_cancellation};
pub use case::{
    Case, CaseDelays, CaseNote, CaseNoteKind, CaseState, ReasoningEntry, RecommendedMitigation, Severity, Verdict,
    rests_on_drill,
};
pub use case_query::CaseQuery;
pub use causes::with_causes;
pub use checkpoint_counts::{CheckpointCounts, LaterAttempts, VoidCheckpoint, per_rank_note};
pub use entity::{Device, DeviceKind, Entity};
pub use evidence::{
    CaseFinding, Classification, CopyTier, EXIT_MESSAGE, Evidence, EvidenceBody, EvidenceId, EvidenceSource,
    FAREWELL_SIGNATURE, FailedCheck, LAST_OUTPUT, LEASE_SIGNATURE, OUTPUT_AGE_FIELD, REMOVAL_NOTICE,
    REMOVAL_NOTICE_WITHDRAWN, RestoreBytes, Role, STATE_DIR_FULL, STATE_DIR_HAS_ROOM, SUPERVISOR_LOST, SampleRange,
    ShardSeal,
};
pub use fields::FieldValues;
pub use fold::{FoldHasher, LookupMap};
pub use history::{JobFence, JournalMark, NodeHistory, RestoredSpool, SpoolEpoch, restored_spool};
pub use ids::{CaseId, ClassId, Generation, JobId, NodeId, OrderId, PlanId, Rank, RunId, Sequence, Step};
pub use job::{
    AGENT_STORE_VARIABLE, CheckpointParity, CheckpointPolicy, CheckpointTiers, CommitLevel, JobSpec, NodeInfo,
    NodeRange, ProcessExit, RESERVED_VARIABLES, RankPlacement, RankRef, RunningRank,
};
pub use order::{
    AgentOrder, CheckpointCall, FinishOrder, ImageLocation, LaunchOrder, PeerAgent, PreflightOrder, PrepareOrder,
    RankSlot, RestorePoint,
};
pub use printable::{PrintableText, is_hidden, printable, printable_lines};
pub use recovery::{CostInput, OptionOutcome, RecoveryChoice, RecoveryCost, RecoveryKind, RecoveryOption};
pub use resume::{ResumePlace, ResumeSource, RunStart, StoreClaim};
pub use retention::{MetricGoal, MetricRule, RetainedSet, RetentionPolicy};
pub use shared::SharedValue;
pub use smol_str::SmolStr;
pub use standby::{StandbyCommand, StandbyPolicy, StandbyTarget};
pub use time::{ClockOffset, Timestamp};
pub use view::{
    CheckpointView, CordonView, JobState, JobView, JournalGap, NodeState, NodeView, ProgressPoint, ReceiverView,
    StateSpan, StatusView, StragglerView, TorchrunMemberState, TorchrunMemberView, TorchrunState, TorchrunView,
    UnconfirmedNode,
};
