//! `GET /metrics` over HTTP/1.1: one response per connection; connections are bounded in number and time.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::prometheus;
use super::snapshot::ViewSource;
use crate::accept_loop::attend;

/// Maximum concurrent connections. Further ones wait in the kernel's backlog.
const CONNECTIONS: usize = 8;
/// Deadline of one connection, from its first byte to the last of the response.
const DEADLINE: Duration = Duration::from_secs(5);
/// Maximum bytes of a request (the minimum that the library allows).
const REQUEST_BYTES: usize = 8 << 10;
/// Running metrics endpoint.
#[derive(Debug)]
pub(crate) struct MetricsEndpoint {
    task: JoinHandle<()>,
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "the log tells people; only tests have to ask")
    )]
    pub(crate) address: SocketAddr,
}

impl MetricsEndpoint {
    /// Stops the endpoint and closes its connections.
    pub(crate) async fn end(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// Starts the metrics endpoint.
pub(crate) async fn serve(address: &str, snapshots: ViewSource) -> io::Result<MetricsEndpoint> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    tracing::info!(%address, "metrics are served");
    let task = attended(listener, snapshots, DEADLINE);
    Ok(MetricsEndpoint { task, address })
}

fn attended(listener: TcpListener, snapshots: ViewSource, deadline: Duration) -> JoinHandle<()> {
    tokio::spawn(attend(listener, CONNECTIONS, deadline, move |stream| {
        answer(stream, snapshots.clone())
    }))
}

async fn answer(stream: TcpStream, snapshots: ViewSource) {
    let service = service_fn(|request| {
        let response = respond(&request, &snapshots);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(REQUEST_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(problem) = connection.await {
        tracing::debug!(%problem, "a connection for metrics ended");
    }
}

fn respond(request: &Request<Incoming>, snapshots: &ViewSource) -> Response<Full<Bytes>> {
    let plain = "text/plain; charset=utf-8";
    let (status, kind, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => (
            StatusCode::OK,
            prometheus::CONTENT_TYPE,
            prometheus::render(&snapshots.take()),
        ),
        (&Method::GET | &Method::HEAD, _) => (StatusCode::NOT_FOUND, plain, "only /metrics is here\n".to_owned()),
        _ => (
            StatusCode::METHOD_NOT_ALLOWED,
            plain,
            "only GET is understood\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        let allowed = hyper::header::HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::outlets::tests::snapshots;

    async fn get(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        let read = stream.read_to_string(&mut text);
        tokio::time::timeout(Duration::from_secs(60), read)
            .await
            .unwrap()
            .unwrap();
        text
    }

    #[tokio::test]
    async fn metrics_are_served_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let serving = serve("127.0.0.1:0", snapshots(folder.path())).await.unwrap();
        let page = get(serving.address, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        assert!(page.contains("content-type: text/plain; version=0.0.4"), "{page}");
        assert!(page.contains("\nrankguard_agent_info{node=\"a\",version="), "{page}");
        let other = get(serving.address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(other.starts_with("HTTP/1.1 404 "), "{other}");
        let post = get(
            serving.address,
            "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        )
        .await;
        assert!(post.starts_with("HTTP/1.1 405 "), "{post}");
        let garbage = get(serving.address, "\0\u{1}\u{2} nonsense\r\n\r\n").await;
        assert!(!garbage.contains("200 OK"), "{garbage}");
        serving.end().await;
    }

    /// RG-9: an idle connection has a deadline, and then the next one is served.
    #[tokio::test]
    async fn scrapers_that_never_ask_do_not_keep_others_out_for_long() {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = attended(listener, snapshots(folder.path()), Duration::from_millis(200));
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS * 2 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET /metr").await.unwrap();
            silent.push(stream);
        }
        let page = get(address, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        task.abort();
    }
}
