//! Counts of a job's checkpoint attempts by outcome.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Step;

/// Reasons counted separately; further ones are counted as [`OTHER_REASONS`].
const REASONS_MAX: usize = 8;
/// Characters retained of a reason.
const REASON_LEN_MAX: usize = 240;
/// Key of the combined count of further reasons.
const OTHER_REASONS: &str = "other reasons";

/// Counts of checkpoint attempts by outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CheckpointCounts {
    /// Number of committed checkpoints.
    pub committed: u64,
    /// Void attempts: a shard or the manifest could not be stored.
    pub void: u64,
    /// Void attempts since the newest commit.
    pub void_in_row: u64,
    /// Void attempts by reason; digits in a reason are replaced by `#`.
    pub reasons: BTreeMap<String, u64>,
    /// Newest committed step.
    pub newest_committed: Option<Step>,
    /// Newest void attempt.
    pub newest_void: Option<VoidCheckpoint>,
}

/// Checkpoint attempt that ended without a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoidCheckpoint {
    /// Step of the attempt.
    pub step: Step,
    /// Cause that the agent or the controller reported.
    pub reason: String,
}

impl CheckpointCounts {
    /// Counts a committed checkpoint.
    pub fn count_committed(&mut self, step: Step) {
        self.committed = self.committed.saturating_add(1);
        self.newest_committed = self.newest_committed.max(Some(step));
        self.void_in_row = 0;
    }

    /// Counts a void checkpoint.
    pub fn count_void(&mut self, step: Step, reason: &str) {
        self.void = self.void.saturating_add(1);
        self.void_in_row = self.void_in_row.saturating_add(1);
        let reason: String = reason.chars().take(REASON_LEN_MAX).collect();
        let mut kind = without_numbers(&reason);
        if self.reasons.len() >= REASONS_MAX && !self.reasons.contains_key(&kind) {
            kind = OTHER_REASONS.to_owned();
        }
        let count = self.reasons.entry(kind).or_default();
        *count = count.saturating_add(1);
        self.newest_void = Some(VoidCheckpoint { step, reason });
    }

    /// Returns true if the newest attempt is void: none was committed since, or only an earlier step.
    pub fn fails_now(&self) -> bool {
        let newest = self.newest_void.as_ref().map(|void| void.step);
        newest.is_some() && (self.void_in_row > 0 || newest > self.newest_committed)
    }

    /// Formats a warning for a job that ended after step `last` without its newest checkpoints. Returns `None` if the
    /// newest attempt was committed.
    pub fn warning(&self, last: Option<Step>) -> Option<String> {
        let void = self.newest_void.as_ref().filter(|_| self.void_in_row > 0)?;
        let newest = match (self.newest_committed, last) {
            (Some(step), Some(last)) => format!("last commit step {step} of {last}"),
            (Some(step), None) => format!("last commit step {step}"),
            (None, Some(last)) => format!("no checkpoint was committed up to step {last}"),
            (None, None) => "no checkpoint was committed".to_owned(),
        };
        let since = self.newest_committed.map_or("", |_| " since");
        let count = match self.void_in_row {
            1 => format!("1 checkpoint{since} is void"),
            many => format!("{many} checkpoints{since} are void"),
        };
        Some(format!("{newest}: {}; {count}", void.reason))
    }
}

/// Replaces digits by `#`, so that reasons that differ only in steps or sizes are counted together.
fn without_numbers(reason: &str) -> String {
    let mut text = String::with_capacity(reason.len());
    for part in reason.chars() {
        if !part.is_ascii_digit() {
            text.push(part);
        } else if !text.ends_with('#') {
            text.push('#');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn void_checkpoints_after_the_last_commit_give_a_warning() {
        let mut counts = CheckpointCounts::default();
        assert_eq!(counts.warning(Some(Step(59))), None);
        let mut none = CheckpointCounts::default();
        none.count_void(Step(5), "no space left");
        assert_eq!(
            none.warning(Some(Step(29))).as_deref(),
            Some("no checkpoint was committed up to step 29: no space left; 1 checkpoint is void")
        );
        counts.count_committed(Step(15));
        assert_eq!(counts.warning(Some(Step(59))), None);
        for step in [20, 25] {
            counts.count_void(Step(step), &format!("cannot write shard {step}: no space left"));
        }
        let text = counts.warning(Some(Step(59))).expect("two are void");
        assert_eq!(
            text,
            "last commit step 15 of 59: cannot write shard 25: no space left; 2 checkpoints since are void"
        );
        let kind = "cannot write shard #: no space left".to_owned();
        assert_eq!(counts.reasons, BTreeMap::from([(kind, 2)]));
        for reason in ["a", "b", "c", "d", "e", "f", "g", "h", "i"] {
            counts.count_void(Step(30), reason);
        }
        assert_eq!(counts.reasons.len(), REASONS_MAX + 1);
        assert_eq!(counts.reasons[OTHER_REASONS], 2);
        counts.count_committed(Step(60));
        assert_eq!((counts.warning(None), counts.void), (None, 11));
    }
}
