//! What can fail, how it announces itself, what the literature calls it and what to do about it.
//!
//! The knowledge is data (`data/*.toml`), built into the program and checked as a whole when it is first used:
//!
//! - a **class** is a canonical failure class: layer, meaning, causes, advice, what clears it (RG-10);
//! - a **taxonomy** is published; a class has a place in each of five, through the crosswalk;
//! - a **signature** names a line: literals that must occur, a pattern, the class and the role it speaks for;
//! - the **matcher** tries all signatures on a line in one pass and allocates only when one of them matches;
//! - a **line** is a raw line with its prefixes (kernel clock, syslog, torchrun rank ...) taken off and understood;
//! - **triage** is a small state machine per stream: lines in, [`Observation`]s out, with tracebacks, OOM dumps and
//!   bursts each folded into one.
//!
//! Invariants: pure, no clock, no files, no sockets; moments come in as values. Foreign text never panics (RG-11). An XID or
//! SXid that no table knows passes through as `unknown-xid-N` or `unknown-sxid-N` (RG-10). Consequences are marked as
//! [`Role::Cascade`](rankguard_model::Role::Cascade) here already, so that no single line can make a cascade look like a
//! cause (RG-7).
//!
//! Absent: template mining for lines that no signature knows; the bit-level decoding of NVLink 5 status words.

mod catalogue;
mod class;
mod code;
mod explain;
pub mod line;
mod matcher;
mod scan;
mod signature;
mod taxonomy;
pub mod triage;

pub use catalogue::{Catalogue, CatalogueError};
pub use class::Class;
pub use code::{Code, CodeTable};
pub use explain::{Explanation, Place, explain, explain_class};
pub use matcher::{LINE_LIMIT, Matcher};
pub use signature::{EntityRule, Signature};
pub use taxonomy::{Category, OUTSIDE_SCOPE, Taxonomy};
pub use triage::{Observation, Stream, Triage};
