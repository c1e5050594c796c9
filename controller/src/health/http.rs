//! HTTP/1.1 endpoint for `GET /healthz`, `/readyz` and `/metrics`: one response a connection; connections are bounded
//! in number and time.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::SharedHealth;

/// Concurrent connections. Further ones wait in the kernel's queue.
const CONNECTIONS: usize = 8;
/// Time limit of one connection.
const DEADLINE: Duration = Duration::from_secs(5);
/// Largest request, bytes.
const REQUEST_BYTES: usize = 8 << 10;
/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

const PLAIN: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Running HTTP endpoint; dropping it stops it.
#[derive(Debug)]
pub(crate) struct HealthEndpoint {
    task: JoinHandle<()>,
    /// Address on which it listens.
    pub(crate) address: SocketAddr,
}

impl Drop for HealthEndpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Binds the address and starts to serve.
pub(crate) async fn serve(address: &str, health: SharedHealth) -> io::Result<HealthEndpoint> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let task = tokio::spawn(attend(listener, health));
    Ok(HealthEndpoint { task, address })
}

/// Accepts connections; they end when this task is aborted.
async fn attend(listener: TcpListener, health: SharedHealth) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut open = JoinSet::new();
    loop {
        while open.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let answered = timeout(DEADLINE, answer(stream, health.clone()));
                open.spawn(async move {
                    let _ = answered.await;
                    drop(permit);
                });
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn answer(stream: TcpStream, health: SharedHealth) {
    let service = service_fn(|request| {
        let response = respond(&request, &health);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(REQUEST_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    // A client that disconnects needs no response.
    let _ = connection.await;
}

fn respond(request: &Request<Incoming>, health: &SharedHealth) -> Response<Full<Bytes>> {
    let checked = |outcome: Result<(), String>| match outcome {
        Ok(()) => (StatusCode::OK, PLAIN, "ok\n".to_owned()),
        Err(problem) => (StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("{problem}\n")),
    };
    let (status, kind, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/healthz") => checked(health.live()),
        (&Method::GET | &Method::HEAD, "/readyz") => checked(health.ready()),
        (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, PROMETHEUS, health.metrics()),
        (&Method::GET | &Method::HEAD, _) => {
            let known = "only /healthz, /readyz and /metrics are here\n";
            (StatusCode::NOT_FOUND, PLAIN, known.to_owned())
        }
        _ => (
            StatusCode::METHOD_NOT_ALLOWED,
            PLAIN,
            "only GET is understood\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
