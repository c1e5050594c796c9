//! What can fail, how it announces itself, what the literature calls it and what to do about it.
//!
//! The knowledge is data (`data/*.toml`), built into the program, checked as a whole by tests, and open to files of a person:
//!
//! - a **class** is a canonical failure class in one tree: layer, meaning, causes, advice, what clears it (RG-10);
//! - a **taxonomy** is published; a class has a place in each of five, and where it fits in fifteen more;
//! - a **code** is a number that a driver prints (XID, SXid); `decode` reads the words that stand beside it;
//! - a **signature** names a line: literals that must occur, a pattern, the class and the role it speaks for;
//! - the **matcher** tries all signatures on a line, and its scanner tells which lines of a block are worth it;
//! - a **line** is a raw line with its prefixes (kernel clock, syslog, torchrun rank ...) taken off and understood;
//! - **triage** is a small state machine per stream: lines in, [`Observation`]s out, with tracebacks, OOM dumps and
//!   bursts each folded into one.
//!
//! Invariants: pure, no clock, no files, no sockets; moments come in as values. Foreign text never panics (RG-11). An XID or
//! SXid that no table knows passes through as `unknown-xid-N` or `unknown-sxid-N` (RG-10). Consequences are marked as
//! [`Role::Cascade`](rankguard_model::Role::Cascade) here already, so that no single line can make a cascade look like a
//! cause (RG-7).
//!
//! Absent: templates of lines that no signature knows (`rankguard-templates`).

mod catalogue;
mod class;
mod code;
pub mod decode;
mod explain;
pub mod line;
mod matcher;
mod mistake;
mod scan;
mod signature;
mod taxonomy;
pub mod triage;

pub use catalogue::{Catalogue, CatalogueFile, CatalogueFilesError, PRIMARY, Reference};
pub use class::{Alternative, Basis, Class, Kind};
pub use code::{Code, CodeTable, Escalation, Fatality};
pub use decode::{Decoded, DriverVersion, decode};
pub use explain::{Announcement, Event, Explanation, Place, Reading, explain, explain_class};
pub use line::LINE_LIMIT;
pub use matcher::Matcher;
pub use mistake::{CatalogueError, Mistake};
pub use signature::{CodeKind, EntityRule, Signature};
pub use taxonomy::{Category, Citation, Dimension, Fact, NameStatus, OUTSIDE_SCOPE, Provenance, Sum, Taxonomy};
pub use triage::{Observation, Stream, Triage};
