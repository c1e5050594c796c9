//! Export over HTTP/1.1: one protocol-buffers request, and a response of at most [`ANSWER_MAX`] bytes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Request, StatusCode};

use super::dial::OtlpConnector;
use super::failure::{ExportFailure, RetryRule, error_text};

/// Maximum bytes of a response.
const ANSWER_MAX: usize = 64 << 10;

/// Content type of the bodies.
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

/// HTTP client of one collector; one connection is reused between exports. A concurrent export opens another.
pub(super) struct OtlpHttpClient {
    dialler: OtlpConnector,
    headers: HeaderMap,
    open: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl OtlpHttpClient {
    pub(super) fn new(dialler: OtlpConnector, headers: HeaderMap) -> Self {
        Self {
            dialler,
            headers,
            open: Mutex::default(),
        }
    }

    /// Posts a request to a path below that of the endpoint; returns the body of a successful response.
    pub(super) async fn post(&self, path: &str, body: Vec<u8>) -> Result<Bytes, ExportFailure> {
        let request = self.request(path, body)?;
        // Taken out, so that a connection that breaks midway is not reused.
        let kept = self.kept().take();
        let mut connection = match kept {
            Some(kept) if !kept.is_closed() => kept,
            _ => self.connect().await?,
        };
        connection.ready().await.map_err(ExportFailure::lost)?;
        let answer = connection.send_request(request).await.map_err(ExportFailure::lost)?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_MAX).collect().await;
        let body = body.map_err(ExportFailure::lost)?.to_bytes();
        *self.kept() = Some(connection);
        if head.status.is_success() {
            return Ok(body);
        }
        let typed = head.headers.get(CONTENT_TYPE).is_some_and(|kind| *kind == PROTOBUF);
        Err(ExportFailure {
            again: again(head.status, &head.headers),
            problem: format!("{}: {}", head.status, error_text(&body, typed)),
        })
    }

    fn kept(&self) -> MutexGuard<'_, Option<SendRequest<Full<Bytes>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(&self, path: &str, body: Vec<u8>) -> Result<Request<Full<Bytes>>, ExportFailure> {
        let endpoint = self.dialler.endpoint();
        let mut request = Request::post(format!("{}{path}", endpoint.path))
            .header(HOST, &endpoint.authority)
            .header(USER_AGENT, concat!("rankguard/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(Bytes::from(body)))
            .map_err(|problem| ExportFailure::never(problem.to_string()))?;
        let headers = request.headers_mut();
        headers.extend(self.headers.clone());
        headers.insert(CONTENT_TYPE, PROTOBUF);
        Ok(request)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, ExportFailure> {
        let stream = self.dialler.dial().await.map_err(ExportFailure::lost)?;
        let (connection, driver) = http1::handshake(stream).await.map_err(ExportFailure::lost)?;
        // Ends when the connection's sender is dropped.
        tokio::spawn(driver);
        Ok(connection)
    }
}

/// Applies the retry rules of OTLP 1: responses of a proxy or an overloaded collector are retryable, all others are
/// not.
fn again(status: StatusCode, headers: &HeaderMap) -> RetryRule {
    let passing = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::BAD_GATEWAY,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT,
    ];
    if !passing.contains(&status) {
        return RetryRule::Never;
    }
    let asked = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.trim().parse().ok());
    asked.map_or(RetryRule::Later, |seconds| {
        RetryRule::After(Duration::from_secs(seconds))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_what_may_pass_is_tried_again_and_the_server_says_when() {
        let mut headers = HeaderMap::new();
        for status in [429, 502, 503, 504] {
            assert_eq!(
                again(StatusCode::from_u16(status).unwrap(), &headers),
                RetryRule::Later,
                "{status}"
            );
        }
        for status in [301, 400, 401, 404, 413, 500, 501] {
            assert_eq!(
                again(StatusCode::from_u16(status).unwrap(), &headers),
                RetryRule::Never,
                "{status}"
            );
        }
        headers.insert(RETRY_AFTER, HeaderValue::from_static("7"));
        assert_eq!(
            again(StatusCode::SERVICE_UNAVAILABLE, &headers),
            RetryRule::After(Duration::from_secs(7))
        );
        // A date is not supported here, and is no reason to give up.
        headers.insert(RETRY_AFTER, HeaderValue::from_static("Fri, 31 Dec 1999 23:59:59 GMT"));
        assert_eq!(again(StatusCode::SERVICE_UNAVAILABLE, &headers), RetryRule::Later);
    }
}
