//! Diagnosis of failures: turns evidence into cases with a verdict and a reasoning log.
//!
//! Terms:
//! - A [`Sign`] is one meaning of one line, sample or exit in the evidence; a [`Scene`] holds all signs of one
//!   failure.
//! - An engine is a pure function from a scene to [`Candidate`] root causes, independent of the other engines.
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
