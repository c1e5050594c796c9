//! OTLP export to an OpenTelemetry collector, if `agent.otlp_endpoint` is set: evidence as log records, and the
//! metrics of the Prometheus endpoint; over gRPC or HTTP, with TLS for https endpoints.
//!
//! The export is a copy for dashboards; the spool is authoritative. So records wait in a bounded queue in memory; when
//! it is full the oldest are dropped and counted. A failed export is retried by the rules of OTLP 1 (growing pauses,
//! the server's retry delay, an end); rejected records are counted and dropped. Metrics are not retried: the next
//! export contains them.
//!
//! Absent: client certificates for TLS, proxies, compression, JSON, traces. A collector on the same node has them.

mod dial;
mod export;
mod failure;
mod http;
mod outlet;
mod queue;
mod records;
mod retry;
mod target;

pub(crate) use export::{OtlpExporter, start};
pub(crate) use outlet::OtlpClient;
pub(crate) use queue::LogQueue;
pub use target::{OtlpEndpoint, OtlpError, OtlpProtocol, OtlpSettings};
