//! Answers: documents with an entity tag, and the headers of every answer.

use axum::body::Body;
use bytes::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH,
};
use hyper::{HeaderMap, Response, StatusCode};
use rankguard_model::Timestamp;
use twox_hash::XxHash3_128;

/// Time of the newest event that an answer contains.
const AS_OF: HeaderName = HeaderName::from_static("rankguard-as-of");

/// Returns a JSON document, or 304 if the client has it.
pub(crate) fn document(body: Bytes, as_of: Option<Timestamp>, request: &HeaderMap) -> Response<Body> {
    let mut response = tagged(body, "application/json", request);
    if let Some(as_of) = as_of.and_then(|at| HeaderValue::from_str(&at.to_string()).ok()) {
        response.headers_mut().insert(AS_OF, as_of);
    }
    response
}

/// Returns the answer to a change.
pub(crate) fn receipt(body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Returns content with its entity tag, or 304 if the client has it.
pub(crate) fn tagged(body: Bytes, media: &'static str, request: &HeaderMap) -> Response<Body> {
    let tag = entity_tag(&body);
    let is_known = is_known(&tag, request);
    let mut response = if is_known {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        Response::new(Body::from(body))
    };
    let headers = response.headers_mut();
    if !is_known {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    }
    // A cache may keep the document, and asks each time whether it is current.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    response
}

/// Returns the entity tag of a document.
pub(crate) fn entity_tag(body: &[u8]) -> String {
    format!("\"{:032x}\"", XxHash3_128::oneshot(body))
}

/// Returns true if a request with `If-Match` is for a document with this tag, by strong comparison (RFC 9110, 13.1.1).
pub(crate) fn is_match(tag: &str, request: &HeaderMap) -> bool {
    let mut lists = request.get_all(IF_MATCH).iter().filter_map(|list| list.to_str().ok());
    lists.any(|list| {
        list.split(',')
            .map(str::trim)
            .any(|wanted| wanted == "*" || wanted == tag)
    })
}

/// Returns true if `If-None-Match` has the tag, by weak comparison (RFC 9110, 13.1.2).
fn is_known(tag: &str, request: &HeaderMap) -> bool {
    let lists = request
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|list| list.to_str().ok());
    let mut tags = lists.flat_map(|list| list.split(',')).map(str::trim);
    tags.any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

/// Adds the headers of every answer; an answer with a content security policy of its own retains it.
pub(crate) fn harden(response: &mut Response<Body>) {
    let headers = response.headers_mut();
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("cross-origin-resource-policy", "same-origin"),
        ("referrer-policy", "no-referrer"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers
        .entry(CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static("default-src 'none'"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_tag_needs_no_body() {
        let first = document(Bytes::from_static(b"{}"), None, &HeaderMap::new());
        let tag = first.headers()[ETAG].clone();
        let tag = tag.to_str().expect("ASCII");
        for (list, is_known) in [
            (tag.to_owned(), true),
            (format!("\"other\", W/{tag}"), true),
            ("*".to_owned(), true),
            ("\"other\"".to_owned(), false),
            (tag.trim_matches('"').to_owned(), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(IF_NONE_MATCH, HeaderValue::from_str(&list).expect("a header"));
            let status = document(Bytes::from_static(b"{}"), None, &headers).status();
            assert_eq!(status == StatusCode::NOT_MODIFIED, is_known, "{list}");
        }
    }
}
