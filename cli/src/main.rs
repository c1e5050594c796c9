//! Command line of Rankguard.
//!
//! `program` parses the arguments and maps the result to an exit code. Each command is a file in `commands`, with its
//! options; shared parts are small: `args` (common options), `config` (settings from file, environment and flags),
//! `client` (operator client of the controller), `runtime` (async commands), `report` (HTML page). Output, listings and
//! exit codes come from `rankguard-console`; the history commands are a separate binary.
//!
//! Absent: colours.

mod args;
mod bench;
mod child;
mod client;
mod commands;
mod config;
mod demo;
mod diagnose;
mod display_text;
mod logging;
mod parity;
mod program;
mod report;
mod runtime;
mod signals;
mod torture;
mod waiting;

pub(crate) use rankguard_console::{error, exit, listing, out};

fn main() -> std::process::ExitCode {
    program::main().into()
}
