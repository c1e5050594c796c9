//! Standby processes of this node, for views.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard};

use rankguard_model::JobId;

use super::standby_status::StandbyStatus;
use crate::views::StandbyView;

/// Standby processes of each job. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct StandbyBoard(Arc<Mutex<BTreeMap<JobId, BoardEntry>>>);

#[derive(Debug, Clone)]
struct BoardEntry {
    wanted: u32,
    status: Arc<StandbyStatus>,
}

impl StandbyBoard {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, BoardEntry>> {
        self.0.lock().expect("no holder of the standby board panics")
    }

    /// Shows the standby processes of a job.
    pub(crate) fn show(&self, job: &JobId, wanted: u32, status: &Arc<StandbyStatus>) {
        let status = status.clone();
        self.lock().insert(job.clone(), BoardEntry { wanted, status });
    }

    /// Shows those of the matching jobs no more.
    pub(crate) fn hide(&self, which: impl Fn(&JobId) -> bool) {
        self.lock().retain(|job, _| !which(job));
    }

    /// Returns the standby processes of each job.
    pub(crate) fn views(&self) -> Vec<StandbyView> {
        let all = self.lock().clone();
        let view = |(job, entry): (JobId, BoardEntry)| {
            let waiting = entry.status.waiting();
            StandbyView {
                job,
                wanted: entry.wanted,
                memory_bytes: waiting.iter().filter_map(|pid| memory_of(*pid)).sum(),
                waiting,
                is_starting: entry.status.is_starting(),
                problem: entry.status.problem(),
            }
        };
        all.into_iter().map(view).collect()
    }
}

/// Returns the memory of a process. Memory that several processes share counts in equal parts; in full where the agent
/// may not read the maps of another user's process.
fn memory_of(pid: u32) -> Option<u64> {
    let of_file = |file: &str, name: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kilobytes * 1024)
    };
    of_file("smaps_rollup", "Pss:").or_else(|| of_file("status", "VmRSS:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_process_is_read() {
        let own = memory_of(std::process::id()).expect("this process has memory");
        assert!(own > 1 << 20, "{own}");
        assert_eq!(memory_of(u32::MAX), None);
    }
}
