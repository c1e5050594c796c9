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

/// Why bytes are no dump. The offset is that of the opcode, from the start of the file.
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
    /// The pickle asks to run or import something, or for values that are not in it. Nothing was executed.
    #[error("opcode {opcode} at byte {offset} refused{}: a dump holds plain values only", asks_for(.asks))]
    Refused {
        /// Name of the opcode.
        opcode: &'static str,
        /// Where it stands.
        offset: usize,
        /// What it names, as far as that is known (`posix system`).
        asks: Option<String>,
    },
    /// A byte that is no opcode.
    #[error("byte {offset} (0x{byte:02x}) is no pickle opcode")]
    UnknownOpcode {
        /// The byte.
        byte: u8,
        /// Where it stands.
        offset: usize,
    },
    /// An opcode that cannot stand where it does, or with an argument that makes no sense.
    #[error("opcode {opcode} at byte {offset}: {what}")]
    Malformed {
        /// Name of the opcode.
        opcode: &'static str,
        /// Where it stands.
        offset: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// The end came before any value was complete enough to use.
    #[error("the dump ends at byte {offset}, before its first value is complete")]
    Truncated {
        /// Where the end came.
        offset: usize,
    },
    /// More than the reader is willing to hold.
    #[error("more than {limit} {what} at byte {offset}")]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: usize,
        /// Where it was reached; 0 where the place is not known.
        offset: usize,
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

fn asks_for(asks: &Option<String>) -> String {
    asks.as_ref()
        .map(|name| format!(" (asks for {name})"))
        .unwrap_or_default()
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
