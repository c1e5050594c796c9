//! Application protocols of authenticated connections.

use std::borrow::Cow;

use crate::plaintext_refusal::PlaintextRefusal;

/// Application protocol. Both sides name it in the handshake (ALPN), so that no service is mistaken for another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlpnProtocol {
    name: &'static [u8],
    /// Refusal for a caller without TLS.
    farewell: PlaintextRefusal,
    /// True if the listener sends one byte once it has accepted the caller's certificate.
    has_welcome: bool,
}

/// Answer to a request without TLS.
const HTTP_REFUSAL: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\nconnection: close\r\n\
    content-length: 173\r\n\r\n\
    {\"type\":\"urn:rankguard:problem:tls-required\",\"title\":\"this port requires TLS\",\"status\":400,\
    \"detail\":\"use https, and a token or a client certificate\",\"field\":null,\"known\":[]}";

impl AlpnProtocol {
    /// Creates a protocol; a caller without TLS is sent `farewell`.
    pub const fn new(name: &'static [u8], farewell: Cow<'static, [u8]>) -> Self {
        let farewell = PlaintextRefusal::Bytes(farewell);
        let has_welcome = true;
        Self {
            name,
            farewell,
            has_welcome,
        }
    }

    /// Returns gRPC. A caller without TLS receives the reason as the status of its first call.
    pub const fn grpc() -> Self {
        Self {
            name: b"rankguard-grpc/1",
            farewell: PlaintextRefusal::Grpc,
            has_welcome: true,
        }
    }

    /// Returns the protocol of nodes that have no certificate yet: one request and one reply. Its listener serves nothing
    /// else.
    pub const fn enrolment() -> Self {
        Self {
            name: b"rankguard-enrolment/1",
            farewell: PlaintextRefusal::Grpc,
            has_welcome: true,
        }
    }

    /// Returns HTTP/1.1 for ordinary clients. Their first byte from the listener is that of an answer.
    pub const fn http() -> Self {
        Self {
            name: b"http/1.1",
            farewell: PlaintextRefusal::Bytes(Cow::Borrowed(HTTP_REFUSAL)),
            has_welcome: false,
        }
    }

    pub(crate) fn name(&self) -> &'static [u8] {
        self.name
    }

    pub(crate) fn has_welcome(&self) -> bool {
        self.has_welcome
    }

    pub(crate) fn farewell(&self) -> &PlaintextRefusal {
        &self.farewell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_the_refusal_is_that_of_its_body() {
        let text = std::str::from_utf8(HTTP_REFUSAL).expect("ASCII");
        let (head, body) = text.split_once("\r\n\r\n").expect("a body");
        assert!(
            head.ends_with(&format!("content-length: {}", body.len())),
            "{}",
            body.len()
        );
    }
}
