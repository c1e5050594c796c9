//! What the agent tells of itself to whoever asks on this node: numbers for Prometheus over HTTP, everything as JSON over
//! a Unix socket in the state directory; and what it pushes, where that is wanted, to an OpenTelemetry collector. None needs a
//! controller.
//!
//! Invariants:
//! - An answer is made from what the agent remembers. Nobody who asks makes the agent call a driver, read a disk or wait
//!   for one of its parts; locks are held for a copy.
//! - Who asks slowly, or never reads the answer, holds up nobody: connections are bounded in number and time.
//!
//! Absent: remote write, HTTPS and authentication of the numbers (listen on loopback, or behind something that has
//! them).

mod board;
mod http;
mod local;
mod numbers;
mod otlp;
mod prometheus;
mod snapshot;
mod view;

pub(crate) use board::Board;
pub(crate) use http::serve as serve_metrics;
pub(crate) use local::{LocalSocket, is_own_user, listen, through};
pub(crate) use otlp::{LogQueue, Outlet, start as start_otlp};
pub use otlp::{OtlpEndpoint, OtlpError, OtlpProtocol, OtlpSettings};
pub(crate) use snapshot::Snapshots;
pub use view::{
    AgentView, CatalogueView, CheckView, CodeView, CollectorView, GapView, HostView, IdentityView, LeaseView,
    LocalError, MigView, OtlpView, PressureView, RankRightsView, RankView, RefusedView, RoomView, SeriesView,
    SpoolView, UplinkView,
};

pub use local::ask as ask_agent;

#[cfg(test)]
mod tests;
