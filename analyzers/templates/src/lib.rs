//! Lines that no signature knows in, stable templates and what is new since a healthy run out.
//!
//! - a **shape** is a line with everything masked that looks like a value ([`shape`]); a function of the line alone;
//! - a **template** is what a prefix tree makes of all shapes: a shape, or several where one place had too many words;
//! - its **name** ([`TemplateId`]) is a digest of its text;
//! - a **profile** ([`Profile`]) is what one run on one node, or many runs on many nodes, said: templates with counts,
//!   places, streams and runs; profiles merge;
//! - a **family** ([`families`]) joins templates that differ in values which do not look like values;
//! - a **novelty** ([`Novelty`]) is a piece of evidence: what a failing run says otherwise than healthy ones.
//!
//! # Names that hold everywhere
//!
//! Drain (He et al., ICWS 2017) and Drain3 number clusters as they come and grow them by similarity to what came before:
//! the same lines in another order give other clusters, and two nodes never agree. Here nothing depends on order. Masks
//! look at one line. The tree decides by *how many different words* meet at a node, which is a property of the set of
//! lines. Families are computed from the finished set. So any order, and any division over nodes that are merged after,
//! gives the same profile byte for byte and the same names; names from before a family was joined are kept as its aliases.
//!
//! Invariants: pure, no clock, no files, no sockets. Any bytes are read, lines of any length, and nothing panics (RG-11).
//! Memory is bounded by [`Limits`] whatever comes, and nothing is lost silently: counts of templates and of blank lines
//! add up to the lines seen, and what was cut, unreadable or folded is counted in [`Shortfalls`]. Hash maps with random
//! order are not used: same lines, same bytes (RG-8). The one thing that order can change is which words count as values
//! after the tree ran out of room as a whole ([`Shortfalls::pressure`]).
//!
//! Absent: lines are given one by one and without their prefixes understood (a progress bar that redraws itself with
//! carriage returns, a traceback of many lines, a rank prefix are the caller's to take apart); values are not kept; no
//! template is learnt across lines; time is a line number.

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
pub use family::{Family, families};
pub use id::{TemplateId, TemplateIdError};
pub use limits::Limits;
pub use mask::MASK;
pub use miner::{Miner, StreamNumber, shape, template_id};
pub use names::OTHERS;
pub use novelty::{MAX_NAMES, MAX_NOVELTIES, Novelty, NoveltyKind};
pub use profile::{PROFILE_VERSION, Place, Profile, ProfileError, Shortfalls, Stream, Template};
