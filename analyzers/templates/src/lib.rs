//! Template mining for log lines that no signature matches: stable templates, and differences from healthy runs.
//!
//! - a **shape** is a line with everything masked that has the form of a value ([`shape`]); a function of the line
//!   alone;
//! - a **template** is a shape in the prefix tree of all shapes, or several if a position had too many different words;
//! - its **id** ([`TemplateId`]) is a digest of its text;
//! - a **profile** ([`TemplateProfile`]) holds the templates of one run on one node, or of many runs on many nodes, with
//!   counts, places, streams and runs; profiles merge;
//! - a **family** ([`families`]) joins templates that differ in values without the form of a value;
//! - a **novelty** ([`NoveltyFinding`]) is evidence: a difference between a failing run and healthy ones.
//!
//! # Ids that hold everywhere
//!
//! Drain (He et al., ICWS 2017) and Drain3 number clusters in order of arrival and grow them by similarity to earlier
//! lines: the same lines in another order give other clusters, and two nodes never agree.
//!
//! Here nothing depends on order. Masks inspect one line. The tree decides by the *number of different words* at a
//! node, a property of the set of lines. Families are computed from the finished set. Any order, and any division over
//! nodes that are merged later, therefore gives the same profile byte for byte and the same ids; ids from before a
//! family was joined remain as its aliases.
//!
//! Invariants: pure, no clock, no files, no sockets. Any bytes and lines of any length are read without panic (RG-11).
//! Memory is bounded by [`MinerLimits`] for any input, and nothing is lost silently: counts of templates and of blank lines
//! add up to the lines read, and truncated, unreadable or folded lines are counted in [`IncompleteLines`].
//!
//! Hash maps with random order are not used: same lines, same bytes (RG-8). Order matters in one case only: the words
//! that count as values after the whole tree ran out of room ([`IncompleteLines::pressure`]).
//!
//! Absent: interpretation of prefixes and multi-line records (the caller splits progress bars with carriage returns,
//! tracebacks and rank prefixes); values are not stored; no template spans lines; time is a line number.

mod alarm;
mod cache;
mod compare;
mod family;
mod id;
mod limits;
mod marks;
mod mask;
mod miner;
mod names;
mod novelty;
mod profile;
mod tree;

pub use compare::compare;
pub use family::{TemplateFamily, families};
pub use id::{TemplateId, TemplateIdError};
pub use limits::MinerLimits;
pub use mask::MASK;
pub use miner::{Miner, StreamNumber, shape, template_id};
pub use names::OTHERS;
pub use novelty::{MAX_NAMES, MAX_NOVELTIES, NoveltyFinding, NoveltyKind};
pub use profile::{IncompleteLines, LinePosition, LogStream, PROFILE_VERSION, ProfileError, Template, TemplateProfile};
