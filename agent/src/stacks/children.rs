//! Child processes, with the exit status of zombies.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use rankguard_model::ProcessExit;

use super::task::{TaskStat, numbers};

/// Child of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChildProcess {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) parent: u32,
    /// State letter of its `stat`: R, S, D, T, Z ...
    pub(crate) state: char,
    /// Exit status of a zombie, if readable.
    pub(crate) ended: Option<ProcessExit>,
}

impl fmt::Display for ChildProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)?;
        match self.ended {
            Some(exit) => write!(f, ", {exit}"),
            None => Ok(()),
        }
    }
}

/// Reader of child processes at one moment. Kernels without CONFIG_PROC_CHILDREN have no lists; then the parent of
/// every process is read, once.
#[derive(Debug)]
pub(crate) struct ChildProcesses<'a> {
    proc_root: &'a Path,
    by_parent: OnceCell<BTreeMap<u32, Vec<u32>>>,
}

impl<'a> ChildProcesses<'a> {
    pub(crate) fn new(proc_root: &'a Path) -> Self {
        Self {
            proc_root,
            by_parent: OnceCell::new(),
        }
    }

    /// True if the kernel has lists of children, which makes a search cheap.
    pub(crate) fn are_listed(proc_root: &Path) -> bool {
        let own = std::process::id().to_string();
        proc_root.join("self/task").join(own).join("children").exists()
    }

    /// Returns the ids of the children of a process.
    fn pids(&self, pid: u32) -> Vec<u32> {
        let folder = self.proc_root.join(pid.to_string()).join("task");
        let mut all = Vec::new();
        for thread in numbers(&folder) {
            match std::fs::read_to_string(folder.join(thread.to_string()).join("children")) {
                Ok(list) => all.extend(
                    list.split_ascii_whitespace()
                        .filter_map(|word| word.parse::<u32>().ok()),
                ),
                Err(_) => return self.by_parent().get(&pid).cloned().unwrap_or_default(),
            }
        }
        all
    }

    /// Returns at most `most` descendants of a process, the nearest first.
    pub(crate) fn below(&self, pid: u32, most: usize) -> Vec<ChildProcess> {
        let mut all = self.of(pid);
        let mut next = 0;
        while let Some(child) = all.get(next).filter(|_| all.len() < most) {
            // A zombie has no children.
            let more = if child.state == 'Z' {
                Vec::new()
            } else {
                self.of(child.pid)
            };
            all.extend(more);
            next += 1;
        }
        all.truncate(most);
        all
    }

    /// Returns the children of a process.
    pub(crate) fn of(&self, pid: u32) -> Vec<ChildProcess> {
        self.pids(pid)
            .into_iter()
            .filter_map(|child| self.child(child))
            .collect()
    }

    fn child(&self, pid: u32) -> Option<ChildProcess> {
        let stat = TaskStat::read(&self.proc_root.join(pid.to_string()))?;
        Some(ChildProcess {
            pid,
            ended: stat.ended.filter(|_| stat.state == 'Z'),
            name: stat.name,
            parent: stat.parent,
            state: stat.state,
        })
    }

    fn by_parent(&self) -> &BTreeMap<u32, Vec<u32>> {
        self.by_parent.get_or_init(|| {
            let mut all: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            for pid in numbers(self.proc_root) {
                if let Some(stat) = TaskStat::read(&self.proc_root.join(pid.to_string())) {
                    all.entry(stat.parent).or_default().push(pid);
                }
            }
            all
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_real_child_that_was_killed_is_seen_with_its_end_until_it_is_waited_for() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        let find = || {
            let children = ChildProcesses::new(Path::new("/proc")).of(std::process::id());
            children.into_iter().find(|known| known.pid == pid)
        };
        assert!(find().is_some_and(|known| known.state != 'Z' && known.ended.is_none()));
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(child.id().try_into().unwrap()).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let dead = loop {
            let known = find().unwrap();
            if known.state == 'Z' || std::time::Instant::now() > deadline {
                break known;
            }
            std::thread::yield_now();
        };
        assert_eq!((dead.state, dead.ended), ('Z', Some(ProcessExit::Signal(9))));
        assert_eq!(
            dead.to_string(),
            format!("process {pid} (sleep), signal 9 (exit code 137)")
        );
        child.wait().unwrap();
        assert_eq!(find(), None);
    }
}
