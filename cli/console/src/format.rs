//! The forms of a listing.

use clap::{Args, ValueEnum};

/// How a listing is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    #[value(alias = "text")]
    Table,
    /// One document
    Json,
    /// One document a line
    Jsonl,
    /// Comma-separated, with a header
    Csv,
}

/// How to print.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct FormatArgs {
    /// How to print
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,
}
