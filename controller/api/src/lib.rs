//! HTTP API of the controller under `/api/v1`: jobs, nodes, cases, plans and the failure catalogue, for operators' tools.
//!
//! [`ApiServer`] serves an [`ApiService`], which answers from a [`StateReader`]: a copy of the controller's state that the
//! event loop feeds through a [`StateFeed`]. The table of routes determines parameters, answers and the OpenAPI document.
//!
//! Invariants:
//! - A request reads the copy and nothing else: it neither waits for the event loop nor changes the state.
//! - With an identity, a client needs a certificate of role operator or controller; without one, the listener is on
//!   loopback, and the host of the URL must be a loopback name (RG-13).
//! - Connections, heads, URIs, concurrent documents, watches and retained changes are bounded, and each wait has a
//!   deadline (RG-9). A watch that misses changes reports a gap (RG-4).
//! - The web console under `/console/` is a client of the API: its files are constant, and it has no other access.
//! - A request never panics the controller: every error is a problem document (RFC 9457).
//!
//! Not included: routes that change something, an audit log of operators, runs of torchrun, and rights of single
//! operators.

mod access;
mod answer;
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
