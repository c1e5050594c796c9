//! What is spoken over a connection once both sides are known.

use std::borrow::Cow;

use crate::plain::Farewell;

/// A language. Both sides name it in the handshake, so that no service is mistaken for another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protocol {
    name: &'static [u8],
    /// What a caller who speaks it without TLS is told before the connection is closed.
    farewell: Farewell,
}

impl Protocol {
    /// A language of this name; a caller without TLS is sent `farewell`.
    pub const fn new(name: &'static [u8], farewell: Cow<'static, [u8]>) -> Self {
        let farewell = Farewell::Bytes(farewell);
        Self { name, farewell }
    }

    /// gRPC. A caller without TLS reads why as the status of its first call.
    pub const fn grpc() -> Self {
        Self {
            name: b"rankguard-grpc/1",
            farewell: Farewell::Grpc,
        }
    }

    pub(crate) fn name(&self) -> &'static [u8] {
        self.name
    }

    pub(crate) fn farewell(&self) -> &Farewell {
        &self.farewell
    }
}
