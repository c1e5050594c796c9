//! Wire protocol (`rankguard/v1/*.proto`) and its conversion to and from model types.
//!
//! Four protocols: agents and the controller ([`v1::control_client`], [`v1::peers_client`]), operators and the
//! controller ([`v1::operator_client`]), torchrun processes and the controller ([`v1::rendezvous_client`]), a rank and the
//! agent of its node ([`v1::FromRank`], [`v1::ToRank`], framed by [`frame`]). In addition, the part of OTLP that agents send to OpenTelemetry
//! collectors ([`otlp`]), and the protocol of torchft's managers with a lighthouse ([`torchft`]).
//!
//! Every model type on the wire has `From<&model>` for its message and `TryFrom<message>` back. A message that cannot
//! be converted is refused with a [`WireError`] that names the field; no value is guessed or defaulted: an absent enum
//! value or sub-message is an error, because a newer peer may use a value that this version does not know.
//!
//! Not included: sockets, retries, time. Authentication and TLS are not part of the messages.

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
/// Trait with the encoded size of messages.
pub use prost::Message;

/// Largest gRPC message that either side accepts, bytes. Larger than tonic's default of 4 MiB so that a checkpoint
/// chunk and a batch of evidence with context lines fit; set it with `max_decoding_message_size` on every client and
/// server.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Largest size of the evidence in one message of an agent, bytes, unless a single piece is larger.
pub const EVIDENCE_BATCH_BYTES: usize = 1024 * 1024;

/// Header of a session with recorded evidence, and of the response of a replay-only controller.
pub const REPLAY_HEADER: &str = "rankguard-replay";

/// Metadata of a refused request: advice for the operator, plain ASCII.
pub const HINT_HEADER: &str = "rankguard-hint";

/// Descriptors of all services and messages, an encoded `FileDescriptorSet`, for gRPC server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Messages and services, generated from `rankguard/v1/*.proto`.
#[allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all)]
pub mod v1 {
    tonic::include_proto!("rankguard.v1");
}

/// Messages and service between torchft's managers and a lighthouse, generated from `torchft/lighthouse.proto`.
#[allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all)]
pub mod torchft {
    tonic::include_proto!("torchft");
}

/// Messages that agents send to an OpenTelemetry collector (OTLP 1 over gRPC), generated from `otlp/*.proto`. The
/// modules are nested like the packages of the specification.
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
