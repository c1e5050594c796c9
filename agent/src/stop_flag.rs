//! Stop flag of the collectors, with waits that end when it is set.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rankguard_model::Timestamp;

use crate::clock;

/// Stop flag and poll times, shared by all collectors of an agent. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct StopFlag {
    shared: Arc<(Mutex<bool>, Condvar)>,
    /// Last completed poll of each collector, by thread name.
    looks: Arc<Mutex<BTreeMap<String, PollTimes>>>,
}

/// Completed poll of a collector, and the time of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PollTimes {
    pub(crate) at: Timestamp,
    pub(crate) next: Timestamp,
}

impl StopFlag {
    /// Sets the stop flag and wakes all collectors that wait.
    pub(crate) fn stop(&self) {
        *self.shared.0.lock().expect("no holder of the stop flag panics") = true;
        self.shared.1.notify_all();
    }

    /// True if the stop flag is set.
    pub(crate) fn stopped(&self) -> bool {
        *self.shared.0.lock().expect("no holder of the stop flag panics")
    }

    /// Records a completed poll of this thread's collector; the next one is due after `pause`.
    pub(crate) fn record_poll(&self, pause: Duration) {
        let thread = std::thread::current();
        let Some(name) = thread.name() else { return };
        let at = clock::now();
        let next = Timestamp(at.0.saturating_add(i64::try_from(pause.as_nanos()).unwrap_or(i64::MAX)));
        let mut looks = self.looks.lock().expect("no holder of the looks panics");
        match looks.get_mut(name) {
            Some(look) => *look = PollTimes { at, next },
            None => drop(looks.insert(name.to_owned(), PollTimes { at, next })),
        }
    }

    /// Returns the last completed poll of each collector.
    pub(crate) fn poll_times(&self) -> BTreeMap<String, PollTimes> {
        self.looks.lock().expect("no holder of the looks panics").clone()
    }

    /// Records a completed poll, then waits for `pause` or until the stop flag is set. Returns true if it is set.
    pub(crate) fn wait(&self, pause: Duration) -> bool {
        self.record_poll(pause);
        self.rest(pause)
    }

    /// Waits as [`StopFlag::wait`] does, without recording a poll: for a collector which has a poll that hangs.
    pub(crate) fn rest(&self, pause: Duration) -> bool {
        let stopped = self.shared.0.lock().expect("no holder of the stop flag panics");
        let waited = self.shared.1.wait_timeout_while(stopped, pause, |stopped| !*stopped);
        *waited.expect("no holder of the stop flag panics").0
    }
}
