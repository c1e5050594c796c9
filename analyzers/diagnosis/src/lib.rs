//! Diagnosis of failures: turns evidence into cases with a verdict and a reasoning log.
//!
//! Terms:
//! - A [`Signal`] is one meaning of one line, sample or exit in the evidence; a [`FailureScene`] holds all signs of one
//!   failure.
//! - An engine is a pure function from a scene to [`CauseCandidate`] root causes, independent of the other engines.
//! - The arbiter selects one candidate, the rest become alternatives; every sign then gets its role.
//! - A [`Diagnosis`] collects evidence over time into drafts and concludes each when nothing new arrives.
//! - Flight-recorder dumps are held until their failure is concluded, compared once, and become signs.
//!
//! Invariants:
//! - Pure and deterministic: `now` is an input, ordered maps wherever one iterates, no clock, no files, no randomness.
//! - The subject of a cascade is never blamed (RG-7): survivors' errors, kills by the agent and shutdown noise become
//!   a verdict only if nothing better was seen, and then they blame nothing more specific than the job.
//! - Every verdict has a clearing condition (RG-10), and `unknown` is a valid verdict.
//!
//! Absent: operation timings, which a crate of its own reads and which are not joined with cases yet; learning from
//! past cases.

mod absent_gpus;
mod advice;
mod arbiter;
mod attribution;
mod candidate;
mod chains;
mod change;
mod conclude;
mod conclusion;
mod connect_attempts;
mod consequences;
mod context;
mod crashes;
mod diagnosis;
mod direction;
mod draft;
mod drafts;
mod engine;
mod engine_exceptions;
mod exit_class;
mod failed_connects;
mod firmware_records;
mod first_failure;
mod first_rank;
mod flight;
mod frames;
mod full_storage;
mod independent;
mod job_numbers;
mod kill_senders;
mod knowledge;
mod links;
mod lost_links;
mod machine_states;
mod memory;
mod missing_programs;
mod mitigation;
mod named_losses;
mod named_parts;
mod named_servers;
mod names;
mod observed_first;
mod own_exceptions;
mod own_fault;
mod place_in_log;
mod policy;
mod program_errors;
mod published_categories;
mod reasoning;
mod recovery_actions;
mod refine;
mod repeat_key;
mod repeats;
mod roles;
mod scene;
mod scope;
mod scopes;
mod separate;
mod shared_part;
mod shared_services;
mod signal;
mod signal_ref;
mod signalled_ranks;
mod signature;
mod sorted_deque;
mod sorted_set;
mod speaker;
mod stacks;
mod stated_relations;
mod steps;
mod stopped_ranks;
mod storage;
mod timed_out_ranks;
mod torn_channels;
mod unordered;
mod wait;
mod waited_before;
mod wrappers;

pub use arbiter::{SceneVerdict, diagnose, diagnose_within};
pub use attribution::STAMP_RESOLUTION;
pub use candidate::{CandidateStrength, CauseCandidate};
pub use change::{ConcludedDraft, DraftChange};
pub use connect_attempts::is_connect_attempt;
pub use context::{JobContext, PlacementIndex};
pub use diagnosis::Diagnosis;
pub use draft::DraftId;
pub use engine::USUAL_RANK_FIELD;
pub use first_failure::{EXIT_STATUS_FIELD, FIRST_OF_SUMMARY, LATER_IN_SUMMARY, SUMMARY_FIELD};
pub use first_rank::{HOST_FIELD, LOG_NODE_FIELD, PROCESS_HOST_FIELD, labelled_node, unplaced_local_rank};
pub use flight::{RankDump, flight_signals};
pub use independent::reports_process;
pub use kill_senders::is_sender;
pub use links::LINK_UP_SIGNATURE;
pub use missing_programs::reports_missing_program;
pub use named_losses::{
    BOOT_SIGNATURE, LOST_NODE_FIELD, LOST_PEER_FIELD, POD_FIELD, POD_NODE_FIELD, SILENT_SINCE_FIELD,
};
pub use named_servers::lustre_file_system;
pub use own_exceptions::is_own_error;
pub use own_fault::is_same_device;
pub use policy::DraftPolicy;
pub use reasoning::is_about_machine;
pub use scene::{FailureScene, RankLog, RunBeside};
pub use scope::DraftScope;
pub use separate::SeparateFailure;
pub use signal::{
    ASSUMED_YEAR_FIELD, CallerFact, NEXT_ATTEMPT_FIELD, REPEATS_FIELD, SINCE_BOOT_FIELD, Signal, SignalMeaning,
    StallSuspect, WRITTEN_UNTIL_FIELD,
};
pub use speaker::is_board_event;
pub use stacks::{MergedStacks, merge};
pub use storage::reports_store_recovery;
pub use wait::stated_wait;
