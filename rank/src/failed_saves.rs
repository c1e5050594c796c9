//! Saves that did not become part of a checkpoint, for the trainer's counters.

use std::collections::{BTreeSet, VecDeque};

use rankguard_model::Step;

/// Failures that are retained for the caller; of more, the newest.
const FAILURES_MAX: usize = 16;
/// Steps that are remembered, so that a step is counted once however many ranks failed.
const STEPS_MAX: usize = 1_024;

/// Steps with a void checkpoint.
#[derive(Debug, Default)]
pub(crate) struct FailedSaves {
    count: u64,
    steps: BTreeSet<Step>,
    newest: VecDeque<(Step, String)>,
    last: Option<(Step, String)>,
}

impl FailedSaves {
    /// Counts a void checkpoint; later reports of the same step are ignored.
    pub(crate) fn record(&mut self, step: Step, reason: String) {
        if !self.remember(step) {
            return;
        }
        self.count = self.count.saturating_add(1);
        if self.newest.len() == FAILURES_MAX {
            self.newest.pop_front();
        }
        self.last = Some((step, reason.clone()));
        self.newest.push_back((step, reason));
    }

    /// Ignores later reports of a step of which this rank took no image: the caller knows it from the save.
    pub(crate) fn exclude(&mut self, step: Step) {
        self.remember(step);
    }

    /// Returns whether the step is new.
    fn remember(&mut self, step: Step) -> bool {
        let is_new = self.steps.insert(step);
        if self.steps.len() > STEPS_MAX {
            self.steps.pop_first();
        }
        is_new
    }

    /// Void checkpoints since the start.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The newest one and its reason.
    pub(crate) fn last(&self) -> Option<&(Step, String)> {
        self.last.as_ref()
    }

    /// Those since the last call, oldest first; at most 16.
    pub(crate) fn take(&mut self) -> Vec<(Step, String)> {
        self.newest.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_counts_once_and_the_newest_reasons_are_retained() {
        let mut failed = FailedSaves::default();
        for step in 1..=20 {
            for rank in 0..2 {
                failed.record(Step(step), format!("rank {rank}: no space"));
            }
        }
        assert_eq!(failed.count(), 20);
        let taken = failed.take();
        assert_eq!((taken.len(), taken[0].0, failed.take().len()), (16, Step(5), 0));
        assert_eq!(failed.last(), Some(&(Step(20), "rank 0: no space".to_owned())));
        for step in 21..2_000 {
            failed.record(Step(step), String::new());
        }
        assert_eq!((failed.count(), failed.steps.len()), (1_999, STEPS_MAX));
        failed.exclude(Step(2_000));
        failed.record(Step(2_000), "no slot was free".to_owned());
        assert_eq!(failed.count(), 1_999, "this rank skipped it");
    }
}
