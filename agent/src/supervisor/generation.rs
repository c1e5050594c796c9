//! One generation of a job on this node, from the agent's side.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rankguard_model::{Generation, JobId, ProcessExit, Rank, RankRef};

use super::handle::SupervisorHandle;
use super::report::StartError;
use crate::processes::{EndedProcesses, ProcessCgroup, ProcessEntry, ProcessTable, end_processes};

/// Ranks of a generation below one supervisor. A generation has several supervisors where standby processes of different
/// supervisors became its ranks.
#[derive(Debug)]
pub(super) struct SupervisedGeneration {
    pub(super) job: JobId,
    pub(super) generation: Generation,
    pub(super) handle: Arc<SupervisorHandle>,
    pub(super) cgroup: Option<ProcessCgroup>,
    state: Mutex<GenerationState>,
}

/// Ranks of a generation.
#[derive(Debug, Default)]
pub(super) struct GenerationState {
    /// True while further ranks are to be started.
    pub(super) is_launching: bool,
    pub(super) starting: BTreeMap<u32, SyncSender<Result<(), StartError>>>,
    /// Process ids by rank.
    pub(super) running: BTreeMap<u32, u32>,
    /// Numbers on the node of ranks that are leaving, by rank.
    pub(super) leaving: BTreeMap<u32, u32>,
    /// Processes that have left the generation and wait for another, by number on the node.
    pub(super) kept: BTreeMap<u32, u32>,
    /// Time at which the last of them left.
    pub(super) kept_since: Option<Instant>,
    /// Numbers on the node of the processes that waited when the generation took their supervisor.
    pub(super) waiting: BTreeSet<u32>,
}

impl SupervisedGeneration {
    /// Returns a generation that is launching.
    pub(super) fn new(rank: &RankRef, handle: Arc<SupervisorHandle>, cgroup: Option<ProcessCgroup>) -> Self {
        Self {
            job: rank.job.clone(),
            generation: rank.generation,
            handle,
            cgroup,
            state: Mutex::new(GenerationState {
                is_launching: true,
                ..GenerationState::default()
            }),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, GenerationState> {
        self.state.lock().expect("no holder of a generation panics")
    }

    /// Marks the generation as launching, with a rank of this number on the node.
    pub(super) fn join_launch(self: &Arc<Self>, local_rank: u32) -> Arc<Self> {
        let mut state = self.lock();
        state.is_launching = true;
        state.waiting.remove(&local_rank);
        drop(state);
        self.clone()
    }

    /// Returns how long processes that have left the generation have waited; `None` if none waits.
    pub(super) fn kept_for(&self) -> Option<Duration> {
        let state = self.lock();
        let since = state.kept_since.filter(|_| !state.kept.is_empty());
        since.map(|since| since.elapsed())
    }

    /// Ends the processes that have left the generation, and the supervisor if no rank of the generation runs.
    pub(super) fn end_kept(&self, limit: Duration) {
        let kept = std::mem::take(&mut self.lock().kept);
        let kept: BTreeSet<u32> = kept.into_values().collect();
        end_processes(limit, |table| {
            let mut below = table.descendants(&[self.handle.pid()].into());
            below.retain(|process| kept.contains(&process.pid));
            below
        });
        let state = self.lock();
        if state.running.is_empty() && !state.is_launching {
            self.handle.ask_to_end();
        }
    }

    pub(super) fn rank(&self, rank: u32) -> RankRef {
        RankRef {
            job: self.job.clone(),
            generation: self.generation,
            rank: Rank(rank),
        }
    }

    /// Returns all processes of the generation, without those that have left it.
    pub(super) fn members(&self, table: &ProcessTable) -> Vec<ProcessEntry> {
        let kept: BTreeSet<u32> = self.lock().kept.values().copied().collect();
        let mut below = table.descendants(&[self.handle.pid()].into());
        below.retain(|process| !kept.contains(&process.pid));
        below
    }

    /// Ends all processes of the generation except its supervisor.
    pub(super) fn end_processes(&self, limit: Duration) -> EndedProcesses {
        let until = Instant::now() + limit;
        let in_group = self.cgroup.as_ref().map(|group| group.end(limit)).unwrap_or_default();
        let left = until.saturating_duration_since(Instant::now());
        let mut ended = end_processes(left, |table| self.members(table));
        ended.pids.extend(in_group);
        ended
    }
}

/// Converts a wait status.
pub(super) fn exit_of(status: i32) -> ProcessExit {
    let status = ExitStatus::from_raw(status);
    status
        .signal()
        .map_or(ProcessExit::Code(status.code().unwrap_or(-1)), ProcessExit::Signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_status_is_a_code_or_a_signal() {
        assert_eq!(exit_of(7 << 8), ProcessExit::Code(7));
        assert_eq!(exit_of(9), ProcessExit::Signal(9));
        // With a core dump.
        assert_eq!(exit_of(6 | 0x80), ProcessExit::Signal(6));
    }
}
