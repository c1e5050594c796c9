//! Life of an agent: settings, build, run, drain, exit report.

use std::future::Future;
use std::path::absolute;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rankguard_identity::{AlpnProtocol, PeerListener, PeerRole, RoleInterceptor};
use rankguard_model::{ClockOffset, NodeHistory, NodeInfo};
use rankguard_proto::v1::links_server::LinksServer;
use rankguard_proto::v1::rank_logs_server::RankLogsServer;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Endpoint, Server};

use crate::checkpoint::CheckpointService;
use crate::collectors::{CollectorSet, InjectionTargets};
use crate::error::{AgentError, ShutdownReport};
use crate::fences::FenceTable;
use crate::inject::{InjectSocket, InjectionContext, InjectionExecutor, InjectionThread};
use crate::intake::EvidenceIntake;
use crate::lease::RankLease;
use crate::lease_watch::LeaseWatch;
use crate::links::LinkService;
use crate::orders::{self, OrderExecutor, OrderMessage, RankEndReport};
use crate::outlets::{LogQueue, OtlpClient, StatusSocket, ViewSource, serve_metrics, start_otlp};
use crate::preflight::JobRequirements;
use crate::ranks::{RankLogService, RankReports, RankSocket, RankUserRules};
use crate::roster::RankRoster;
use crate::settings::AgentSettings;
use crate::spool::Spool;
use crate::state_dir::{prepare_state_dir, tighten_files};
use crate::stop_flag::StopFlag;
use crate::supervision::RankSupervision;
use crate::uplink::ControllerUplink;
use crate::{clock, identity, memory};

/// Longest wait for the controller to acknowledge the last evidence when the agent ends in order.
const FAREWELL: Duration = Duration::from_millis(500);
/// Pause between two attempts to write to a failing disk.
const RETRY: Duration = Duration::from_millis(200);
/// Maximum attempts of an agent that ends.
const LAST_TRIES: u32 = 10;
/// Maximum sightings in one commit of the spool.
const COMMIT: usize = 512;

/// Runs the agent until `shutdown`. Leaves no process, socket or shared memory behind.
pub async fn run(
    mut settings: AgentSettings,
    shutdown: impl Future<Output = ()>,
) -> Result<ShutdownReport, AgentError> {
    // Ranks receive paths of the socket and of their dumps, and have working directories of their own.
    settings.state_dir = absolute(&settings.state_dir).map_err(|source| AgentError::StateDir {
        path: settings.state_dir.clone(),
        source,
    })?;
    let state_dir = settings.state_dir.clone();
    let separate = RankUserRules::of(&settings).may_be_separate();
    prepare_state_dir(&state_dir, separate).map_err(|source| AgentError::StateDir {
        path: state_dir.clone(),
        source,
    })?;
    // Loaded before anything is opened, because an agent with a silently incomplete catalogue is worse than none.
    let knowledge = settings.knowledge.clone();
    tokio::task::spawn_blocking(move || knowledge.reload())
        .await
        .map_err(|problem| AgentError::PartEnded {
            part: "catalogue",
            problem: problem.to_string(),
        })?
        .map_err(|source| AgentError::Catalogue { source })?;
    identity::is_own(&settings).await?;
    let network = settings.network.clone();
    let open = Spool::open(
        &state_dir.join("spool.redb"),
        settings.node.clone(),
        settings.spool_bytes,
    );
    let spool = Arc::new(open.map_err(|source| AgentError::Spool {
        path: state_dir.clone(),
        source,
    })?);
    tighten_files(&state_dir).map_err(|source| AgentError::StateDir {
        path: state_dir.clone(),
        source,
    })?;
    let fences_path = state_dir.join("fences.json");
    let fences = FenceTable::open(&fences_path).map_err(|source| AgentError::Fences {
        path: fences_path,
        source,
    })?;
    let endpoint = endpoint(&settings)?;
    let peer_listener = TcpListener::bind(&settings.peer_listen).await;
    let listening = peer_listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (peer_address, peer_listener) = listening.map_err(|source| AgentError::PeerListen {
        address: settings.peer_listen.clone(),
        source,
    })?;
    network.may_use(peer_address.ip())?;

    let stop = StopFlag::default();
    let started = clock::now();
    let intake = EvidenceIntake::new(settings.node.clone());
    let otlp = otlp(&settings)?;
    if let Some((_, queue)) = &otlp {
        intake.copy_to(queue.clone());
    }
    let roster = RankRoster::new(settings.node.clone());
    let lease = RankLease::new(settings.lease);
    let checkpoints = CheckpointService::new(&settings, &intake, &roster, tokio::runtime::Handle::current());
    let images = checkpoints.serve(peer_address.ip()).await?;
    let writer = spool_writer(&settings, &intake, &spool)?;
    let socket = RankSocket::start(&settings, &roster, &intake, &checkpoints, &stop, separate).map_err(|source| {
        AgentError::RankSocket {
            path: state_dir.join("ranks.sock"),
            source,
        }
    })?;

    let collectors = CollectorSet::start(&settings, &intake, &roster, &spool, &stop)?;
    let injection = if settings.injection {
        Some(injection(&settings, &intake, &roster, &spool, &collectors)?)
    } else {
        InjectSocket::absent(&state_dir);
        None
    };
    let reports = Arc::new(RankReports::new(
        roster.clone(),
        intake.clone(),
        collectors.job_logs.clone(),
        collectors.flight.clone(),
    ));
    let prepared = settings.clone();
    let for_intake = intake.clone();
    let for_reports = reports.clone();
    let held = lease.clone();
    let supervision =
        tokio::task::spawn_blocking(move || RankSupervision::start(&prepared, held, &for_intake, for_reports));
    let supervision = supervision.await.map_err(|problem| AgentError::PartEnded {
        part: "supervision",
        problem: problem.to_string(),
    })??;
    let (errands, queue) = orders::queue();
    let orders = OrderExecutor {
        node: settings.node.clone(),
        host: settings.host.clone(),
        state_dir: state_dir.clone(),
        socket: socket.path().to_owned(),
        kill_limit: settings.intervals.kill,
        lease: lease.clone(),
        fences: fences.clone(),
        roster: roster.clone(),
        intake: intake.clone(),
        checkpoints: checkpoints.clone(),
        supervisors: supervision.supervisors,
        reports,
        mark: supervision.mark,
        users: supervision.users,
        rank_environment: settings.rank_environment.clone(),
        flight_pipe: settings.flight_recorder_pipe,
        need: JobRequirements {
            proc_root: settings.proc_root.clone(),
            sysfs_root: settings.sysfs_root.clone(),
            gpu_process: settings.gpu_process.clone(),
            knowledge: settings.knowledge.clone(),
            ..JobRequirements::default()
        },
        runtime: tokio::runtime::Handle::current(),
        network: network.clone(),
    };
    let (gone, mut orders_ended) = oneshot::channel::<RankEndReport>();
    let carry_out = move || {
        let _ = gone.send(orders.run(&queue));
    };
    let orders = thread("orders", carry_out)?;

    let (end_peers, peers_end) = oneshot::channel::<()>();
    let links = LinksServer::new(LinkService::new(
        settings.host.clone(),
        network.clone(),
        checkpoints.membership().clone(),
        lease.clone(),
    ));
    let askers = &[PeerRole::Agent, PeerRole::Operator];
    let gate = RoleInterceptor::new("the measuring of links", askers, network.refusals().clone());
    let logs = RankLogsServer::new(RankLogService::new(state_dir.clone()));
    let logs_gate = RoleInterceptor::new("the output of ranks", &[PeerRole::Operator], network.refusals().clone());
    let serving = Server::builder()
        .add_service(InterceptedService::new(links, gate))
        .add_service(InterceptedService::new(logs, logs_gate));
    let incoming = PeerListener::new(peer_listener, &network, AlpnProtocol::grpc());
    let peers = serving.serve_with_incoming_shutdown(incoming, async {
        let _ = peers_end.await;
    });
    let peers = tokio::spawn(peers);
    let renewal = identity::watch(network.clone(), intake.clone());
    let host = settings.host.clone();
    let uplink = ControllerUplink {
        info: NodeInfo {
            node: settings.node.clone(),
            incarnation: format!("{}-{}", std::process::id(), clock::now().0),
            boot_id: boot_id(),
            host: host.clone(),
            peer_address: format!("{host}:{}", peer_address.port()),
            image_address: format!("{host}:{}", images.address().port()),
            slots: settings.slots,
            failure_domain: settings.failure_domain.clone(),
            running: Vec::new(),
            clock: ClockOffset::default(),
            lease_ms: u64::try_from(settings.lease.as_millis()).unwrap_or(u64::MAX),
            history: NodeHistory::default(),
        },
        endpoint,
        spool: spool.clone(),
        fences: fences.clone(),
        roster: roster.clone(),
        orders: errands.clone(),
        lease: lease.clone(),
        settings: settings.clone(),
        board: intake.board().clone(),
        membership: checkpoints.membership().clone(),
    };
    let uplink = uplink
        .start()
        .map_err(|source| AgentError::Thread { part: "uplink", source })?;
    let watch = LeaseWatch {
        lease: lease.clone(),
        network: network.clone(),
        roster: roster.clone(),
        orders: errands.clone(),
    };
    let watching = watch
        .start()
        .map_err(|source| AgentError::Thread { part: "lease", source })?;
    let snapshots = ViewSource {
        lease,
        node: settings.node.clone(),
        started,
        board: intake.board().clone(),
        spool: spool.clone(),
        roster: roster.clone(),
        knowledge: settings.knowledge.clone(),
        stop: stop.clone(),
        network: network.clone(),
        injection: settings.injection,
        rank_rights: supervision.view,
        otlp: otlp.as_ref().map(|(_, queue)| queue.clone()),
    };
    let exporting = otlp.map(|(outlet, queue)| start_otlp(outlet, queue, snapshots.clone(), settings.intervals.otlp));
    // Both outlets run until they are dropped.
    let local = StatusSocket::start(&state_dir, snapshots.clone()).map_err(|source| AgentError::LocalSocket {
        path: state_dir.clone(),
        source,
    })?;
    let metrics = match &settings.metrics_listen {
        Some(address) => Some(
            serve_metrics(address, snapshots)
                .await
                .map_err(|source| AgentError::MetricsListen {
                    address: address.clone(),
                    source,
                })?,
        ),
        None => None,
    };
    tracing::info!(node = %settings.node, controller = settings.controller, peers = %peer_address, "agent runs");

    let settled = tokio::spawn(async {
        tokio::time::sleep(memory::SETTLED).await;
        memory::give_back();
    });
    let unexpected = tokio::select! {
        () = shutdown => None,
        _ = &mut orders_ended => Some("orders"),
    };
    settled.abort();
    renewal.abort();
    // Injections end first: a stopped rank (SIGSTOP) reacts only to SIGKILL.
    if let Some((door, ends)) = injection {
        door.end().await;
        let _ = tokio::task::spawn_blocking(move || ends.end()).await;
    }
    if unexpected.is_none() {
        checkpoints.bid_farewell(settings.intervals.last_checkpoint).await;
        let _ = errands.send(OrderMessage::End {
            grace: settings.intervals.shutdown_grace,
        });
    }
    let left = orders_ended.await.unwrap_or_default();
    let _ = tokio::task::spawn_blocking(move || drop(watching)).await;
    let _ = orders.join();
    stop.stop();
    collectors.join();
    checkpoints.end_mirrors().await;
    // The exits of the ranks are the last evidence; wait briefly until it is written and acknowledged.
    intake.close();
    let _ = tokio::task::spawn_blocking(move || writer.join()).await;
    let last_words = async {
        while spool.unacknowledged() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let _ = tokio::time::timeout(FAREWELL, last_words).await;
    // These tasks hold the spool, which must be free for the next agent of this directory.
    uplink.end().await;
    local.end().await;
    if let Some(metrics) = metrics {
        metrics.end().await;
    }
    if let Some(exporting) = exporting {
        exporting.end().await;
    }
    let _ = end_peers.send(());
    peers.abort();
    let _ = peers.await;
    drop(images);
    drop(socket);
    checkpoints.end();
    match unexpected {
        Some(part) => Err(AgentError::PartEnded {
            part,
            problem: "its thread is gone".to_owned(),
        }),
        None => Ok(ShutdownReport {
            ranks_ended: left.ranks_ended,
            left_behind: left.left_behind,
            unacknowledged: spool.unacknowledged(),
        }),
    }
}

/// Returns the boot id of the kernel; empty if it cannot be read.
fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

fn endpoint(settings: &AgentSettings) -> Result<Endpoint, AgentError> {
    let endpoint = Endpoint::from_shared(format!("http://{}", settings.controller)).map_err(|source| {
        AgentError::ControllerAddress {
            address: settings.controller.clone(),
            source,
        }
    })?;
    Ok(endpoint)
}

/// Creates the OTLP client and its queue, if enabled.
fn otlp(settings: &AgentSettings) -> Result<Option<(OtlpClient, LogQueue)>, AgentError> {
    let Some(otlp) = &settings.otlp else { return Ok(None) };
    Ok(Some((OtlpClient::new(otlp)?, LogQueue::new(&otlp.endpoint))))
}

/// Opens the injection socket.
fn injection(
    settings: &AgentSettings,
    intake: &EvidenceIntake,
    roster: &RankRoster,
    spool: &Arc<Spool>,
    collectors: &CollectorSet,
) -> Result<(InjectSocket, InjectionThread), AgentError> {
    let InjectionTargets {
        xids,
        overlay,
        uses,
        scenario,
    } = collectors.injectable.clone();
    let means = InjectionContext {
        knowledge: settings.knowledge.clone(),
        intake: intake.clone(),
        roster: roster.clone(),
        spool: spool.clone(),
        xids,
        overlay,
        uses,
        scenario,
    };
    let opened = InjectionExecutor::open(means).map_err(|source| AgentError::Thread { part: "inject", source });
    let (desk, ends) = opened?;
    let door = InjectSocket::start(&settings.state_dir, desk).map_err(|source| AgentError::LocalSocket {
        path: settings.state_dir.clone(),
        source,
    })?;
    tracing::warn!("faults may be injected into this agent (agent.injection)");
    Ok((door, ends))
}

/// Starts the only thread that writes evidence to disk.
fn spool_writer(
    settings: &AgentSettings,
    intake: &EvidenceIntake,
    spool: &Arc<Spool>,
) -> Result<JoinHandle<()>, AgentError> {
    let intake = intake.clone();
    let spool = spool.clone();
    let linger = settings.intervals.spool_linger;
    thread("spool", move || {
        let mut tries = 0;
        loop {
            let batch = intake.take(linger, COMMIT);
            if batch.is_empty() {
                return;
            }
            if let Err(problem) = spool.append(&batch.sightings, &batch.positions) {
                tracing::error!(%problem, "cannot write evidence to the spool; it is kept in memory");
                tries += 1;
                if intake.is_closed() && tries > LAST_TRIES {
                    tracing::error!("the agent ends without what it could not write");
                    return;
                }
                intake.put_back(batch);
                std::thread::sleep(RETRY);
                if let Err(problem) = spool.reopen() {
                    tracing::debug!(%problem, "the spool cannot be opened again yet");
                }
            }
        }
    })
}

fn thread(part: &'static str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, AgentError> {
    let started = std::thread::Builder::new().name(part.to_owned()).spawn(work);
    started.map_err(|source| AgentError::Thread { part, source })
}
