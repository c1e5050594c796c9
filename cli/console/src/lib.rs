//! Console conventions of the workspace: output, listings, words for states and numbers, errors and exit codes. Shared by
//! `rankguard` and the program of its history commands, which is a binary of its own because it is slow to build.

pub mod catalogue;
pub mod child;
pub mod command_table;
pub mod display_text;
pub mod ending;
pub mod error;
pub mod exit;
mod format;
pub mod listing;
pub mod out;
pub mod recovery_text;
pub mod times;
pub mod waiting;
pub mod width;

pub use format::{DocumentFormat, DocumentFormatArgs, FormatArgs, OutputFormat};
