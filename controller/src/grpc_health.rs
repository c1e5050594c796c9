//! gRPC health service of the controller (`grpc.health.v1`, health-checking.md of gRPC): the state of `/readyz` for
//! probes that speak gRPC.
//!
//! Every service of the listener has the same state, because all depend on the event loop and its journal. A check
//! evaluates the state when it is asked; a watch reports each change within [`WATCH_INTERVAL`].

use std::sync::Arc;
use std::time::Duration;

use rankguard_proto::v1::certificate_renewal_server::SERVICE_NAME as RENEWAL;
use rankguard_proto::v1::control_server::SERVICE_NAME as CONTROL;
use rankguard_proto::v1::node_query_server::SERVICE_NAME as NODE_QUERY;
use rankguard_proto::v1::operator_server::SERVICE_NAME as OPERATOR;
use rankguard_proto::v1::rendezvous_server::SERVICE_NAME as RENDEZVOUS;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::health::SharedHealth;

/// Time between two evaluations for a watch.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// Watches at a time; further ones are refused.
const WATCHES_MAX: usize = 64;
/// Names of services with a state. The empty name is the whole server.
pub(crate) const SERVICES: [&str; 6] = ["", RENEWAL, CONTROL, NODE_QUERY, OPERATOR, RENDEZVOUS];

/// Health service of one listener.
#[derive(Debug)]
pub(crate) struct HealthService {
    health: SharedHealth,
    watches: Arc<Semaphore>,
    /// Closed when the listener shuts down, which ends all watches.
    shutdown: watch::Receiver<()>,
}

impl HealthService {
    pub(crate) fn new(health: SharedHealth, shutdown: watch::Receiver<()>) -> Self {
        Self {
            health,
            watches: Arc::new(Semaphore::new(WATCHES_MAX)),
            shutdown,
        }
    }
}

#[tonic::async_trait]
impl Health for HealthService {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        if !is_known(&request.get_ref().service) {
            return Err(Status::not_found(format!(
                "no such service; the empty name is the whole controller, the others are {}",
                SERVICES[1..].join(", ")
            )));
        }
        Ok(Response::new(response(state(&self.health))))
    }

    type WatchStream = ReceiverStream<Result<HealthCheckResponse, Status>>;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let Ok(permit) = Arc::clone(&self.watches).try_acquire_owned() else {
            return Err(Status::resource_exhausted(format!(
                "{WATCHES_MAX} watches of the health service are open; use Check"
            )));
        };
        let (states, stream) = mpsc::channel(1);
        let health = is_known(&request.get_ref().service).then(|| self.health.clone());
        tokio::spawn(watch_state(health, self.shutdown.clone(), states, permit));
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

/// Sends the state and its changes until the client leaves or the listener shuts down. Without a health view the
/// service is unknown, which the protocol reports as a state of a watch.
async fn watch_state(
    health: Option<SharedHealth>,
    mut shutdown: watch::Receiver<()>,
    states: mpsc::Sender<Result<HealthCheckResponse, Status>>,
    _permit: OwnedSemaphorePermit,
) {
    let mut ticks = interval(WATCH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sent = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = states.closed() => return,
            _ = shutdown.changed() => {
                if health.is_some() {
                    // The client may not read; the stream ends in any case.
                    let _ = states.try_send(Ok(response(ServingStatus::NotServing)));
                }
                return;
            }
        }
        let now = health.as_ref().map_or(ServingStatus::ServiceUnknown, state);
        if sent != Some(now) && states.try_send(Ok(response(now))).is_ok() {
            sent = Some(now);
        }
    }
}

fn is_known(service: &str) -> bool {
    SERVICES.contains(&service)
}

fn state(health: &SharedHealth) -> ServingStatus {
    match health.ready() {
        Ok(()) => ServingStatus::Serving,
        Err(_) => ServingStatus::NotServing,
    }
}

fn response(state: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: state.into() }
}
