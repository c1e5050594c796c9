//! Files: bounded reading of foreign files, and creation of secret files.
//!
//! A reader of foreign files must neither wait forever nor work without bound (RG-11). [`open_regular`] accepts
//! regular files on real file systems and refuses all others by kind; [`open_named`] also accepts a pipe, if the user
//! named it, and reads it with a deadline. [`ReadBudget`] bounds bytes and time of a command, [`unpacked`] the ratio
//! of packed files. [`read_text`] reads a small file whole.
//!
//! [`private`] writes files that only their owner can read, and never through a symbolic link.
//!
//! Absent: archives (tar, zip of several files) and xz; the caller reports them.

mod budget;
mod modified;
mod open;
mod pipe;
pub mod private;
mod small;
mod unpack;
pub mod zst;

pub use budget::{BudgetedReader, LimitReached, ReadBudget, ReadLimits};
pub use modified::modified_ns;
pub use open::{NamedInput, SpecialFile, open_named, open_regular};
pub use small::read_text;
pub use unpack::{CompressionFormat, RatioLimit, unpacked, within_ratio};
