//! What was wrong with the input, as values: counted without end, told at length only for the first hundred of a kind.

use std::collections::BTreeMap;

use serde::Serialize;

/// How many problems of one kind are kept whole.
const KEPT: usize = 100;

/// One thing that was wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file, relative to what was opened.
    pub file: String,
    /// The line, from 1; 0 where it is the whole file.
    pub line: u64,
    /// The field, empty where it is the whole row.
    pub field: String,
    /// What is wrong, and what was done about it.
    pub what: String,
}

/// All problems of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Group {
    /// How many there were.
    pub count: u64,
    /// How many of them lost their row.
    pub rows_lost: u64,
    /// The first hundred.
    pub first: Vec<Problem>,
}

/// Problems by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Problems {
    /// Kind to problems.
    pub kinds: BTreeMap<&'static str, Group>,
}

impl Problems {
    /// Adds one.
    pub(crate) fn add(&mut self, kind: &'static str, loses: bool, problem: impl FnOnce() -> Problem) {
        let group = self.kinds.entry(kind).or_default();
        group.count += 1;
        group.rows_lost += u64::from(loses);
        if group.first.len() < KEPT {
            group.first.push(problem());
        }
    }

    /// Adds those of what was read behind this.
    pub(crate) fn join(&mut self, behind: Self) {
        for (kind, group) in behind.kinds {
            let all = self.kinds.entry(kind).or_default();
            all.count += group.count;
            all.rows_lost += group.rows_lost;
            let room = KEPT - all.first.len();
            all.first.extend(group.first.into_iter().take(room));
        }
    }

    /// How many problems of this kind there were.
    pub fn count(&self, kind: &str) -> u64 {
        self.kinds.get(kind).map_or(0, |group| group.count)
    }

    /// How many rows were lost to problems of all kinds. A file that ends too early counts as one.
    pub fn rows_lost(&self) -> u64 {
        self.kinds.values().map(|group| group.rows_lost).sum()
    }

    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }
}
