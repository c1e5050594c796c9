//! Authentication: a token, the certificate of the client, or a process of this machine.
//!
//! A token takes precedence over a certificate, and a token that is refused is never replaced by one. Without TLS the
//! listener is on loopback, and the host of the URL must be a loopback name.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::header::{AUTHORIZATION, HOST};
use hyper::{HeaderMap, Method, StatusCode, Uri};
use rankguard_access::{
    AccessRole, AuditDoor, AuditLog, CallerIdentity, NewAuditEntry, RateLimiter, TokenSecret, TokenStore,
};
use rankguard_identity::{ConnectionPeer, PeerName, PeerRole, RefusalCounters, RefusalReason};
use rankguard_model::Timestamp;

use crate::change::ChangeExecutor;
use crate::problem::{Problem, quoted};
use crate::routes::least_role;

/// Failed authentications of an address: a burst, and the interval at which further ones are answered by 401.
const FAILURES_BURST: u32 = 10;
const FAILURE_INTERVAL: Duration = Duration::from_secs(6);
/// Refusals of a certificate without a right that are recorded: a burst, and the interval of further ones.
const FORBIDDEN_BURST: u32 = 10;
const FORBIDDEN_INTERVAL: Duration = Duration::from_secs(60);
/// Query parameters that clients use for credentials.
const CREDENTIAL_PARAMETERS: [&str; 4] = ["access_token", "token", "authorization", "bearer"];

/// Tokens, audit log and executor of changes.
#[derive(Clone)]
pub struct ApiAccess {
    /// Tokens that are accepted.
    pub tokens: TokenStore,
    /// Record of changes.
    pub audit: AuditLog,
    /// Executor of changes.
    pub changes: Arc<dyn ChangeExecutor>,
}

/// Authentication of requests.
pub(crate) struct AccessGate {
    tokens: TokenStore,
    refusals: RefusalCounters,
    failures: RateLimiter,
    /// Recorded refusals of certificates without a right.
    forbidden: RateLimiter,
}

/// Failed authentication of a request.
#[derive(Debug)]
pub(crate) struct AccessFailure {
    pub(crate) problem: Problem,
    /// Entry for the audit log; `None` if the failure is not recorded.
    pub(crate) entry: Option<Box<NewAuditEntry>>,
}

impl From<Problem> for AccessFailure {
    fn from(problem: Problem) -> Self {
        let entry = None;
        Self { problem, entry }
    }
}

impl AccessGate {
    pub(crate) fn new(tokens: TokenStore, refusals: RefusalCounters) -> Self {
        Self {
            tokens,
            refusals,
            failures: RateLimiter::new(FAILURES_BURST, FAILURE_INTERVAL),
            forbidden: RateLimiter::new(FORBIDDEN_BURST, FORBIDDEN_INTERVAL),
        }
    }

    /// Returns the counts of refused peers.
    pub(crate) fn refusals(&self) -> &RefusalCounters {
        &self.refusals
    }

    /// Returns the caller of a request. The listener has checked the certificate of a client with a name.
    pub(crate) fn authenticate(
        &self,
        peer: &ConnectionPeer,
        (method, uri): (&Method, &Uri),
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<CallerIdentity, AccessFailure> {
        if !peer.is_encrypted {
            check_loopback(peer.address)?;
            check_host(uri, headers)?;
        }
        check_query(uri)?;
        let caller = match bearer(headers) {
            Ok(Some(token)) => match self.tokens.authenticate(token, now) {
                Ok(token) => CallerIdentity::token(token),
                Err(rejection) => return Err(self.failed(peer, &rejection.to_string())),
            },
            Ok(None) => match &peer.name {
                Some(name) => self.certificate(name, peer, least_role(method, uri.path()))?,
                None if peer.is_encrypted => {
                    return Err(self.failed(peer, "the request has neither a client certificate nor a token"));
                }
                None => CallerIdentity::local(AccessRole::Viewer),
            },
            Err(why) => return Err(self.failed(peer, why)),
        };
        Ok(caller.at(peer.address))
    }

    /// Returns the caller with a certificate. A refusal names the roles that have at least the role `least` of the route.
    fn certificate(
        &self,
        name: &PeerName,
        peer: &ConnectionPeer,
        least: AccessRole,
    ) -> Result<CallerIdentity, AccessFailure> {
        if let Some(role) = role_of(name.role()) {
            return Ok(CallerIdentity::certificate(name.short(), name.own(), role));
        }
        let detail = format!("{} may not read the HTTP API", name.short());
        self.refusals.record(RefusalReason::Role, peer.address, &detail);
        let title = "the certificate has another role";
        let problem = Problem::new(StatusCode::FORBIDDEN, "forbidden", title, detail);
        let roles: Vec<&str> = CERTIFICATE_ROLES
            .into_iter()
            .filter(|role| role_of(*role).is_some_and(|of| of >= least))
            .map(PeerRole::word)
            .collect();
        let problem = problem.hint(format!(
            "use a certificate of role {} (`rankguard identity issue`), or a token of role {least}",
            roles.join(" or ")
        ));
        let is_recorded = self.forbidden.take(&name.short(), Instant::now()).is_ok();
        let entry = is_recorded.then(|| Box::new(entry(peer, name.short(), "access.authorize")));
        Err(AccessFailure { problem, entry })
    }

    /// Returns the failure of an authentication; 429 if the address has too many of them. Valid credentials are accepted
    /// from that address meanwhile, so that one client does not shut out another behind the same address.
    fn failed(&self, peer: &ConnectionPeer, why: &str) -> AccessFailure {
        let address = peer
            .address
            .map_or("local".to_owned(), |address| address_key(address.ip()));
        if let Err(wait) = self.failures.take(&address, Instant::now()) {
            let problem = Problem::too_many("this address has too many failed authentications", wait);
            return problem.into();
        }
        let problem = Problem::unauthenticated(why)
            .hint("send `Authorization: Bearer TOKEN` (`rankguard token create`), or use a client certificate");
        let entry = NewAuditEntry {
            detail: peer.words(),
            ..entry(peer, format!("unauthenticated {address}"), "access.authenticate")
        };
        let entry = Some(Box::new(entry));
        AccessFailure { problem, entry }
    }
}

/// Returns the entry of a refused peer.
fn entry(peer: &ConnectionPeer, actor: String, action: &str) -> NewAuditEntry {
    NewAuditEntry {
        actor,
        door: AuditDoor::Http,
        address: peer.address.map(|address| address.ip().to_string()),
        action: action.to_owned(),
        target: String::new(),
        detail: String::new(),
        key: None,
    }
}

/// Roles of certificates that have a right, in the order of messages.
const CERTIFICATE_ROLES: [PeerRole; 3] = [PeerRole::Operator, PeerRole::Viewer, PeerRole::Controller];

/// Returns the right of a certificate. An operator's certificate has every right, as for the commands of `rankguard`.
fn role_of(role: PeerRole) -> Option<AccessRole> {
    match role {
        PeerRole::Operator | PeerRole::Controller => Some(AccessRole::Admin),
        PeerRole::Viewer => Some(AccessRole::Viewer),
        PeerRole::Agent | PeerRole::Launcher | PeerRole::Authority | PeerRole::Issuer => None,
    }
}

/// Returns the token of the header `Authorization`; `None` without the header.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, &'static str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err("the request has several headers Authorization");
    }
    let text = value
        .to_str()
        .map_err(|_| "the header Authorization is no ASCII text")?;
    let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err("the header Authorization has another scheme than Bearer");
    }
    Ok(Some(token))
}

/// Refuses credentials in the URI: they would reach logs and histories. The text is not repeated.
fn check_query(uri: &Uri) -> Result<(), Problem> {
    let query = uri.query().unwrap_or_default();
    let name = |pair: &str| pair.split('=').next().unwrap_or_default().to_ascii_lowercase();
    let has_parameter = query
        .split('&')
        .any(|pair| CREDENTIAL_PARAMETERS.contains(&name(pair).as_str()));
    if !has_parameter && !TokenSecret::is_in(uri.path()) && !TokenSecret::is_in(query) {
        return Ok(());
    }
    let title = "the URI has credentials";
    let detail = "tokens are accepted in the header Authorization only";
    let problem = Problem::new(StatusCode::BAD_REQUEST, "credentials-in-uri", title, detail);
    Err(problem
        .of("Authorization")
        .hint("revoke the token if the URI was logged anywhere"))
}

/// Refuses clients without TLS that are not on this machine; the listener admits none.
fn check_loopback(address: Option<SocketAddr>) -> Result<(), Problem> {
    if address.is_none_or(|address| address.ip().to_canonical().is_loopback()) {
        return Ok(());
    }
    let title = "the connection is not encrypted";
    let detail = "without TLS only processes of this machine are served";
    Err(Problem::new(StatusCode::FORBIDDEN, "plain", title, detail))
}

/// Returns the key of an address for the rate limit; an IPv6 client has a whole /64.
fn address_key(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
    }
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

    fn gate() -> (tempfile::TempDir, AccessGate) {
        let dir = tempfile::tempdir().expect("a folder");
        let tokens = TokenStore::open(dir.path()).expect("no file");
        (dir, AccessGate::new(tokens, RefusalCounters::default()))
    }

    fn status_of(gate: &AccessGate, peer: &ConnectionPeer, uri: &str, authorization: &[&str]) -> u16 {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "127.0.0.1".parse().expect("a header"));
        for value in authorization {
            headers.append(AUTHORIZATION, value.parse().expect("a header"));
        }
        let uri: Uri = uri.parse().expect("a URI");
        let authenticated = gate.authenticate(peer, (&Method::GET, &uri), &headers, Timestamp(0));
        authenticated.map_or_else(|failure| failure.problem.status().as_u16(), |_| 200)
    }

    #[test]
    fn only_loopback_is_served_without_tls_and_no_uri_has_credentials() {
        let (_dir, gate) = gate();
        let local = ConnectionPeer::plain("127.0.0.1:9".parse().ok());
        let remote = ConnectionPeer::plain("10.0.0.1:9".parse().ok());
        assert_eq!(status_of(&gate, &local, "/x", &[]), 200);
        assert_eq!(status_of(&gate, &remote, "/x", &[]), 403);
        for uri in [
            "/x?access_token=1",
            "/x?a=1&TOKEN=1",
            "/rgt_00",
            "/x?cursor=rgt%5F00",
            "/x?authorization=Bearer",
        ] {
            assert_eq!(status_of(&gate, &local, uri, &[]), 400, "{uri}");
        }
    }

    /// The first failures of an address are answered by 401, further ones by 429, and a neighbour is not concerned.
    #[test]
    fn failures_are_limited_by_address() {
        let (_dir, gate) = gate();
        let peer = |address: &str| ConnectionPeer::encrypted(address.parse().expect("an address"), None);
        let headers = [
            &[][..],
            &["Basic YTpi"],
            &["Bearer"],
            &["Bearer rgt_"],
            &["Bearer a", "Bearer b"],
            &["bearer \u{e4}"],
        ];
        for number in 0..30_usize {
            let expected = if number < 10 { 401 } else { 429 };
            let status = status_of(&gate, &peer("[2001:db8::1]:9"), "/x", headers[number % headers.len()]);
            assert_eq!(status, expected, "{number}");
        }
        assert_eq!(
            status_of(&gate, &peer("[2001:db8::2]:9"), "/x", &[]),
            429,
            "the same /64"
        );
        assert_eq!(status_of(&gate, &peer("[2001:db8:0:1::1]:9"), "/x", &[]), 401);
    }
}
