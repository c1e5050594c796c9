//! Access to the API: role of the client's certificate; without TLS, the name under which the listener is addressed.

use std::net::IpAddr;

use hyper::header::HOST;
use hyper::{HeaderMap, StatusCode, Uri};
use rankguard_identity::{ConnectionPeer, PeerRole, RefusalCounters, RefusalReason};

use crate::problem::{Problem, quoted};

/// Roles that may read.
const READERS: [PeerRole; 2] = [PeerRole::Operator, PeerRole::Controller];

/// Checks that a client may read. The listener has checked the certificate of a client with a name; without TLS it is on
/// loopback, where a page in a browser could reach it under a foreign host name (DNS rebinding).
pub(crate) fn check(
    peer: &ConnectionPeer,
    uri: &Uri,
    headers: &HeaderMap,
    refusals: &RefusalCounters,
) -> Result<(), Problem> {
    let Some(name) = &peer.name else {
        return check_host(uri, headers);
    };
    if READERS.contains(&name.role()) {
        return Ok(());
    }
    let detail = format!("{} may not read the HTTP API", name.short());
    refusals.record(RefusalReason::Role, peer.address, &detail);
    let title = "the certificate has another role";
    let problem = Problem::new(StatusCode::FORBIDDEN, "forbidden", title, detail);
    Err(problem.hint("use a certificate of role operator: `rankguard identity issue --role operator`"))
}

fn check_host(uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let mut named = headers.get_all(HOST).iter();
    let header = named.next().and_then(|host| host.to_str().ok());
    let has_others = named.next().is_some();
    let authority = uri.authority().map(hyper::http::uri::Authority::as_str);
    let is_local = header.is_some_and(is_loopback) && authority.is_none_or(is_loopback) && !has_others;
    if is_local {
        return Ok(());
    }
    let detail = format!(
        "the request is for host {}; without TLS only loopback names are served",
        quoted(authority.or(header).unwrap_or_default())
    );
    let problem = Problem::new(
        StatusCode::MISDIRECTED_REQUEST,
        "foreign-host",
        "the host name is foreign",
        detail,
    );
    Err(problem
        .of("Host")
        .hint("use 127.0.0.1, [::1] or localhost as the host of the URL"))
}

/// Returns true for `localhost` and loopback addresses, with or without a port.
fn is_loopback(authority: &str) -> bool {
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None => return false,
        },
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let is_address = || {
        host.parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
    };
    port.is_none_or(is_port) && (host.eq_ignore_ascii_case("localhost") || is_address())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_are_local() {
        for host in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1:1",
            "127.3.2.1",
            "[::1]",
            "[::1]:7701",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1:80:80",
            "127.0.0.1:x",
            "user@127.0.0.1",
            "10.0.0.1",
            "[::2]",
            "[::1]x",
            "0.0.0.0",
            "2130706433",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
