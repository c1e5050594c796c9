//! Status of the standby processes of one job on this node.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Failures in a row after which no standby process is started before the next launch of the job.
const FAILURES_MAX: u32 = 5;

/// Ended standby processes after which none is started before the next launch of the job.
const ENDS_MAX: u32 = 20;

/// Longest pause after a failure.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Standby processes of a job. They outlive the supervisors above them: one group follows the other.
#[derive(Debug, Default)]
pub(crate) struct StandbyStatus(Mutex<StandbyState>);

#[derive(Debug, Default)]
struct StandbyState {
    /// Process ids of those that wait, by number.
    waiting: BTreeMap<u32, u32>,
    /// Number of the one that imports its modules.
    starting: Option<u32>,
    last_number: u32,
    /// Failed starts since one was complete.
    failures: u32,
    /// Ends since the last launch.
    ends: u32,
    problem: Option<String>,
    retry_at: Option<Instant>,
}

impl StandbyStatus {
    fn lock(&self) -> MutexGuard<'_, StandbyState> {
        self.0.lock().expect("no holder of a standby status panics")
    }

    /// Returns the process ids of those that wait.
    pub(crate) fn waiting(&self) -> Vec<u32> {
        self.lock().waiting.values().copied().collect()
    }

    /// Returns true while one imports its modules.
    pub(crate) fn is_starting(&self) -> bool {
        self.lock().starting.is_some()
    }

    /// Returns the reason of the newest failure, with its consequence if none is started any more.
    pub(crate) fn problem(&self) -> Option<String> {
        let state = self.lock();
        let problem = state.problem.clone()?;
        Some(if state.is_exhausted() {
            format!("{problem}; no further one is started before the next launch")
        } else {
            problem
        })
    }

    /// Returns the number of the next process if one may be started now, and notes it as starting.
    pub(crate) fn next(&self, wanted: u32, now: Instant) -> Option<u32> {
        let mut state = self.lock();
        let is_complete = state.waiting.len() >= wanted as usize || state.starting.is_some();
        if is_complete || state.is_exhausted() || state.retry_at.is_some_and(|at| now < at) {
            return None;
        }
        state.last_number += 1;
        state.starting = Some(state.last_number);
        state.starting
    }

    /// Records a launch of the job: earlier failures count no more.
    pub(crate) fn launched(&self) {
        let mut state = self.lock();
        state.failures = 0;
        state.ends = 0;
        state.problem = None;
        state.retry_at = None;
    }

    /// Records that the processes are ranks or have been ended.
    pub(super) fn clear(&self) {
        let mut state = self.lock();
        state.waiting.clear();
        state.starting = None;
    }

    pub(super) fn ready(&self, number: u32, pid: u32) {
        let mut state = self.lock();
        state.starting = None;
        state.failures = 0;
        state.problem = None;
        state.waiting.insert(number, pid);
    }

    pub(super) fn ended(&self, number: u32, problem: String) {
        let mut state = self.lock();
        if state.waiting.remove(&number).is_none() {
            state.failures += 1;
        }
        if state.starting == Some(number) {
            state.starting = None;
        }
        state.ends += 1;
        let pause = Duration::from_secs(1 << state.ends.min(6)).min(PAUSE_MAX);
        state.retry_at = Some(Instant::now() + pause);
        state.problem = Some(problem);
    }

    /// Records the loss of all processes with their supervisor.
    pub(super) fn lost(&self) {
        self.clear();
        self.ended(0, "the supervisor process above the standby processes ended".to_owned());
    }
}

impl StandbyState {
    fn is_exhausted(&self) -> bool {
        self.failures >= FAILURES_MAX || self.ends >= ENDS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_a_pause_and_a_bound_until_the_next_launch() {
        let status = StandbyStatus::default();
        let now = Instant::now();
        let late = now + Duration::from_secs(3600);
        assert_eq!(status.next(2, now), Some(1));
        assert_eq!(status.next(2, now), None, "one at a time");
        status.ready(1, 4711);
        assert_eq!(status.next(2, now), Some(2));
        status.ready(2, 4712);
        assert_eq!(status.next(2, now), None, "complete");
        status.ended(1, "killed".to_owned());
        assert_eq!(status.next(2, Instant::now()), None, "after a pause");
        assert_eq!(status.next(2, late), Some(3));
        for number in 3..8 {
            status.ended(number, "no module".to_owned());
            let _ = status.next(2, late);
        }
        assert_eq!(status.next(2, late), None, "five failures in a row");
        let problem = status.problem().expect("a problem");
        assert!(problem.starts_with("no module; no further"), "{problem}");
        status.launched();
        assert_eq!((status.problem(), status.waiting()), (None, vec![4712]));
        assert!(status.next(2, Instant::now()).is_some());
    }
}
