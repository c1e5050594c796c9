//! Loading of published and own failure data as canonical tables.
//!
//! [`open`] recognises the [`SourceFormat`] of a folder or file by content (never by name), reads every file that belongs to
//! it and returns a [`Dataset`]: tables as columns and frames, lists of read and skipped files, and every
//! [`InputProblem`] as a value. Bad input never ends the reading: a row that cannot be read is counted and reported, a value
//! that cannot be read becomes null and is reported, and memory is bounded ([`MAX_LINE`], [`MAX_ROWS`]).
//!
//! Times are seconds in the data set's own clock: wall clocks without an offset count as UTC, and elapsed columns of
//! the source are retained because subtraction of clock times can be an hour off. Rows retain the order of their file,
//! exact repeats are retained and counted, and the population is that of the publication or an inventory, never the
//! number of failed nodes.
//!
//! Absent: downloads, writing of the sources' own formats, time zone names (POSIX rules and offsets only).

mod accounting;
mod block;
mod columnar;
mod columns;
mod contained_folders;
mod csv;
mod dataset;
mod digested;
mod error;
mod evidence;
mod head;
mod input;
mod labels;
mod load;
mod mapped;
mod mapping;
mod open;
mod packed;
mod panic_guard;
mod parallel;
mod problem;
mod provenance;
mod reading;
mod recognise;
mod record;
mod repeats;
mod rows;
mod source;
mod sources;
mod table;
mod time;
mod words;
mod write;
mod zip;

pub use block::MAX_LINE;
pub use contained_folders::{ContainedFolder, several};
pub use dataset::Dataset;
pub use error::Error;
pub use evidence::EvidenceExport;
pub use input::unpacked;
pub use labels::{LabelColumn, RowLabel};
pub use mapped::open_mapped;
pub use open::open;
pub use problem::{InputProblem, ProblemGroup, ProblemSummary};
pub use provenance::{ClockRule, FileRead, Population};
pub use recognise::recognise;
pub use rows::MAX_ROWS;
pub use source::SourceFormat;
pub use sources::sources;
pub use table::{ColumnType, TableKind};
pub use time::date_of;
pub use write::OutputFormat;
