//! Choice of a port that no other process takes while nothing is bound to it.
//!
//! A rank that serves its own rendezvous binds the port seconds after its start: only then may the agent release it. The kernel
//! gives ports of `ip_local_port_range` to any socket that requests none (`ip(7)`), so the port is outside of that range. Agents of
//! one host share a table of the chosen ports: an abstract Unix socket for each, which the kernel removes with its agent and keeps
//! per network namespace, as ports are. What is left is a program that was configured to use that very number.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::ops::RangeInclusive;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

/// Lowest port that is chosen: those of widespread services are below.
const LOWEST: u16 = 20_000;
/// Ports that are tried.
const TRIES: usize = 64;
/// Ports outside of the kernel's range that there must be: with fewer, several jobs of a host could take all.
const LEAST: usize = 256;

/// Claim of a port among the agents of this host; ends when dropped.
#[derive(Debug)]
pub(super) struct PortClaim {
    _socket: UnixDatagram,
}

impl PortClaim {
    /// Claims a port; returns an error if another agent has it.
    pub(super) fn take(port: u16) -> io::Result<Self> {
        let address = SocketAddr::from_abstract_name(format!("rankguard-master-port-{port}"))?;
        let socket = UnixDatagram::bind_addr(&address)?;
        Ok(Self { _socket: socket })
    }
}

/// Returns ports that the kernel gives to no socket by itself, in random order; none if there are too few.
pub(super) fn candidates(proc_root: &Path) -> impl Iterator<Item = u16> {
    let text = std::fs::read_to_string(proc_root.join("sys/net/ipv4/ip_local_port_range")).unwrap_or_default();
    let ports = text.split_once(char::is_whitespace).and_then(|(first, last)| {
        let kernel = first.trim().parse().ok()?..=last.trim().parse().ok()?;
        Some(outside(&kernel))
    });
    let ports = ports.unwrap_or_default();
    let start = RandomState::new().build_hasher().finish() as usize;
    let count = ports.len();
    (0..count.min(TRIES)).map(move |offset| ports[(start.wrapping_add(offset)) % count])
}

fn outside(kernel: &RangeInclusive<u16>) -> Vec<u16> {
    let ports: Vec<u16> = (LOWEST..=u16::MAX).filter(|port| !kernel.contains(port)).collect();
    if ports.len() < LEAST { Vec::new() } else { ports }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_range(text: &str) -> Vec<u16> {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("sys/net/ipv4");
        std::fs::create_dir_all(&folder).expect("created");
        std::fs::write(folder.join("ip_local_port_range"), text).expect("written");
        candidates(root.path()).collect()
    }

    #[test]
    fn no_candidate_is_a_port_that_the_kernel_gives_away() {
        let ports = with_range("32768\t60999\n");
        assert_eq!(ports.len(), TRIES);
        assert!(
            ports
                .iter()
                .all(|port| *port >= LOWEST && !(32_768..=60_999).contains(port))
        );
        let distinct: std::collections::BTreeSet<&u16> = ports.iter().collect();
        assert_eq!(distinct.len(), TRIES, "none is tried twice");
    }

    #[test]
    fn there_is_none_if_the_kernel_uses_all_or_states_no_range() {
        assert!(with_range("1024 65535\n").is_empty());
        assert!(with_range("20100 65535\n").is_empty(), "too few");
        assert!(with_range("").is_empty());
    }

    #[test]
    fn a_port_is_claimed_once_until_the_claim_ends() {
        // Other tests claim ports above the lowest one.
        let claim = PortClaim::take(7).expect("claimed");
        assert!(PortClaim::take(7).is_err());
        drop(claim);
        PortClaim::take(7).expect("claimed again");
    }
}
