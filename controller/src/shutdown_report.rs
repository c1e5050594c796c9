//! Report of a clean shutdown.

use std::net::SocketAddr;

/// Report of a controller that stopped on request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Address on which it listened.
    pub address: SocketAddr,
    /// Events in its journal, including those of earlier starts.
    pub events: u64,
}
