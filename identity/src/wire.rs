//! Connection with an authenticated peer: TLS, or plain within this machine.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;
use tonic::transport::server::Connected;

use crate::caller::ConnectionPeer;
use crate::revocation::ConnectionCheck;

/// Byte stream. Flush after each message: TLS buffers unflushed bytes.
#[derive(Debug)]
pub struct PeerStream {
    stream: TransportStream,
    caller: ConnectionPeer,
}

#[derive(Debug)]
enum TransportStream {
    Plain(TcpStream),
    // Boxed, because its state exceeds a kilobyte.
    Tls(Box<TlsStream<TcpStream>>, Option<ConnectionCheck>),
}

impl PeerStream {
    pub(crate) fn plain(stream: TcpStream, caller: ConnectionPeer) -> Self {
        let stream = TransportStream::Plain(stream);
        Self { stream, caller }
    }

    pub(crate) fn tls(stream: TlsStream<TcpStream>, caller: ConnectionPeer, check: Option<ConnectionCheck>) -> Self {
        let stream = TransportStream::Tls(Box::new(stream), check);
        Self { stream, caller }
    }

    /// Returns the peer.
    pub fn caller(&self) -> &ConnectionPeer {
        &self.caller
    }
}

/// Checks that the peer's certificate is not revoked; an anonymous peer has none.
fn run(check: &mut Option<ConnectionCheck>) -> io::Result<()> {
    check.as_mut().map_or(Ok(()), ConnectionCheck::run)
}

impl AsyncRead for PeerStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            TransportStream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            TransportStream::Tls(stream, check) => match run(check) {
                Ok(()) => Pin::new(stream).poll_read(cx, buf),
                Err(revoked) => Poll::Ready(Err(revoked)),
            },
        }
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            TransportStream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            TransportStream::Tls(stream, check) => match run(check) {
                Ok(()) => Pin::new(stream).poll_write(cx, buf),
                Err(revoked) => Poll::Ready(Err(revoked)),
            },
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            TransportStream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            TransportStream::Tls(stream, _) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            TransportStream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            TransportStream::Tls(stream, _) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            TransportStream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            TransportStream::Tls(stream, check) => match run(check) {
                Ok(()) => Pin::new(stream).poll_write_vectored(cx, bufs),
                Err(revoked) => Poll::Ready(Err(revoked)),
            },
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            TransportStream::Plain(stream) => stream.is_write_vectored(),
            TransportStream::Tls(stream, _) => stream.is_write_vectored(),
        }
    }
}

impl Connected for PeerStream {
    type ConnectInfo = ConnectionPeer;

    fn connect_info(&self) -> ConnectionPeer {
        self.caller.clone()
    }
}
