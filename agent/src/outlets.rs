//! Outlets of the agent: metrics for Prometheus over HTTP, the full view as JSON over a Unix socket in the state
//! directory, and optional OTLP export to an OpenTelemetry collector. None requires a controller.
//!
//! Invariants:
//! - A response is built from state in memory. No query makes the agent call a driver, read a disk or wait for one of
//!   its parts; locks are held only for a copy.
//! - A slow client delays no other: connections are bounded in number and time.
//!
//! Absent: remote write, HTTPS and authentication of the metrics endpoint (listen on loopback, or behind a proxy that
//! has them).

mod board;
mod http;
mod local;
mod numbers;
mod otlp;
mod prometheus;
mod snapshot;

pub(crate) use board::StatusBoard;
pub(crate) use http::{MetricsEndpoint, serve as serve_metrics};
pub(crate) use local::{StatusSocket, is_own_user, listen, through};
pub(crate) use otlp::{LogQueue, OtlpClient, OtlpExporter, start as start_otlp};
pub use otlp::{OtlpEndpoint, OtlpError, OtlpProtocol, OtlpSettings};
pub(crate) use snapshot::ViewSource;

pub use local::ask as ask_agent;

#[cfg(test)]
mod tests;
