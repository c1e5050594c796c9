//! Output formats of a listing.

use clap::{Args, ValueEnum};

/// Output format of a listing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Aligned table for people
    #[default]
    #[value(alias = "text")]
    Table,
    /// JSON: one document
    Json,
    /// JSON Lines: one document per line
    Jsonl,
    /// Comma-separated values with a header row
    Csv,
}

/// Output format of a command that prints one document, which has no form as a table with one kind of row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum DocumentFormat {
    /// Page for people
    #[default]
    #[value(alias = "text")]
    Table,
    /// JSON: one document
    Json,
    /// JSON Lines: one document per line
    Jsonl,
}

/// Option that selects the output format of a document.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct DocumentFormatArgs {
    /// Format of the output
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: DocumentFormat,
}

/// Option that selects the output format.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct FormatArgs {
    /// Format of the output
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: OutputFormat,
}
