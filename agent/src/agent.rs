//! The agent's life: build, run, drain, say how it ended.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rankguard_model::Source;
use rankguard_proto::v1::peers_server::PeersServer;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Endpoint, Server};

use crate::checkpoints::{Checkpoints, PeerService};
use crate::clock::{self, OffsetFilter};
use crate::collectors::gpu::Gpu;
use crate::collectors::host::Host;
use crate::collectors::job_log::job_logs;
use crate::collectors::kernel_log::KernelLog;
use crate::collectors::nic::Nic;
use crate::collectors::{self, Stop};
use crate::error::{AgentError, Ended};
use crate::fences::Fences;
use crate::intake::Intake;
use crate::orders::Orders;
use crate::ranks::socket::{self, RankDoor, SocketPath};
use crate::ranks::{Launcher, LauncherParts, Roster};
use crate::settings::Settings;
use crate::spool::Spool;
use crate::uplink::{Identity, Uplink};

/// Sightings in one commit.
const COMMIT: usize = 1024;
/// Pause after a commit that failed: a full disk needs a moment, and the intake holds what comes meanwhile.
const RETRY: Duration = Duration::from_millis(500);
/// Orders that may wait; see [`Uplink`] for what happens when it is full.
const ORDERS: usize = 256;
/// Longest wait for the last evidence to be acknowledged when the agent ends. What is left is sent after the next start.
const FAREWELL: Duration = Duration::from_secs(1);
/// Longest wait for collectors to end. One that hangs in the kernel is left behind.
const JOIN: Duration = Duration::from_secs(2);

/// Runs an agent until `shutdown` is done, or until a part that it cannot be without ends.
///
/// Ranks are started by a thread of its own and die with it, so dropping this future kills them; a clean end gives them
/// SIGTERM first.
pub async fn run(settings: Settings, shutdown: impl Future<Output = ()> + Send) -> Result<Ended, AgentError> {
    let mut agent = Agent::build(settings).await?;
    let mut shutdown = pin!(shutdown);
    let failure = tokio::select! {
        () = &mut shutdown => None,
        failure = agent.part_ended() => Some(failure),
    };
    let ended = agent.drain().await;
    match failure {
        None => Ok(ended),
        Some(failure) => Err(failure),
    }
}

/// How a part ended that should not have.
type PartEnd = (&'static str, String);

struct Agent {
    settings: Settings,
    spool: Arc<Spool>,
    orders: Orders,
    roster: Roster,
    threads: Threads,
    /// Order worker, rank socket, peer service.
    servers: JoinSet<PartEnd>,
    uplink: JoinSet<PartEnd>,
    _socket: SocketPath,
}

/// The threads, and how they are asked to end; also when the future of [`run`] is dropped.
struct Threads {
    stop: Stop,
    intake: Intake,
    collectors: Vec<JoinHandle<()>>,
    spooler: Option<JoinHandle<()>>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.stop();
        self.intake.close();
    }
}

impl Agent {
    async fn build(settings: Settings) -> Result<Self, AgentError> {
        let state_dir = &settings.state_dir;
        std::fs::create_dir_all(state_dir).map_err(|source| AgentError::StateDir {
            path: state_dir.clone(),
            source,
        })?;
        let endpoint = endpoint(&settings.controller)?;
        let spool = Spool::open(
            &state_dir.join("spool.redb"),
            settings.node.clone(),
            settings.spool_bytes,
        );
        let spool = Arc::new(spool.map_err(|source| AgentError::Spool {
            path: state_dir.clone(),
            source,
        })?);
        let fence_file = state_dir.join("fences.json");
        let fences = Fences::open(fence_file.clone()).map_err(|source| AgentError::Fences {
            path: fence_file,
            source,
        })?;
        let incarnation = format!("{:x}-{}", clock::now().0, std::process::id());
        let (peers, peer_address) = listen_for_peers(&settings).await?;
        let (socket, ranks) = listen_for_ranks(&settings, &incarnation)?;

        let intake = Intake::new(settings.node.clone());
        let roster = Roster::new();
        let stop = Stop::default();
        let mut threads = Threads {
            stop: stop.clone(),
            intake: intake.clone(),
            collectors: Vec::new(),
            spooler: Some(start_spooler(&settings, &intake, &spool)?),
        };
        let (logs, log_reader) = job_logs(
            &settings.job_logs,
            settings.intervals.logs,
            &intake,
            &roster,
            &spool,
            &stop,
        );
        let started = Launcher::start(LauncherParts {
            node: settings.node.clone(),
            state_dir: std::path::absolute(state_dir).unwrap_or_else(|_| state_dir.clone()),
            socket: socket.path().to_owned(),
            roster: roster.clone(),
            intake: intake.clone(),
            logs,
        });
        // The launcher's thread ends when the last handle on it is dropped, and is not waited for.
        let (launcher, _) = started.map_err(thread_error("launcher"))?;
        let checkpoints = Checkpoints::new(&intake, &fences, settings.intervals.peer_fetch);

        threads.start("job-log", Source::JobLog, move || log_reader.run())?;
        threads.start_node_collectors(&settings, &roster, &spool)?;

        let orders = Orders {
            host: settings.host.clone(),
            slots: settings.slots,
            kill: settings.intervals.kill,
            fences: fences.clone(),
            roster: roster.clone(),
            launcher,
            checkpoints: checkpoints.clone(),
            intake: intake.clone(),
        };
        let (order_sender, order_receiver) = mpsc::channel(ORDERS);
        let mut servers = JoinSet::new();
        servers.spawn(work_on_orders(orders.clone(), order_receiver));
        let door = RankDoor {
            roster: roster.clone(),
            fences,
            checkpoints: checkpoints.clone(),
            intake,
            progress: settings.intervals.progress,
        };
        servers.spawn(async move { ("rank socket", socket::serve(ranks, door).await.to_string()) });
        servers.spawn(serve_peers(peers, checkpoints));
        let uplink = Uplink {
            identity: Identity {
                node: settings.node.clone(),
                incarnation,
                host: settings.host.clone(),
                peer_address,
                slots: settings.slots,
                failure_domain: settings.failure_domain.clone(),
            },
            endpoint,
            intervals: settings.intervals.clone(),
            spool: Arc::clone(&spool),
            roster: roster.clone(),
            orders: order_sender,
            clock: Mutex::new(OffsetFilter::default()),
        };
        let mut uplink_task = JoinSet::new();
        uplink_task.spawn(async move { match uplink.run().await {} });
        Ok(Self {
            settings,
            spool,
            orders,
            roster,
            threads,
            servers,
            uplink: uplink_task,
            _socket: socket,
        })
    }

    /// Waits for a part to end that should not.
    async fn part_ended(&mut self) -> AgentError {
        let mut look = tokio::time::interval(Duration::from_millis(500));
        loop {
            let ended = tokio::select! {
                Some(ended) = self.servers.join_next() => ended,
                Some(ended) = self.uplink.join_next() => ended,
                _ = look.tick() => {
                    if self.threads.spooler.as_ref().is_some_and(JoinHandle::is_finished) {
                        let problem = "its thread panicked".to_owned();
                        return AgentError::PartEnded { part: "spool", problem };
                    }
                    continue;
                }
            };
            return match ended {
                Ok((part, problem)) => AgentError::PartEnded { part, problem },
                Err(error) => AgentError::PartEnded {
                    part: "task",
                    problem: error.to_string(),
                },
            };
        }
    }

    /// No new orders or ranks, then the ranks end, then collectors, then the spool is flushed, then the session.
    async fn drain(mut self) -> Ended {
        self.servers.shutdown().await;
        let ranks_ended = self.roster.alive(|_| true).len();
        let left_behind = self.orders.end(|_| true, self.settings.intervals.shutdown_grace).await;
        self.threads.stop.stop();
        let collectors = std::mem::take(&mut self.threads.collectors);
        join_all(collectors, JOIN).await;
        self.threads.intake.close();
        join_all(self.threads.spooler.take().into_iter().collect(), JOIN).await;
        let _ = tokio::time::timeout(FAREWELL, self.acknowledged()).await;
        self.uplink.shutdown().await;
        Ended {
            ranks_ended,
            left_behind,
            unacknowledged: self.spool.unacknowledged(),
        }
    }

    async fn acknowledged(&self) {
        // Acknowledgements announce themselves to nobody; a look every few milliseconds for at most a second will do.
        let mut look = tokio::time::interval(Duration::from_millis(10));
        while self.spool.unacknowledged() > 0 {
            look.tick().await;
        }
    }
}

impl Threads {
    fn start(
        &mut self,
        name: &'static str,
        source: Source,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), AgentError> {
        let thread = collectors::spawn(name, source, &self.intake, work).map_err(thread_error(name))?;
        self.collectors.push(thread);
        Ok(())
    }

    fn start_node_collectors(
        &mut self,
        settings: &Settings,
        roster: &Roster,
        spool: &Arc<Spool>,
    ) -> Result<(), AgentError> {
        let (intake, stop) = (self.intake.clone(), self.stop.clone());
        let intervals = &settings.intervals;
        let kernel_log = KernelLog {
            source: settings.kernel_log.clone(),
            proc_root: settings.proc_root.clone(),
            interval: intervals.logs,
            intake: intake.clone(),
            roster: roster.clone(),
            spool: Arc::clone(spool),
            stop: stop.clone(),
        };
        self.start("kernel-log", Source::KernelLog, move || kernel_log.run())?;
        let host = Host {
            interval: intervals.host,
            watched: vec![settings.state_dir.clone()],
            intake: intake.clone(),
            stop: stop.clone(),
        };
        self.start("host", Source::Host, move || host.run())?;
        let gpu = Gpu {
            library: settings.nvml_library.clone(),
            interval: intervals.gpu,
            deadline: intervals.gpu_deadline,
            intake: intake.clone(),
            stop: stop.clone(),
        };
        self.start("gpu", Source::Gpu, move || gpu.run())?;
        let nic = Nic {
            sysfs_root: settings.sysfs_root.clone(),
            interval: intervals.nic,
            intake,
            stop,
        };
        self.start("nic", Source::Nic, move || nic.run())
    }
}

fn endpoint(controller: &str) -> Result<Endpoint, AgentError> {
    let endpoint = Endpoint::from_shared(format!("http://{controller}"));
    endpoint.map_err(|source| AgentError::ControllerAddress {
        address: controller.to_owned(),
        source,
    })
}

async fn listen_for_peers(settings: &Settings) -> Result<(TcpListener, String), AgentError> {
    let told = |source| AgentError::PeerListen {
        address: settings.peer_listen.clone(),
        source,
    };
    let listener = TcpListener::bind(&settings.peer_listen).await.map_err(told)?;
    let port = listener.local_addr().map_err(told)?.port();
    Ok((listener, format!("{}:{port}", settings.host)))
}

fn listen_for_ranks(settings: &Settings, incarnation: &str) -> Result<(SocketPath, UnixListener), AgentError> {
    let told = |source| AgentError::RankSocket {
        path: settings.state_dir.clone(),
        source,
    };
    let socket = SocketPath::choose(&settings.state_dir, incarnation).map_err(told)?;
    let listener = UnixListener::bind(socket.path()).map_err(told)?;
    Ok((socket, listener))
}

fn thread_error(part: &'static str) -> impl FnOnce(io::Error) -> AgentError {
    move |source| AgentError::Thread { part, source }
}

fn start_spooler(settings: &Settings, intake: &Intake, spool: &Arc<Spool>) -> Result<JoinHandle<()>, AgentError> {
    let (intake, spool, linger) = (intake.clone(), Arc::clone(spool), settings.intervals.spool_linger);
    let thread = std::thread::Builder::new().name("spool".to_owned());
    thread
        .spawn(move || move_to_disk(&intake, &spool, linger))
        .map_err(thread_error("spool"))
}

/// From the intake to the disk until the intake is closed and empty.
fn move_to_disk(intake: &Intake, spool: &Spool, linger: Duration) {
    loop {
        let batch = intake.take(linger, COMMIT);
        if batch.is_empty() {
            return;
        }
        if let Err(error) = spool.append(&batch) {
            tracing::error!(%error, pieces = batch.len(), "evidence not stored; it is tried again");
            if intake.is_closed() {
                // The agent is ending and its disk does not take it: there is nowhere left to put it.
                return;
            }
            intake.put_back(batch);
            std::thread::sleep(RETRY);
        }
    }
}

async fn work_on_orders(
    orders: Orders,
    mut receiver: mpsc::Receiver<(rankguard_model::OrderId, rankguard_model::Order)>,
) -> PartEnd {
    while let Some((id, order)) = receiver.recv().await {
        orders.take(id, order).await;
    }
    ("order worker", "the uplink is gone".to_owned())
}

async fn serve_peers(listener: TcpListener, checkpoints: Checkpoints) -> PartEnd {
    let service =
        PeersServer::new(PeerService { checkpoints }).max_encoding_message_size(rankguard_proto::MESSAGE_BYTES_MAX);
    let served = Server::builder()
        .add_service(service)
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await;
    let problem = served.map_or_else(|error| error.to_string(), |()| "it stopped listening".to_owned());
    ("peer service", problem)
}

/// Joins threads, but waits for all of them together no longer than `deadline`.
async fn join_all(threads: Vec<JoinHandle<()>>, deadline: Duration) {
    let until = tokio::time::Instant::now() + deadline;
    for thread in threads {
        while !thread.is_finished() {
            if tokio::time::Instant::now() >= until {
                tracing::warn!(
                    thread = thread.thread().name(),
                    "thread does not end and is left behind"
                );
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}
