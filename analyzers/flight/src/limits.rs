//! What a foreign dump may cost, how it can fail to be read, and what was odd in one that was read.

use serde::{Deserialize, Serialize};

/// What one dump may cost its reader. Memory is at most about 40 bytes a value plus the bytes themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Size of the file, in bytes.
    pub bytes: usize,
    /// Values that the file may push, shared ones counted at each use.
    pub values: usize,
    /// Containers open at one time.
    pub depth: usize,
    /// Values that a pickle may remember for later use.
    pub memo: usize,
    /// Units of work (items looked at, bytes of text taken) when values become a dump: what bounds a small file that uses
    /// one large value many times.
    pub work: u64,
}

impl Limits {
    /// Those of its parts that the pickle reader keeps.
    pub(crate) fn of_pickle(&self) -> rankguard_pickle::Limits {
        rankguard_pickle::Limits {
            bytes: self.bytes,
            values: self.values,
            depth: self.depth,
            memo: self.memo,
        }
    }
}

impl Default for Limits {
    /// A dump of 20,000 entries with stacks of forty frames stays below a tenth of these.
    fn default() -> Self {
        Limits {
            bytes: 256 << 20,
            values: 16 << 20,
            depth: 512,
            memo: 8 << 20,
            work: 128 << 20,
        }
    }
}

/// Why bytes are no dump.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Nothing was written.
    #[error("the dump is empty")]
    Empty,
    /// More bytes than the limit.
    #[error("the dump has {bytes} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Size of the file.
        bytes: usize,
        /// The limit it broke.
        limit: usize,
    },
    /// A pickle that is none, or that asks for more than plain values. Nothing was executed.
    #[error("pickle: {0}")]
    Pickle(#[from] rankguard_pickle::Error),
    /// More than the reader is willing to hold.
    #[error("more than {limit} {what}")]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// JSON that is none.
    #[error("JSON: {what}")]
    Json {
        /// The parser's words, with line and column.
        what: String,
    },
    /// A fine value of another shape than a dump.
    #[error("no flight-recorder dump: {what}")]
    NotADump {
        /// What was found or missed.
        what: &'static str,
    },
}

/// Something odd in dumps that could be read; the analysis went on without it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// The rank whose dump it is, where that is known.
    pub rank: Option<u32>,
    /// Place and field (`entries[3].state`).
    pub place: String,
    /// What is odd there.
    pub what: String,
}

/// Problems in the order found, of which only the first are kept.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    kept: Vec<Problem>,
    more: usize,
}

/// Problems kept of one dump or one analysis.
const KEPT: usize = 64;

impl Problems {
    pub(crate) fn add(&mut self, rank: Option<u32>, place: impl Into<String>, what: impl Into<String>) {
        if self.kept.len() < KEPT {
            self.kept.push(Problem {
                rank,
                place: place.into(),
                what: what.into(),
            });
        } else {
            self.more += 1;
        }
    }

    pub(crate) fn into_vec(mut self, rank: Option<u32>) -> Vec<Problem> {
        if self.more > 0 {
            let what = format!("{} more problems of this dump are not listed", self.more);
            self.kept.push(Problem {
                rank,
                place: "dump".into(),
                what,
            });
        }
        self.kept
    }
}
