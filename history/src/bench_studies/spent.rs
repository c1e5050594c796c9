//! What an answer costs: the time that one waits for it, and that of all processors together.

use std::iter::Sum;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// What an answer cost.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Spent {
    pub(super) seconds: f64,
    /// Of this process, on all cores; it hardly depends on who else uses them.
    pub(super) cpu_s: f64,
}

impl Spent {
    /// What `work` gives, and the medians of its cost over so many times, at least one.
    pub(super) fn on<T>(times: usize, mut work: impl FnMut() -> T) -> (T, Self) {
        let (mut seconds, mut cpu_s) = (Vec::new(), Vec::new());
        loop {
            let (begun, cpu) = (Instant::now(), processor());
            let done = work();
            seconds.push(begun.elapsed().as_secs_f64());
            cpu_s.push(processor().saturating_sub(cpu).as_secs_f64());
            if seconds.len() >= times {
                let (seconds, cpu_s) = (middle(seconds), middle(cpu_s));
                return (done, Self { seconds, cpu_s });
            }
        }
    }
}

impl Sum for Spent {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            seconds: sum.seconds + one.seconds,
            cpu_s: sum.cpu_s + one.cpu_s,
        })
    }
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Processor time of this process so far.
fn processor() -> Duration {
    let told = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(told.tv_sec.unsigned_abs(), u32::try_from(told.tv_nsec).unwrap_or(0))
}
