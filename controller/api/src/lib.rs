//! HTTP API of the controller under `/api/v1`: jobs, nodes, cases, plans and the failure catalogue, and changes of nodes, jobs
//! and cases, for operators' tools.
//!
//! [`ApiServer`] serves an [`ApiService`], which answers from a [`StateReader`]: a copy of the controller's state that the
//! event loop feeds through a [`StateFeed`]. The table of routes determines parameters, answers and the OpenAPI document.
//!
//! Invariants:
//! - A request that reads uses the copy and nothing else: it neither waits for the event loop nor changes the state. A change
//!   is a message to the event loop, the same as that of the operator service ([`ChangeExecutor`]).
//! - Every request has a caller with a role and a scope: a token, or else a certificate, or else a process of this machine,
//!   which may read. The table of routes has the least role of each (RG-13).
//! - Without TLS the listener is on loopback, and the host of the URL must be a loopback name.
//! - Connections, heads, URIs, concurrent documents, watches and retained changes are bounded, and each wait has a
//!   deadline (RG-9). A watch that misses changes reports a gap (RG-4).
//! - The web console under `/console/` is a client of the API: its files are constant, and it has no other access.
//! - A request never panics the controller: every error is a problem document (RFC 9457).
//!
//! Not included: submission of jobs, runs of torchrun, and tokens in the console.

mod access;
mod answer;
mod change;
mod changes;
mod console;
mod documents;
mod openapi;
mod page;
mod problem;
mod query;
mod replica;
mod routes;
mod server;
mod service;
mod watch;
mod write_deadline;

pub use access::ApiAccess;
pub use change::{Change, ChangeExecutor, ChangeFuture, ChangeRefusal, ChangeRequest};
pub use documents::revoked_text;
pub use replica::{StateFeed, StateReader};
pub use server::ApiServer;
pub use service::{ApiService, ControllerHealth};

/// Paths of the files of the web console.
pub fn console_paths() -> impl Iterator<Item = String> {
    console::FILES.iter().map(console::ConsoleFile::path)
}

/// Paths of the routes, with parameters in braces.
pub fn route_paths() -> impl Iterator<Item = &'static str> {
    routes::ROUTES.iter().map(|route| route.path)
}

/// Rule of a route, for tests of every route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteRule {
    /// Path with the parameter in braces.
    pub path: &'static str,
    /// `GET`, which includes HEAD, or `POST`.
    pub method: &'static str,
    /// Least role of a caller.
    pub role: rankguard_access::AccessRole,
    /// `none`, `whole`, `job`, `node`, `case` or `plan`: what the scope of a token must have.
    pub scope: &'static str,
}

/// Returns the rules by which the router authorises requests.
pub fn route_rules() -> impl Iterator<Item = RouteRule> {
    routes::ROUTES.iter().map(|route| RouteRule {
        path: route.path,
        method: if route.method() == hyper::Method::POST {
            "POST"
        } else {
            "GET"
        },
        role: route.role,
        scope: route.scope.word(),
    })
}
