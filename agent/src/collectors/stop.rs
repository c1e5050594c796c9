//! How a collector's thread is told to end, and how it waits without sleeping through it.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Shared by all collectors of an agent. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop {
    shared: Arc<(Mutex<bool>, Condvar)>,
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

    /// Waits for `pause` or until asked to end; says whether to end.
    pub(crate) fn wait(&self, pause: Duration) -> bool {
        let stopped = self.shared.0.lock().expect("no holder of the stop flag panics");
        let waited = self.shared.1.wait_timeout_while(stopped, pause, |stopped| !*stopped);
        *waited.expect("no holder of the stop flag panics").0
    }
}
