//! Evidence in, cases out: one engine a family of failures, an arbiter between them, and a note a person can read.
//!
//! What one must know:
//! - A [`Sign`] is one meaning of one piece of evidence; a [`Scene`] is everything that was gathered for one failure.
//! - An engine is a pure function from a scene to [`Candidate`] root causes. It never sees the other engines.
//! - The arbiter picks one candidate, the rest become alternatives; every sign then gets its role.
//! - A [`Diagnosis`] gathers evidence over time into drafts and concludes each when nothing new arrives.
//! - Flight-recorder dumps are held until their failure is concluded, compared once, and become signs.
//!
//! Invariants:
//! - Pure and deterministic: `now` is an input, ordered maps wherever one iterates, no clock, no files, no randomness.
//! - The subject of a cascade is never blamed (RG-7): survivors' errors, our own kills and shutdown noise can only
//!   become a verdict when nothing better was seen, and then they blame nobody narrower than the job.
//! - Every verdict says what clears it (RG-10), and `unknown` is a verdict like any other.
//!
//! Absent: operation timings, which a crate of its own reads and which are not joined with cases yet; learning from past
//! cases.

mod arbiter;
mod attribution;
mod belongs;
mod candidate;
mod change;
mod conclude;
mod conclusion;
mod consequences;
mod context;
mod diagnosis;
mod draft;
mod drafts;
mod engine;
mod first_rank;
mod flight;
mod frames;
mod glimpse;
mod knowledge;
mod memory;
mod policy;
mod reasoning;
mod refine;
mod repeats;
mod rising;
mod roles;
mod row;
mod sameness;
mod scene;
mod scope;
mod sign;
mod signature;
mod stacks;
mod steps;
mod storage;
mod struck;
mod wrapped;

pub use arbiter::{Opinion, diagnose};
pub use candidate::{Candidate, Strength};
pub use change::{Change, Concluded};
pub use context::{Context, JobContext};
pub use diagnosis::Diagnosis;
pub use draft::DraftId;
pub use flight::{RankDump, flight_signs};
pub use policy::Policy;
pub use scene::Scene;
pub use scope::Scope;
pub use sign::{Fact, Sign, Suspect, What};
pub use stacks::{Merged, merge};
pub use storage::answers_again;
