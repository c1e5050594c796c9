//! Controller side of the agreement: selects the step to call.

use rankguard_model::{CheckpointCall, Generation, Step};
use serde::{Deserialize, Serialize};

use super::CheckpointCallMessage;

/// Minimum time between a call and the step that it names, milliseconds.
const MARGIN_MIN_MS: u64 = 2_000;
/// Maximum; a job that needs more cannot be called in time.
const MARGIN_MAX_MS: u64 = 600_000;

/// Progress of a job, as far as known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JobProgress {
    /// Newest step that any rank reported.
    pub newest: Step,
    /// Age of that report, milliseconds.
    pub since_ms: f64,
    /// Duration of a step, milliseconds.
    pub step_ms: f64,
}

/// Selects steps far enough ahead, for one generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepScheduler {
    generation: Generation,
    numbers: u64,
    margin_ms: u64,
    /// Newest called step.
    called: Step,
    /// Newest called step when the margin was last doubled.
    learned: Step,
}

impl StepScheduler {
    pub fn new(generation: Generation) -> Self {
        Self {
            generation,
            numbers: 0,
            margin_ms: MARGIN_MIN_MS,
            called: Step(0),
            learned: Step(0),
        }
    }

    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the nearest step that a call is expected to precede on every rank; always after the last called step.
    pub fn earliest_step(&self, pace: &JobProgress) -> Step {
        let step_ms = if pace.step_ms.is_finite() {
            pace.step_ms.max(0.1)
        } else {
            1_000.0
        };
        let wait_ms = pace.since_ms.max(0.0) + self.margin_ms as f64;
        // One more: the newest report is of a complete step, and the next one has begun.
        let steps = (wait_ms / step_ms).ceil() as u64 + 1;
        Step(pace.newest.0.saturating_add(steps).max(self.called.0.saturating_add(1)))
    }

    /// Calls one step.
    pub fn call_step(&mut self, pace: &JobProgress) -> CheckpointCallMessage {
        let step = self.earliest_step(pace);
        self.called = step;
        self.word(CheckpointCall::At { step })
    }

    /// Calls a new rule: from a step ahead on, a checkpoint every `every` steps.
    pub fn call_interval(&mut self, pace: &JobProgress, every: u64) -> CheckpointCallMessage {
        let from = self.earliest_step(pace);
        self.word(CheckpointCall::Every { from, every })
    }

    fn word(&mut self, call: CheckpointCall) -> CheckpointCallMessage {
        self.numbers += 1;
        CheckpointCallMessage {
            generation: self.generation,
            number: self.numbers,
            call,
        }
    }

    /// Doubles the margin after a rank received a call too late. Reports for steps that were called before the last
    /// doubling count only once.
    pub fn record_late_call(&mut self, step: Step) {
        if step > self.learned && step <= self.called {
            self.learned = self.called;
            self.margin_ms = (self.margin_ms * 2).min(MARGIN_MAX_MS);
        }
    }

    /// Reduces the margin by one eighth after all ranks received a call in time.
    pub fn record_timely_call(&mut self) {
        self.margin_ms = (self.margin_ms - self.margin_ms / 8).max(MARGIN_MIN_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_ahead_by_the_margin_and_never_names_a_step_twice() {
        let mut caller = StepScheduler::new(Generation(3));
        let pace = JobProgress {
            newest: Step(100),
            since_ms: 500.0,
            step_ms: 100.0,
        };
        assert_eq!(caller.call_step(&pace).call, CheckpointCall::At { step: Step(126) });
        assert_eq!(caller.call_step(&pace).call, CheckpointCall::At { step: Step(127) });
        caller.record_late_call(Step(126));
        caller.record_late_call(Step(126));
        caller.record_late_call(Step(127));
        assert_eq!(caller.earliest_step(&pace), Step(146));
        for _ in 0..20 {
            caller.call_step(&pace);
            caller.record_late_call(caller.called);
        }
        assert_eq!(caller.margin_ms, MARGIN_MAX_MS);
        for _ in 0..100 {
            caller.record_timely_call();
        }
        let later = JobProgress {
            newest: Step(10_000),
            ..pace
        };
        assert_eq!(caller.earliest_step(&later), Step(10_026));
        let strange = JobProgress {
            newest: Step(u64::MAX),
            since_ms: f64::NAN,
            step_ms: f64::NAN,
        };
        assert_eq!(caller.earliest_step(&strange), Step(u64::MAX));
    }
}
