//! HTTP client of a receiver: one POST, with deadlines, without redirects, and with errors that contain no secret.

use std::path::Path;
use std::time::Duration;

use rankguard_web_client::{Deadlines, WebClient, WebClientError, read_body, shown_answer};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode};

use crate::format::webhook::SIGNATURE_HEADER;

/// Time limits of requests.
const DEADLINES: Deadlines = Deadlines {
    connect: Duration::from_secs(5),
    request: Duration::from_secs(10),
};
/// Bytes of an answer that are read.
const ANSWER_BYTES: usize = 4 << 10;
/// Longest pause that a receiver may request.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// Reason why a message was not delivered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    /// The receiver refuses this message, and would refuse it again.
    #[error("{0}")]
    Refused(String),
    /// The receiver cannot be reached, is busy, or refuses every message; the message is sent again.
    #[error("{problem}")]
    Failed {
        problem: String,
        /// Pause that the receiver requested.
        retry_after: Option<Duration>,
    },
}

impl DeliveryError {
    pub(crate) fn failed(problem: impl Into<String>) -> Self {
        Self::Failed {
            problem: problem.into(),
            retry_after: None,
        }
    }
}

/// Request to a receiver.
pub(crate) struct OutgoingRequest {
    pub(crate) url: reqwest::Url,
    pub(crate) body: Vec<u8>,
    pub(crate) signature: Option<String>,
    pub(crate) bearer: Option<String>,
}

/// Makes a client that trusts the authorities of a file, or those of the system.
pub(crate) fn client(ca: Option<&Path>) -> Result<WebClient, WebClientError> {
    WebClient::new(ca, DEADLINES)
}

/// Sends a request and checks the status of its answer.
pub(crate) async fn send(client: &WebClient, request: OutgoingRequest) -> Result<(), DeliveryError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let secret = |text: String| {
        let value = HeaderValue::from_str(&text);
        let mut value =
            value.map_err(|_| DeliveryError::failed("the secret contains characters that no header takes"))?;
        value.set_sensitive(true);
        Ok::<_, DeliveryError>(value)
    };
    if let Some(signature) = request.signature {
        headers.insert(SIGNATURE_HEADER, secret(signature)?);
    }
    if let Some(token) = request.bearer {
        headers.insert(AUTHORIZATION, secret(format!("Bearer {token}"))?);
    }
    let sent = client
        .post(request.url)
        .headers(headers)
        .body(request.body)
        .send()
        .await;
    let response = sent.map_err(|problem| DeliveryError::failed(client.problem_text(problem)))?;
    check(response).await
}

async fn check(mut response: Response) -> Result<(), DeliveryError> {
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok());
    let retry_after = retry_after
        .and_then(|seconds| seconds.parse().ok())
        .map(Duration::from_secs);
    let mut answer = Vec::new();
    // An answer that breaks off is shown as far as it came.
    drop(read_body(&mut response, &mut answer, ANSWER_BYTES).await);
    let answer = shown_answer(&answer);
    let problem = match answer.as_str() {
        "" => format!("it answers {status}"),
        text => format!("it answers {status}: {text}"),
    };
    let is_about_message = matches!(
        status,
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY
    );
    if is_about_message {
        return Err(DeliveryError::Refused(problem));
    }
    Err(DeliveryError::Failed {
        problem,
        retry_after: retry_after.map(|pause: Duration| pause.min(RETRY_AFTER_MAX)),
    })
}
