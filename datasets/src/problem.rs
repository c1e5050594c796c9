//! Problems of the input: all are counted, and the first hundred of a kind are retained in full.

use std::collections::BTreeMap;

use serde::Serialize;

/// Maximum number of problems of one kind that are retained.
const KEPT: usize = 100;

/// Problem of the input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InputProblem {
    /// Path of the file, relative to the opened path.
    pub file: String,
    /// Line, from 1; 0 for the whole file.
    pub line: u64,
    /// Field; empty for the whole row.
    pub field: String,
    /// Description, and the action taken.
    pub what: String,
}

/// Problems of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ProblemGroup {
    /// Total number, including those not retained.
    pub count: u64,
    /// Number of problems that lost their row.
    pub rows_lost: u64,
    /// First hundred problems.
    pub first: Vec<InputProblem>,
}

/// Problems by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ProblemSummary {
    pub kinds: BTreeMap<&'static str, ProblemGroup>,
}

impl ProblemSummary {
    /// Adds a problem; `problem` is called only if it is retained.
    pub(crate) fn add(&mut self, kind: &'static str, loses: bool, problem: impl FnOnce() -> InputProblem) {
        let group = self.kinds.entry(kind).or_default();
        group.count += 1;
        group.rows_lost += u64::from(loses);
        if group.first.len() < KEPT {
            group.first.push(problem());
        }
    }

    /// Adds the problems of the following part.
    pub(crate) fn join(&mut self, behind: Self) {
        for (kind, group) in behind.kinds {
            let all = self.kinds.entry(kind).or_default();
            all.count += group.count;
            all.rows_lost += group.rows_lost;
            let room = KEPT - all.first.len();
            all.first.extend(group.first.into_iter().take(room));
        }
    }

    /// Returns the number of problems of a kind.
    pub fn count(&self, kind: &str) -> u64 {
        self.kinds.get(kind).map_or(0, |group| group.count)
    }

    /// Returns the number of rows lost to problems of all kinds. A truncated file counts as one.
    pub fn rows_lost(&self) -> u64 {
        self.kinds.values().map(|group| group.rows_lost).sum()
    }

    /// Returns true if there is no problem.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }
}
