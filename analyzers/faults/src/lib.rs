//! Failure catalogue, log line parser and triage: classifies log lines into published failure classes with advice.
//!
//! The knowledge is data (`data/*.toml`), compiled into the program, checked as a whole by tests, and extensible by
//! user files:
//!
//! - a **class** is a canonical failure class in one tree: layer, meaning, causes, advice, clearing condition
//!   (RG-10); [`classes`] has a constant for each built-in one;
//! - a **taxonomy** is published; a class has a category in each of five, and where it fits in fifteen more;
//! - a **code** is a number that a driver prints (XID, SXid); `decode` parses the text of its message;
//! - a **signature** recognises a line: literals that must occur, a pattern, the class and the role it indicates;
//! - the **matcher** tries all signatures on a line; its scanner selects the lines of a block that may match;
//! - a **line** is a raw line with its prefixes (kernel clock, syslog, torchrun rank ...) parsed and removed;
//! - **triage** is a state machine for each stream: lines in, [`LogObservation`]s out, with each traceback, OOM dump and
//!   burst folded into one.
//!
//! Invariants: pure, no clock, no files, no sockets; timestamps are arguments. Foreign text never panics (RG-11). An
//! XID or SXid that is not in a table passes through as `unknown-xid-N` or `unknown-sxid-N` (RG-10). Consequences are
//! already marked as [`Role::Cascade`](rankguard_model::Role::Cascade) here, so that no single line can present a
//! cascade as a cause (RG-7).
//!
//! It does not mine templates of lines that no signature matches (`rankguard-templates`).

mod catalogue;
mod class;
pub mod classes;
mod code;
pub mod decode;
mod explain;
pub mod line;
mod matcher;
mod mistake;
mod root_rank;
mod scan;
mod signature;
mod taxonomy;
pub mod triage;

pub use catalogue::{Catalogue, CatalogueFile, CatalogueFilesError, PRIMARY, SourceReference};
pub use class::{ActionBasis, AlternativeAction, ClassKind, FailureClass};
pub use code::{CodeTable, DriverCode, EscalationRule, FatalityScope};
pub use decode::{DecodedMessage, DriverVersion, decode};
pub use explain::{CategoryReference, CitedSource, DriverEvent, Explanation, SignatureExample, explain, explain_class};
pub use line::LINE_LIMIT;
pub use matcher::{SignatureMatcher, introduces_causes};
pub use mistake::{CatalogueError, CatalogueMistake};
pub use root_rank::root_rank_text;
pub use signature::{CodeKind, EntityRule, Signature};
pub use taxonomy::{
    Citation, FigureSum, NameStatus, OUTSIDE_SCOPE, PublishedFact, Taxonomy, TaxonomyCategory, TaxonomyDimension,
    TaxonomyProvenance,
};
pub use triage::{LogObservation, StreamContext, Triage};
