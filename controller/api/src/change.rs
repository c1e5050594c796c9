//! Changes of the cluster: checks of a request, and its execution by the controller.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, IF_MATCH, ORIGIN};
use hyper::{HeaderMap, Request, Response, StatusCode};
use rankguard_access::{AuditDoor, CallerIdentity, KeyState, NewAuditEntry};
use rankguard_model::{CaseId, CaseNoteKind, JobId, NodeId};
use tokio::time::timeout;
use twox_hash::XxHash3_128;

use crate::answer;
use crate::documents::ChangeReceipt;
use crate::problem::{Problem, quoted};
use crate::routes::cases::check_class as check_known_class;
use crate::routes::{ChangeRoute, Route, json};
use crate::service::{ServiceState, authorize, read};

/// Largest body of a request, bytes.
pub(crate) const BODY_BYTES_MAX: usize = 8 << 10;
/// Longest time for the body of a request.
const BODY_DEADLINE: Duration = Duration::from_secs(10);
/// Longest idempotency key, characters.
const KEY_MAX: usize = 64;
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Change of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Adds a note to a case.
    NoteCase {
        case: CaseId,
        kind: CaseNoteKind,
        text: String,
    },
    /// Places no new ranks on a node.
    CordonNode { node: NodeId, reason: String },
    /// Uses a node again.
    UncordonNode {
        node: NodeId,
        /// If not empty, the cordon is lifted only if it has exactly these reasons.
        only_reasons: Vec<String>,
    },
    /// Cordons a node and moves its job.
    DrainNode { node: NodeId, reason: String },
    /// Cancels a job permanently.
    CancelJob { job: JobId },
}

impl Change {
    /// Returns the name of the change in the audit log.
    pub fn action(&self) -> &'static str {
        match self {
            Self::NoteCase { kind, .. } => match kind {
                CaseNoteKind::Acknowledged => "case.acknowledge",
                CaseNoteKind::Comment => "case.comment",
                CaseNoteKind::Corrected { .. } => "case.correct",
                CaseNoteKind::Closed => "case.close",
            },
            Self::CordonNode { .. } => "node.cordon",
            Self::UncordonNode { .. } => "node.uncordon",
            Self::DrainNode { .. } => "node.drain",
            Self::CancelJob { .. } => "job.cancel",
        }
    }

    /// Returns the object of the change.
    pub fn target(&self) -> String {
        match self {
            Self::NoteCase { case, .. } => case.to_string(),
            Self::CordonNode { node, .. } | Self::UncordonNode { node, .. } | Self::DrainNode { node, .. } => {
                node.to_string()
            }
            Self::CancelJob { job } => job.to_string(),
        }
    }
}

/// Change with its author.
#[derive(Debug)]
pub struct ChangeRequest {
    pub caller: CallerIdentity,
    pub change: Change,
    /// Idempotency key and fingerprint of the request, for the audit log.
    pub key: Option<String>,
}

/// Reason why a change was not carried out.
#[derive(Debug, PartialEq, Eq)]
pub enum ChangeRefusal {
    /// The resource does not exist.
    Absent(String),
    /// The state of the resource does not permit the change.
    Conflict(String),
    /// The change is invalid.
    Invalid(Vec<String>),
    /// The controller accepts no changes now.
    Unavailable(String),
    /// The result is not known: the controller did not answer in time.
    Late(String),
}

/// Future of a change: the number of its entry in the audit log.
pub type ChangeFuture = Pin<Box<dyn Future<Output = Result<u64, ChangeRefusal>> + Send>>;

/// Carries out changes with the messages of the operator service, and records each in the audit log.
pub trait ChangeExecutor: Send + Sync + 'static {
    /// Carries out a change.
    fn execute(&self, request: ChangeRequest) -> ChangeFuture;
}

/// Answers a request that changes something.
pub(crate) async fn respond(
    service: &Arc<ServiceState>,
    route: &'static Route,
    change: &'static ChangeRoute,
    name: String,
    request: Request<Body>,
) -> Result<Response<Body>, Problem> {
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    let caller = parts.extensions.get::<CallerIdentity>().cloned();
    let caller = caller.ok_or_else(|| Problem::unauthenticated("the caller is unknown"))?;
    service.limit_changes(&caller)?;
    let checked = check_site(headers).and_then(|()| authorize(service, route, &caller, &name));
    if let Err(problem) = checked {
        record_refusal(service, &caller, change, &name, problem.detail()).await;
        return Err(problem);
    }
    check_media(headers)?;
    let body = read_body(body).await?;
    let parsed = (change.parse)(&name, &body)?;
    check_class(service, &parsed)?;
    let key = idempotency_key(headers)?;
    if key.is_none() && change.needs_key {
        let problem = Problem::invalid(
            "Idempotency-Key",
            "the header is missing, and a repeated request would act twice",
        );
        return Err(problem.hint("send a random text of 1 to 64 characters, and the same one with a repetition"));
    }
    let content = [parts.uri.path().as_bytes(), b"\n", &body].concat();
    let fingerprint = format!("{:032x}", XxHash3_128::oneshot(&content));
    let match_condition = headers.contains_key(IF_MATCH).then(|| MatchCondition {
        route: change,
        name: name.clone(),
        headers: headers.clone(),
    });
    let key = key.map(|key| (key, fingerprint));
    let executed = execute(service, caller.clone(), parsed, key, match_condition).await;
    match executed {
        Ok(response) => Ok(response),
        Err(ChangeFailure::Executed(problem)) => Err(problem),
        Err(ChangeFailure::Refused(problem)) => {
            record_refusal(service, &caller, change, &name, problem.detail()).await;
            Err(problem)
        }
    }
}

/// Failure of a change.
enum ChangeFailure {
    /// Refusal before the executor, which has no record of it.
    Refused(Problem),
    /// Failure that the executor has recorded.
    Executed(Problem),
}

/// Condition of a change: the resource has a tag of `If-Match`.
struct MatchCondition {
    route: &'static ChangeRoute,
    name: String,
    headers: HeaderMap,
}

/// Carries out a change once for each key, which comes with the fingerprint of the request. A repetition is answered before
/// its condition is checked: the change itself has given the resource another tag.
async fn execute(
    service: &Arc<ServiceState>,
    caller: CallerIdentity,
    change: Change,
    key: Option<(String, String)>,
    condition: Option<MatchCondition>,
) -> Result<Response<Body>, ChangeFailure> {
    let (action, target) = (change.action(), change.target());
    let receipt = |audit, is_repeated| {
        let receipt = ChangeReceipt {
            action: action.to_owned(),
            target: target.clone(),
            audit,
            is_repeated,
        };
        let receipt = json(&receipt).map_err(ChangeFailure::Executed)?;
        Ok(answer::receipt(Bytes::from(receipt)))
    };
    if let Some((key, fingerprint)) = &key {
        match service
            .keys
            .begin(&caller.actor, key, fingerprint, service.health.now())
        {
            KeyState::New => {}
            KeyState::Done(audit) => return receipt(audit, true),
            KeyState::Unsettled => return Err(ChangeFailure::Refused(unsettled())),
            KeyState::Mismatch => return Err(ChangeFailure::Refused(mismatch())),
        }
    }
    let actor = caller.actor.clone();
    let request = ChangeRequest {
        caller,
        change,
        key: key.as_ref().map(|(key, fingerprint)| format!("{key} {fingerprint}")),
    };
    let state = Arc::clone(service);
    // A task of its own: a client that disconnects does not leave a change without its result.
    let executed = tokio::spawn(async move {
        if let Some(MatchCondition { route, name, headers }) = condition
            && let Err(problem) = check_match(&state, route, name, &headers).await
        {
            if let Some((key, _)) = &key {
                state.keys.settle(&actor, key, None);
            }
            return Err(ChangeFailure::Refused(problem));
        }
        let result = state.access.changes.execute(request).await;
        if let Some((key, _)) = &key {
            match &result {
                Ok(audit) => state.keys.settle(&actor, key, Some(*audit)),
                Err(ChangeRefusal::Late(_)) => {}
                Err(_) => state.keys.settle(&actor, key, None),
            }
        }
        result.map_err(|refusal| ChangeFailure::Executed(problem_of(refusal)))
    });
    match executed.await {
        Ok(Ok(audit)) => receipt(audit, false),
        Ok(Err(failure)) => Err(failure),
        Err(_) => {
            let problem = Problem::busy("the controller ended before the result was known");
            Err(ChangeFailure::Executed(problem))
        }
    }
}

fn problem_of(refusal: ChangeRefusal) -> Problem {
    match refusal {
        ChangeRefusal::Absent(why) => {
            Problem::new(StatusCode::NOT_FOUND, "not-found", "the resource does not exist", why)
        }
        ChangeRefusal::Conflict(why) => Problem::new(
            StatusCode::CONFLICT,
            "conflict",
            "the state does not permit the change",
            why,
        ),
        ChangeRefusal::Invalid(problems) => Problem::invalid("body", problems.join("; ")),
        ChangeRefusal::Unavailable(why) => Problem::unavailable(why),
        ChangeRefusal::Late(why) => {
            let title = "the result of the change is not known";
            Problem::new(StatusCode::GATEWAY_TIMEOUT, "late", title, why)
                .hint("read the resource and GET /api/v1/audit before you repeat the request")
        }
    }
}

/// Refuses a correction to a class that the catalogue does not have.
fn check_class(service: &ServiceState, change: &Change) -> Result<(), Problem> {
    let Change::NoteCase {
        kind: CaseNoteKind::Corrected { class },
        ..
    } = change
    else {
        return Ok(());
    };
    let checked = service.reader.read(|state, _| check_known_class(state, class));
    // The controller checks it again.
    checked.unwrap_or(Ok(()))
}

fn unsettled() -> Problem {
    let title = "the result of the change is not known";
    let detail = "a request with this Idempotency-Key is being carried out, or its result was not recorded";
    Problem::new(StatusCode::CONFLICT, "unsettled", title, detail)
        .of("Idempotency-Key")
        .hint("read the resource; use another key for another change")
}

fn mismatch() -> Problem {
    let title = "the idempotency key belongs to another request";
    let detail = "a request with this Idempotency-Key and other content was made within 24 h";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "key-reused", title, detail)
        .of("Idempotency-Key")
        .hint("use a new key for each change")
}

/// Refuses requests that a page of another site makes a browser send, with the certificate of its user or from this
/// machine. The API uses no cookies.
fn check_site(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("unreadable"));
    let site = text(&FETCH_SITE).unwrap_or("none");
    if !matches!(site, "same-origin" | "none") {
        let detail = format!(
            "the request comes from a page of another site: Sec-Fetch-Site is {}",
            quoted(site)
        );
        return Err(Problem::forbidden(detail).of("Sec-Fetch-Site"));
    }
    let host = text(&HOST).unwrap_or_default();
    let is_own_origin = |origin: &str| origin.split_once("://").is_some_and(|(_, authority)| authority == host);
    let origins = headers.get_all(ORIGIN).iter().count();
    if text(&ORIGIN).is_none_or(is_own_origin) && origins <= 1 {
        return Ok(());
    }
    let detail = if origins > 1 {
        format!("the request has {origins} headers Origin")
    } else {
        let origin = quoted(text(&ORIGIN).unwrap_or_default());
        format!(
            "the request comes from a page of another site: Origin is {origin}, and the host is {}",
            quoted(host)
        )
    };
    Err(Problem::forbidden(detail).of("Origin"))
}

/// A page of another site cannot send JSON without a preflight, which this API refuses.
fn check_media(headers: &HeaderMap) -> Result<(), Problem> {
    let media = headers.get(CONTENT_TYPE).and_then(|media| media.to_str().ok());
    let media = media.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if media.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let title = "the body has another type";
    let detail = format!("Content-Type is {}; expected application/json", quoted(media));
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media-type", title, detail).of("Content-Type"))
}

async fn read_body(body: Body) -> Result<Bytes, Problem> {
    match timeout(BODY_DEADLINE, Limited::new(body, BODY_BYTES_MAX).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(_)) => Err(too_large()),
        Err(_) => {
            let title = "the body did not arrive in time";
            let detail = "the body of the request did not arrive within 10 s";
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "late-body", title, detail))
        }
    }
}

/// Returns the problem of a body that is too large or broken off.
pub(crate) fn too_large() -> Problem {
    let detail = format!("the body has more than {BODY_BYTES_MAX} bytes, or is broken off");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body", "the body is too large", detail)
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = keys.next() else { return Ok(None) };
    let text = key.to_str().unwrap_or_default();
    let is_key = (1..=KEY_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_key && keys.next().is_none() {
        return Ok(Some(text.to_owned()));
    }
    let detail = format!("a request has one key of 1 to {KEY_MAX} visible ASCII characters");
    Err(Problem::invalid("Idempotency-Key", detail))
}

/// Compares the present document of the resource with `If-Match`.
async fn check_match(
    service: &Arc<ServiceState>,
    change: &ChangeRoute,
    name: String,
    headers: &HeaderMap,
) -> Result<(), Problem> {
    let (body, _) = read(service, change.resource, name, crate::query::Query::default()).await?;
    if answer::is_match(&answer::entity_tag(&body), headers) {
        return Ok(());
    }
    let title = "the resource has changed";
    let detail = "the document of the resource has another ETag than If-Match";
    let problem = Problem::new(StatusCode::PRECONDITION_FAILED, "changed", title, detail);
    Err(problem.of("If-Match").hint("read the resource again and decide anew"))
}

/// Records a refused change.
async fn record_refusal(
    service: &Arc<ServiceState>,
    caller: &CallerIdentity,
    change: &ChangeRoute,
    name: &str,
    why: &str,
) {
    let entry = NewAuditEntry {
        actor: caller.actor.clone(),
        door: AuditDoor::Http,
        address: caller.address.clone(),
        action: change.action.to_owned(),
        target: name.to_owned(),
        detail: String::new(),
        key: None,
    };
    service.record_refusal(entry, why.to_owned()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_other_sites_are_refused() {
        let check = |pairs: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "127.0.0.1:7701".parse().expect("a header"));
            for (name, value) in pairs {
                headers.append(*name, value.parse().expect("a header"));
            }
            check_site(&headers).is_ok()
        };
        assert!(check(&[]));
        assert!(check(&[
            ("origin", "http://127.0.0.1:7701"),
            ("sec-fetch-site", "same-origin")
        ]));
        assert!(!check(&[("origin", "https://evil.example")]));
        assert!(!check(&[("origin", "null")]));
        assert!(!check(&[("origin", "http://127.0.0.1:7702")]));
        assert!(!check(&[
            ("origin", "http://127.0.0.1:7701"),
            ("origin", "https://evil.example")
        ]));
        assert!(!check(&[("sec-fetch-site", "cross-site")]));
        assert!(!check(&[("sec-fetch-site", "same-site")]));
    }

    #[test]
    fn keys_are_short_visible_text() {
        let parse = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(IDEMPOTENCY_KEY, value.parse().expect("a header"));
            }
            idempotency_key(&headers)
        };
        assert_eq!(parse(&[]), Ok(None));
        assert_eq!(parse(&["a-1"]), Ok(Some("a-1".to_owned())));
        let long = "a".repeat(65);
        for wrong in [&["a b"][..], &[""], &["a", "a"], &[&long]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
