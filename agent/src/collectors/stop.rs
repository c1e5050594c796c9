//! How a collector's thread is told to end, and how it waits without sleeping through it.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rankguard_model::Timestamp;

use crate::clock;

/// Shared by all collectors of an agent. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop {
    shared: Arc<(Mutex<bool>, Condvar)>,
    /// When each collector last ended a look, by the name of its thread.
    looks: Arc<Mutex<BTreeMap<String, Look>>>,
}

/// The end of a collector's look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) at: Timestamp,
    pub(crate) next: Timestamp,
}

impl Stop {
    /// Asks everyone to end.
    pub(crate) fn stop(&self) {
        *self.shared.0.lock().expect("no holder of the stop flag panics") = true;
        self.shared.1.notify_all();
    }

    /// Whether to end.
    pub(crate) fn stopped(&self) -> bool {
        *self.shared.0.lock().expect("no holder of the stop flag panics")
    }

    /// The collector of this thread has ended a look and makes the next after `pause`.
    pub(crate) fn looked(&self, pause: Duration) {
        let thread = std::thread::current();
        let Some(name) = thread.name() else { return };
        let at = clock::now();
        let next = Timestamp(at.0.saturating_add(i64::try_from(pause.as_nanos()).unwrap_or(i64::MAX)));
        let mut looks = self.looks.lock().expect("no holder of the looks panics");
        match looks.get_mut(name) {
            Some(look) => *look = Look { at, next },
            None => drop(looks.insert(name.to_owned(), Look { at, next })),
        }
    }

    /// When each collector last ended a look.
    pub(crate) fn looks(&self) -> BTreeMap<String, Look> {
        self.looks.lock().expect("no holder of the looks panics").clone()
    }

    /// Waits for `pause` or until asked to end; says whether to end. Whoever waits has ended a look.
    pub(crate) fn wait(&self, pause: Duration) -> bool {
        self.looked(pause);
        self.rest(pause)
    }

    /// As [`Stop::wait`], for who has not ended a look: the one that it makes hangs.
    pub(crate) fn rest(&self, pause: Duration) -> bool {
        let stopped = self.shared.0.lock().expect("no holder of the stop flag panics");
        let waited = self.shared.1.wait_timeout_while(stopped, pause, |stopped| !*stopped);
        *waited.expect("no holder of the stop flag panics").0
    }
}
