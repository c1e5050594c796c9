//! Rankguard: what people and machines type.
//!
//! `program` turns words into a command and its end into an exit code. Each command is a file in `commands`, its words
//! included; what they share is small: `args` (words that many take), `config` (settings from file, environment and
//! flags), `client` (the controller as people see it), `runtime` (for those that wait), `report` (the page).
//! How it prints, lists and ends is `rankguard-console`; the history commands are a binary of their own beside it.
//!
//! Absent: colours, and talking to a controller that is not on this machine except
//! through a tunnel.

mod args;
mod bench;
mod child;
mod client;
mod commands;
mod config;
mod demo;
mod diagnose;
mod logging;
mod parity;
mod program;
mod report;
mod runtime;
mod signals;
mod torture;
mod words;

pub(crate) use rankguard_console::{error, exit, listing, out};

fn main() -> std::process::ExitCode {
    program::main().into()
}
