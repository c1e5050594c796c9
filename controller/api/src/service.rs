//! Service: checks a request, finds its route and answers it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, State};
use axum::routing::{get, post};
use bytes::Bytes;
use hyper::body::Body as HttpBody;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::Service as _;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use hyper_util::service::TowerToHyperService;
use rankguard_access::{AuditFilter, CallerIdentity, IdempotencyTable, NewAuditEntry, RateLimiter};
use rankguard_identity::{ConnectionPeer, RefusalCounters};
use rankguard_model::{CaseId, JobId, NodeId, PlanId, Timestamp};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::access::{AccessFailure, AccessGate, ApiAccess};
use crate::documents::{AuditDocument, HealthDocument, Page};
use crate::page::PagedList;
use crate::problem::{Problem, quoted};
use crate::query::Query;
use crate::replica::StateReader;
use crate::routes::{self, ROUTES, Route, RouteContent, ScopeRule, StateRequest};
use crate::watch::{self, WATCHES_MAX, WatchEnd};
use crate::{answer, change, console, openapi};

/// Longest path and query, bytes.
const URI_BYTES_MAX: usize = 4 << 10;
/// Documents that are made at a time; further requests wait.
const READS_MAX: usize = 4;
/// Changes of a caller: a burst, and the interval at which further ones are admitted.
const CHANGES_BURST: u32 = 30;
const CHANGE_INTERVAL: Duration = Duration::from_secs(2);
/// Time of the idempotency keys that are read at the start, and the most of them.
const KEY_RETENTION: Duration = Duration::from_secs(86_400);
const EARLIER_ENTRIES_MAX: usize = 4_096;
const TOKEN_HINT: &str = "use a token of that role: `rankguard token create NAME --role ROLE`";
/// Longest wait for a document.
const READ_DEADLINE: Duration = Duration::from_secs(10);

/// Health and clock of the controller.
pub trait ControllerHealth: Send + Sync + 'static {
    /// Returns the reason why the event loop does not run.
    fn live(&self) -> Result<(), String>;
    /// Returns the reason why evidence and commands are not accepted.
    fn ready(&self) -> Result<(), String>;
    /// Returns the time on the controller's clock.
    fn now(&self) -> Timestamp;
}

/// HTTP service; clones share it.
#[derive(Clone)]
pub struct ApiService {
    router: Router,
    state: Arc<ServiceState>,
}

/// State that all requests share.
pub(crate) struct ServiceState {
    pub(crate) reader: StateReader,
    pub(crate) health: Arc<dyn ControllerHealth>,
    gate: AccessGate,
    pub(crate) access: ApiAccess,
    /// Idempotency keys of changes.
    pub(crate) keys: IdempotencyTable,
    /// Changes of each caller, the refused ones included.
    changes: RateLimiter,
    reads: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    openapi: Bytes,
}

impl ApiService {
    /// Creates the service over a copy of the state. Refused certificates are counted in `refusals`. Reads the newest
    /// entries of the audit log for the idempotency keys of earlier starts.
    pub fn new(
        reader: StateReader,
        health: Arc<dyn ControllerHealth>,
        refusals: RefusalCounters,
        access: ApiAccess,
    ) -> Self {
        let keys = earlier_keys(&access, health.now());
        let state = Arc::new(ServiceState {
            reader,
            health,
            gate: AccessGate::new(access.tokens.clone(), refusals),
            access,
            keys,
            changes: RateLimiter::new(CHANGES_BURST, CHANGE_INTERVAL),
            reads: Arc::new(Semaphore::new(READS_MAX)),
            watches: Arc::new(Semaphore::new(WATCHES_MAX)),
            openapi: Bytes::from(openapi::document()),
        });
        let mut router = Router::new();
        for route in ROUTES {
            let respond = move |State(state): State<Arc<ServiceState>>,
                                parameters: Result<RawPathParams, RawPathParamsRejection>,
                                request: Request<Body>| async move {
                let responded = respond(state, route, parameters, request).await;
                responded.unwrap_or_else(Problem::into_response)
            };
            let methods = if route.method() == Method::POST {
                post(respond).fallback(only_post)
            } else {
                get(respond).fallback(only_get)
            };
            router = router.route(route.path, methods);
        }
        for file in console::FILES {
            let respond = move |headers: HeaderMap| async move { file.respond(&headers) };
            router = router.route(&file.path(), get(respond).fallback(only_get));
        }
        for path in console::ENTRY_PATHS {
            router = router.route(path, get(|| async { console::redirect() }).fallback(only_get));
        }
        let router = router.fallback(no_route).with_state(Arc::clone(&state));
        Self { router, state }
    }

    /// Answers a request of a peer.
    pub async fn handle<B>(&self, mut request: Request<B>, peer: &ConnectionPeer) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let now = self.state.health.now();
        let gate = &self.state.gate;
        let mut response = match gate.authenticate(peer, (request.method(), request.uri()), request.headers(), now) {
            Ok(caller) => {
                request.extensions_mut().insert(caller);
                self.route(request).await
            }
            Err(AccessFailure { problem, entry }) => {
                if let Some(entry) = entry {
                    self.state.record_refusal(*entry, problem.detail().to_owned()).await;
                }
                // A client without credentials holds no connection.
                let mut response = problem.into_response();
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
                response
            }
        };
        answer::harden(&mut response);
        response
    }

    /// Routes a request of a known caller.
    async fn route<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if let Err(problem) = check_form(&request) {
            let is_unread = problem.status() == StatusCode::PAYLOAD_TOO_LARGE;
            let mut response = problem.into_response();
            if is_unread {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
            }
            return response;
        }
        let service = TowerToHyperService::new(self.router.clone());
        match service.call(request.map(Body::new)).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

impl ServiceState {
    /// Takes a permit for a change of a caller.
    pub(crate) fn limit_changes(&self, caller: &CallerIdentity) -> Result<(), Problem> {
        let taken = self.changes.take(&caller.actor, Instant::now());
        taken.map_err(|wait| Problem::too_many("the caller makes too many changes", wait))
    }

    /// Records a refusal in the audit log. A failure is logged: the request is refused in any case.
    pub(crate) async fn record_refusal(&self, entry: NewAuditEntry, why: String) {
        let audit = self.access.audit.clone();
        let now = self.health.now();
        let recorded = spawn_blocking(move || audit.refuse(entry, &why, now)).await;
        if let Ok(Err(problem)) = recorded {
            tracing::error!(%problem, "a refused request is not in the audit log");
        }
    }
}

/// Returns the idempotency keys of the last day, the newest ones.
fn earlier_keys(access: &ApiAccess, now: Timestamp) -> IdempotencyTable {
    let day = i64::try_from(KEY_RETENTION.as_nanos()).unwrap_or(i64::MAX);
    let filter = AuditFilter {
        since: Some(Timestamp(now.0.saturating_sub(day))),
        has_key: true,
        ..AuditFilter::default()
    };
    match access.audit.read(&filter, None, EARLIER_ENTRIES_MAX) {
        Ok(page) => IdempotencyTable::from_entries(page.entries.iter().rev()),
        Err(problem) => {
            tracing::error!(%problem, "the idempotency keys of earlier starts are not known");
            IdempotencyTable::default()
        }
    }
}

/// Checks that a caller has the role of a route, and that its scope has the resource of the path.
pub(crate) fn authorize(
    service: &ServiceState,
    route: &Route,
    caller: &CallerIdentity,
    name: &str,
) -> Result<(), Problem> {
    if caller.role < route.role {
        let detail = format!(
            "{} has role {}, and this requires {}",
            caller.actor, caller.role, route.role
        );
        if caller.token.is_none() && caller.author.is_none() {
            let detail = format!(
                "without a token a process of this machine only reads, and this requires {}",
                route.role
            );
            return Err(Problem::unauthenticated(detail).hint(TOKEN_HINT));
        }
        return Err(Problem::forbidden(detail).hint(TOKEN_HINT));
    }
    let scope = &caller.scope;
    let is_within = scope.is_whole()
        || match route.scope {
            ScopeRule::None => true,
            ScopeRule::Whole => false,
            ScopeRule::Job => scope.has_job(name),
            ScopeRule::Node => scope.has_node(name),
            ScopeRule::Case | ScopeRule::Plan => has_record(service, route, caller, name),
        };
    if is_within {
        return Ok(());
    }
    let detail = format!("the scope of {} is {}", caller.actor, scope.words());
    let problem = Problem::forbidden(format!("{detail}, and this is outside of it"));
    Err(problem.hint("use a token of another scope, or without one for lists and events of the whole cluster"))
}

/// Returns true if the scope of a caller has a case or plan. One that does not exist is outside of every scope.
fn has_record(service: &ServiceState, route: &Route, caller: &CallerIdentity, name: &str) -> bool {
    let Ok(id) = name.parse() else { return false };
    let found = service.reader.read(|state, _| {
        let scope = &caller.scope;
        if route.scope == ScopeRule::Plan {
            let plan = state.plans().get(&PlanId(id));
            return Ok(plan.is_some_and(|plan| scope.has_job(plan.job.as_str())));
        }
        let case = state.cases().get(&CaseId(id));
        Ok(case.is_some_and(|case| {
            let job = case.job.as_ref().map(JobId::as_str);
            scope.has_case(job, case.nodes().map(NodeId::as_str))
        }))
    });
    matches!(found, Some(Ok::<bool, Problem>(true)))
}

async fn only_get(method: Method) -> Response<Body> {
    Problem::method(method.as_str(), &["GET", "HEAD"]).into_response()
}

async fn only_post(method: Method) -> Response<Body> {
    Problem::method(method.as_str(), &["POST"]).into_response()
}

impl std::fmt::Debug for ApiService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiService")
    }
}

/// Checks method, length of the URI and body.
fn check_form<B: HttpBody>(request: &Request<B>) -> Result<(), Problem> {
    let method = request.method();
    if !matches!(*method, Method::GET | Method::HEAD | Method::POST) {
        return Err(Problem::method(method.as_str(), &["GET", "HEAD", "POST"]));
    }
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    if path > URI_BYTES_MAX {
        let detail = format!("path and query have {path} bytes, and at most {URI_BYTES_MAX} are accepted");
        let title = "the URI is too long";
        return Err(Problem::new(StatusCode::URI_TOO_LONG, "uri-too-long", title, detail).hint("shorten the query"));
    }
    let size = request.body().size_hint();
    if *method == Method::POST {
        let is_large = size.lower() > change::BODY_BYTES_MAX as u64;
        return if is_large { Err(change::too_large()) } else { Ok(()) };
    }
    if !request.body().is_end_stream() && size.exact() != Some(0) {
        let detail = "a request that reads has no body";
        let title = "the request has a body";
        let problem = Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body", title, detail);
        return Err(problem.hint("send parameters in the query"));
    }
    Ok(())
}

async fn no_route(uri: Uri) -> Response<Body> {
    let detail = format!("there is no route {}", quoted(uri.path()));
    let problem = Problem::new(StatusCode::NOT_FOUND, "no-route", "the route does not exist", detail);
    let known = ROUTES.iter().map(|route| route.path);
    problem
        .known(known)
        .hint("GET /api/v1/openapi.json describes the routes")
        .into_response()
}

async fn respond(
    service: Arc<ServiceState>,
    route: &'static Route,
    parameters: Result<RawPathParams, RawPathParamsRejection>,
    request: Request<Body>,
) -> Result<Response<Body>, Problem> {
    let query = Query::parse(request.uri().query(), route.parameters)?;
    let undecodable = |_| {
        let problem = Problem::invalid("path", "the path is no percent-encoded UTF-8");
        problem.hint("encode names as UTF-8, and % as %25")
    };
    let parameters = parameters.map_err(undecodable)?;
    let name = parameters
        .iter()
        .next()
        .map_or(String::new(), |(_, value)| value.to_owned());
    if let RouteContent::Change(change) = &route.content {
        return change::respond(&service, route, change, name, request).await;
    }
    let caller = request.extensions().get::<CallerIdentity>();
    let caller = caller.ok_or_else(|| Problem::unauthenticated("the caller is unknown"))?;
    authorize(&service, route, caller, &name)?;
    let headers = request.headers();
    match &route.content {
        RouteContent::State { answer: make, .. } => {
            let (body, as_of) = read(&service, *make, name, query).await?;
            Ok(answer::document(Bytes::from(body), Some(as_of), headers))
        }
        RouteContent::Live => health(service.health.live()),
        RouteContent::Ready => health(service.health.ready()),
        RouteContent::Watch => {
            let end = WatchEnd::of(&service.access.tokens, caller, Arc::clone(&service.health));
            watch::start(&service.reader, &service.watches, headers, end)
        }
        RouteContent::Audit => audit(&service, query, headers).await,
        RouteContent::Change(_) => Err(Problem::method("GET", &["POST"])),
        RouteContent::OpenApi => Ok(answer::document(service.openapi.clone(), None, headers)),
    }
}

/// Reads a page of the audit log.
async fn audit(service: &Arc<ServiceState>, query: Query, headers: &HeaderMap) -> Result<Response<Body>, Problem> {
    let before = PagedList::Audit.number_after(&query)?;
    let audit = service.access.audit.clone();
    let page = spawn_blocking(move || audit.read(&routes::audit::filter(&query), before, query.limit())).await;
    let Ok(Ok(page)) = page else {
        let problem = page.map_or_else(
            |problem| problem.to_string(),
            |read| match read {
                Ok(_) => String::new(),
                Err(problem) => problem.to_string(),
            },
        );
        return Err(Problem::unavailable(problem));
    };
    let cursor = |number: u64| PagedList::Audit.cursor(&number.to_string());
    let document = Page {
        items: page.entries.into_iter().map(AuditDocument::of).collect(),
        next: page.next.map(cursor),
    };
    Ok(answer::document(Bytes::from(routes::json(&document)?), None, headers))
}

/// Makes a document on a blocking thread, so that a large one delays no other task.
pub(crate) async fn read(
    service: &Arc<ServiceState>,
    make: fn(&StateRequest<'_>) -> Result<Vec<u8>, Problem>,
    name: String,
    query: Query,
) -> Result<(Vec<u8>, Timestamp), Problem> {
    let permit = timeout(READ_DEADLINE, Arc::clone(&service.reads).acquire_owned()).await;
    let Ok(Ok(permit)) = permit else {
        return Err(Problem::busy("other requests take longer than 10 s"));
    };
    let service = Arc::clone(service);
    let made = spawn_blocking(move || {
        let now = service.health.now();
        let made = service.reader.read(|state, as_of| {
            let (name, query) = (name.as_str(), &query);
            let request = StateRequest {
                state,
                now,
                name,
                query,
                refusals: service.gate.refusals(),
            };
            Ok((make(&request)?, as_of))
        });
        drop(permit);
        made
    });
    match made.await {
        Ok(Some(made)) => made,
        // Both are bugs, which the panic hook has reported.
        Ok(None) | Err(_) => {
            let title = "the document cannot be made";
            let detail = "the copy of the state cannot be read; the log of the controller has the cause";
            Err(
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", title, detail)
                    .hint("use the commands of `rankguard`, which do not read the copy, and restart the controller"),
            )
        }
    }
}

fn health(state: Result<(), String>) -> Result<Response<Body>, Problem> {
    if let Err(reason) = state {
        let title = "the controller does not work";
        return Err(
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unhealthy", title, reason)
                .hint("see `rankguard status` and the log of the controller"),
        );
    }
    let document = HealthDocument {
        status: "ok".to_owned(),
    };
    let body = serde_json::to_vec(&document).unwrap_or_default();
    let mut response = answer::document(Bytes::from(body), None, &HeaderMap::new());
    let headers = response.headers_mut();
    headers.remove(hyper::header::ETAG);
    headers.insert(hyper::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}
