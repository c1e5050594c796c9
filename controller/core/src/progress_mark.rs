//! Progress of a job between its failures, which refills its restart budget.

use rankguard_model::Step;
use serde::{Deserialize, Serialize};

/// Steps beyond the furthest step before a failure that count as progress in a job without checkpoints. Reports of
/// ranks differ by a few steps when a failure occurs, so one step proves nothing.
const STEPS_BEYOND: u64 = 10;

/// Furthest progress that counted, and the latest failure that was answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressMark {
    /// Furthest step ever committed.
    committed: Option<Step>,
    /// Furthest step before the last failure, or at the last refill after it.
    step: Option<Step>,
    /// Signature of the latest failure that was answered.
    answered: Option<String>,
}

impl ProgressMark {
    /// Records a committed step. Returns true if it is newer than all before it.
    pub(crate) fn commit(&mut self, step: Step) -> bool {
        let is_newer = Some(step) > self.committed;
        self.committed = self.committed.max(Some(step));
        is_newer
    }

    /// Records a step of a job without checkpoints. Returns true if it lies [`STEPS_BEYOND`] beyond the last failure.
    pub(crate) fn reach(&mut self, step: Step) -> bool {
        let before = self.step.map_or(0, |step| step.0);
        let is_beyond = step.0 >= before.saturating_add(STEPS_BEYOND);
        if is_beyond {
            self.step = Some(step);
        }
        is_beyond
    }

    /// Records a restart after a failure; `furthest` is the furthest step that any generation reported.
    pub(crate) fn restart(&mut self, furthest: Option<Step>) {
        self.step = self.step.max(furthest);
    }

    /// Records the signature of the failure that is being answered.
    pub(crate) fn answer(&mut self, signature: &str) {
        self.answered = Some(signature.to_owned());
    }

    /// Returns true if this was the latest failure that was answered.
    pub(crate) fn is_answered(&self, signature: &str) -> bool {
        self.answered.as_deref() == Some(signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_step_again_is_no_progress() {
        let mut mark = ProgressMark::default();
        assert!(mark.commit(Step(10)) && !mark.commit(Step(10)) && !mark.commit(Step(5)));
        assert!(mark.commit(Step(20)));
        mark.restart(Some(Step(40)));
        assert!(!mark.reach(Step(40)) && !mark.reach(Step(49)));
        assert!(mark.reach(Step(50)) && !mark.reach(Step(51)));
    }
}
