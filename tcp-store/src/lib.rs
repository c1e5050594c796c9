//! Server of PyTorch's `TCPStore`: the key-value store through which the ranks of a job find each other.
//!
//! A client of torch 2.4 or later connects with `TCPStore(host, port, is_master=False)`. The requests:
//!
//! | opcode | request | reply |
//! |---|---|---|
//! | 0 `VALIDATE` | magic `u32`; first request of a connection | none |
//! | 1 `SET`, 9 `APPEND`, 14 `QUEUE_PUSH` | key, value | none |
//! | 2 `COMPARE_SET` | key, expected value, desired value | value |
//! | 3 `GET` | key | value, empty for an absent key |
//! | 4 `ADD` | key, `i64` | sum as `i64`; the value is decimal text |
//! | 5 `CHECK` | keys | 0 if all are present, otherwise 1 |
//! | 6 `WAIT` | keys | 0 once all have been present |
//! | 7 `GETNUMKEYS` | | `i64` |
//! | 8 `DELETE_KEY` | key | `i64`, 0 or 1 |
//! | 10 `MULTI_GET`, 11 `MULTI_SET` | keys; keys and values | values; none |
//! | 12 `CANCEL_WAIT` | | 1 |
//! | 13 `PING` | nonce `u32` | the nonce |
//! | 15 `QUEUE_POP` | key | length before the pop as `i64`, then the first value if there is one |
//! | 16 `QUEUE_LEN` | key | `i64` |
//! | 17 `LIST_KEYS` | | count `i64`, keys |
//! | 18 `BARRIER` | key, world size `i64` | 0 once that many clients have asked |
//!
//! Numbers are little-endian. A key or a value is a `u64` length and bytes; a list is a `u64` count and its items.
//!
//! | part | content |
//! |---|---|
//! | [`wire`] | Decoder of requests, encoder of replies; no I/O |
//! | [`state`] | Keys, queues and waits as a state machine; no I/O |
//! | [`server`] | The server: one thread, one task a connection |
//!
//! Invariants:
//! - Memory is bounded by [`StoreLimits`]. A client that exceeds a limit, breaks the protocol or asks for the sum of a
//!   value that is not a number loses its connection; others are not affected (RG-9, RG-11).
//! - A connection with unread replies is not read, and a connection with many requests gives way to others.
//!
//! Differences from torch's own server: a compare-and-set that changes nothing wakes no waiter; a wait counts only
//! keys that are not ready; a pushed value that a woken client does not take is offered to the next waiter;
//! connections that do not validate are closed. Absent: TLS and authentication, which torch's clients lack, too.

mod limits;
pub mod server;
pub mod state;
pub mod wire;

pub use limits::StoreLimits;
pub use server::{StoreFigures, StoreHandle, serve};
