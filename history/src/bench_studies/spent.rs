//! What an answer costs: the time that one waits for it, and that of all processors together.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// What an answer cost.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Spent {
    pub(super) seconds: f64,
    /// Of this process, on all cores; it hardly depends on who else uses them.
    pub(super) cpu_s: f64,
}

impl Spent {
    /// What `work` gives, and its cost.
    pub(super) fn on<T>(work: impl FnOnce() -> T) -> (T, Self) {
        let (begun, cpu) = (Instant::now(), processor());
        let done = work();
        let seconds = begun.elapsed().as_secs_f64();
        let cpu_s = processor().saturating_sub(cpu).as_secs_f64();
        (done, Self { seconds, cpu_s })
    }
}

/// Processor time of this process so far.
fn processor() -> Duration {
    let told = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(told.tv_sec.unsigned_abs(), u32::try_from(told.tv_nsec).unwrap_or(0))
}
