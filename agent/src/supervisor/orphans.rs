//! Orphans that are reparented to the agent: it is a subreaper, so the descendants of a killed supervisor become its
//! children.
//!
//! The agent's own children are identified by session and group: they run in the agent's session, in its group or as
//! leaders of their own. Helpers that open a session are registered.

use std::collections::BTreeSet;
use std::io;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{WaitOptions, waitpid};

use crate::processes::{EndedProcesses, ProcessEntry, ProcessTable, end_processes, first_ended_child};

/// Process ids of helpers with sessions of their own.
static HELPERS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn helpers() -> MutexGuard<'static, BTreeSet<u32>> {
    // A set of numbers is consistent after every operation, also after a panic of its holder.
    HELPERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes this process the subreaper of its descendants. Sandboxes may refuse it; orphans are then reparented to the
/// system, and only their mark identifies them.
pub(crate) fn adopt_orphans() {
    if let Err(problem) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        tracing::warn!(%problem, "cannot become a subreaper; orphans of a killed supervisor are found by their environment only");
    }
}

/// Starts a helper that has or opens a session of its own.
pub(crate) fn spawn_helper(command: &mut Command) -> io::Result<Child> {
    // Locked during the start, so that an orphan search sees the process either registered or not at all.
    let mut helpers = helpers();
    let child = command.spawn()?;
    helpers.insert(child.id());
    Ok(child)
}

/// Removes a helper that was reaped.
pub(crate) fn forget_helper(pid: u32) {
    helpers().remove(&pid);
}

/// Ends all orphans and their descendants, and reaps them.
pub(super) fn end_orphans(limit: Duration) -> EndedProcesses {
    let ended = end_processes(limit, |table| {
        let roots = orphans(table);
        let numbers: BTreeSet<u32> = roots.iter().map(|process| process.pid).collect();
        let mut found = table.descendants(&numbers);
        found.extend(roots);
        found
    });
    reap_orphans();
    ended
}

fn orphans(table: &ProcessTable) -> Vec<ProcessEntry> {
    let Some(own) = table.entry(std::process::id()) else {
        return Vec::new();
    };
    let helpers = helpers();
    table
        .entries()
        .filter(|process| is_orphan(process, own, &helpers))
        .cloned()
        .collect()
}

/// Returns true if a process is an orphan. Sessions and groups are compared as `/proc` shows them: they are 0 if their
/// leader is outside the PID namespace, as under `kubectl exec` and `docker exec`.
fn is_orphan(process: &ProcessEntry, own: &ProcessEntry, helpers: &BTreeSet<u32>) -> bool {
    let is_child = process.parent == own.pid && !helpers.contains(&process.pid);
    let is_foreign_group = process.group != own.group && process.group != process.pid;
    is_child && (process.session != own.session || is_foreign_group)
}

/// Reaps ended orphans, up to the first child that another thread waits for.
pub(super) fn reap_orphans() {
    let Some(own) = ProcessEntry::read(std::process::id()) else {
        return;
    };
    while let Some(pid) = first_ended_child() {
        let entry = u32::try_from(pid.as_raw_nonzero().get())
            .ok()
            .and_then(ProcessEntry::read);
        if !entry.is_some_and(|process| is_orphan(&process, &own, &helpers())) {
            return;
        }
        if !matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(Some(_))) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32, group: u32, session: u32) -> ProcessEntry {
        let text = format!("{pid} (x) S {parent} {group} {session} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0");
        ProcessEntry::parse(&text).expect("an entry")
    }

    #[test]
    fn children_in_foreign_sessions_or_groups_are_orphans() {
        // Session and group leaders of the second agent are outside its PID namespace.
        for own in [process(10, 1, 10, 10), process(10, 1, 0, 0)] {
            let check = |child: &ProcessEntry, expect: bool| {
                assert_eq!(
                    is_orphan(child, &own, &BTreeSet::from([14])),
                    expect,
                    "{child:?} below {own:?}"
                );
            };
            check(&process(11, 10, own.group, own.session), false);
            check(&process(12, 10, 12, own.session), false);
            check(&process(13, 10, 13, 13), true);
            check(&process(14, 10, 14, 14), false);
            check(&process(15, 10, 99, own.session), true);
            check(&process(16, 9, 16, 16), false);
        }
    }
}
