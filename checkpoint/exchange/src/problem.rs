//! What was left out.

use serde::Serialize;

/// Problems of one import that are kept; the rest is counted.
const KEPT: usize = 1000;

/// Something that an import left out or could not check, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The tensor, key or file.
    pub entry: String,
    /// What is the matter with it.
    pub what: String,
}

/// Problems in the order found, of which only the first are kept.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    kept: Vec<Problem>,
    more: usize,
}

impl Problems {
    pub(crate) fn add(&mut self, entry: impl Into<String>, what: impl Into<String>) {
        if self.kept.len() < KEPT {
            self.kept.push(Problem {
                entry: entry.into(),
                what: what.into(),
            });
        } else {
            self.more += 1;
        }
    }

    pub(crate) fn into_vec(mut self) -> Vec<Problem> {
        if self.more > 0 {
            let what = format!("{} more problems are not listed", self.more);
            self.kept.push(Problem {
                entry: "...".to_owned(),
                what,
            });
        }
        self.kept
    }
}
