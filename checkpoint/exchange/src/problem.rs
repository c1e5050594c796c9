//! Problems of an import or export: entries that were left out.

use serde::Serialize;

/// Maximum number of problems that are retained; further ones are counted.
const KEPT: usize = 1000;

/// Entry that an import left out or could not check, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportProblem {
    /// Name of the tensor, key or file.
    pub entry: String,
    /// Reason in one sentence.
    pub what: String,
}

/// Problems in the order found; only the first [`KEPT`] are retained.
#[derive(Debug, Default)]
pub(crate) struct ProblemList {
    kept: Vec<ImportProblem>,
    more: usize,
}

impl ProblemList {
    pub(crate) fn add(&mut self, entry: impl Into<String>, what: impl Into<String>) {
        if self.kept.len() < KEPT {
            self.kept.push(ImportProblem {
                entry: entry.into(),
                what: what.into(),
            });
        } else {
            self.more += 1;
        }
    }

    pub(crate) fn into_vec(mut self) -> Vec<ImportProblem> {
        if self.more > 0 {
            let what = format!("{} more problems are not listed", self.more);
            self.kept.push(ImportProblem {
                entry: "...".to_owned(),
                what,
            });
        }
        self.kept
    }
}
