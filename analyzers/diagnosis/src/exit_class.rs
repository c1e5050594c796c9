//! Classes of exits without another explanation, and names of signals.

use rankguard_faults::classes;
use rankguard_model::ProcessExit;

/// Signals by number (Linux, x86-64 and arm64); index 0 is signal 1.
const SIGNALS: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// Class of a process that a signal of an unknown sender ended.
const KILLED: &str = classes::KILLED_BY_SIGNAL;

/// Returns the number of the signal that ended a process, also if a shell reports it as an exit code.
fn signal_number(exit: ProcessExit) -> Option<i32> {
    match exit {
        ProcessExit::Signal(signal) => Some(signal),
        ProcessExit::Code(code) => Some(code - 128).filter(|signal| (1..=31).contains(signal)),
        ProcessExit::Left => None,
    }
}

/// Returns the name of the signal that ended a process.
pub(crate) fn signal_name(exit: ProcessExit) -> Option<&'static str> {
    let number = usize::try_from(signal_number(exit)?).ok()?;
    SIGNALS.get(number.checked_sub(1)?).copied()
}

/// Returns how processes ended, as a predicate: `were ended by SIGKILL`, or the exit code by which a shell reports it.
pub(crate) fn ended_how(exit: ProcessExit, name: &str, is_reported: bool) -> String {
    if is_reported {
        format!("ended with {exit}, by which shells and containers report {name},")
    } else {
        format!("were ended by {name}")
    }
}

/// Returns the class of an exit that nothing else explains, and its confidence.
pub(crate) fn exit_class(exit: ProcessExit) -> (&'static str, f64) {
    match signal_number(exit) {
        // SIGBUS is a memory fault too: an access to a page that does not exist, often of a truncated file.
        Some(7 | 11) => (classes::SEGFAULT, 0.6),
        Some(6 | 8) => (classes::PROCESS_ABORTED, 0.4),
        Some(_) => (KILLED, 0.5),
        None => (classes::RANK_EXIT_UNKNOWN, 0.3),
    }
}

/// Returns true for signals that the system sends to a process that failed by itself.
pub(crate) fn is_fault(exit: ProcessExit) -> bool {
    matches!(signal_number(exit), Some(4 | 5 | 6 | 7 | 8 | 11 | 31))
}

/// Returns true for SIGKILL, also if a shell reports it as an exit code.
pub(crate) fn is_kill(exit: ProcessExit) -> bool {
    signal_number(exit) == Some(9)
}

/// Returns true for SIGABRT, also if a shell reports it as an exit code: by it an uncaught C++ exception ends a process.
pub(crate) fn is_abort(exit: ProcessExit) -> bool {
    signal_number(exit) == Some(6)
}

/// Returns true for a signal of a process that failed by itself, other than SIGABRT: libraries abort for a lost peer.
pub(crate) fn is_crash(exit: ProcessExit) -> bool {
    is_fault(exit) && !is_abort(exit)
}
