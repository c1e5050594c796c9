//! Errors as problem documents (RFC 9457).

use axum::body::Body;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use rankguard_model::PrintableText;
use serde::Serialize;
use utoipa::ToSchema;

/// Characters of a client's text that an error repeats.
const QUOTED_MAX: usize = 100;

/// Error as RFC 9457 defines it; `field`, `known` and `hint` are extensions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// Kind of the error, stable across versions.
    #[serde(rename = "type")]
    #[schema(value_type = String, example = "urn:rankguard:problem:unknown-parameter")]
    kind: Box<str>,
    /// Kind of the error in words.
    #[schema(value_type = String)]
    title: &'static str,
    /// Status code of the answer.
    status: u16,
    /// Cause of this error.
    #[schema(value_type = String)]
    detail: Box<str>,
    /// Parameter, header or part of the path that is wrong.
    #[schema(value_type = Option<String>)]
    field: Option<Box<str>>,
    /// Values that are accepted instead.
    #[schema(value_type = Vec<String>)]
    known: Box<[String]>,
    /// What the client can do about it.
    #[schema(value_type = Option<String>)]
    hint: Option<Box<str>>,
    /// Value of the header `Retry-After`, seconds.
    #[serde(skip)]
    retry_after_s: Option<u32>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, kind: &str, title: &'static str, detail: impl Into<Box<str>>) -> Self {
        Self {
            kind: format!("urn:rankguard:problem:{kind}").into(),
            title,
            status: status.as_u16(),
            detail: detail.into(),
            field: None,
            known: Box::default(),
            hint: None,
            retry_after_s: None,
        }
    }

    /// Returns the problem of a request without usable credentials.
    pub(crate) fn unauthenticated(detail: impl Into<Box<str>>) -> Self {
        let title = "the request is not authenticated";
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", title, detail).of("Authorization")
    }

    /// Returns the problem of a caller without the right to a route.
    pub(crate) fn forbidden(detail: impl Into<Box<str>>) -> Self {
        let title = "the caller has no right to this";
        Self::new(StatusCode::FORBIDDEN, "forbidden", title, detail)
    }

    /// Returns the problem of a caller that sends too many requests.
    pub(crate) fn too_many(detail: impl Into<Box<str>>, wait: std::time::Duration) -> Self {
        let title = "there are too many requests";
        let mut problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many-requests", title, detail);
        let seconds = wait.as_millis().div_ceil(1_000).max(1);
        problem.retry_after_s = Some(u32::try_from(seconds).unwrap_or(u32::MAX));
        problem.hint("repeat the request after the time of Retry-After")
    }

    /// Returns the problem of a method that a route does not have.
    pub(crate) fn method(method: &str, allowed: &'static [&'static str]) -> Self {
        let detail = format!("{} is not supported here", quoted(method));
        let title = "the method is not supported";
        let problem = Self::new(StatusCode::METHOD_NOT_ALLOWED, "method", title, detail);
        problem
            .known(allowed.iter().copied())
            .hint("GET /api/v1/openapi.json describes the routes and their methods")
    }

    /// Returns the problem of a value that cannot be used.
    pub(crate) fn invalid(field: &str, detail: impl Into<Box<str>>) -> Self {
        let title = "a value cannot be used";
        Self::new(StatusCode::BAD_REQUEST, "invalid-value", title, detail).of(field)
    }

    /// Returns the problem of a resource that does not exist.
    pub(crate) fn absent(what: &str, name: &str, list: &str) -> Self {
        let detail = format!("there is no {what} {}", quoted(name));
        Self::new(
            StatusCode::NOT_FOUND,
            "not-found",
            "the resource does not exist",
            detail,
        )
        .hint(format!("GET {list} lists what there is"))
    }

    /// Returns the problem of a controller that cannot write or is about to change.
    pub(crate) fn unavailable(detail: impl Into<Box<str>>) -> Self {
        let title = "the controller does not accept the request now";
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", title, detail);
        problem.hint("repeat the request later; GET /readyz has the reason if the controller cannot write")
    }

    /// Returns the problem of a server that is too busy.
    pub(crate) fn busy(detail: &str) -> Self {
        let title = "the server is busy";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", title, detail).hint("repeat the request after a second")
    }

    #[must_use]
    pub(crate) fn of(mut self, field: &str) -> Self {
        self.field = Some(PrintableText::first(field, QUOTED_MAX).to_string().into());
        self
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<Box<str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub(crate) fn known<'a>(mut self, known: impl IntoIterator<Item = &'a str>) -> Self {
        self.known = known.into_iter().map(str::to_owned).collect();
        self
    }

    /// Describes the problem in one sentence.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let status = self.status();
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let allowed = HeaderValue::from_str(&self.known.join(", ")).ok();
        if let Some(allowed) = allowed.filter(|_| status == StatusCode::METHOD_NOT_ALLOWED) {
            headers.insert(ALLOW, allowed);
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"rankguard\""));
        }
        let is_temporary = status == StatusCode::SERVICE_UNAVAILABLE;
        if let Some(seconds) = self.retry_after_s.or(is_temporary.then_some(1)) {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// Quotes a client's text without hidden characters, shortened.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", PrintableText::first(text, QUOTED_MAX))
}
