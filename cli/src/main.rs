//! Rankguard's one binary: what people and machines type, and the only crate that prints.
//!
//! Each command is a file in `commands`; what they share is small: `args` (words as typed), `config` (settings from
//! file, environment and flags), `client` (the controller as people see it), `listing` (one list, four formats), `out`
//! (the two ways out), `report` (the page).
//!
//! Absent: shell completions, a manual page, colours, and talking to a controller that is not on this machine except
//! through a tunnel.

mod args;
mod bench;
mod client;
mod commands;
mod config;
mod demo;
mod diagnose;
mod error;
mod exit;
mod listing;
mod logging;
mod out;
mod report;
mod signals;
mod torture;
mod words;

fn main() -> std::process::ExitCode {
    commands::main().into()
}
