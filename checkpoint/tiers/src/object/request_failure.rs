//! Classification of client errors, with advice for the operator.

use std::error::Error as _;

use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};

use super::connect::UnreachedEndpoint;

/// Cause of a failed request to an object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestFailure {
    /// The store is unreachable or temporarily unavailable.
    Away,
    /// No connection to the address has ever succeeded.
    NeverReached,
    /// A request did not complete within its deadline.
    Slow,
    /// The bucket or container does not exist.
    NoBucket,
    /// The address is `http`, which was not allowed explicitly.
    Unencrypted,
    /// Credentials are missing or unknown to the store.
    NoCredentials,
    /// The credentials lack permission.
    Forbidden,
    /// The store lacks an operation that a commit requires.
    Lacking,
    /// The store refused the request for another reason.
    Refused,
}

impl RequestFailure {
    /// Classifies an error. Most are recognised by text only, because the types that hold a status
    /// are private to the client.
    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::Unauthenticated { .. } => return Self::NoCredentials,
            Error::PermissionDenied { .. } => return Self::Forbidden,
            Error::NotImplemented { .. } | Error::NotSupported { .. } => return Self::Lacking,
            Error::NotFound { .. } => return Self::NoBucket,
            Error::InvalidPath { .. } => return Self::Refused,
            _ => {}
        }
        // The relevant cause may be below the first message.
        let text = rankguard_model::with_causes(error);
        let has = |part: &str| text.contains(part);
        if has("URL scheme is not allowed") {
            return Self::Unencrypted;
        }
        // Requests for an identity from the machine's metadata service.
        if ["/api/token", "token request", "security-credentials", "oauth2/token"]
            .into_iter()
            .any(has)
        {
            return Self::NoCredentials;
        }
        if is_never_reached(error) {
            return Self::NeverReached;
        }
        match status(&text) {
            Some(404) => Self::NoBucket,
            Some(408 | 429 | 500..) => Self::Away,
            Some(_) => Self::Refused,
            None if is_timeout(error) => Self::Slow,
            None => Self::Away,
        }
    }

    /// Returns true if the cause may pass without intervention.
    pub(super) fn may_pass(self) -> bool {
        matches!(self, Self::Away | Self::NeverReached | Self::Slow)
    }

    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::Away => {
                "check that the object store is reachable and AWS_ENDPOINT (or its equivalent) is correct; the next attempt resumes from the parts that were sent"
            }
            Self::NeverReached => {
                "nothing answers at this address: check AWS_ENDPOINT (or its equivalent), the host name and the port"
            }
            Self::Slow => {
                "check the bandwidth; with a limit below it (--cap, agent.copy_bytes_per_s) parts are sent one after the other"
            }
            Self::NoBucket => "create the bucket or container; this program does not",
            Self::Unencrypted => "use https, or allow http with AWS_ALLOW_HTTP=true or AZURE_ALLOW_HTTP=true",
            Self::NoCredentials => {
                "set credentials in the environment of the sending process (the agents, for a run): AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or use the identity of the machine"
            }
            Self::Forbidden => "grant these credentials list, get, put and delete",
            Self::Lacking => "this store does not support put-if-absent, which commits require",
            Self::Refused => {
                "the place refused the request itself: region, account and name of the bucket may be others"
            }
        }
    }
}

/// Extracts the HTTP status from the text of an error.
fn status(text: &str) -> Option<u16> {
    let (_, after) = text.split_once("status code: ")?;
    after.get(..3)?.parse().ok()
}

fn is_never_reached(error: &Error) -> bool {
    let mut next = error.source();
    while let Some(source) = next {
        if source.is::<UnreachedEndpoint>() {
            return true;
        }
        next = source.source();
    }
    false
}

fn is_timeout(error: &Error) -> bool {
    let mut next = error.source();
    while let Some(source) = next {
        if let Some(http) = source.downcast_ref::<HttpError>() {
            return http.kind() == HttpErrorKind::Timeout;
        }
        next = source.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(source: &str) -> Error {
        let source = source.to_owned().into();
        Error::Generic { store: "S3", source }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("HTTP error: builder error")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn a_cause_below_the_first_message_is_found() {
        let source = Box::new(Outer(std::io::Error::other("URL scheme is not allowed")));
        let error = Error::Generic { store: "S3", source };
        assert_eq!(RequestFailure::of(&error), RequestFailure::Unencrypted);
    }

    /// The texts were recorded from stores of the three kinds.
    #[test]
    fn what_stores_say_is_told_apart() {
        let list = "Error performing list request: Error performing GET http://127.0.0.1/b?list-type=2 in 27ms - Server returned non-2xx status code: 404 Not Found: <Code>NoSuchBucket</Code>";
        let busy = "Error performing HEAD http://127.0.0.1/b/p in 2.6s, after 10 retries - Server returned non-2xx status code: 503 Service Unavailable: ";
        let dead = "Error performing HEAD http://127.0.0.1:1/b/p in 1.8s - HTTP error: error sending request: client error (Connect): tcp connect error: Connection refused";
        let plain =
            "Error performing HEAD http://127.0.0.1/b/p in 1µs - HTTP error: builder error: URL scheme is not allowed";
        let nobody = "Error performing PUT http://127.0.0.1:1/latest/api/token in 2.4s, after 10 retries - HTTP error: error sending request";
        let odd = "Error performing POST http://127.0.0.1/b/p?uploads= in 5µs - Server returned non-2xx status code: 400 Bad Request: no";
        for (text, trouble) in [
            (list, RequestFailure::NoBucket),
            (busy, RequestFailure::Away),
            (dead, RequestFailure::Away),
            (plain, RequestFailure::Unencrypted),
            (nobody, RequestFailure::NoCredentials),
            (odd, RequestFailure::Refused),
        ] {
            assert_eq!(RequestFailure::of(&generic(text)), trouble, "{text}");
        }
    }
}
