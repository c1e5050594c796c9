//! Checkpoint calls: steps that the decision core requests besides those of the job's interval rule.

use rankguard_checkpoint_schedule::agreement::{CheckpointCallMessage, JobProgress, StepScheduler};
use rankguard_model::{CheckpointCall, Generation, Step, Timestamp};
use serde::{Deserialize, Serialize};

/// Limit of open calls; the oldest is dropped first.
const OPEN_MAX: usize = 8;

/// Checkpoint calls of one generation of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointCalls {
    caller: StepScheduler,
    open: Vec<CheckpointCallMessage>,
    /// Time of the last call because of a node at risk.
    pub at_risk: Option<Timestamp>,
}

impl CheckpointCalls {
    pub fn new(generation: Generation) -> Self {
        Self {
            caller: StepScheduler::new(generation),
            open: Vec::new(),
            at_risk: None,
        }
    }

    /// Returns calls with steps that are neither committed nor void, and the current interval rule. They are sent again
    /// to an agent that rejoins.
    pub fn open(&self) -> &[CheckpointCallMessage] {
        &self.open
    }

    /// Calls the nearest step that every rank is expected to learn of in time.
    pub fn call(&mut self, pace: &JobProgress) -> CheckpointCallMessage {
        let word = self.caller.call_step(pace);
        if self.open.len() >= OPEN_MAX {
            self.open.remove(0);
        }
        self.open.push(word);
        word
    }

    /// Calls a new interval rule, which replaces an earlier one.
    pub fn rule(&mut self, pace: &JobProgress, every: u64) -> CheckpointCallMessage {
        let word = self.caller.call_interval(pace, every);
        self.open
            .retain(|word| !matches!(word.call, CheckpointCall::Every { .. }));
        if self.open.len() >= OPEN_MAX {
            self.open.remove(0);
        }
        self.open.push(word);
        word
    }

    /// Records that a rank takes no image of a step, or could not store it.
    pub fn void(&mut self, step: Step) {
        if self.open.iter().any(|word| names(word, step)) {
            self.caller.record_late_call(step);
        }
        self.open.retain(|word| !names(word, step));
    }

    /// Records a commit; calls up to its step are dropped.
    pub fn committed(&mut self, generation: Generation, step: Step) {
        if generation == self.caller.generation() && self.open.iter().any(|word| names(word, step)) {
            self.caller.record_timely_call();
        }
        self.open
            .retain(|word| !matches!(word.call, CheckpointCall::At { step: called } if called <= step));
    }
}

fn names(word: &CheckpointCallMessage, step: Step) -> bool {
    matches!(word.call, CheckpointCall::At { step: called } if called == step)
}
