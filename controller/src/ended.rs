//! How a controller's life ended well.

use std::net::SocketAddr;

/// What can be said of a controller that was asked to stop and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Where it listened.
    pub address: SocketAddr,
    /// Events in its journal, those of earlier lives included.
    pub events: u64,
}
