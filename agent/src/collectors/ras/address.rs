//! Addresses of a job's RAS threads, from the job's variable `NCCL_RAS_ADDR`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Default port (`NCCL_RAS_CLIENT_PORT`).
const PORT: u16 = 28_028;
/// Variable with the address.
const ADDRESS: &str = "NCCL_RAS_ADDR";
/// Variable that switches the threads off with `0`.
const ENABLED: &str = "NCCL_RAS_ENABLE";

/// Returns the addresses to try for ranks with these variables, which override the agent's own. Empty if RAS is
/// switched off.
///
/// # Errors
///
/// A message: the address is invalid, or not one of this node. A job must not make its agent connect elsewhere.
pub(super) fn of(vars: &BTreeMap<String, String>) -> Result<Vec<SocketAddr>, String> {
    let value = |name: &str| vars.get(name).cloned().or_else(|| std::env::var(name).ok());
    if value(ENABLED).is_some_and(|enabled| enabled.trim() == "0") {
        return Ok(Vec::new());
    }
    match value(ADDRESS) {
        Some(told) => local(told.trim()).map_err(|why| format!("{ADDRESS} is {told:?}: {why}")),
        None => Ok(loopback(PORT)),
    }
}

fn loopback(port: u16) -> Vec<SocketAddr> {
    let addresses: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    addresses.map(|address| SocketAddr::new(address, port)).to_vec()
}

fn local(told: &str) -> Result<Vec<SocketAddr>, String> {
    let (host, port) = told.rsplit_once(':').ok_or("it has no port")?;
    let port: u16 = port.parse().map_err(|_| "its port is no number")?;
    if host.eq_ignore_ascii_case("localhost") {
        return Ok(loopback(port));
    }
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    let address: IpAddr = bare
        .parse()
        .map_err(|_| "its host is neither localhost nor an IP address")?;
    if address.is_unspecified() {
        return Ok(loopback(port));
    }
    // Only an address of this node can be bound here.
    UdpSocket::bind((address, 0)).map_err(|_| "its host is not this node")?;
    Ok(vec![SocketAddr::new(address, port)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_address(told: &str) -> Result<Vec<String>, String> {
        let vars = BTreeMap::from([(ADDRESS.to_owned(), told.to_owned())]);
        of(&vars).map(|found| found.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_job_says_where_but_never_that_it_is_elsewhere() {
        let default = of(&BTreeMap::new()).expect("the default is right");
        assert!(
            default.contains(&SocketAddr::from(([127, 0, 0, 1], 28_028))),
            "{default:?}"
        );
        assert_eq!(of_address("127.0.0.1:4000"), Ok(vec!["127.0.0.1:4000".to_owned()]));
        assert_eq!(of_address("localhost:1").map(|found| found.len()), Ok(2));
        assert_eq!(
            of_address("0.0.0.0:7"),
            Ok(vec!["127.0.0.1:7".to_owned(), "[::1]:7".to_owned()])
        );
        for elsewhere in [
            "192.0.2.7:80",
            "db.internal:5432",
            "28028",
            "[::1",
            "127.0.0.1:port",
            "127.0.0.1:70000",
            "",
        ] {
            let told = of_address(elsewhere);
            assert!(
                told.as_ref().is_err_and(|why| why.starts_with("NCCL_RAS_ADDR is ")),
                "{elsewhere}: {told:?}"
            );
        }
    }

    #[test]
    fn threads_that_are_switched_off_are_not_looked_for() {
        let vars = BTreeMap::from([(ENABLED.to_owned(), "0".to_owned())]);
        assert_eq!(of(&vars), Ok(Vec::new()));
    }
}
