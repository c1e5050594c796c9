//! HTTP client of a receiver: one POST, with deadlines, without redirects, and with errors that contain no secret.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::format::webhook::SIGNATURE_HEADER;

/// Time limit of a connection, and of a whole request.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
const REQUEST_DEADLINE: Duration = Duration::from_secs(10);
/// Text of an answer that is shown, characters, and what is read of it, bytes.
const ANSWER_SHOWN: usize = 200;
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

/// Reason why a client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ReceiverClientError {
    #[error("cannot read {path}: {source}", path = path.display())]
    Ca { path: PathBuf, source: io::Error },
    #[error("{path} contains no certificate", path = path.display())]
    NoCertificate { path: PathBuf },
    #[error("cannot prepare TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("cannot make the HTTP client: {0}")]
    Client(#[from] reqwest::Error),
}

/// Makes a client that trusts the authorities of a file, or those of the system.
pub(crate) fn client(ca: Option<&Path>) -> Result<Client, ReceiverClientError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let tls = tls.with_root_certificates(authorities(ca)?).with_no_client_auth();
    let client = Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(Policy::none())
        .connect_timeout(CONNECT_DEADLINE)
        .timeout(REQUEST_DEADLINE)
        .user_agent(concat!("rankguard/", env!("CARGO_PKG_VERSION")));
    Ok(client.build()?)
}

fn authorities(ca: Option<&Path>) -> Result<RootCertStore, ReceiverClientError> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca else {
        // Unreadable certificates of the system are skipped.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let unread = |source| ReceiverClientError::Ca {
        path: path.to_owned(),
        source,
    };
    let text = fs::read(path).map_err(unread)?;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|problem| unread(io::Error::other(problem.to_string())))?;
        roots.add(certificate)?;
    }
    if roots.is_empty() {
        return Err(ReceiverClientError::NoCertificate { path: path.to_owned() });
    }
    Ok(roots)
}

/// Sends a request and checks the status of its answer.
pub(crate) async fn send(client: &Client, request: OutgoingRequest) -> Result<(), DeliveryError> {
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
    // Without the URL, of which the path may be a secret.
    let response = sent.map_err(|problem| DeliveryError::failed(problem_text(&problem.without_url())))?;
    check(response).await
}

/// Returns an error of the client with its causes.
fn problem_text(problem: &reqwest::Error) -> String {
    if problem.is_timeout() {
        return format!("no answer within {} s", REQUEST_DEADLINE.as_secs());
    }
    rankguard_model::with_causes(problem)
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
    while answer.len() < ANSWER_BYTES
        && let Ok(Some(chunk)) = response.chunk().await
    {
        answer.extend_from_slice(&chunk);
    }
    let answer = String::from_utf8_lossy(&answer);
    let answer: String = answer.split_whitespace().collect::<Vec<_>>().join(" ");
    let answer: String = answer
        .chars()
        .filter(|c| !rankguard_model::is_hidden(*c))
        .take(ANSWER_SHOWN)
        .collect();
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
