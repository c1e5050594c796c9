//! Command line of Rankguard.
//!
//! `program` parses the arguments and maps the result to an exit code. Each command is a file in `commands`, with its
//! options; shared parts are small: `args` (common options), `config` (settings from file, environment and flags),
//! `client` (operator client of the controller), `runtime` (async commands). Output, listings and exit codes come from
//! `rankguard-console`, the HTML page from `rankguard-report`, measurements from `rankguard-bench`; the history commands
//! are a separate binary.
//!
//! Absent: colours.

mod args;
mod client;
mod client_command;
mod commands;
mod config;
mod demo;
mod diagnose;
mod logging;
mod node_list;
mod parity;
mod program;
mod runtime;
mod second_reader;
mod signals;
mod waiting;

pub(crate) use rankguard_console::{display_text, error, exit, listing, out, recovery_text};

fn main() -> std::process::ExitCode {
    program::main().into()
}
