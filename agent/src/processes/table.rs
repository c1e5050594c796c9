//! Snapshot of all processes, read from `/proc/*/stat`. That file requires no lock of the process's memory, so a
//! process that hangs in the kernel does not block the reader.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;

/// Process at the time of the snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessEntry {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(crate) session: u32,
    /// State letter as in `stat`: R, S, D, T, Z ...
    pub(crate) state: char,
    threads: u32,
    /// Start time in clock ticks since boot; with `pid` it identifies the process.
    pub(crate) started: u64,
    pub(crate) name: String,
}

impl ProcessEntry {
    /// Reads the entry of one process; `None` if it does not exist or cannot be read.
    pub(crate) fn read(pid: u32) -> Option<Self> {
        Self::try_read(pid).ok().flatten()
    }

    /// Reads the entry of one process as [`Self::read`] does, but a process that cannot be read (too many open files)
    /// is an error and not an absence.
    fn try_read(pid: u32) -> io::Result<Option<Self>> {
        match fs::read(format!("/proc/{pid}/stat")) {
            Ok(text) => Ok(Self::parse(&String::from_utf8_lossy(&text))),
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(problem) if problem.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (pid, rest) = text.split_once(" (")?;
        // A name may contain parentheses and spaces.
        let (name, rest) = rest.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let short = |at: usize| number(at).and_then(|value| u32::try_from(value).ok());
        Some(Self {
            pid: pid.parse().ok()?,
            parent: short(1)?,
            group: short(2)?,
            session: short(3)?,
            state: fields.first()?.chars().next()?,
            threads: short(17)?,
            started: number(19)?,
            name: name.to_owned(),
        })
    }

    /// Returns true if any thread still runs. A process with an ended main thread is shown as a zombie while other
    /// threads run.
    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X') || self.threads > 1
    }
}

impl fmt::Display for ProcessEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({}), state {}", self.pid, self.name, self.state)
    }
}

/// All processes of the PID namespace.
#[derive(Debug, Default)]
pub(crate) struct ProcessTable(BTreeMap<u32, ProcessEntry>);

impl ProcessTable {
    /// Reads all processes. Processes that end meanwhile are left out.
    pub(crate) fn read() -> io::Result<Self> {
        let mut all = BTreeMap::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if let Some(process) = ProcessEntry::try_read(pid)? {
                all.insert(pid, process);
            }
        }
        Ok(Self(all))
    }

    /// Returns the entry of one process.
    pub(crate) fn entry(&self, pid: u32) -> Option<&ProcessEntry> {
        self.0.get(&pid)
    }

    /// Returns all entries, zombies included.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &ProcessEntry> {
        self.0.values()
    }

    /// Returns all descendants of the roots; a root is included only if it descends from another.
    pub(crate) fn descendants(&self, roots: &BTreeSet<u32>) -> Vec<ProcessEntry> {
        let mut children: BTreeMap<u32, Vec<&ProcessEntry>> = BTreeMap::new();
        for process in self.0.values() {
            children.entry(process.parent).or_default().push(process);
        }
        let mut found = BTreeMap::new();
        let mut open: Vec<u32> = roots.iter().copied().collect();
        while let Some(parent) = open.pop() {
            for child in children.get(&parent).into_iter().flatten() {
                if found.insert(child.pid, (*child).clone()).is_none() {
                    open.push(child.pid);
                }
            }
        }
        found.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pid: u32, parent: u32, name: &str, state: char, threads: u32) -> String {
        format!("{pid} ({name}) {state} {parent} 7 8 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 4242 0 0")
    }

    #[test]
    fn a_name_with_parentheses_is_parsed() {
        let process = ProcessEntry::parse(&line(12, 3, "a) (b", 'S', 1)).expect("an entry");
        assert_eq!((process.pid, process.parent, process.group), (12, 3, 7));
        assert_eq!((process.session, process.started), (8, 4242));
        assert_eq!(process.name, "a) (b");
        assert!(ProcessEntry::parse("12 (x").is_none());
        assert!(ProcessEntry::parse("").is_none());
    }

    #[test]
    fn a_zombie_with_running_threads_is_alive() {
        let is_alive = |state, threads| ProcessEntry::parse(&line(1, 0, "x", state, threads)).map(|it| it.is_alive());
        assert_eq!(is_alive('Z', 1), Some(false));
        assert_eq!(is_alive('Z', 3), Some(true));
        assert_eq!(is_alive('D', 1), Some(true));
    }

    #[test]
    fn descendants_include_all_generations_and_leave_out_others() {
        let entries = [(10, 1), (11, 10), (12, 11), (13, 1)];
        let table = entries.map(|(pid, parent)| {
            let process = ProcessEntry::parse(&line(pid, parent, "x", 'S', 1)).expect("an entry");
            (pid, process)
        });
        let table = ProcessTable(table.into_iter().collect());
        let found = table.descendants(&BTreeSet::from([10]));
        let pids: Vec<u32> = found.iter().map(|process| process.pid).collect();
        assert_eq!(pids, [11, 12]);
    }

    #[test]
    fn this_process_is_in_the_table() {
        let table = ProcessTable::read().expect("/proc is readable");
        let own = std::process::id();
        assert!(table.entries().any(|process| process.pid == own && process.is_alive()));
    }
}
