//! Barrier-free agreement of all ranks on the step to checkpoint.
//!
//! The controller *calls* a step far enough ahead that the call reaches every rank before that step ([`StepScheduler`]). A
//! rank that receives the call in time takes its image exactly at the end of that step; one that receives it too late
//! takes none and reports that ([`RankCallState`]), which makes the attempt void. Images form a checkpoint only if they are
//! of one generation and one step, and of every rank of its world ([`AttemptTracker`]).
//!
//! Between calls all ranks follow one rule, a fixed number of steps between checkpoints, that each knows from its
//! start, so checkpoints continue without the controller. A new rule is called like a step: it takes effect at a step
//! ahead.
//!
//! Invariants under delay, loss, duplication and reordering of messages, and under restarts:
//! - a whole attempt has images of one step and one generation only, one of each rank (RG-1, RG-2);
//! - an attempt that a rank missed is never whole: it took no image of that step, and in its generation never will;
//! - ranks never wait for each other or for the controller; a late call costs the attempt and nothing else.
//!
//! Each late call makes the caller look further ahead, so ranks agree on a step once message delays are bounded.

mod attempt_tracker;
mod rank_calls;
mod step_scheduler;

pub use attempt_tracker::{AttemptTracker, MAX_ATTEMPTS, MAX_VOID, MAX_WANTED};
pub use rank_calls::{BoundaryDecision, CallResponse, MAX_CALLED, RankCallState};
pub use step_scheduler::{JobProgress, StepScheduler};

use rankguard_model::{CheckpointCall, Generation};
use serde::{Deserialize, Serialize};

/// Checkpoint call as sent to ranks. It may arrive late, twice, or after a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointCallMessage {
    /// Target generation; ranks of other generations ignore the call (RG-3).
    pub generation: Generation,
    /// Sequence number within the generation; of two rules the one with the higher number applies.
    pub number: u64,
    /// Called step or rule.
    pub call: CheckpointCall,
}
