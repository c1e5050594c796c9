//! Limits and errors of reading a foreign pickle.

/// Limits of reading one pickle. Memory is at most about 40 bytes a value plus the bytes themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseLimits {
    /// Bytes of the pickle; at most 1 GiB.
    pub bytes: usize,
    /// Values that it may push; shared ones count at each use.
    pub values: usize,
    /// Containers that are open at the same time.
    pub depth: usize,
    /// Values in the memo.
    pub memo: usize,
}

impl Default for ParseLimits {
    fn default() -> Self {
        ParseLimits {
            bytes: 256 << 20,
            values: 16 << 20,
            depth: 512,
            memo: 8 << 20,
        }
    }
}

/// Error of a pickle. The offset is that of the opcode, in bytes from the start of the pickle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pickle exceeds the byte limit.
    #[error("the pickle has {bytes} bytes, more than the limit of {limit}")]
    TooLarge { bytes: usize, limit: usize },
    /// The pickle asks to run or import a name, or for values that it does not contain. Nothing was executed.
    #[error("opcode {opcode} at byte {offset} refused{}: only plain values are read", asks_for(.asks))]
    Refused {
        opcode: &'static str,
        offset: usize,
        /// Name that the opcode asks for, if known (`posix system`).
        asks: Option<String>,
    },
    /// The byte is not an opcode.
    #[error("byte {offset} (0x{byte:02x}) is no pickle opcode")]
    UnknownOpcode { byte: u8, offset: usize },
    /// The opcode is invalid at its place or has an invalid argument.
    #[error("opcode {opcode} at byte {offset}: {what}")]
    Malformed {
        opcode: &'static str,
        offset: usize,
        what: &'static str,
    },
    /// The pickle ends before any value is complete enough to use.
    #[error("the pickle ends at byte {offset}, before its first value is complete")]
    Truncated { offset: usize },
    /// The pickle exceeds another limit.
    #[error("more than {limit} {what} at byte {offset}")]
    Limit {
        /// Kind of the limited objects.
        what: &'static str,
        limit: usize,
        offset: usize,
    },
}

fn asks_for(asks: &Option<String>) -> String {
    asks.as_ref()
        .map(|name| format!(" (asks for {name})"))
        .unwrap_or_default()
}
