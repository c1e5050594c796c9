//! Limits, errors and problems of reading a foreign dump.

use serde::{Deserialize, Serialize};

/// Limits for reading one dump. Memory is at most about 40 bytes a value plus the bytes themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DumpLimits {
    /// Size of the file, bytes; default 256 MiB.
    pub bytes: usize,
    /// Number of values that the file may push, shared ones counted at each use; default 16 Mi.
    pub values: usize,
    /// Number of containers open at one time; default 512.
    pub depth: usize,
    /// Number of values that a pickle may memoise; default 8 Mi.
    pub memo: usize,
    /// Units of work (items examined, bytes of text copied) when values become a dump; default 128 Mi. Bounds a small
    /// file that uses one large value many times.
    pub work: u64,
}

impl DumpLimits {
    /// Returns the limits of the pickle reader.
    pub(crate) fn of_pickle(&self) -> rankguard_pickle::ParseLimits {
        rankguard_pickle::ParseLimits {
            bytes: self.bytes,
            values: self.values,
            depth: self.depth,
            memo: self.memo,
        }
    }
}

impl Default for DumpLimits {
    /// A dump of 20,000 entries with stacks of forty frames is below a tenth of these.
    fn default() -> Self {
        DumpLimits {
            bytes: 256 << 20,
            values: 16 << 20,
            depth: 512,
            memo: 8 << 20,
            work: 128 << 20,
        }
    }
}

/// Error of reading a dump.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file is empty.
    #[error("the dump is empty")]
    Empty,
    /// The file exceeds [`DumpLimits::bytes`].
    #[error("the dump has {bytes} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Size of the file.
        bytes: usize,
        /// Limit in bytes.
        limit: usize,
    },
    /// The file is not a valid pickle, or requires more than plain values. Nothing was executed.
    #[error("pickle: {0}")]
    Pickle(#[from] rankguard_pickle::Error),
    /// The dump exceeds another limit.
    #[error("more than {limit} {what}")]
    Limit {
        /// Name of the limited quantity.
        what: &'static str,
        limit: usize,
    },
    /// The file is not valid JSON.
    #[error("JSON: {what}")]
    Json {
        /// Message of the parser, with line and column.
        what: String,
    },
    /// The value is valid but has another shape than a dump.
    #[error("no flight-recorder dump: {what}")]
    NotADump {
        /// Unexpected or missing part.
        what: &'static str,
    },
}

/// Oddity in a readable dump; the analysis continues without the odd part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DumpProblem {
    /// Rank of the dump, if known.
    pub rank: Option<u32>,
    /// Field with its position (`entries[3].state`).
    pub place: String,
    /// Description of the oddity.
    pub what: String,
}

/// Problems in the order found, of which only the first are retained.
#[derive(Debug, Default)]
pub(crate) struct DumpProblems {
    kept: Vec<DumpProblem>,
    more: usize,
}

/// Maximum number of problems of one dump or one analysis.
const KEPT: usize = 64;

impl DumpProblems {
    pub(crate) fn add(&mut self, rank: Option<u32>, place: impl Into<String>, what: impl Into<String>) {
        if self.kept.len() < KEPT {
            self.kept.push(DumpProblem {
                rank,
                place: place.into(),
                what: what.into(),
            });
        } else {
            self.more += 1;
        }
    }

    pub(crate) fn into_vec(mut self, rank: Option<u32>) -> Vec<DumpProblem> {
        if self.more > 0 {
            let what = format!("{} more problems of this dump are not listed", self.more);
            self.kept.push(DumpProblem {
                rank,
                place: "dump".into(),
                what,
            });
        }
        self.kept
    }
}
