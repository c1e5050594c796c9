//! Checkpoints that the brain calls for, besides those of the job's rule.

use rankguard_checkpoint_schedule::agreement::{Caller, Pace, Word};
use rankguard_model::{CheckpointCall, Generation, Step, Timestamp};
use serde::{Deserialize, Serialize};

/// Calls that are open at a time; the oldest is given up first.
const OPEN_MAX: usize = 8;

/// What was called in one generation of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    caller: Caller,
    open: Vec<Word>,
    /// When the last call for a risk was made.
    pub at_risk: Option<Timestamp>,
}

impl Calls {
    /// Nothing was called yet.
    pub fn new(generation: Generation) -> Self {
        Self {
            caller: Caller::new(generation),
            open: Vec::new(),
            at_risk: None,
        }
    }

    /// Calls whose step is neither committed nor void, and the rule in force: they are said again to an agent that comes
    /// back.
    pub fn open(&self) -> &[Word] {
        &self.open
    }

    /// Calls the nearest step that every rank can be expected to hear of in time.
    pub fn call(&mut self, pace: &Pace) -> Word {
        let word = self.caller.call(pace);
        if self.open.len() >= OPEN_MAX {
            self.open.remove(0);
        }
        self.open.push(word);
        word
    }

    /// Calls a new rule; it takes the place of an earlier one.
    pub fn rule(&mut self, pace: &Pace, every: u64) -> Word {
        let word = self.caller.rule(pace, every);
        self.open
            .retain(|word| !matches!(word.call, CheckpointCall::Every { .. }));
        if self.open.len() >= OPEN_MAX {
            self.open.remove(0);
        }
        self.open.push(word);
        word
    }

    /// A rank takes no image of a step, or could not keep it.
    pub fn void(&mut self, step: Step) {
        if self.open.iter().any(|word| names(word, step)) {
            self.caller.too_late(step);
        }
        self.open.retain(|word| !names(word, step));
    }

    /// A checkpoint exists: what was called up to its step has become pointless.
    pub fn committed(&mut self, generation: Generation, step: Step) {
        if generation == self.caller.generation() && self.open.iter().any(|word| names(word, step)) {
            self.caller.in_time();
        }
        self.open
            .retain(|word| !matches!(word.call, CheckpointCall::At { step: called } if called <= step));
    }
}

fn names(word: &Word, step: Step) -> bool {
    matches!(word.call, CheckpointCall::At { step: called } if called == step)
}
