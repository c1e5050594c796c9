//! Processes below one supervisor, from the agent's side: standby processes of a job, or ranks of a generation.
//!
//! A supervisor above standby processes becomes that of the next generation, and one above ranks that have left their
//! generation waits for the next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rankguard_model::JobId;

use super::generation::SupervisedGeneration;
use super::handle::SupervisorHandle;
use super::messages::SupervisorReport;
use super::standby_status::StandbyStatus;

/// Supervisor with its processes.
#[derive(Debug)]
pub(super) struct SupervisedGroup {
    pub(super) job: JobId,
    pub(super) handle: Arc<SupervisorHandle>,
    /// Status of processes that have imported modules and wait.
    pub(super) status: Arc<StandbyStatus>,
    state: Mutex<GroupState>,
}

/// State => Waiting | Taken by a generation | Ended.
#[derive(Debug)]
enum GroupState {
    Waiting(WaitingProcesses),
    Taken(Arc<SupervisedGeneration>),
    Ended,
}

/// Processes that wait for a rank, beside those of the status.
#[derive(Debug)]
struct WaitingProcesses {
    /// Processes that were ranks, by number on the node.
    kept: BTreeMap<u32, u32>,
    since: Instant,
}

impl SupervisedGroup {
    /// Returns a group of standby processes.
    pub(super) fn waiting(job: JobId, handle: Arc<SupervisorHandle>, status: Arc<StandbyStatus>) -> Self {
        let waiting = WaitingProcesses {
            kept: BTreeMap::new(),
            since: Instant::now(),
        };
        Self {
            job,
            handle,
            status,
            state: Mutex::new(GroupState::Waiting(waiting)),
        }
    }

    /// Returns a group of a generation.
    pub(super) fn taken(generation: Arc<SupervisedGeneration>) -> Self {
        Self {
            job: generation.job.clone(),
            handle: generation.handle.clone(),
            status: Arc::default(),
            state: Mutex::new(GroupState::Taken(generation)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, GroupState> {
        self.state.lock().expect("no holder of a group of processes panics")
    }

    /// Returns true while the group is one of processes that import modules and wait.
    pub(super) fn is_standby(&self) -> bool {
        matches!(&*self.lock(), GroupState::Waiting(waiting) if waiting.kept.is_empty())
    }

    /// Returns true if a process that was the rank of this number on the node waits.
    pub(super) fn has_kept(&self, local_rank: u32) -> bool {
        matches!(&*self.lock(), GroupState::Waiting(waiting) if waiting.kept.contains_key(&local_rank))
    }

    /// Returns how long processes that were ranks have waited; `None` if none waits.
    pub(super) fn kept_for(&self) -> Option<Duration> {
        match &*self.lock() {
            GroupState::Waiting(waiting) => (!waiting.kept.is_empty()).then(|| waiting.since.elapsed()),
            GroupState::Taken(generation) => generation.kept_for(),
            GroupState::Ended => None,
        }
    }

    /// Returns true unless a generation has the supervisor.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(&*self.lock(), GroupState::Waiting(_))
    }

    /// Waiting => Taken: the supervisor becomes that of a generation; returns false if it has ended.
    pub(super) fn take_over(&self, generation: &Arc<SupervisedGeneration>) -> bool {
        let mut state = self.lock();
        let GroupState::Waiting(waiting) = &*state else {
            return false;
        };
        if self.handle.has_ended() {
            return false;
        }
        generation.lock().waiting = waiting.kept.keys().copied().collect();
        *state = GroupState::Taken(generation.clone());
        self.status.clear();
        true
    }

    /// Taken => Waiting, if processes have left the generation and wait; returns true if so.
    pub(super) fn release(&self) -> bool {
        let mut state = self.lock();
        let GroupState::Taken(generation) = &*state else {
            return false;
        };
        let kept = std::mem::take(&mut generation.lock().kept);
        if kept.is_empty() {
            return false;
        }
        let since = Instant::now();
        *state = GroupState::Waiting(WaitingProcesses { kept, since });
        true
    }

    /// Returns the generation that the supervisor belongs to.
    pub(super) fn generation(&self) -> Option<Arc<SupervisedGeneration>> {
        match &*self.lock() {
            GroupState::Taken(generation) => Some(generation.clone()),
            GroupState::Waiting(_) | GroupState::Ended => None,
        }
    }

    /// Waiting | Taken => Ended; returns the generation that the supervisor belonged to.
    pub(super) fn end(&self) -> Option<Arc<SupervisedGeneration>> {
        match std::mem::replace(&mut *self.lock(), GroupState::Ended) {
            GroupState::Taken(generation) => Some(generation),
            GroupState::Waiting(_) | GroupState::Ended => None,
        }
    }

    /// Records a report while the processes wait.
    pub(super) fn note(&self, report: SupervisorReport) {
        match report {
            SupervisorReport::StandbyReady { number, pid, threads } => {
                tracing::info!(job = %self.job, pid, threads, "a standby process waits");
                self.status.ready(number, pid);
            }
            SupervisorReport::StandbyEnded { number, problem } => {
                tracing::warn!(job = %self.job, problem, "a standby process ended");
                self.status.ended(number, problem);
            }
            SupervisorReport::Started { .. }
            | SupervisorReport::Refused { .. }
            | SupervisorReport::Exited { .. }
            | SupervisorReport::Kept { .. } => {}
        }
    }
}
