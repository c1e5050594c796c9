//! Access of tokens to every route, and changes by HTTP, without a network.

use std::collections::BTreeSet;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use rankguard_access::{AccessRole, AuditFilter, AuditLog, AuditOutcome, TokenScope};
use rankguard_api::{ApiService, RouteRule, route_rules};
use rankguard_model::Timestamp;

use crate::common::{Answer, SampleCluster, local};

/// Sends a request with headers and a body.
async fn send(service: &ApiService, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "127.0.0.1:1");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request
        .body(Full::new(Bytes::from(body.to_owned())))
        .expect("a request");
    let response = service.handle(request, &local()).await;
    let (parts, body) = response.into_parts();
    let is_stream = parts
        .headers
        .get("content-type")
        .is_some_and(|media| media == "text/event-stream");
    let body = if is_stream {
        Bytes::new()
    } else {
        body.collect().await.expect("a body").to_bytes()
    };
    Answer {
        status: parts.status,
        headers: parts.headers,
        body,
    }
}

/// Sends JSON with a token.
async fn post(service: &ApiService, token: &str, path: &str, more: &[(&str, &str)], body: &str) -> Answer {
    let authorization = format!("Bearer {token}");
    let own = [
        ("authorization", authorization.as_str()),
        ("content-type", "application/json"),
    ];
    send(service, "POST", path, &[&own[..], more].concat(), body).await
}

fn scope(prefix: Option<&str>, nodes: &[&str]) -> TokenScope {
    TokenScope {
        job_prefix: prefix.map(str::to_owned),
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
    }
}

/// Path of a route with a name in the place of its parameter.
fn path(rule: &RouteRule, job: &str, node: &str, id: &str) -> String {
    let name = if rule.path.contains("/jobs/") { job } else { node };
    rule.path.replace("{name}", name).replace("{id}", id)
}

/// RG-13: the role of each route is enforced, and a scope reaches its jobs and nodes only.
#[tokio::test]
async fn every_route_enforces_role_and_scope() {
    let cluster = SampleCluster::new(4, 2);
    let whole = AccessRole::ALL.map(|role| (role, cluster.token(role, TokenScope::default())));
    let inside = cluster.token(AccessRole::Operator, scope(Some("tra"), &["n00000", "n00001"]));
    let outside = cluster.token(AccessRole::Operator, scope(Some("wait"), &["n00003"]));
    let (service, _feed, _) = cluster.service();
    let case = cluster.state.cases().keys().next().expect("a case").to_string();
    let plan = cluster.state.plans().keys().next().expect("a plan").to_string();
    let rules: Vec<RouteRule> = route_rules().collect();
    assert!(rules.iter().filter(|rule| rule.method == "POST").count() >= 5);
    for rule in &rules {
        let id = if rule.path.contains("/plans/") { &plan } else { &case };
        let path = path(rule, "train", "n00000", id);
        let admitted = async |token: &str| {
            let answer = match rule.method {
                "POST" => post(&service, token, &path, &[], "{\"wrong\":1}").await,
                _ => {
                    let authorization = format!("Bearer {token}");
                    send(&service, "GET", &path, &[("authorization", &authorization)], "").await
                }
            };
            let status = answer.status.as_u16();
            let is_answered = !matches!(status, 401 | 429 | 500..) || path == "/readyz";
            assert!(is_answered, "{path}: {status} {:?}", answer.body);
            status != 403
        };
        for (role, token) in &whole {
            assert_eq!(admitted(token).await, *role >= rule.role, "{path} {role}");
        }
        let is_open = rule.scope == "none";
        let may_change = rule.role <= AccessRole::Operator;
        assert_eq!(
            admitted(&inside).await,
            may_change && rule.scope != "whole",
            "{path} inside"
        );
        assert_eq!(admitted(&outside).await, is_open, "{path} outside");
    }
    assert_eq!(cluster.changes.count(), 0, "bodies that cannot be used change nothing");
}

#[tokio::test]
async fn a_change_needs_a_token_json_and_the_own_site() {
    let cluster = SampleCluster::new(4, 1);
    let token = cluster.token(AccessRole::Operator, TokenScope::default());
    let (service, _feed, _) = cluster.service();
    let path = "/api/v1/nodes/n00000/cordon";
    let body = "{\"reason\":\"fan\"}";
    let json = ("content-type", "application/json");
    let bearer = format!("Bearer {token}");
    let own = ("authorization", bearer.as_str());
    let refused: &[(&[(&str, &str)], u16)] = &[
        (&[json], 401),
        (&[own], 415),
        (&[own, ("content-type", "text/plain")], 415),
        (&[own, json, ("origin", "https://evil.example")], 403),
        (&[own, json, ("sec-fetch-site", "cross-site")], 403),
        (&[own, json, ("if-match", "\"0\"")], 412),
        (&[own, json, ("idempotency-key", "a b")], 400),
        (&[own, own, json], 401),
        (&[("authorization", "Bearer"), json], 401),
        (&[("authorization", &format!("Basic {token}")), json], 401),
        (&[("authorization", &format!("Bearer  {token}")), json], 401),
        (&[("cookie", &format!("token={token}")), json], 401),
        (&[("x-authorization", &bearer), json], 401),
    ];
    for (headers, status) in refused {
        let answer = send(&service, "POST", path, headers, body).await;
        assert_eq!(answer.status.as_u16(), *status, "{headers:?}: {:?}", answer.body);
        let has_challenge = answer.headers.contains_key("www-authenticate");
        assert_eq!(has_challenge, *status == 401, "{headers:?}");
    }
    for (method, headers) in [
        ("GET", [own, ("x-http-method-override", "POST")]),
        ("HEAD", [own, ("x-http-method", "POST")]),
        ("OPTIONS", [own, ("access-control-request-method", "POST")]),
        ("PATCH", [own, json]),
    ] {
        let answer = send(&service, method, path, &headers, "").await;
        assert_eq!(answer.status.as_u16(), 405, "{method}");
    }
    let big = format!("{{\"reason\":\"{}\"}}", "x".repeat(9_000));
    assert_eq!(post(&service, &token, path, &[], &big).await.status.as_u16(), 413);
    assert_eq!(cluster.changes.count(), 0);
    let answer = post(&service, &token, path, &[("origin", "http://127.0.0.1:1")], body).await;
    assert_eq!(answer.status.as_u16(), 200, "{:?}", answer.body);
    assert_eq!(cluster.changes.count(), 1);
    let absent = post(&service, &token, "/api/v1/nodes/absent/drain", &[], body).await;
    assert_eq!(absent.status.as_u16(), 404);
}

/// A token in a URI is refused, and no answer repeats it.
#[tokio::test]
async fn a_token_in_a_uri_is_refused_and_not_repeated() {
    let cluster = SampleCluster::new(4, 1);
    let token = cluster.token(AccessRole::Admin, TokenScope::default());
    let (service, _feed, _) = cluster.service();
    let bearer = format!("Bearer {token}");
    for uri in [
        format!("/api/v1/nodes?access_token={token}"),
        format!("/api/v1/nodes?cursor={token}"),
        format!("/api/v1/nodes/{token}"),
        format!("/api/v1/nodes?cursor={}", token.replace('_', "%5F")),
        format!("/console/main.js?{token}"),
    ] {
        for headers in [&[][..], &[("authorization", bearer.as_str())]] {
            let answer = send(&service, "GET", &uri, headers, "").await;
            assert_eq!(answer.status.as_u16(), 400, "{uri}");
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(!text.contains(&token[4..20]), "{text}");
        }
    }
}

/// A repeated request with its key changes nothing, also with an outdated If-Match; the key of other content is refused.
#[tokio::test]
async fn a_key_makes_a_repetition_harmless() {
    let cluster = SampleCluster::new(4, 1);
    let token = cluster.token(AccessRole::Operator, TokenScope::default());
    let other = cluster.token(AccessRole::Operator, TokenScope::default());
    let (service, _feed, _) = cluster.service();
    let case = cluster.state.cases().keys().next().expect("a case").to_string();
    let path = format!("/api/v1/cases/{case}/notes");
    let body = "{\"kind\":\"comment\",\"text\":\"looked\"}";
    let without = post(&service, &token, &path, &[], body).await;
    assert_eq!(without.status.as_u16(), 400);
    assert_eq!(without.json()["field"], "Idempotency-Key");
    let key = [("idempotency-key", "4f2a")];
    let first = post(&service, &token, &path, &key, body).await;
    let second = post(&service, &token, &path, &key, body).await;
    assert_eq!(
        (first.status.as_u16(), second.status.as_u16()),
        (200, 200),
        "{:?}",
        second.body
    );
    assert_eq!(
        (&first.json()["is_repeated"], &second.json()["is_repeated"]),
        (&false.into(), &true.into())
    );
    assert_eq!(first.json()["audit"], second.json()["audit"]);
    assert_eq!(cluster.changes.count(), 1);
    // The change has given the case another tag, which is no reason to refuse its repetition.
    let with_tag = [key[0], ("if-match", "\"of-before\"")];
    let repeated = post(&service, &token, &path, &with_tag, body).await;
    assert_eq!(repeated.json()["audit"], first.json()["audit"], "{:?}", repeated.body);
    let changed = [("idempotency-key", "c"), ("if-match", "\"of-before\"")];
    for _ in 0..2 {
        let refused = post(&service, &token, &path, &changed, body).await;
        assert_eq!(refused.status.as_u16(), 412, "a refused change leaves its key unused");
    }
    let reused = post(&service, &token, &path, &key, &body.replace("looked", "x")).await;
    assert_eq!(reused.status.as_u16(), 422);
    assert_eq!(post(&service, &other, &path, &key, body).await.status.as_u16(), 200);
    assert_eq!(cluster.changes.count(), 2, "keys belong to a caller");
    let refused = post(
        &service,
        &token,
        "/api/v1/nodes/absent/drain",
        &[("idempotency-key", "b")],
        "{\"reason\":\"a\"}",
    );
    assert_eq!(refused.await.status.as_u16(), 404);
}

/// Changes are limited by caller, and the refused ones are recorded.
#[tokio::test]
async fn changes_are_limited_and_refusals_are_recorded() {
    let cluster = SampleCluster::new(4, 1);
    let busy = cluster.token(AccessRole::Operator, TokenScope::default());
    let viewer = cluster.token(AccessRole::Viewer, TokenScope::default());
    let (service, _feed, _) = cluster.service();
    let mut statuses = BTreeSet::new();
    for _ in 0..40 {
        let answer = post(
            &service,
            &busy,
            "/api/v1/nodes/n00000/cordon",
            &[],
            "{\"reason\":\"a\"}",
        )
        .await;
        if answer.status.as_u16() == 429 {
            let wait = answer.headers["retry-after"].to_str().expect("ASCII");
            assert!((1..=2).contains(&wait.parse::<u64>().expect("seconds")), "{wait}");
        }
        statuses.insert(answer.status.as_u16());
    }
    assert_eq!(statuses, BTreeSet::from([200, 429]));
    let answer = post(
        &service,
        &viewer,
        "/api/v1/nodes/n00001/drain",
        &[],
        "{\"reason\":\"a\"}",
    )
    .await;
    assert_eq!(answer.status.as_u16(), 403);
    let audit = AuditLog::open(cluster.dir.path(), Timestamp(0)).expect("opened");
    let page = audit.read(&AuditFilter::default(), None, 100).expect("readable");
    let entry = &page.entries[0];
    assert_eq!(
        (entry.outcome, entry.target.as_str()),
        (AuditOutcome::Refused, "n00001")
    );
    assert!(
        entry.actor.starts_with("token tk-") && entry.message.contains("requires operator"),
        "{entry:?}"
    );
}
