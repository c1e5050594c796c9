//! What the agent sees and counts, pushed by OTLP to an OpenTelemetry collector, where one is named
//! (`agent.otlp_endpoint`): evidence as log records, the numbers of the Prometheus page as metrics; over gRPC or HTTP, with TLS
//! where the endpoint is one of https.
//!
//! It is a copy for dashboards: what counts goes through the spool. So records wait in a bounded queue in memory, the oldest
//! go first when it is full, and each that goes is counted. An export that fails for a while is tried again as the
//! specification of OTLP 1 wants it (growing pauses, the server's own word on when, an end); what is refused is counted and
//! left. Numbers are not tried again: the next ones hold them.
//!
//! Absent: certificates of its own for TLS, proxies, compression, JSON, traces. A collector on the same node has them.

mod dial;
mod export;
mod failure;
mod http;
mod outlet;
mod queue;
mod records;
mod retry;
mod target;

pub(crate) use export::start;
pub(crate) use outlet::Outlet;
pub(crate) use queue::LogQueue;
pub use target::{OtlpEndpoint, OtlpError, OtlpProtocol, OtlpSettings};
