//! Cost of an answer: wall time and processor time.

use std::iter::Sum;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Cost of an answer.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct TimeSpent {
    pub(super) seconds: f64,
    /// Processor time of this process on all cores in seconds; hardly affected by other load.
    pub(super) cpu_s: f64,
}

impl TimeSpent {
    /// Runs `work` `times` times, at least once; returns its result and the medians of its cost.
    pub(super) fn on<T>(times: usize, mut work: impl FnMut() -> T) -> (T, Self) {
        let mut seconds = Vec::new();
        let mut cpu_s = Vec::new();
        loop {
            let begun = Instant::now();
            let cpu = processor();
            let done = work();
            seconds.push(begun.elapsed().as_secs_f64());
            cpu_s.push(processor().saturating_sub(cpu).as_secs_f64());
            if seconds.len() >= times {
                let seconds = middle(seconds);
                let cpu_s = middle(cpu_s);
                return (done, Self { seconds, cpu_s });
            }
        }
    }
}

impl Sum for TimeSpent {
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

/// Returns the processor time of this process so far.
fn processor() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
