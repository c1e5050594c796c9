//! Refusal of a client without TLS: a message in the protocol of the listener, before the connection is closed.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Time limit of a refusal, after which the connection is closed.
const LIMIT: Duration = Duration::from_secs(1);
/// Maximum bytes of the client that are read before the refusal, and again after it.
const BYTES_MAX: u64 = 64 << 10;
/// Status message for a gRPC caller. Shorter than 127 bytes, so that its length is one byte of HPACK.
pub const REQUIRES_TLS: &str = "this port requires TLS: set identity.ca, identity.certificate and identity.key";
/// Length of the HTTP/2 connection preface.
const PREFACE_BYTES: usize = 24;
/// Type of an HTTP/2 frame with headers.
const HEADERS: u8 = 1;
/// Type of an HTTP/2 frame with settings.
const SETTINGS: u8 = 4;
/// Flags END_STREAM and END_HEADERS of a frame with headers: the response is complete.
const WHOLE: u8 = 5;

/// Refusal, by the protocol of the listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PlaintextRefusal {
    /// Status FAILED_PRECONDITION of the client's first gRPC call.
    Grpc,
    /// Fixed bytes, sent without waiting for a request.
    Bytes(Cow<'static, [u8]>),
}

impl PlaintextRefusal {
    /// Sends the refusal and closes the connection; errors are ignored. The client's data is read before the close,
    /// because closing a socket with unread data sends a reset, which discards the refusal.
    pub(crate) async fn say(&self, mut stream: TcpStream) {
        let said = async {
            match self {
                Self::Grpc => refuse_first_call(&mut stream).await?,
                Self::Bytes(bytes) => stream.write_all(bytes).await?,
            }
            stream.shutdown().await?;
            tokio::io::copy(&mut stream.take(BYTES_MAX), &mut tokio::io::sink()).await
        };
        let _ = tokio::time::timeout(LIMIT, said).await;
    }
}

/// Answers the first call with the minimum of HTTP/2 (RFC 9113): settings, then headers with the gRPC status. After an
/// HTTP/2 connection error, clients report a closed connection without the reason.
async fn refuse_first_call(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(&frame(SETTINGS, 0, [0; 4], &[])).await?;
    let mut heard = (&mut *stream).take(BYTES_MAX);
    heard.read_exact(&mut [0; PREFACE_BYTES]).await?;
    let call = loop {
        let mut head = [0; 9];
        heard.read_exact(&mut head).await?;
        let [a, b, c, kind, _, call @ ..] = head;
        let length = u64::from(u32::from_be_bytes([0, a, b, c]));
        tokio::io::copy(&mut (&mut heard).take(length), &mut tokio::io::sink()).await?;
        if kind == HEADERS {
            break call;
        }
    };
    // HPACK: status 200 from the static table, the others literally. 9 is FAILED_PRECONDITION.
    let mut block = vec![0x88];
    for (name, value) in [
        ("content-type", "application/grpc"),
        ("grpc-status", "9"),
        ("grpc-message", REQUIRES_TLS),
    ] {
        block.extend([0, name.len() as u8]);
        block.extend(name.as_bytes());
        block.push(value.len() as u8);
        block.extend(value.as_bytes());
    }
    stream.write_all(&frame(HEADERS, WHOLE, call, &block)).await
}

/// Encodes an HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream, payload].concat()
}
