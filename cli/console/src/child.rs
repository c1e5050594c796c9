//! Child processes that must not outlive this program.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal};

/// Makes the kernel send SIGKILL to the child when the thread that starts it ends, for any reason.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec only prctl is called, which is async-signal-safe and touches no memory; the error
    // is a number and allocates nothing.
    unsafe { command.pre_exec(|| set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)) }
}
