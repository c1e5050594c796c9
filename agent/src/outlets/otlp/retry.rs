//! When an export that failed is tried again: the rules of OTLP 1 for gRPC.

use std::time::Duration;

use tonic::{Code, Status};

/// First pause; it doubles.
const FIRST: Duration = Duration::from_secs(1);
/// Longest pause.
const LONGEST: Duration = Duration::from_secs(30);
/// Longest pause that a server may ask for.
const ASKED_MAX: Duration = Duration::from_secs(300);
/// Tries before records are given up: about five minutes.
const TRIES: u32 = 14;

/// What follows from a failure.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another try after this pause.
    Again(Duration),
    /// The server will never take it, or not in time.
    GiveUp,
}

/// After this many failures of the same export, the newest with this status. `spread` of 0 to 1 tells agents apart that all
/// lost the same server.
pub(super) fn after(failures: u32, status: &Status, spread: f64) -> Next {
    let asked = asked(status.details());
    let again = match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => true,
        // Only a server that says when will have room again.
        Code::ResourceExhausted => asked.is_some(),
        _ => false,
    };
    if !again || failures >= TRIES {
        return Next::GiveUp;
    }
    let doubled = FIRST
        .saturating_mul(1 << failures.saturating_sub(1).min(16))
        .min(LONGEST);
    let spread = doubled.mul_f64(0.5 + spread.clamp(0.0, 1.0) / 2.0);
    Next::Again(asked.map_or(spread, |asked| asked.min(ASKED_MAX)))
}

/// `google.rpc.Status`, as far as it is of use.
#[derive(Clone, PartialEq, prost::Message)]
struct Details {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Detail>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
struct Detail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Pause>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, prost::Message)]
struct Pause {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// The pause that the server wants, where it says one.
fn asked(details: &[u8]) -> Option<Duration> {
    use prost::Message as _;
    let details = Details::decode(details).ok()?.details;
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
    use prost::Message as _;

    use super::*;

    fn throttled(seconds: i64) -> Status {
        let info = RetryInfo {
            retry_delay: Some(Pause { seconds, nanos: 0 }),
        };
        let type_url = "type.googleapis.com/google.rpc.RetryInfo".to_owned();
        let details = Details {
            details: vec![Detail {
                type_url,
                value: info.encode_to_vec(),
            }],
        };
        Status::with_details(Code::ResourceExhausted, "slow down", details.encode_to_vec().into())
    }

    #[test]
    fn what_may_pass_is_tried_again_with_growing_pauses_and_an_end() {
        let status = Status::new(Code::Unavailable, "");
        let pauses: Vec<Next> = (1..=7).map(|failures| after(failures, &status, 1.0)).collect();
        let wanted = [1, 2, 4, 8, 16, 30, 30].map(|seconds| Next::Again(Duration::from_secs(seconds)));
        assert_eq!(pauses, wanted);
        assert_eq!(after(1, &status, 0.0), Next::Again(Duration::from_millis(500)));
        assert_eq!(after(TRIES, &status, 1.0), Next::GiveUp);
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
            assert_eq!(after(1, &Status::new(code, ""), 0.5), Next::GiveUp, "{code:?}");
        }
    }

    #[test]
    fn a_server_that_says_when_is_heeded_within_reason() {
        assert_eq!(after(3, &throttled(7), 0.5), Next::Again(Duration::from_secs(7)));
        assert_eq!(after(1, &throttled(1 << 40), 0.5), Next::Again(ASKED_MAX));
        // What means nothing is no word at all.
        assert_eq!(after(1, &throttled(-1), 0.5), Next::GiveUp);
        let garbage = Status::with_details(Code::ResourceExhausted, "", vec![0xff; 40].into());
        assert_eq!(after(1, &garbage, 0.5), Next::GiveUp);
    }
}
