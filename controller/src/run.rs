//! Life of a controller: check settings, open and replay the journal, listen, run, drain, report.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rankguard_core::Policy;
use rankguard_identity::{
    AlpnProtocol, EnrolmentListener, PathRecorder, PeerListener, PeerRole, PeerTransport, RefusalObserver,
    RoleInterceptor,
};
use rankguard_journal::JournalRetention;
use rankguard_proto::MESSAGE_BYTES_MAX;
use rankguard_proto::v1::certificate_renewal_server::CertificateRenewalServer;
use rankguard_proto::v1::control_server::ControlServer;
use rankguard_proto::v1::node_query_server::NodeQueryServer;
use rankguard_proto::v1::operator_server::OperatorServer;
use rankguard_proto::v1::rendezvous_server::RendezvousServer;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic_health::pb::health_server::HealthServer;
use tracing::{info, warn};

use crate::access_control::AccessControl;
use crate::address::{METRICS_ADDRESS_FILE, read_address, write_address, write_address_file};
use crate::bind::bind_again;
use crate::clock::MonotonicClock;
use crate::command_executor::CommandExecutor;
use crate::enrolment::Enrolment;
use crate::enrolment_service::{RenewalService, serve_enrolment};
use crate::error::ControllerError;
use crate::event_loop::EventLoop;
use crate::grpc_health::HealthService;
use crate::grpc_reflection::reflection_services;
use crate::health::{self, HealthEndpoint, SharedHealth};
use crate::http_api::HttpApi;
use crate::inbound::{AGENT_MESSAGE_BYTES_MAX, InboundBudget};
use crate::input::{INPUTS_MAX, LoopInput};
use crate::journal_keeper::{JournalKeeper, OpenedJournal};
use crate::liveness::NodeLiveness;
use crate::node_query::{NODE_QUERY_ROLES, NodeQueryService};
use crate::notifications::{Notifications, SharedReport};
use crate::operator::OperatorService;
use crate::operator_calls::{OPERATOR_SERVICE_ROLES, method_roles};
use crate::rendezvous_service::{RendezvousService, TORCHRUN_MESSAGE_BYTES_MAX};
use crate::rendezvous_task::{RENDEZVOUS_INPUTS_MAX, RendezvousTask};
use crate::replay::ReplayClock;
use crate::scheduled_report::{self, ReportScheduler};
use crate::session::AgentService;
use crate::settings::Settings;
use crate::shutdown_report::ShutdownReport;
use crate::state_dir::prepare_state_dir;
use crate::torchft::Lighthouse;

/// Time limit for open streams to end after the event loop; then they are cut.
const DRAIN_DEADLINE: Duration = Duration::from_secs(2);

/// Roles that may ask for the health: all that have a certificate of the cluster for a process.
const PEERS: [PeerRole; 5] = [
    PeerRole::Operator,
    PeerRole::Viewer,
    PeerRole::Controller,
    PeerRole::Agent,
    PeerRole::Launcher,
];

/// Streams per connection: an agent needs one, an operator's command another.
const STREAMS_MAX: u32 = 32;
/// Flow-control windows of a stream and of a connection, bytes.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 2 << 20;

type ServerTask = JoinHandle<Result<(), tonic::transport::Error>>;

/// Runs a controller until `shutdown` is ready or an error ends it.
///
/// When this returns, the journal is closed and the port is free. A controller that is killed instead loses nothing
/// that it acknowledged.
pub async fn run(
    mut settings: Settings,
    shutdown: impl Future<Output = ()>,
) -> Result<ShutdownReport, ControllerError> {
    if settings.policy.replay_only {
        settings.network = PeerTransport::loopback();
        // Journal retention by age has no meaning on the clock of replayed evidence.
        settings.journal = JournalRetention::unlimited();
        settings.notify.receivers.clear();
        settings.report = None;
    }
    settings.check()?;
    settings.state_dir = std::path::absolute(&settings.state_dir).map_err(|source| ControllerError::StateDir {
        what: "make absolute",
        path: settings.state_dir.clone(),
        source,
    })?;
    let network = settings.network.clone();
    let life = open(settings.clone()).await?;
    let (listener, address) = listen(&settings).await?;
    write_address(&settings.state_dir, address)?;
    info!(%address, state_dir = %settings.state_dir.display(), "controller listens");

    let replay_only = settings.policy.replay_only;
    if replay_only {
        warn!("this controller takes replays only: it refuses live agents and jobs, and its cases are marked");
    }
    let last = life.opened.last;
    let clock = MonotonicClock::start(last);
    let live = life
        .opened
        .state
        .fleet()
        .iter()
        .filter(|(_, node)| node.lost_since.is_none());
    let live = live.map(|(node, _)| node.clone());
    let liveness = Arc::new(NodeLiveness::new(settings.silence_limit, live, clock.now()));
    let (inputs, queue) = mpsc::channel(INPUTS_MAX);
    let refusals = network.refusals().clone();
    let inbound = InboundBudget::default();
    let health = SharedHealth::new(inbound.clone());
    let _metrics = serve_metrics(&settings, &health).await?;
    let control = AgentService::new(
        inputs.clone(),
        Arc::clone(&liveness),
        clock,
        replay_only,
        refusals,
        inbound,
    );
    let access = AccessControl::open(&settings.state_dir, clock).await?;
    let enrolment = Enrolment::open(settings.enrolment.clone(), &network, access.clone()).await?;
    let control = control.with_ledger(enrolment.is_on().then(|| access.ledger.clone()));
    let (rendezvous_inputs, rendezvous_queue) = mpsc::channel(RENDEZVOUS_INPUTS_MAX);
    let is_restart = life.opened.keeper.entries() > 0;
    let rendezvous = RendezvousTask::new(clock, is_restart, rendezvous_queue, inputs.clone(), health.clone());
    let restored = (&life.opened.state, last);
    health.watch_access(access.audit.clone(), access.tokens.clone());
    let executor = CommandExecutor::new(inputs.clone(), access.clone());
    let api = HttpApi::start(&settings, restored, executor.clone(), &health).await?;
    let (feed, _api) = api.map(|api| (api.feed, api.server)).unzip();
    let notifications = if replay_only {
        None
    } else {
        let (started, counts, control) =
            Notifications::start(&settings.notify, &network, &settings.state_dir, clock.now())?;
        health.show_receivers(counts);
        Some((started, control))
    };
    let scheduler = settings.report.clone().map(|report| ReportScheduler {
        settings: report,
        clock,
        inputs: inputs.clone(),
        health: health.clone(),
        message: notifications
            .as_ref()
            .map_or_else(SharedReport::default, |(started, _)| started.report()),
    });
    let (notifications, notify_control) = notifications.unzip();
    let reload = settings.notify_reload.clone().follow(notify_control, health.clone());
    let lighthouse = Lighthouse::start(&settings, clock, &inputs, &health).await?;
    let services = ControllerServices {
        control,
        operator: OperatorService::new(inputs.clone(), rendezvous_inputs.clone(), executor, enrolment.clone()),
        renewal: RenewalService::new(enrolment.clone()),
        nodes: NodeQueryService::new(inputs.clone(), network.refusals().clone()),
        rendezvous: RendezvousService::new(rendezvous_inputs, replay_only),
        observer: access.refusal_observer(),
    };
    let (drain, mut server, enrolling) = serve(listener, &network, services, &health)?;

    for given in life.given {
        // The queue is empty and has room.
        let _ = inputs.send(given).await;
    }
    let follow = settings.catalogue.clone().follow(inputs.clone());

    let settle = Duration::from_millis(life.opened.state.policy().settle_ms);
    let replay = replay_only.then(|| ReplayClock::new(last, settle));
    // Replayed evidence belongs to no controller start.
    let name = if replay_only { None } else { Some(life_name()?) };
    let helm = EventLoop::new(clock, life.opened, queue, liveness, health, replay, name);
    let helm = helm.with_feed(feed).with_notifications(notifications);
    let helm = helm.with_refusals(network.refusals().clone());
    let shutdown = pin!(shutdown);
    let outcome = tokio::select! {
        outcome = helm.run(shutdown) => outcome,
        never = follow => match never {},
        never = reload => match never {},
        never = scheduled_report::run(scheduler) => match never {},
        never = rendezvous.run() => match never {},
        never = Lighthouse::run(lighthouse) => match never {},
        never = network.watch(|_| ()) => match never {},
        never = serve_enrolment(enrolling, enrolment) => match never {},
        never = access.save_regularly() => match never {},
        never = access.probe_regularly() => match never {},
        ended = &mut server => {
            let problem = match ended {
                Ok(Ok(())) => "it was not asked to".to_owned(),
                Ok(Err(problem)) => problem.to_string(),
                Err(problem) => problem.to_string(),
            };
            return Err(ControllerError::Server { address, problem });
        }
    };
    // All sessions end with the event loop, so the streams end by themselves, and then the server.
    drop(drain);
    if timeout(DRAIN_DEADLINE, &mut server).await.is_err() {
        warn!(
            "streams are still open after {} s and are cut",
            DRAIN_DEADLINE.as_secs()
        );
        server.abort();
        let _ = server.await;
    }
    access.save().await;
    let events = outcome?;
    info!(%address, events, "controller ended");
    Ok(ShutdownReport { address, events })
}

/// State of earlier controller starts.
struct ControllerStart {
    opened: OpenedJournal,
    /// Settings and catalogue files, if they differ from those in the state.
    given: Vec<LoopInput>,
}

/// Opens and replays the journal on a blocking thread. Actions of the replay were carried out before and are dropped;
/// the decision core requests unfinished ones again on `ControllerStarted`.
async fn open(settings: Settings) -> Result<ControllerStart, ControllerError> {
    let replay = spawn_blocking(move || {
        settings.check_identity()?;
        // Read before the journal is opened: verdicts without the configured catalogue files would mislead operators.
        let (files, version) = settings
            .catalogue
            .read()
            .map_err(|source| ControllerError::Catalogue { source })?;
        let dir = &settings.state_dir;
        prepare_state_dir(dir)?;
        let opened = JournalKeeper::open(dir, &settings.policy, settings.journal)?;
        let policy = opened.state.policy();
        if policy.replay_only != settings.policy.replay_only {
            return Err(ControllerError::ReplayJournal {
                path: dir.clone(),
                is_replay: policy.replay_only,
            });
        }
        let configured = Policy {
            rules: policy.rules,
            ..settings.policy.clone()
        };
        let mut given = Vec::new();
        for change in changed_settings(policy, &configured) {
            info!("controller.policy.{change}");
        }
        if *policy != configured {
            given.push(LoopInput::Policy(Box::new(configured)));
        }
        if opened.state.catalogue().version() != version {
            given.push(LoopInput::Catalogue { files, version });
        }
        Ok(ControllerStart { opened, given })
    });
    replay.await.map_err(|problem| ControllerError::Task {
        task: "replay",
        problem: problem.to_string(),
    })?
}

/// Describes the settings that differ, one a line.
fn changed_settings(before: &Policy, now: &Policy) -> Vec<String> {
    let fields = |policy: &Policy| serde_json::to_value(policy).unwrap_or_default();
    let (before, now) = (fields(before), fields(now));
    let now = now.as_object().into_iter().flatten();
    let changed = now.filter(|(name, value)| before.get(name) != Some(value));
    changed
        .map(|(name, value)| format!("{name} is {value} from now on; before, it was {}", before[name]))
        .collect()
}

/// Serves health and metrics if an address is configured.
async fn serve_metrics(settings: &Settings, health: &SharedHealth) -> Result<Option<HealthEndpoint>, ControllerError> {
    let Some(address) = &settings.metrics_listen else {
        return Ok(None);
    };
    let serving = health::serve(address, health.clone())
        .await
        .map_err(|source| ControllerError::Metrics {
            address: address.clone(),
            source,
        })?;
    write_address_file(&settings.state_dir, METRICS_ADDRESS_FILE, serving.address)?;
    info!(address = %serving.address, "health and numbers are served");
    Ok(Some(serving))
}

/// Returns a random id for this controller start, never 0.
fn life_name() -> Result<u64, ControllerError> {
    let bytes: [u8; 8] = rankguard_identity::secret().ok_or(ControllerError::Random)?;
    Ok(u64::from_le_bytes(bytes).max(1))
}

async fn listen(settings: &Settings) -> Result<(TcpListener, SocketAddr), ControllerError> {
    let wanted = settings.listen;
    let bound = bind_again(wanted, read_address(&settings.state_dir).ok()).await;
    let listener = bound.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ControllerError::PortInUse {
            address: wanted,
            source,
        },
        _ => ControllerError::Listen {
            address: wanted,
            source,
        },
    })?;
    let address = listener.local_addr().map_err(|source| ControllerError::Listen {
        address: wanted,
        source,
    })?;
    Ok((listener, address))
}

/// gRPC services of a controller.
struct ControllerServices {
    control: AgentService,
    operator: OperatorService,
    nodes: NodeQueryService,
    renewal: RenewalService,
    rendezvous: RendezvousService,
    /// Observer of peers without a right to operator commands.
    observer: RefusalObserver,
}

/// Serves until the returned sender is dropped and the last stream has ended.
fn serve(
    listener: TcpListener,
    network: &PeerTransport,
    services: ControllerServices,
    health: &SharedHealth,
) -> Result<(watch::Sender<()>, ServerTask, EnrolmentListener), ControllerError> {
    let (drain, mut drained) = watch::channel(());
    let gate = |service, roles| RoleInterceptor::new(service, roles, network.refusals().clone());
    let control = ControlServer::new(services.control).max_decoding_message_size(AGENT_MESSAGE_BYTES_MAX);
    let control = InterceptedService::new(control, gate("open agent sessions", &[PeerRole::Agent]));
    let operator = OperatorServer::new(services.operator)
        .max_decoding_message_size(AGENT_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let admitted = gate("run operator commands", OPERATOR_SERVICE_ROLES).observed_by(services.observer);
    let operator = InterceptedService::new(operator, admitted.naming_roles_of(method_roles));
    let operator = PathRecorder::new(operator);
    let operators = &[PeerRole::Operator, PeerRole::Controller];
    let nodes = NodeQueryServer::new(services.nodes);
    let nodes = InterceptedService::new(nodes, gate("ask about a node", NODE_QUERY_ROLES));
    let renewal = CertificateRenewalServer::new(services.renewal);
    let renewal = InterceptedService::new(renewal, gate("renew certificates", &[PeerRole::Agent]));
    let rendezvous = RendezvousServer::new(services.rendezvous)
        .max_decoding_message_size(TORCHRUN_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(TORCHRUN_MESSAGE_BYTES_MAX);
    let launchers = &[PeerRole::Launcher, PeerRole::Operator, PeerRole::Controller];
    let rendezvous = InterceptedService::new(rendezvous, gate("join runs of torchrun", launchers));
    let health = HealthServer::new(HealthService::new(health.clone(), drained.clone()));
    let health = InterceptedService::new(health, gate("read its health", &PEERS));
    let (reflection, reflection_alpha) = reflection_services()?;
    let reflection = InterceptedService::new(reflection, gate("read the types of its services", operators));
    let reflection_alpha = InterceptedService::new(reflection_alpha, gate("read the types of its services", operators));
    let (incoming, enrolling) = PeerListener::with_enrolment(listener, network, AlpnProtocol::grpc());
    let mut server = Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    let server = server
        .add_service(control)
        .add_service(operator)
        .add_service(nodes)
        .add_service(renewal)
        .add_service(rendezvous)
        .add_service(health)
        .add_service(reflection)
        .add_service(reflection_alpha);
    let task = tokio::spawn(server.serve_with_incoming_shutdown(incoming, async move {
        // A message and a dropped sender both mean shutdown.
        let _ = drained.changed().await;
    }));
    Ok((drain, task, enrolling))
}
