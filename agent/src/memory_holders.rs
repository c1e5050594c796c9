//! Processes that hold the most memory of this node. Read only when memory is short, because the whole process table is
//! read for it.

use std::cmp::Reverse;

use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};

use crate::quantities::gib;

/// Number of processes that are named.
const NAMED: usize = 3;

/// Returns a text with the processes that hold the most memory; none if the system does not report it.
pub(crate) fn of_memory() -> Option<String> {
    let mut system = System::new().ok()?;
    let wanted = ProcessRefreshKind::nothing().without_tasks().with_memory();
    system.refresh_processes_specifics(ProcessesToUpdate::All, true, wanted);
    let mut processes: Vec<_> = system.processes().values().collect();
    processes.sort_by_key(|process| (Reverse(process.memory()), process.pid()));
    let named = processes.into_iter().filter(|process| process.memory() > 0).take(NAMED);
    let named: Vec<String> = named
        .map(|process| {
            let name = process.name().to_string_lossy();
            format!("{name} (process {}) {}", process.pid(), gib(process.memory()))
        })
        .collect();
    (!named.is_empty()).then(|| format!("most is held by {}", named.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processes_of_this_machine_are_named_with_what_they_hold() {
        let told = of_memory().expect("this test is a process that holds memory");
        assert!(
            told.starts_with("most is held by ") && told.contains("(process "),
            "{told}"
        );
        assert!(told.matches("(process ").count() <= NAMED, "{told}");
    }
}
