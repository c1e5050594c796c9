//! A free TCP port for a job's rendezvous.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Finds a port that was free a moment ago. Another process may take it before rank 0 does: then rank 0 fails, the
/// generation with it, and the next one gets another port.
pub(crate) fn reserve(host: &str) -> io::Result<u16> {
    // A name that only other nodes resolve to this one cannot be bound; a port that is free on all addresses will do.
    let listener = TcpListener::bind((host, 0)).or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
    Ok(listener.local_addr()?.port())
}
