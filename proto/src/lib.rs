//! The wire (`rankguard/v1/*.proto`) and the only place where wire meets model.
//!
//! Three conversations live here: agents and the controller ([`v1::control_client`], [`v1::peers_client`]), people and the
//! controller ([`v1::operator_client`]), a rank and the agent of its node ([`v1::FromRank`], [`v1::ToRank`], framed by
//! [`frame`]). Beside them stands the part of OTLP that agents speak with the collectors of others ([`otlp`]).
//!
//! Every model type that travels has `From<&model>` for its message and `TryFrom<message>` back. A message that cannot be
//! a model value is refused with a [`WireError`] that names the field; nothing is guessed, nothing is defaulted: an
//! absent enum value or sub-message is an error, because a newer peer may have meant something this version does not know.
//!
//! Not here: sockets, retries, time. Authentication and TLS are absent from this version of the wire.

#![warn(missing_docs)]

mod entity;
mod error;
mod evidence;
pub mod frame;
mod history;
mod job;
mod order;
#[cfg(test)]
mod roundtrip;

pub use error::WireError;
/// Encoded sizes of messages.
pub use prost::Message;

/// Largest gRPC message either side accepts, bytes. Bigger than tonic's own 4 MiB so that a chunk of a checkpoint and a
/// batch of evidence with context lines fit; set it with `max_decoding_message_size` on every client and server.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Most bytes of evidence that an agent puts in one message, unless a single piece is larger.
pub const EVIDENCE_BATCH_BYTES: usize = 1024 * 1024;

/// Header of a session that brings recorded evidence, and of the answer of a controller that takes nothing else.
pub const REPLAY_HEADER: &str = "rankguard-replay";

/// Messages and services, generated from `rankguard/v1/*.proto`.
#[allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all)]
pub mod v1 {
    tonic::include_proto!("rankguard.v1");
}

/// What agents send to an OpenTelemetry collector (OTLP 1 over gRPC), generated from `otlp/*.proto`. Modules are nested as the
/// packages of the specification are.
#[allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all)]
pub mod otlp {
    pub mod common {
        pub mod v1 {
            tonic::include_proto!("opentelemetry.proto.common.v1");
        }
    }
    pub mod collector {
        pub mod logs {
            pub mod v1 {
                tonic::include_proto!("opentelemetry.proto.collector.logs.v1");
            }
        }
        pub mod metrics {
            pub mod v1 {
                tonic::include_proto!("opentelemetry.proto.collector.metrics.v1");
            }
        }
    }
}
