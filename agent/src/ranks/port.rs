//! Free TCP port for a job's rendezvous.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Returns a port that was free a moment ago. If another process takes it before rank 0 does, rank 0 and its
/// generation fail, and the next generation gets another port.
pub(crate) fn reserve(host: &str) -> io::Result<u16> {
    // A name that only other nodes resolve to this one cannot be bound; a port that is free on all addresses suffices.
    let listener = TcpListener::bind((host, 0)).or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
    Ok(listener.local_addr()?.port())
}
