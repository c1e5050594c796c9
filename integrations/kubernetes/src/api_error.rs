//! Failures of requests to the API server.

use std::time::Duration;

/// Failure of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// No answer arrived.
    #[error("cannot reach the API server of Kubernetes: {0}")]
    Unreachable(String),
    /// The server refused the request.
    #[error("the API server refused the request ({code} {reason}): {message}")]
    Refused {
        /// HTTP status of the answer.
        code: u16,
        /// Reason of the status object, or empty.
        reason: String,
        /// Message of the status object, or the beginning of the answer.
        message: String,
        /// Wait that the server requests.
        retry_after: Option<Duration>,
    },
    /// The answer is not what the API defines.
    #[error("cannot parse the answer of the API server: {0}")]
    Answer(String),
    /// The token cannot be read.
    #[error("cannot read the token {0}")]
    Token(String),
}

impl ApiError {
    /// Returns the HTTP status of a refusal; 0 for other failures.
    pub fn code(&self) -> u16 {
        match self {
            Self::Refused { code, .. } => *code,
            _ => 0,
        }
    }

    /// True if the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code() == 404
    }

    /// True if the object has changed since it was read, or exists already.
    pub fn is_conflict(&self) -> bool {
        self.code() == 409
    }

    /// True if the history of the server does not reach back to the requested version.
    pub fn is_expired(&self) -> bool {
        self.code() == 410
    }

    /// True if the request may succeed later: a disruption budget, or a server that limits its clients.
    pub fn is_throttled(&self) -> bool {
        self.code() == 429
    }

    /// True if further requests would fail in the same way.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Token(_) => true,
            Self::Refused { code, .. } => matches!(code, 401 | 403) || *code >= 500,
            Self::Answer(_) => false,
        }
    }
}
