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
    /// Void attempt of the latest step.
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

/// Later attempts of its generation that are known when an attempt is counted as void: reports arrive in any order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaterAttempts {
    /// A later attempt is void.
    pub is_void: bool,
    /// A later attempt is committed.
    pub is_committed: bool,
}

impl CheckpointCounts {
    /// Counts a committed checkpoint. `void_after` is the number of attempts of later steps that are known to be void.
    pub fn count_committed(&mut self, step: Step, void_after: u64) {
        self.committed = self.committed.saturating_add(1);
        self.newest_committed = self.newest_committed.max(Some(step));
        self.void_in_row = void_after;
    }

    /// Counts a void checkpoint.
    pub fn count_void(&mut self, step: Step, reason: &str, later: LaterAttempts) {
        self.void = self.void.saturating_add(1);
        if !later.is_committed {
            self.void_in_row = self.void_in_row.saturating_add(1);
        }
        let reason: String = reason.chars().take(REASON_LEN_MAX).collect();
        let count = self.reasons.entry(self.kind(&reason)).or_default();
        *count = count.saturating_add(1);
        if !later.is_void && !later.is_committed || self.newest_void.is_none() {
            self.newest_void = Some(VoidCheckpoint { step, reason });
        }
    }

    /// Takes back the count of a void attempt that was committed after all.
    pub fn take_back_void(&mut self, step: Step, reason: &str) {
        self.void = self.void.saturating_sub(1);
        let kind = self.kind(reason);
        if let Some(count) = self.reasons.get_mut(&kind) {
            *count = count.saturating_sub(1);
        }
        self.reasons.retain(|_, count| *count > 0);
        self.newest_void.take_if(|newest| newest.step == step);
    }

    /// Returns the key under which a reason is counted.
    fn kind(&self, reason: &str) -> String {
        let kind = without_numbers(reason);
        if self.reasons.len() >= REASONS_MAX && !self.reasons.contains_key(&kind) {
            return OTHER_REASONS.to_owned();
        }
        kind
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

/// Describes tensors that each rank saved with other values under one name; `None` without any.
pub fn per_rank_note(tensors: &[String]) -> Option<String> {
    let (first, others) = tensors.split_first()?;
    let (tensors, verb, them) = match others.len() {
        0 => (format!("tensor {first}"), "differs", "it"),
        1 => (format!("tensor {first} and 1 more"), "differ", "them"),
        many => (format!("tensor {first} and {many} more"), "differ", "them"),
    };
    Some(format!(
        "{tensors} {verb} from rank to rank: each rank restores its own, and a start with another number of ranks is \
         refused unless replicate= names {them}; values of one rank are saved as rankguard.PerRank"
    ))
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

    const NONE: LaterAttempts = LaterAttempts {
        is_void: false,
        is_committed: false,
    };

    #[test]
    fn void_checkpoints_after_the_last_commit_give_a_warning() {
        let mut counts = CheckpointCounts::default();
        assert_eq!(counts.warning(Some(Step(59))), None);
        let mut none = CheckpointCounts::default();
        none.count_void(Step(5), "no space left", NONE);
        assert_eq!(
            none.warning(Some(Step(29))).as_deref(),
            Some("no checkpoint was committed up to step 29: no space left; 1 checkpoint is void")
        );
        counts.count_committed(Step(15), 0);
        assert_eq!(counts.warning(Some(Step(59))), None);
        for step in [20, 25] {
            counts.count_void(Step(step), &format!("cannot write shard {step}: no space left"), NONE);
        }
        let text = counts.warning(Some(Step(59))).expect("two are void");
        assert_eq!(
            text,
            "last commit step 15 of 59: cannot write shard 25: no space left; 2 checkpoints since are void"
        );
        let kind = "cannot write shard #: no space left".to_owned();
        assert_eq!(counts.reasons, BTreeMap::from([(kind, 2)]));
        for reason in ["a", "b", "c", "d", "e", "f", "g", "h", "i"] {
            counts.count_void(Step(30), reason, NONE);
        }
        assert_eq!(counts.reasons.len(), REASONS_MAX + 1);
        assert_eq!(counts.reasons[OTHER_REASONS], 2);
        counts.count_committed(Step(60), 0);
        assert_eq!((counts.warning(None), counts.void), (None, 11));
    }

    #[test]
    fn tensors_that_differ_from_rank_to_rank_are_named_with_what_follows() {
        assert_eq!(per_rank_note(&[]), None);
        let note = per_rank_note(&["w".to_owned()]).expect("one differs");
        assert_eq!(
            note,
            "tensor w differs from rank to rank: each rank restores its own, and a start with another number of ranks is \
             refused unless replicate= names it; values of one rank are saved as rankguard.PerRank"
        );
        let note = per_rank_note(&["v".to_owned(), "w".to_owned()]).expect("two differ");
        assert!(
            note.starts_with("tensor v and 1 more differ from rank to rank: "),
            "{note}"
        );
    }

    /// A commit takes its time, and an agent may report long after another.
    #[test]
    fn reports_that_arrive_late_change_neither_the_newest_void_attempt_nor_those_in_a_row() {
        let mut counts = CheckpointCounts::default();
        counts.count_void(Step(24), "no space for 24", NONE);
        counts.count_committed(Step(23), 1);
        let text = "last commit step 23 of 30: no space for 24; 1 checkpoint since is void";
        assert_eq!(counts.warning(Some(Step(30))).as_deref(), Some(text));
        let behind = LaterAttempts {
            is_void: true,
            is_committed: true,
        };
        counts.count_void(Step(22), "no space for 22", behind);
        assert_eq!(counts.warning(Some(Step(30))).as_deref(), Some(text));
        assert_eq!((counts.void, counts.void_in_row), (2, 1));
        counts.take_back_void(Step(24), "no space for 24");
        assert_eq!((counts.void, counts.newest_void.clone()), (1, None));
        counts.take_back_void(Step(22), "no space for 22");
        assert_eq!(counts.reasons, BTreeMap::new());
    }
}
