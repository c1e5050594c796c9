//! Rendezvous of jobs: the reserved port, and the store that the agent serves on it if the job requests that.
//!
//! A reserved port is bound and does not listen: no other process gets it, and a rank that connects too early is refused
//! and tries again. At the launch it is released to rank 0, or served. Until rank 0 has bound a released port nothing holds it, so
//! the port is one that no other process is given ([`super::port_range`]).

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};

use super::port_range::{PortClaim, candidates};
use rankguard_model::{AGENT_STORE_VARIABLE, Generation, JobId, LaunchOrder};
use rankguard_tcp_store::{StoreHandle, StoreLimits, serve};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};

/// Connections that wait for their accept: all ranks of a large job may connect at once. The kernel's limit applies.
const BACKLOG: i32 = 16_384;

/// Ports of the jobs with rank 0 on this node.
#[derive(Debug)]
pub(crate) struct RendezvousPorts {
    host: String,
    /// Root of procfs.
    proc_root: PathBuf,
    ports: BTreeMap<JobId, RendezvousPort>,
}

#[derive(Debug)]
struct RendezvousPort {
    generation: Generation,
    number: u16,
    /// Absent if the kernel chose the port, or another agent has claimed it meanwhile.
    claim: Option<PortClaim>,
    state: PortState,
}

#[derive(Debug)]
enum PortState {
    /// Bound, not listening.
    Reserved(TcpListener),
    /// Free for rank 0.
    Released,
    Served(StoreHandle),
}

impl RendezvousPorts {
    pub(crate) fn new(host: String, proc_root: PathBuf) -> Self {
        Self {
            host,
            proc_root,
            ports: BTreeMap::new(),
        }
    }

    /// Reserves a port for a generation; a repeated order gets the same one.
    pub(crate) fn reserve(&mut self, job: &JobId, generation: Generation) -> io::Result<u16> {
        if let Some(port) = self.ports.get(job).filter(|port| port.generation == generation) {
            return Ok(port.number);
        }
        let (socket, claim) = chosen_socket(&self.host, &self.proc_root)?;
        let number = socket.local_addr()?.port();
        let port = RendezvousPort {
            generation,
            number,
            claim,
            state: PortState::Reserved(socket),
        };
        self.ports.insert(job.clone(), port);
        Ok(number)
    }

    /// Releases the port to rank 0, or serves the store on it, before ranks start.
    pub(crate) fn open(&mut self, launch: &LaunchOrder) -> io::Result<()> {
        if launch.group_rank != 0 {
            return Ok(());
        }
        let reserved = self.ports.remove(&launch.job);
        let reserved =
            reserved.filter(|port| (port.generation, port.number) == (launch.generation, launch.master_port));
        let is_wanted = launch
            .env
            .get(AGENT_STORE_VARIABLE)
            .is_some_and(|value| value == "True");
        let (claim, reserved) = reserved.map(|port| (port.claim, port.state)).unzip();
        let state = match reserved {
            Some(PortState::Served(store)) if is_wanted => PortState::Served(store),
            state if is_wanted => {
                let socket = match state {
                    Some(PortState::Reserved(socket)) => socket,
                    // The agent has been restarted since the reservation.
                    _ => bound_socket(&self.host, launch.master_port, true)?,
                };
                // Connections inherit it: ended ones must not keep the port from an agent that is restarted.
                sockopt::set_socket_reuseaddr(&socket, true)?;
                listen(&socket, BACKLOG)?;
                PortState::Served(serve(socket, StoreLimits::default())?)
            }
            _ => PortState::Released,
        };
        let port = RendezvousPort {
            generation: launch.generation,
            number: launch.master_port,
            // Without a reservation the agent has been restarted since.
            claim: claim.flatten().or_else(|| PortClaim::take(launch.master_port).ok()),
            state,
        };
        self.ports.insert(launch.job.clone(), port);
        Ok(())
    }

    /// Frees the ports of the matching generations and ends their stores.
    pub(crate) fn close(&mut self, which: impl Fn(&JobId, Generation) -> bool) {
        self.ports.retain(|job, port| {
            let is_kept = !which(job, port.generation);
            if !is_kept {
                report_end(job, port);
            }
            is_kept
        });
    }

    /// Returns the generations with a served store.
    pub(crate) fn served(&self) -> Vec<(JobId, Generation)> {
        let served = self
            .ports
            .iter()
            .filter(|(_, port)| matches!(port.state, PortState::Served(_)));
        served.map(|(job, port)| (job.clone(), port.generation)).collect()
    }
}

fn report_end(job: &JobId, port: &RendezvousPort) {
    let PortState::Served(store) = &port.state else {
        return;
    };
    let figures = store.figures();
    if let Some(reason) = figures.last_reason {
        let closed = figures.closed_connections;
        tracing::warn!(%job, generation = %port.generation, closed, reason, "the job's store closed connections");
    }
}

/// Returns a socket that is bound to a port which no other process is given, with the claim of it. If there is none, the kernel
/// chooses the port.
fn chosen_socket(host: &str, proc_root: &Path) -> io::Result<(TcpListener, Option<PortClaim>)> {
    for port in candidates(proc_root) {
        let Ok(claim) = PortClaim::take(port) else { continue };
        // The rank binds all addresses.
        let is_free = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok();
        if let Some(socket) = is_free.then(|| bound_socket(host, port, false).ok()).flatten() {
            return Ok((socket, Some(claim)));
        }
    }
    Ok((bound_socket(host, 0, false)?, None))
}

/// Returns a socket that is bound to a port of the host, or to any free one for port 0.
fn bound_socket(host: &str, port: u16, is_reused: bool) -> io::Result<TcpListener> {
    let resolved = (host, port).to_socket_addrs().into_iter().flatten();
    // A name that only other nodes resolve to this one cannot be bound; a port that is free on all addresses suffices.
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let mut result = Err(io::ErrorKind::AddrNotAvailable.into());
    for address in resolved.chain([any]) {
        result = bind_address(address, is_reused);
        if result.is_ok() {
            break;
        }
    }
    result
}

fn bind_address(address: SocketAddr, is_reused: bool) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if is_reused {
        // Ended connections of an earlier store may hold the port; a reserved port is for this socket alone.
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    bind(&socket, &address)?;
    Ok(TcpListener::from(socket))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::collectors::testing;

    fn order(generation: u64, port: u16, store: &str) -> LaunchOrder {
        let rank = rankguard_model::RankRef {
            job: JobId::from("llm"),
            generation: Generation(generation),
            rank: rankguard_model::Rank(0),
        };
        let mut launch = testing::launch(&rank);
        launch.master_port = port;
        launch.group_rank = 0;
        launch.env.insert(AGENT_STORE_VARIABLE.to_owned(), store.to_owned());
        launch
    }

    fn ports() -> RendezvousPorts {
        RendezvousPorts::new("127.0.0.1".to_owned(), PathBuf::from("/proc"))
    }

    fn connect(port: u16) -> io::Result<TcpStream> {
        TcpStream::connect((Ipv4Addr::LOCALHOST, port))
    }

    #[test]
    fn a_reserved_port_is_taken_and_refuses_until_the_launch_releases_it() {
        let mut ports = ports();
        let job = JobId::from("llm");
        let port = ports.reserve(&job, Generation(1)).expect("a port");
        assert_eq!(ports.reserve(&job, Generation(1)).expect("the same"), port);
        assert!(connect(port).is_err(), "nothing listens");
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err(), "it is taken");
        ports.open(&order(1, port, "False")).expect("released");
        let rank = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("rank 0 gets it");
        assert!(ports.served().is_empty());
        drop(rank);
        assert_ne!(ports.reserve(&job, Generation(2)).expect("another"), 0);
    }

    #[test]
    fn no_process_is_given_a_released_port_before_rank_0_binds_it() {
        let job = JobId::from("llm");
        let mut first = ports();
        let port = first.reserve(&job, Generation(1)).expect("a port");
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("the kernel's range");
        let bounds: Vec<u16> = range
            .split_whitespace()
            .map(|word| word.parse().expect("a port"))
            .collect();
        assert!(!(bounds[0]..=bounds[1]).contains(&port), "{port} is outside of {range}");
        first.open(&order(1, port, "False")).expect("released");
        assert!(
            PortClaim::take(port).is_err(),
            "other agents of this host do not choose it"
        );
        drop(TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).expect("rank 0 gets it"));
        first.close(|_, _| true);
        PortClaim::take(port).expect("free again");
    }

    #[test]
    fn a_store_is_served_until_its_generation_ends() {
        let mut ports = ports();
        let job = JobId::from("llm");
        let port = ports.reserve(&job, Generation(1)).expect("a port");
        for _ in 0..2 {
            ports
                .open(&order(1, port, "True"))
                .expect("served, also for a repeated order");
        }
        assert_eq!(ports.served(), [(job.clone(), Generation(1))]);
        let mut client = connect(port).expect("connected");
        client.write_all(b"\x00\xce\xf7\x85\x3c\x0dping").expect("sent");
        let mut reply = [0; 4];
        client.read_exact(&mut reply).expect("received");
        assert_eq!(&reply, b"ping");
        ports.close(|of, generation| *of == job && generation < Generation(1));
        assert_eq!(ports.served().len(), 1, "it is not older");
        ports.close(|of, generation| *of == job && generation < Generation(2));
        assert!(connect(port).is_err());
        assert_eq!(client.read(&mut reply).expect("closed"), 0);
        // An agent that has started anew has no reservation.
        ports
            .open(&order(2, port, "True"))
            .expect("served on the port of the order");
        connect(port).expect("connected");
    }

    #[test]
    fn only_the_first_node_of_a_job_serves_its_store() {
        let mut ports = ports();
        let mut launch = order(1, 1, "True");
        launch.group_rank = 1;
        ports.open(&launch).expect("nothing to do");
        assert!(ports.served().is_empty());
    }
}
