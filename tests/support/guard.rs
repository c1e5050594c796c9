//! Processes of a test end with it, also where the test process is killed: each carries a mark in its environment, and a
//! guard, which learns of the end by a pipe, ends what carries the mark and all below it.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Environment variable that marks the processes of one test process.
pub(crate) const MARK: &str = "TEST_PROCESS_MARK";

const SCRIPT: &str = include_str!("guard.sh");

/// The guard, whose standard input stays open as long as this process lives, and the mark.
static GUARD: OnceLock<(Child, String)> = OnceLock::new();

/// Marks a command, so that its process and all that it starts end with this one.
pub(crate) fn guarded(command: &mut Command) -> &mut Command {
    let (_, mark) = GUARD.get_or_init(start);
    command.env(MARK, mark)
}

fn start() -> (Child, String) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mark = format!("{}-{}", std::process::id(), since.as_nanos());
    let mut guard = Command::new("sh");
    guard
        .args(["-c", SCRIPT, "guard", &format!("{MARK}={mark}")])
        .env_remove(MARK)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // What ends the group of the test does not end the guard.
        .process_group(0);
    (guard.spawn().expect("sh runs"), mark)
}
