//! All parts of a running agent, from their start to their end in order.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::Duration;

use rankguard_checkpoint_tiers::bulk::BulkServer;
use rankguard_model::{ClockOffset, NodeHistory, NodeInfo};
use tokio::sync::oneshot;
use tonic::transport::Endpoint;

use super::foundation::AgentFoundation;
use super::injector::FaultInjector;
use super::outlets::{AgentOutlets, OtlpOutlet};
use super::peers::PeerServer;
use super::shared::SharedServices;
use super::spool_writer::start_spool_writer;
use super::threads::spawn_thread;
use crate::checkpoint::CheckpointService;
use crate::collectors::{CollectorSet, is_read_before_exits};
use crate::error::{AgentError, ShutdownReport};
use crate::intake::EvidenceIntake;
use crate::lease::RankLease;
use crate::lease_watch::{LeaseWatch, LeaseWatchHandle};
use crate::orders::{self, OrderExecutor, OrderMessage, RankEndReport};
use crate::preflight::JobRequirements;
use crate::ranks::{RankReports, RankSocket, RendezvousPorts, StandbyPool};
use crate::roster::RankRoster;
use crate::stop_flag::StopFlag;
use crate::supervision::RankSupervision;
use crate::supervisor::{RankSupervisors, StandbyBoard};
use crate::uplink::{ControllerUplink, UplinkHandle};
use crate::{clock, identity, renewal};

/// Longest wait for the controller to acknowledge the last evidence when the agent ends in order.
const FAREWELL: Duration = Duration::from_millis(500);

/// The parts of an agent that runs.
pub(super) struct RunningAgent {
    services: SharedServices,
    collectors: CollectorSet,
    injector: Option<FaultInjector>,
    orders: OrderThread,
    peers: PeerServer,
    certificate_watch: tokio::task::JoinHandle<()>,
    renewal: tokio::task::JoinHandle<()>,
    uplink: UplinkHandle,
    lease_watch: LeaseWatchHandle,
    outlets: AgentOutlets,
    images: BulkServer,
    rank_socket: RankSocket,
    spool_writer: JoinHandle<()>,
}

/// Thread that carries out orders, and its queue.
struct OrderThread {
    queue: SyncSender<OrderMessage>,
    thread: JoinHandle<()>,
    /// Receives the report of the thread's end; fails if it ended without one.
    ended: oneshot::Receiver<RankEndReport>,
    /// Report that was received.
    report: Option<RankEndReport>,
}

impl RunningAgent {
    pub(super) async fn start(foundation: AgentFoundation) -> Result<Self, AgentError> {
        let AgentFoundation {
            settings,
            are_users_separate,
            spool,
            fences,
            controller,
            peer_listener,
            peer_address,
        } = foundation;
        let intake = EvidenceIntake::new(settings.node.clone());
        let otlp = OtlpOutlet::of(&settings)?;
        if let Some(otlp) = &otlp {
            intake.copy_to(otlp.queue.clone());
        }
        let roster = RankRoster::new(settings.node.clone());
        let checkpoints = CheckpointService::new(&settings, &intake, &roster, tokio::runtime::Handle::current());
        let services = SharedServices {
            started: clock::now(),
            stop: StopFlag::default(),
            lease: RankLease::new(settings.lease),
            settings,
            spool,
            fences,
            intake,
            roster,
            checkpoints,
        };
        let images = services.checkpoints.serve(peer_address.ip()).await?;
        let spool_writer = start_spool_writer(&services.settings, &services.intake, &services.spool)?;
        let collectors = CollectorSet::start(
            &services.settings,
            &services.intake,
            &services.roster,
            &services.spool,
            &services.stop,
        )?;
        let injector = FaultInjector::start(&services, &collectors)?;
        let reports = Arc::new(RankReports::new(
            services.roster.clone(),
            services.intake.clone(),
            collectors.job_logs.clone(),
            collectors.kernel_log.clone(),
            collectors.flight.clone(),
        ));
        let supervision = start_supervision(&services, reports.clone()).await?;
        let rank_socket = start_rank_socket(&services, &supervision.supervisors, are_users_separate)?;
        let rank_rights = supervision.view.clone();
        let standbys = StandbyBoard::default();
        let orders = start_orders(&services, rank_socket.path(), supervision, reports, standbys.clone())?;
        let peers = PeerServer::start(&services, peer_listener);
        let certificate_watch = identity::watch(services.settings.network.clone(), services.intake.clone());
        let renewal = renewal::start(&services.settings);
        let info = node_info(&services, peer_address.port(), images.address().port());
        let uplink = start_uplink(&services, info, controller, orders.queue.clone())?;
        let lease_watch = start_lease_watch(&services, orders.queue.clone())?;
        let outlets = AgentOutlets::start(&services, rank_rights, standbys, otlp).await?;
        tracing::info!(
            node = %services.settings.node,
            controller = services.settings.controller,
            peers = %peer_address,
            "agent runs"
        );
        Ok(Self {
            services,
            collectors,
            injector,
            orders,
            peers,
            certificate_watch,
            renewal,
            uplink,
            lease_watch,
            outlets,
            images,
            rank_socket,
            spool_writer,
        })
    }

    /// Waits until `shutdown`, or until the thread of orders ends without being asked to; returns the name of a part
    /// that ended so.
    pub(super) async fn wait(&mut self, shutdown: impl Future<Output = ()>) -> Option<&'static str> {
        tokio::select! {
            () = shutdown => None,
            ended = &mut self.orders.ended => {
                self.orders.report = Some(ended.unwrap_or_default());
                Some("orders")
            }
        }
    }

    /// Ends all parts. With `is_orderly`, ranks get a last checkpoint and time to end by themselves.
    pub(super) async fn end(self, is_orderly: bool) -> ShutdownReport {
        let SharedServices {
            settings,
            spool,
            intake,
            checkpoints,
            stop,
            ..
        } = self.services;
        self.certificate_watch.abort();
        self.renewal.abort();
        // Injections end first: a stopped rank (SIGSTOP) reacts only to SIGKILL.
        if let Some(injector) = self.injector {
            injector.end().await;
        }
        if is_orderly {
            checkpoints.bid_farewell(settings.intervals.last_checkpoint).await;
            let _ = self.orders.queue.send(OrderMessage::End {
                grace: settings.intervals.shutdown_grace,
            });
        }
        let left = match self.orders.report {
            Some(report) => report,
            None => self.orders.ended.await.unwrap_or_default(),
        };
        let lease_watch = self.lease_watch;
        let _ = tokio::task::spawn_blocking(move || drop(lease_watch)).await;
        let _ = self.orders.thread.join();
        stop.stop();
        self.collectors.join();
        checkpoints.end_mirrors().await;
        // The exits of the ranks are the last evidence; wait briefly until it is written and acknowledged.
        intake.close();
        let spool_writer = self.spool_writer;
        let _ = tokio::task::spawn_blocking(move || spool_writer.join()).await;
        let acknowledged = async {
            while spool.unacknowledged() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let _ = tokio::time::timeout(FAREWELL, acknowledged).await;
        // These tasks hold the spool, which must be free for the next agent of this directory.
        self.uplink.end().await;
        self.outlets.end().await;
        self.peers.end().await;
        drop(self.images);
        drop(self.rank_socket);
        checkpoints.end();
        ShutdownReport {
            ranks_ended: left.ranks_ended,
            left_behind: left.left_behind,
            unacknowledged: spool.unacknowledged(),
        }
    }
}

fn start_rank_socket(
    services: &SharedServices,
    supervisors: &RankSupervisors,
    are_users_separate: bool,
) -> Result<RankSocket, AgentError> {
    let settings = &services.settings;
    let started = RankSocket::start(
        settings,
        &services.roster,
        &services.intake,
        &services.checkpoints,
        supervisors,
        &services.stop,
        are_users_separate,
    );
    started.map_err(|source| AgentError::RankSocket {
        path: settings.state_dir.join("ranks.sock"),
        source,
    })
}

/// Ends the ranks that an earlier agent left, on a thread for blocking work, and prepares for new ones.
async fn start_supervision(
    services: &SharedServices,
    reports: Arc<RankReports>,
) -> Result<RankSupervision, AgentError> {
    let settings = services.settings.clone();
    let lease = services.lease.clone();
    let intake = services.intake.clone();
    let started = tokio::task::spawn_blocking(move || RankSupervision::start(&settings, lease, &intake, reports));
    started.await.map_err(|problem| AgentError::PartEnded {
        part: "supervision",
        problem: problem.to_string(),
    })?
}

fn start_orders(
    services: &SharedServices,
    rank_socket: &Path,
    supervision: RankSupervision,
    reports: Arc<RankReports>,
    standbys: StandbyBoard,
) -> Result<OrderThread, AgentError> {
    let settings = &services.settings;
    let standbys = StandbyPool::new(supervision.supervisors.clone(), supervision.mark.clone(), standbys);
    let executor = OrderExecutor {
        node: settings.node.clone(),
        state_dir: settings.state_dir.clone(),
        socket: rank_socket.to_owned(),
        kill_limit: settings.intervals.kill,
        lease: services.lease.clone(),
        fences: services.fences.clone(),
        roster: services.roster.clone(),
        intake: services.intake.clone(),
        checkpoints: services.checkpoints.clone(),
        supervisors: supervision.supervisors,
        reports,
        mark: supervision.mark,
        users: supervision.users,
        rendezvous: RendezvousPorts::new(settings.host.clone(), settings.proc_root.clone()),
        standbys,
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
        network: settings.network.clone(),
    };
    let (queue, orders) = orders::queue();
    let (report, ended) = oneshot::channel();
    let thread = spawn_thread("orders", move || {
        let _ = report.send(executor.run(&orders));
    })?;
    Ok(OrderThread {
        queue,
        thread,
        ended,
        report: None,
    })
}

/// Describes this node as the controller sees it.
fn node_info(services: &SharedServices, peer_port: u16, image_port: u16) -> NodeInfo {
    let settings = &services.settings;
    let host = &settings.host;
    NodeInfo {
        node: settings.node.clone(),
        incarnation: format!("{}-{}", std::process::id(), clock::now().0),
        boot_id: boot_id(),
        host: host.clone(),
        peer_address: format!("{host}:{peer_port}"),
        image_address: format!("{host}:{image_port}"),
        slots: settings.slots,
        failure_domain: settings.failure_domain.clone(),
        running: Vec::new(),
        clock: ClockOffset::default(),
        lease_ms: u64::try_from(settings.lease.as_millis()).unwrap_or(u64::MAX),
        is_kernel_log_first: is_read_before_exits(&settings.kernel_log),
        history: NodeHistory::default(),
    }
}

/// Returns the boot id of the kernel; empty if it cannot be read.
fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

fn start_uplink(
    services: &SharedServices,
    info: NodeInfo,
    controller: Endpoint,
    orders: SyncSender<OrderMessage>,
) -> Result<UplinkHandle, AgentError> {
    let uplink = ControllerUplink {
        info,
        endpoint: controller,
        spool: services.spool.clone(),
        fences: services.fences.clone(),
        roster: services.roster.clone(),
        orders,
        lease: services.lease.clone(),
        settings: services.settings.clone(),
        board: services.intake.board().clone(),
        membership: services.checkpoints.membership().clone(),
    };
    uplink
        .start()
        .map_err(|source| AgentError::Thread { part: "uplink", source })
}

fn start_lease_watch(
    services: &SharedServices,
    orders: SyncSender<OrderMessage>,
) -> Result<LeaseWatchHandle, AgentError> {
    let watch = LeaseWatch {
        lease: services.lease.clone(),
        network: services.settings.network.clone(),
        roster: services.roster.clone(),
        orders,
    };
    watch
        .start()
        .map_err(|source| AgentError::Thread { part: "lease", source })
}
