//! What is spoken over a connection once both sides are known.

use std::borrow::Cow;

/// A language. Both sides name it in the handshake, so that no service is mistaken for another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protocol {
    name: &'static [u8],
    /// What a caller who speaks it without TLS is told before the connection is closed.
    farewell: Cow<'static, [u8]>,
}

/// What a gRPC caller without TLS reads.
const WANTS_TLS: &[u8] = b"this port wants TLS: set identity.ca, identity.certificate and identity.key";

impl Protocol {
    /// A language of this name; a caller without TLS is sent `farewell`.
    pub const fn new(name: &'static [u8], farewell: Cow<'static, [u8]>) -> Self {
        Self { name, farewell }
    }

    /// gRPC. A caller without TLS reads why in the error that its library shows.
    pub fn grpc() -> Self {
        Self::new(b"rankguard-grpc/1", Cow::Owned(go_away(WANTS_TLS)))
    }

    pub(crate) fn name(&self) -> &'static [u8] {
        self.name
    }

    pub(crate) fn farewell(&self) -> &[u8] {
        &self.farewell
    }
}

/// The shortest answer that HTTP/2 allows (RFC 9113): empty SETTINGS, then GOAWAY with INADEQUATE_SECURITY and a reason.
fn go_away(reason: &[u8]) -> Vec<u8> {
    const SETTINGS: u8 = 4;
    const GOAWAY: u8 = 7;
    const INADEQUATE_SECURITY: u32 = 0xc;
    let frame = |kind: u8, payload: &[u8]| {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 0], payload].concat()
    };
    let payload = [&0u32.to_be_bytes(), &INADEQUATE_SECURITY.to_be_bytes(), reason].concat();
    [frame(SETTINGS, &[]), frame(GOAWAY, &payload)].concat()
}
