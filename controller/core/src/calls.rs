//! Checkpoint calls of the decision core: single steps besides those of the interval rule, and new interval rules.

use rankguard_checkpoint_schedule::agreement::{CheckpointCallMessage, JobProgress, StepScheduler};
use rankguard_model::{CheckpointCall, Generation, Step, Timestamp};
use serde::{Deserialize, Serialize};

/// Limit of open calls; the oldest is dropped first.
const OPEN_MAX: usize = 8;

/// Checkpoint calls of one generation of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CheckpointCalls {
    caller: StepScheduler,
    /// Calls that are neither committed nor void, oldest first, and the current rule.
    open: Vec<CheckpointCallMessage>,
    /// Time of the last call that was caused by a node at risk; `None` before the first.
    pub at_risk: Option<Timestamp>,
}

impl CheckpointCalls {
    /// Creates the calls of a generation; none is open.
    pub(crate) fn new(generation: Generation) -> Self {
        Self {
            caller: StepScheduler::new(generation),
            open: Vec::new(),
            at_risk: None,
        }
    }

    /// Returns the calls of steps that are neither committed nor void, and the current interval rule. They are sent
    /// again to an agent that rejoins.
    pub(crate) fn open(&self) -> &[CheckpointCallMessage] {
        &self.open
    }

    /// Calls the earliest step before which the call is expected to reach every rank.
    pub(crate) fn call(&mut self, pace: &JobProgress) -> CheckpointCallMessage {
        let word = self.caller.call_step(pace);
        if self.open.len() >= OPEN_MAX {
            self.open.remove(0);
        }
        self.open.push(word);
        word
    }

    /// Calls a new interval rule, which replaces an earlier one: a checkpoint every `every` steps, none for 0.
    pub(crate) fn rule(&mut self, pace: &JobProgress, every: u64) -> CheckpointCallMessage {
        let word = self.caller.call_interval(pace, every);
        self.open
            .retain(|word| !matches!(word.call, CheckpointCall::Every { .. }));
        if self.open.len() >= OPEN_MAX {
            self.open.remove(0);
        }
        self.open.push(word);
        word
    }

    /// Records that a rank takes no image of a step, or could not store it. If the step was called, its call is dropped
    /// and later calls look further ahead.
    pub(crate) fn void(&mut self, step: Step) {
        if self.open.iter().any(|word| names(word, step)) {
            self.caller.record_late_call(step);
        }
        self.open.retain(|word| !names(word, step));
    }

    /// Records a commit; calls up to its step are dropped. If the step was called, later calls look less far ahead.
    pub(crate) fn committed(&mut self, generation: Generation, step: Step) {
        if generation == self.caller.generation() && self.open.iter().any(|word| names(word, step)) {
            self.caller.record_timely_call();
        }
        self.open
            .retain(|word| !matches!(word.call, CheckpointCall::At { step: called } if called <= step));
    }
}

/// Returns true if a call is for exactly this step.
fn names(word: &CheckpointCallMessage, step: Step) -> bool {
    matches!(word.call, CheckpointCall::At { step: called } if called == step)
}
