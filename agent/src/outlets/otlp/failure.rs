//! Failed export of either protocol: its message, and whether it may be retried.

use std::time::Duration;

use prost::Message as _;
use rankguard_model::with_causes;
use tonic::{Code, Status};

/// Maximum characters of a server's message.
const WORDS: usize = 200;

/// Export that the collector did not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExportFailure {
    pub(super) again: RetryRule,
    /// Message for operators.
    pub(super) problem: String,
}

/// Retry rule of a failed export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryRule {
    /// The server will never accept the request.
    Never,
    /// Retryable after the sender's own pause.
    Later,
    /// Retryable after the pause that the server requests.
    After(Duration),
}

impl ExportFailure {
    /// Returns a retryable failure: the server was not reached, or the connection broke.
    pub(super) fn lost(problem: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self {
            again: RetryRule::Later,
            problem: with_causes(&*problem.into()),
        }
    }

    /// Returns the failure of a request that cannot be built.
    pub(super) fn never(problem: String) -> Self {
        Self {
            again: RetryRule::Never,
            problem,
        }
    }

    /// Returns the failure of a request without a response in time.
    pub(super) fn late() -> Self {
        Self {
            again: RetryRule::Later,
            problem: "no answer in time".to_owned(),
        }
    }
}

impl From<Status> for ExportFailure {
    /// Applies the retry rules of OTLP 1 for gRPC.
    fn from(status: Status) -> Self {
        let asked = asked(status.details());
        let again = match status.code() {
            Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss => asked.map_or(RetryRule::Later, RetryRule::After),
            // Without a retry delay a server that is out of resources is not retried.
            Code::ResourceExhausted => asked.map_or(RetryRule::Never, RetryRule::After),
            _ => RetryRule::Never,
        };
        Self {
            again,
            problem: format!("{:?}: {}", status.code(), status.message()),
        }
    }
}

/// Returns the message in the body of a refusal: that of a `google.rpc.Status` if it is `typed` as one, else the first
/// characters of its text.
pub(super) fn error_text(body: &[u8], typed: bool) -> String {
    let told = typed.then(|| RpcStatus::decode(body).ok()).flatten();
    let text = told.map_or_else(|| String::from_utf8_lossy(body).into_owned(), |it| it.message);
    let printed = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    printed.take(WORDS).collect()
}

/// Fields of `google.rpc.Status` that are used.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<AnyMessage>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
struct AnyMessage {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<ProtoDuration>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, prost::Message)]
struct ProtoDuration {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// Returns the retry delay that the server requests, if any.
fn asked(details: &[u8]) -> Option<Duration> {
    let details = RpcStatus::decode(details).ok()?.details;
    let info = details
        .iter()
        .find(|detail| detail.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let pause = RetryInfo::decode(info.value.as_slice())
        .ok()?
        .retry_delay
        .unwrap_or_default();
    Some(Duration::new(
        u64::try_from(pause.seconds).ok()?,
        u32::try_from(pause.nanos).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttled(seconds: i64) -> RetryRule {
        let info = RetryInfo {
            retry_delay: Some(ProtoDuration { seconds, nanos: 0 }),
        };
        let details = RpcStatus {
            message: String::new(),
            details: vec![AnyMessage {
                type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(),
                value: info.encode_to_vec(),
            }],
        };
        let status = Status::with_details(Code::ResourceExhausted, "slow down", details.encode_to_vec().into());
        ExportFailure::from(status).again
    }

    #[test]
    fn what_the_server_will_never_take_is_not_tried_again() {
        for code in [
            Code::InvalidArgument,
            Code::Unauthenticated,
            Code::Unimplemented,
            Code::Internal,
            Code::ResourceExhausted,
        ] {
            assert_eq!(
                ExportFailure::from(Status::new(code, "")).again,
                RetryRule::Never,
                "{code:?}"
            );
        }
        assert_eq!(
            ExportFailure::from(Status::new(Code::Unavailable, "")).again,
            RetryRule::Later
        );
    }

    #[test]
    fn a_server_that_says_when_is_heard_and_garbage_is_no_word_at_all() {
        assert_eq!(throttled(7), RetryRule::After(Duration::from_secs(7)));
        assert_eq!(throttled(-1), RetryRule::Never);
        let garbage = Status::with_details(Code::ResourceExhausted, "", vec![0xff; 40].into());
        assert_eq!(ExportFailure::from(garbage).again, RetryRule::Never);
    }

    #[test]
    fn refusals_are_told_in_the_words_of_the_server_and_in_one_line() {
        let status = RpcStatus {
            message: "too old".to_owned(),
            details: Vec::new(),
        };
        assert_eq!(error_text(&status.encode_to_vec(), true), "too old");
        assert_eq!(error_text(b"<html>\nno\x1b[1m", false), "<html> no [1m");
        assert_eq!(error_text(&[b'x'; 4096], false).len(), WORDS);
        assert_eq!(error_text(&[0xff; 8], true).chars().count(), 8);
    }
}
