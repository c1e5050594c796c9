//! HTTP/1.1 server: connections are bounded in number, and neither a slow writer nor a slow reader holds one.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rankguard_identity::{AlpnProtocol, PeerListener, PeerStream, PeerTransport};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

use crate::service::ApiService;
use crate::write_deadline::WriteDeadline;

/// Concurrent connections. Further ones wait.
const CONNECTIONS_MAX: usize = 256;
/// Connections of clients without a certificate, over TLS. Further ones are closed, so that they shut out no operator with a
/// certificate.
const ANONYMOUS_MAX: usize = 192;
/// Time limit of the head of a request; an idle connection ends after it, too.
const HEAD_DEADLINE: Duration = Duration::from_secs(10);
/// Longest time in which a client reads nothing of an answer.
const WRITE_DEADLINE: Duration = Duration::from_secs(30);
/// Largest head of a request, bytes, and its largest number of headers.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;

/// Running server; dropping it ends all connections.
#[derive(Debug)]
pub struct ApiServer {
    task: JoinHandle<()>,
    /// Address on which it listens.
    pub address: SocketAddr,
}

impl ApiServer {
    /// Starts to serve. [`PeerTransport::may_use`] must be checked before the socket is bound.
    pub fn start(listener: TcpListener, transport: &PeerTransport, service: ApiService) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let peers = PeerListener::with_optional_certificates(listener, transport, AlpnProtocol::http());
        let task = tokio::spawn(accept(peers, service));
        Ok(Self { task, address })
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves connections; they end when this task is aborted.
async fn accept(mut peers: PeerListener, service: ApiService) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let anonymous = Arc::new(Semaphore::new(ANONYMOUS_MAX));
    let mut open = JoinSet::new();
    loop {
        while open.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        let Some(stream) = peers.next().await else { return };
        let place = if stream.caller().is_anonymous() {
            let Ok(place) = Arc::clone(&anonymous).try_acquire_owned() else {
                continue;
            };
            Some(place)
        } else {
            None
        };
        let service = service.clone();
        open.spawn(async move {
            serve(stream, service).await;
            drop((permit, place));
        });
    }
}

async fn serve(stream: PeerStream, service: ApiService) {
    let peer = stream.caller().clone();
    let answer = service_fn(|request: hyper::Request<Incoming>| {
        let response = service.handle(request, &peer);
        async move { Ok::<_, Infallible>(response.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(WriteDeadline::new(stream, WRITE_DEADLINE)), answer);
    // A client that disconnects or breaks the protocol needs no record.
    let _ = connection.await;
}
