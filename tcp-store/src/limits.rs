//! Limits of a store.

use std::time::Duration;

/// Limits of a store and its connections. A connection that exceeds one is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreLimits {
    /// Open connections. Each rank of torch holds a few.
    pub connections: usize,
    /// Keys with a value and non-empty queues.
    pub keys: usize,
    /// Bytes of keys, values, queues and waits, with an allowance for each entry.
    pub stored_bytes: usize,
    /// Bytes of received requests and unsent replies of all connections.
    pub buffered_bytes: usize,
    /// Bytes of a key; torch's server accepts as many.
    pub key_bytes: usize,
    /// Bytes of a value, also after `APPEND`; torch's server accepts as many in a request.
    pub value_bytes: usize,
    /// Keys in one request; torch's server accepts as many.
    pub keys_per_request: usize,
    /// Bytes of one request.
    pub request_bytes: usize,
    /// Bytes of one reply.
    pub reply_bytes: usize,
    /// Unsent bytes above which a connection's requests are left unread.
    pub backlog_bytes: usize,
    /// Time from a connection's start to its `VALIDATE` request.
    pub validation: Duration,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            connections: 32_768,
            keys: 1 << 20,
            stored_bytes: 512 << 20,
            buffered_bytes: 256 << 20,
            key_bytes: 8 << 10,
            value_bytes: 8 << 20,
            keys_per_request: 128 << 10,
            request_bytes: 64 << 20,
            reply_bytes: 64 << 20,
            backlog_bytes: 1 << 20,
            validation: Duration::from_secs(30),
        }
    }
}
