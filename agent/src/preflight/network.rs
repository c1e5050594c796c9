//! Checks of TCP ports, RDMA ports and host names.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, ToSocketAddrs};

use rankguard_faults::classes;

use super::probe::{BlockingProbe, PendingCheck};
use super::{CheckVerdict, JobRequirements, PreflightCheck};
use crate::collectors::nic::{ACTIVE, rdma_ports};

/// Checks that the job's ports are free.
pub(super) fn ports(need: &JobRequirements) -> Vec<PreflightCheck> {
    need.ports.iter().map(|port| free(*port)).collect()
}

fn free(port: u16) -> PreflightCheck {
    let check = PreflightCheck::new("port", port.to_string(), classes::PORT_IN_USE);
    if port == 0 {
        return check.ok("any free port");
    }
    let over_4 = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port));
    // An IPv6 socket takes both versions, so that the first one must be closed.
    let over_4 = over_4.map(drop);
    let over_6 = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).map(drop);
    let refused = [over_4, over_6]
        .into_iter()
        .filter_map(Result::err)
        // A node without IPv6 has no such address.
        .find(|problem| matches!(problem.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied));
    match refused.map(|problem| problem.kind()) {
        None => check.ok("free"),
        Some(ErrorKind::AddrInUse) => check.bad(
            CheckVerdict::Fail,
            "in use",
            format!("`ss -ltnp sport = :{port}` shows the process; end it or choose another port"),
        ),
        Some(_) => check.of_class(classes::PERMISSION_DENIED).bad(
            CheckVerdict::Fail,
            "permission denied for this user",
            "choose a port above 1023",
        ),
    }
}

/// Checks that enough RDMA ports are active, and at one rate.
pub(super) fn links(need: &JobRequirements) -> Vec<PreflightCheck> {
    let found = rdma_ports(&need.sysfs_root);
    let all = PreflightCheck::new("links", "rdma", classes::NIC_LINK_DOWN);
    let active: Vec<_> = found.iter().filter(|port| port.state == Some(ACTIVE)).collect();
    let count = u32::try_from(active.len()).unwrap_or(u32::MAX);
    if let Some(wanted) = need.links.filter(|wanted| count < *wanted) {
        return vec![all.bad(
            CheckVerdict::Fail,
            format!("{count} of {} ports active; {wanted} required", found.len()),
            "list ports that are down with `ibstat` or `rdma link`; check cable, module and switch port",
        )];
    }
    if found.is_empty() {
        return vec![all.ok("no RDMA port")];
    }
    let mut checks = vec![all.clone().ok(format!("{count} of {} ports active", found.len()))];
    for port in found.iter().filter(|port| port.state != Some(ACTIVE)) {
        let subject = format!("{} port {}", port.device, port.number);
        // An unused second port is not a fault; a whole card that is down while others are up is one.
        let sisters = active.iter().any(|other| other.device == port.device);
        let check = PreflightCheck::new("link", subject, classes::NIC_LINK_DOWN);
        let state = port
            .state
            .map_or("unreadable".to_owned(), |state| format!("state {state}"));
        checks.push(if sisters || active.is_empty() && need.links.is_none() {
            check.ok(format!("not active ({state})"))
        } else {
            check.bad(
                CheckVerdict::Warn,
                format!("not active ({state}); {count} others are active"),
                "check cable, module and switch port; jobs that use all adapters will be slow or fail",
            )
        });
    }
    let mut rates: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for port in &active {
        if let Some(rate) = port.rate {
            rates.entry(rate as u64).or_default().insert(port.device.clone());
        }
    }
    if rates.len() > 1 {
        let groups = rates
            .iter()
            .map(|(rate, devices)| format!("{rate} Gb/s: {}", devices.iter().cloned().collect::<Vec<_>>().join(" ")));
        checks.push(PreflightCheck::new("link-rates", "rdma", classes::NETWORK_SLOW).bad(
            CheckVerdict::Warn,
            groups.collect::<Vec<_>>().join("; "),
            "adapters of one kind should have one rate; check for a port that trained down",
        ));
    }
    checks
}

/// Starts the resolution of host names, which may be slow.
pub(super) fn resolve(need: &JobRequirements) -> Vec<PendingCheck> {
    let ask = |host: &String| {
        let name = host.clone();
        let question = move || {
            let check = PreflightCheck::new("host", name.clone(), classes::DNS_FAILURE);
            match (name.as_str(), 0_u16).to_socket_addrs() {
                Ok(addresses) => {
                    let mut found: Vec<String> = addresses.map(|address| address.ip().to_string()).collect();
                    found.dedup();
                    check.ok(found.join(" "))
                }
                Err(problem) => check.bad(
                    CheckVerdict::Fail,
                    problem.to_string(),
                    "check the spelling, /etc/hosts and /etc/resolv.conf",
                ),
            }
        };
        PendingCheck {
            probe: BlockingProbe::start(question),
            unanswered: PreflightCheck::new("host", host.clone(), classes::DNS_FAILURE),
            verdict: CheckVerdict::Fail,
            advice: "check the name servers of /etc/resolv.conf",
        }
    };
    need.hosts.iter().map(ask).collect()
}
