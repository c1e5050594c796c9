//! Application protocols of authenticated connections.

use std::borrow::Cow;

use crate::plaintext_refusal::PlaintextRefusal;

/// Application protocol. Both sides name it in the handshake (ALPN), so that no service is mistaken for another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlpnProtocol {
    name: &'static [u8],
    /// Refusal for a caller without TLS.
    farewell: PlaintextRefusal,
}

impl AlpnProtocol {
    /// Creates a protocol; a caller without TLS is sent `farewell`.
    pub const fn new(name: &'static [u8], farewell: Cow<'static, [u8]>) -> Self {
        let farewell = PlaintextRefusal::Bytes(farewell);
        Self { name, farewell }
    }

    /// Returns gRPC. A caller without TLS receives the reason as the status of its first call.
    pub const fn grpc() -> Self {
        Self {
            name: b"rankguard-grpc/1",
            farewell: PlaintextRefusal::Grpc,
        }
    }

    pub(crate) fn name(&self) -> &'static [u8] {
        self.name
    }

    pub(crate) fn farewell(&self) -> &PlaintextRefusal {
        &self.farewell
    }
}
