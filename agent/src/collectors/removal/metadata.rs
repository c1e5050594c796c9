//! HTTP client of a metadata service: plain HTTP/1.1 to a link-local address, with a deadline and bounded answers.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::{HOST, USER_AGENT};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

/// Maximum duration of one request. The services answer from the host of the virtual machine.
const DEADLINE: Duration = Duration::from_secs(2);

/// Maximum bytes of an answer.
const ANSWER_MAX: usize = 64 << 10;

/// Client of one metadata service.
#[derive(Debug)]
pub(super) struct MetadataClient {
    runtime: Runtime,
    /// Host and port.
    authority: String,
}

impl MetadataClient {
    /// Creates a client of a service, `host:port`.
    pub(super) fn new(authority: &str) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Self {
            runtime: runtime.map_err(|problem| problem.to_string())?,
            authority: authority.to_owned(),
        })
    }

    /// Sends a request without a body. Returns the body of a successful answer; none for `404 Not Found`.
    pub(super) fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Option<String>, RequestFailure> {
        let answer = async { tokio::time::timeout(DEADLINE, self.exchange(method, path, headers)).await };
        let (status, body) = self
            .runtime
            .block_on(answer)
            .unwrap_or_else(|_| Err(format!("no answer within {} s", DEADLINE.as_secs())))
            .map_err(|problem| RequestFailure {
                status: None,
                problem: format!("http://{}{path}: {problem}", self.authority),
            })?;
        match status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => Ok(Some(body)),
            status => Err(RequestFailure {
                status: Some(status),
                problem: format!("http://{}{path}: {status}", self.authority),
            }),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<(StatusCode, String), String> {
        let stream = TcpStream::connect(&self.authority)
            .await
            .map_err(|problem| problem.to_string())?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|problem| problem.to_string())?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.authority)
            .header(USER_AGENT, concat!("rankguard/", env!("CARGO_PKG_VERSION")));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Empty::<Bytes>::new())
            .map_err(|problem| problem.to_string())?;
        let exchange = async {
            let answer = sender
                .send_request(request)
                .await
                .map_err(|problem| problem.to_string())?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
            let body = body.map_err(|problem| problem.to_string())?.to_bytes();
            Ok((status, String::from_utf8_lossy(&body).into_owned()))
        };
        tokio::pin!(exchange);
        tokio::select! {
            biased;
            answer = &mut exchange => answer,
            ended = connection => match ended {
                // The answer is in the buffers of the exchange.
                Ok(()) => exchange.await,
                Err(problem) => Err(problem.to_string()),
            },
        }
    }
}

/// Request without a usable answer.
#[derive(Debug)]
pub(super) struct RequestFailure {
    /// Status of the answer; none without one.
    pub(super) status: Option<StatusCode>,
    /// Address and cause.
    pub(super) problem: String,
}

impl From<RequestFailure> for String {
    fn from(failure: RequestFailure) -> Self {
        failure.problem
    }
}
