//! What a foreign pickle may cost, and how it can fail to be read.

/// What one pickle may cost its reader. Memory is at most about 40 bytes a value plus the bytes themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Size of the pickle, in bytes; never more than a gibibyte.
    pub bytes: usize,
    /// Values that it may push, shared ones counted at each use.
    pub values: usize,
    /// Containers open at one time.
    pub depth: usize,
    /// Values that it may remember for later use.
    pub memo: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            bytes: 256 << 20,
            values: 16 << 20,
            depth: 512,
            memo: 8 << 20,
        }
    }
}

/// Why bytes are no plain values. The offset is that of the opcode, from the start of the pickle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// More bytes than the limit.
    #[error("the pickle has {bytes} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit it broke.
        limit: usize,
    },
    /// It asks to run or import something, or for values that are not in it. Nothing was executed.
    #[error("opcode {opcode} at byte {offset} refused{}: only plain values are read", asks_for(.asks))]
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
    #[error("the pickle ends at byte {offset}, before its first value is complete")]
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
        /// Where it was reached.
        offset: usize,
    },
}

fn asks_for(asks: &Option<String>) -> String {
    asks.as_ref()
        .map(|name| format!(" (asks for {name})"))
        .unwrap_or_default()
}
