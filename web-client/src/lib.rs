//! HTTP client of requests to services of others: notification receivers, language models, the API of Kubernetes.
//!
//! A [`WebClient`] has deadlines, follows no redirect, and trusts the authorities of a file or those of the system. An
//! answer is read up to a bound ([`read_body`]), and error texts contain no URL, of which the path may be a secret.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Response, Url};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// Characters of an answer that an error text shows.
const ANSWER_SHOWN: usize = 200;

/// Deadlines of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// For the connection.
    pub connect: Duration,
    /// For the whole request, with its answer.
    pub request: Duration,
}

/// Reason why a client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum WebClientError {
    #[error("cannot read {path}: {source}", path = path.display())]
    Ca { path: PathBuf, source: io::Error },
    #[error("{path} contains no certificate", path = path.display())]
    NoCertificate { path: PathBuf },
    #[error("cannot prepare TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("cannot make the HTTP client: {0}")]
    Client(#[from] reqwest::Error),
}

/// Client of one service.
#[derive(Debug, Clone)]
pub struct WebClient {
    client: Client,
    deadlines: Deadlines,
}

impl WebClient {
    /// Makes a client that trusts the authorities of a file (PEM), or those of the system.
    pub fn new(ca: Option<&Path>, deadlines: Deadlines) -> Result<Self, WebClientError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let tls = tls.with_root_certificates(authorities(ca)?).with_no_client_auth();
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(Policy::none())
            .connect_timeout(deadlines.connect)
            .timeout(deadlines.request)
            .user_agent(concat!("rankguard/", env!("CARGO_PKG_VERSION")));
        Ok(Self {
            client: client.build()?,
            deadlines,
        })
    }

    /// Begins a POST request.
    pub fn post(&self, url: Url) -> RequestBuilder {
        self.client.post(url)
    }

    /// Begins a request of any method.
    pub fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.client.request(method, url)
    }

    /// Returns the text of a failed request, with its causes and without its URL.
    pub fn problem_text(&self, problem: reqwest::Error) -> String {
        if problem.is_timeout() {
            return format!("no answer within {} s", self.deadlines.request.as_secs_f64());
        }
        rankguard_model::with_causes(&problem.without_url())
    }
}

fn authorities(ca: Option<&Path>) -> Result<RootCertStore, WebClientError> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca else {
        // Unreadable certificates of the system are skipped.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let unread = |source| WebClientError::Ca {
        path: path.to_owned(),
        source,
    };
    let text = fs::read(path).map_err(unread)?;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|problem| unread(io::Error::other(problem.to_string())))?;
        roots.add(certificate)?;
    }
    if roots.is_empty() {
        return Err(WebClientError::NoCertificate { path: path.to_owned() });
    }
    Ok(roots)
}

/// Appends the body of an answer to `body`, until it ends or `body` has `bytes` bytes; the last chunk may exceed them.
pub async fn read_body(response: &mut Response, body: &mut Vec<u8>, bytes: usize) -> Result<(), reqwest::Error> {
    while body.len() < bytes {
        let Some(chunk) = response.chunk().await? else { break };
        body.extend_from_slice(&chunk);
    }
    Ok(())
}

/// Returns the beginning of an answer for an error text: one line, without characters that act on a terminal.
pub fn shown_answer(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let visible = words.chars().filter(|c| !rankguard_model::is_hidden(*c));
    visible.take(ANSWER_SHOWN).collect()
}
