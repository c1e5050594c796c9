//! Restart budget of a job: fruitless restarts, and retries by failure signature.

use super::Job;
use crate::limits::RETRIES_MAX;

impl Job {
    /// Returns the number of restarts after failures since the job last made progress.
    pub fn fruitless_restarts(&self) -> u32 {
        self.fruitless
    }

    /// Returns true if a restart brought the job no further, or was tried for this failure before.
    pub(crate) fn has_tried_restart(&self, signature: &str) -> bool {
        self.fruitless > 0 || self.retries.get(signature).is_some_and(|count| *count > 0)
    }

    /// Returns true if no restart is left. The limit holds across different failures: work that is lost every time is
    /// not worth its GPU hours.
    pub fn is_budget_spent(&self) -> bool {
        self.fruitless >= self.spec.max_restarts
    }

    /// Returns the number of failure signatures with counted retries.
    pub fn retried_failures(&self) -> usize {
        self.retries.len()
    }

    /// Counts a retry of a failure. Returns the number of retries before it if the limit is reached; then none is
    /// counted.
    pub(crate) fn retry(&mut self, signature: &str, limit: u32) -> Result<(), u32> {
        if self.retries.len() >= RETRIES_MAX && !self.retries.contains_key(signature) {
            self.retries.pop_first();
        }
        let count = self.retries.entry(signature.to_owned()).or_insert(0);
        if *count >= limit {
            return Err(*count);
        }
        *count += 1;
        Ok(())
    }

    /// Resets the retries of one failure.
    pub(crate) fn reset_retries(&mut self, signature: &str) {
        self.retries.remove(signature);
    }

    /// Resets the count of fruitless restarts.
    pub(crate) fn reset_fruitless(&mut self) {
        self.fruitless = 0;
    }

    /// Resets fruitless restarts and retries. If the progress was made before the failure that is being answered now,
    /// that failure remains counted once.
    pub(crate) fn refill_budget(&mut self, is_before_failure: bool) {
        if !is_before_failure {
            self.fruitless = 0;
            self.retries.clear();
            return;
        }
        self.fruitless = self.fruitless.min(1);
        let mark = &self.progress_mark;
        self.retries.retain(|signature, _| mark.is_answered(signature));
        for count in self.retries.values_mut() {
            *count = (*count).min(1);
        }
    }
}
