//! How all ranks come to checkpoint the same step without a barrier.
//!
//! The controller *calls* a step that lies far enough ahead for the call to reach every rank before it gets there
//! ([`Caller`]). A rank that hears in time takes its image exactly at the end of that step; one that hears too late
//! takes none and says so ([`Follower`]), which makes the attempt void. Images count together only when they are of one
//! generation and one step, and of every rank of its world ([`Tally`]).
//!
//! Between calls all ranks follow one rule, "every so many steps", that each knows from its start, so that checkpoints go
//! on without the controller. A new rule is called like a step: it holds from a step ahead.
//!
//! What holds whatever is delayed, lost, doubled or overtaken, and whoever restarts:
//! - a whole attempt has images of one step and one generation only, one of each rank (RG-1, RG-2);
//! - an attempt that a rank missed is never whole: it took no image of that step, and in its generation never will;
//! - ranks never wait for each other or for the controller; a late call costs the attempt and nothing else.
//!
//! When calls come too late again and again, the caller looks further ahead each time, so a step is agreed on as soon as
//! delays have an end.

mod caller;
mod follower;
mod tally;

pub use caller::{Caller, Pace};
pub use follower::{Boundary, Follower, Heard, MAX_CALLED};
pub use tally::{MAX_ATTEMPTS, MAX_VOID, MAX_WANTED, Tally};

use rankguard_model::{CheckpointCall, Generation};
use serde::{Deserialize, Serialize};

/// A call as it travels: it may arrive late, twice, or after a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word {
    /// The generation it is for; no other heeds it (RG-3).
    pub generation: Generation,
    /// Its number within the generation; of two rules the later holds.
    pub number: u64,
    /// What is called.
    pub call: CheckpointCall,
}
