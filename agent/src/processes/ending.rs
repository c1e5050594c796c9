//! Ending of all processes of a tree, even if it starts processes faster than they are listed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::table::{ProcessEntry, ProcessTable};

/// Maximum passes that only stop processes before the first kill. A tree that still grows then is killed while it
/// grows.
const STOP_PASSES_MAX: usize = 40;

/// Pause between a kill and the next listing.
const KILL_PAUSE: Duration = Duration::from_millis(2);

/// Result of ending a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EndedProcesses {
    /// Ids of the processes that were signalled.
    pub(crate) pids: BTreeSet<u32>,
    /// Processes that did not end within the limit.
    pub(crate) left: Vec<ProcessEntry>,
    /// Reason for which it is unknown whether processes are left.
    pub(crate) unknown: Option<String>,
}

impl EndedProcesses {
    /// Returns the number of processes that ended.
    pub(crate) fn count(&self) -> u32 {
        let left: BTreeSet<u32> = self.left.iter().map(|process| process.pid).collect();
        u32::try_from(self.pids.difference(&left).count()).unwrap_or(u32::MAX)
    }

    /// Returns the processes that did not end, as text.
    pub(crate) fn left_names(&self) -> Vec<String> {
        let left = self.left.iter().map(ToString::to_string);
        left.chain(self.unknown.clone()).collect()
    }

    /// Returns true if no process is left.
    pub(crate) fn is_complete(&self) -> bool {
        self.left.is_empty() && self.unknown.is_none()
    }

    /// Adds the result of another tree.
    pub(crate) fn merge(&mut self, other: Self) {
        self.pids.extend(other.pids);
        self.left.extend(other.left);
        self.unknown = other.unknown.or_else(|| self.unknown.take());
    }
}

/// Ends all processes that `scope` selects, until two listings in a row find none or `limit` is over.
///
/// Each process is stopped when it is first seen, and killed when a listing finds no new one: a stopped process starts
/// no other, and all are stopped before the first kill.
pub(crate) fn end_processes(
    limit: Duration,
    mut scope: impl FnMut(&ProcessTable) -> Vec<ProcessEntry>,
) -> EndedProcesses {
    let until = Instant::now() + limit;
    let mut seen: BTreeMap<u32, u64> = BTreeMap::new();
    let mut result = EndedProcesses::default();
    let mut passes = 0;
    let mut is_clear = false;
    loop {
        let mut found = match ProcessTable::read() {
            Ok(table) => scope(&table),
            Err(problem) if Instant::now() >= until => {
                result.unknown = Some(format!("unknown processes: cannot list /proc: {problem}"));
                return result;
            }
            Err(_) => {
                is_clear = false;
                std::thread::sleep(KILL_PAUSE);
                continue;
            }
        };
        found.retain(ProcessEntry::is_alive);
        if found.is_empty() && is_clear {
            return result;
        }
        is_clear = found.is_empty();
        let mut grew = false;
        for process in &found {
            if seen.insert(process.pid, process.started) != Some(process.started) {
                grew = true;
                signal_process(process, Signal::STOP);
                result.pids.insert(process.pid);
            }
        }
        passes += 1;
        if grew && passes < STOP_PASSES_MAX {
            continue;
        }
        for process in &found {
            signal_process(process, Signal::KILL);
        }
        if Instant::now() >= until {
            result.left = found;
            return result;
        }
        if !is_clear {
            std::thread::sleep(KILL_PAUSE);
        }
    }
}

/// Sends a signal to exactly this process; returns `false` if it is gone or cannot be signalled.
pub(crate) fn signal_process(process: &ProcessEntry, signal: Signal) -> bool {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
        return false;
    };
    // The pidfd is open: a process with the same start time is the listed one, and its id cannot be reused now.
    let is_same = ProcessEntry::read(process.pid).is_some_and(|now| now.started == process.started);
    is_same && pidfd_send_signal(handle, signal).is_ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_tree_that_grows_ends_and_a_neighbour_stays() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command
                .args(["-c", script])
                .stdin(Stdio::null())
                .spawn()
                .expect("sh starts")
        };
        let mut neighbour = shell("exec sleep 300");
        let mut tree = shell("for i in 1 2 3; do (while :; do sleep 0.01; done) & done; sleep 300");
        let root = BTreeSet::from([tree.id()]);
        let ended = end_processes(Duration::from_secs(30), |table| {
            let mut all = table.descendants(&root);
            all.extend(table.entries().filter(|it| it.pid == tree.id()).cloned());
            all
        });
        assert_eq!(ended.left, []);
        assert!(ended.count() >= 1, "{ended:?}");
        tree.wait().expect("it has ended");
        assert_eq!(neighbour.try_wait().expect("it can be asked"), None);
        neighbour.kill().expect("it runs");
        neighbour.wait().expect("it has ended");
    }

    #[test]
    fn another_process_with_the_same_number_gets_no_signal() {
        let mut child = Command::new("sleep").arg("300").spawn().expect("sleep starts");
        let mut entry = ProcessEntry::read(child.id()).expect("it runs");
        entry.started += 1;
        assert!(!signal_process(&entry, Signal::KILL));
        assert_eq!(child.try_wait().expect("it can be asked"), None);
        child.kill().expect("it runs");
        child.wait().expect("it has ended");
    }
}
