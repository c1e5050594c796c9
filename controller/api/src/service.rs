//! Service: checks a request, finds its route and answers it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, State};
use axum::routing::get;
use bytes::Bytes;
use hyper::body::Body as HttpBody;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::Service as _;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use hyper_util::service::TowerToHyperService;
use rankguard_identity::{ConnectionPeer, RefusalCounters};
use rankguard_model::Timestamp;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::documents::HealthDocument;
use crate::problem::{Problem, quoted};
use crate::query::Query;
use crate::replica::StateReader;
use crate::routes::{ROUTES, Route, RouteContent, StateRequest};
use crate::watch::{self, WATCHES_MAX};
use crate::{access, answer, console, openapi};

/// Longest path and query, bytes.
const URI_BYTES_MAX: usize = 4 << 10;
/// Documents that are made at a time; further requests wait.
const READS_MAX: usize = 4;
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
    refusals: RefusalCounters,
}

struct ServiceState {
    reader: StateReader,
    health: Arc<dyn ControllerHealth>,
    reads: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    openapi: Bytes,
}

impl ApiService {
    /// Creates the service over a copy of the state. Refused certificates are counted in `refusals`.
    pub fn new(reader: StateReader, health: Arc<dyn ControllerHealth>, refusals: RefusalCounters) -> Self {
        let state = Arc::new(ServiceState {
            reader,
            health,
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
            router = router.route(route.path, get(respond));
        }
        for file in console::FILES {
            let respond = move |headers: HeaderMap| async move { file.respond(&headers) };
            router = router.route(&file.path(), get(respond));
        }
        for path in console::ENTRY_PATHS {
            router = router.route(path, get(|| async { console::redirect() }));
        }
        let router = router.fallback(no_route).with_state(state);
        Self { router, refusals }
    }

    /// Answers a request of a peer.
    pub async fn handle<B>(&self, request: Request<B>, peer: &ConnectionPeer) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let checked = access::check(peer, request.uri(), request.headers(), &self.refusals);
        let checked = checked.and_then(|()| check_form(&request));
        let mut response = match checked {
            Ok(()) => {
                let service = TowerToHyperService::new(self.router.clone());
                match service.call(request.map(Body::new)).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            }
            Err(problem) => {
                let is_unread = problem.status() == StatusCode::PAYLOAD_TOO_LARGE;
                let mut response = problem.into_response();
                if is_unread {
                    response
                        .headers_mut()
                        .insert(CONNECTION, HeaderValue::from_static("close"));
                }
                response
            }
        };
        answer::harden(&mut response);
        response
    }
}

impl std::fmt::Debug for ApiService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiService")
    }
}

/// Checks method, length of the URI and body.
fn check_form<B: HttpBody>(request: &Request<B>) -> Result<(), Problem> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let detail = format!(
            "{} is not supported: this API only reads",
            quoted(request.method().as_str())
        );
        let title = "the method is not supported";
        let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", title, detail);
        return Err(problem
            .known(["GET", "HEAD"])
            .hint("change the cluster with the commands of `rankguard`"));
    }
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    if path > URI_BYTES_MAX {
        let detail = format!("path and query have {path} bytes, and at most {URI_BYTES_MAX} are accepted");
        let title = "the URI is too long";
        return Err(Problem::new(StatusCode::URI_TOO_LONG, "uri-too-long", title, detail).hint("shorten the query"));
    }
    if !request.body().is_end_stream() && request.body().size_hint().exact() != Some(0) {
        let detail = "a request of this API has no body";
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
    let headers = request.headers();
    match &route.content {
        RouteContent::State { answer: make, .. } => {
            let (body, as_of) = read(&service, *make, name, query).await?;
            Ok(answer::document(Bytes::from(body), Some(as_of), headers))
        }
        RouteContent::Live => health(service.health.live()),
        RouteContent::Ready => health(service.health.ready()),
        RouteContent::Watch => watch::start(&service.reader, &service.watches, headers),
        RouteContent::OpenApi => Ok(answer::document(service.openapi.clone(), None, headers)),
    }
}

/// Makes a document on a blocking thread, so that a large one delays no other task.
async fn read(
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
