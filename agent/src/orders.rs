//! Executor of the controller's orders: one after the other, on one thread that lives as long as the agent.
//!
//! Orders are sequential because a fence must be up before the launch that follows it. An order may arrive again; it
//! takes effect at most once (RG-3).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use rankguard_checkpoint::format::CheckpointId;
use rankguard_faults::classes;
use rankguard_identity::PeerTransport;
use rankguard_model::{
    AgentOrder, Entity, EvidenceBody, EvidenceSource, FailedCheck, FinishOrder, Generation, JobId, LEASE_SIGNATURE,
    LaunchOrder, NodeId, OrderId, PreflightOrder, PrepareOrder, RankRef, Role, RunningRank, Step,
};
use rustix::process::Signal;
use tokio::runtime::Handle;

use crate::checkpoint::CheckpointService;
use crate::fences::FenceTable;
use crate::intake::EvidenceIntake;
use crate::lease::RankLease;
use crate::links;
use crate::pending_evidence::{PendingEvidence, mark};
use crate::preflight::{self, JobRequirements};
use crate::processes::{EndedProcesses, FenceMark};
use crate::ranks::{
    LaunchContext, PreparationReport, RankReports, RankUserRules, RendezvousPorts, StandbyPool, prepared_start, spawn,
};
use crate::roster::RankRoster;
use crate::supervisor::{KeptProcesses, RankSupervisors};

/// Maximum queued orders. When the queue is full the session stops reading, and the controller sends missing orders
/// again.
const QUEUE: usize = 256;
/// Interval at which stores of generations without ranks are ended.
const STORE_CHECK: Duration = Duration::from_secs(1);
/// Longest wait for ranks that can leave their generation.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);
/// Longest wait of a process that has left its generation for the next launch of its job: it may hold the memory of a GPU.
const KEPT_MAX: Duration = Duration::from_secs(30);
/// Interval at which processes that have left their generation are checked: a rank may leave without an order.
const KEPT_CHECK: Duration = Duration::from_secs(5);
/// Interval at which missing standby processes are started.
const STANDBY_CHECK: Duration = Duration::from_millis(500);

/// Inputs of the order thread.
pub(crate) struct OrderExecutor {
    pub(crate) node: NodeId,
    pub(crate) state_dir: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) kill_limit: Duration,
    pub(crate) lease: RankLease,
    pub(crate) fences: FenceTable,
    pub(crate) roster: RankRoster,
    pub(crate) intake: EvidenceIntake,
    pub(crate) checkpoints: Arc<CheckpointService>,
    pub(crate) supervisors: RankSupervisors,
    pub(crate) reports: Arc<RankReports>,
    pub(crate) mark: FenceMark,
    pub(crate) users: RankUserRules,
    pub(crate) rendezvous: RendezvousPorts,
    pub(crate) standbys: StandbyPool,
    /// As [`crate::AgentSettings::rank_environment`].
    pub(crate) rank_environment: Vec<String>,
    /// As [`crate::AgentSettings::flight_recorder_pipe`].
    pub(crate) flight_pipe: bool,
    /// Paths and libraries of the node that preflight checks.
    pub(crate) need: JobRequirements,
    /// Runtime for link measurements between nodes.
    pub(crate) runtime: Handle,
    pub(crate) network: PeerTransport,
}

/// Message to the order thread.
#[allow(clippy::large_enum_variant, reason = "errands are few and are moved once")]
pub(crate) enum OrderMessage {
    /// Order of the controller, and the controller start in which its generation was begun (0: unknown).
    Order(OrderId, AgentOrder, u64),
    /// The controller reports that a checkpoint is never committed.
    VoidCheckpoint {
        job: JobId,
        generation: Generation,
        step: Step,
    },
    /// The lease expired: end all ranks.
    LeaseOver {
        /// Reason, as text for operators.
        reason: String,
    },
    /// The agent ends: end all ranks and the thread.
    End {
        /// Time between SIGTERM and SIGKILL.
        grace: Duration,
    },
}

/// Result of the thread's end.
#[derive(Debug, Default)]
pub(crate) struct RankEndReport {
    pub(crate) ranks_ended: usize,
    pub(crate) left_behind: Vec<String>,
}

/// Creates the queue of the order thread.
pub(crate) fn queue() -> (SyncSender<OrderMessage>, Receiver<OrderMessage>) {
    sync_channel(QUEUE)
}

impl OrderExecutor {
    /// Runs until the end message arrives or all senders are dropped.
    pub(crate) fn run(mut self, errands: &Receiver<OrderMessage>) -> RankEndReport {
        loop {
            match errands.recv_timeout(self.check_interval()) {
                Ok(OrderMessage::Order(id, order, life)) => self.carry_out(id, order, life),
                Ok(OrderMessage::VoidCheckpoint { job, generation, step }) => {
                    self.checkpoints.release_void(&job, generation, step);
                }
                Ok(OrderMessage::LeaseOver { reason }) => self.end_by_lease(&reason),
                Ok(OrderMessage::End { grace }) => return self.end(grace),
                Err(RecvTimeoutError::Timeout) => {
                    self.end_unused_stores();
                    self.standbys.check(&self.roster);
                    self.report_preparations();
                    self.supervisors.end_kept(|_, waited| waited >= KEPT_MAX);
                }
                Err(RecvTimeoutError::Disconnected) => return self.end(Duration::ZERO),
            }
        }
    }

    /// Returns the time until the next check of stores and waiting processes.
    fn check_interval(&self) -> Duration {
        if !self.standbys.is_empty() {
            STANDBY_CHECK
        } else if !self.rendezvous.served().is_empty() {
            STORE_CHECK
        } else {
            KEPT_CHECK
        }
    }

    fn carry_out(&mut self, id: OrderId, order: AgentOrder, life: u64) {
        let (job, generation) = order.fence();
        // Retaining an older checkpoint in memory is harmless and often right.
        if !matches!(order, AgentOrder::Keep { .. })
            && let Err(stale) = self.fences.admit(job, generation, life)
        {
            let job = job.clone();
            return self.report_failure(id, &job, generation, stale.to_string(), Some(stale.newest()));
        }
        match order {
            AgentOrder::Fence {
                job,
                generation,
                reserve_port,
                ..
            } => self.fence(id, &job, (generation, life), reserve_port),
            AgentOrder::Preflight(wanted) => self.preflight(wanted),
            AgentOrder::Finish(wanted) => self.finish(id, wanted, life),
            AgentOrder::Launch(launch) => self.launch(id, launch, life),
            AgentOrder::Prepare(wanted) => self.prepare(&wanted),
            AgentOrder::Keep {
                job,
                generation,
                step,
                stays,
            } => self
                .checkpoints
                .record_commit(&job, CheckpointId { step, generation }, stays),
            AgentOrder::Stop {
                job,
                generation,
                grace_ms,
                keeps_images,
            } => self.stop(&job, generation, Duration::from_millis(grace_ms), keeps_images),
            AgentOrder::Checkpoint {
                job,
                generation,
                number,
                call,
            } => self.roster.call(&job, generation, number, call),
        }
    }

    fn fence(&mut self, id: OrderId, job: &JobId, fence: (Generation, u64), reserve_port: bool) {
        let (generation, life) = fence;
        let raised = self.fences.raise(job, generation, life);
        self.checkpoints.fence(job, generation);
        // Started ahead, so that the launch that follows does not wait for its supervisor.
        self.supervisors.prepare();
        let old = |rank: &RankRef| rank.job == *job && rank.generation < generation;
        self.let_leave(old);
        self.roster.mark_ending(old);
        let ended = self
            .supervisors
            .end(KeptProcesses::Wait, |known, of| known == job && of < generation);
        if let Err(problem) = raised {
            // The old ranks end on a full disk too; without a durable fence a restarted agent could obey a stale
            // order.
            let reason = format!("the fence cannot be written to {}: {problem}", self.state_dir.display());
            return self.failed(id, job, generation, reason);
        }
        if ended.is_complete() {
            self.roster.wait_gone(self.kill_limit, old);
        }
        self.rendezvous.close(|known, of| known == job && of < generation);
        let master_port = reserve_port
            .then(|| self.rendezvous.reserve(job, generation).ok())
            .flatten();
        let body = EvidenceBody::Fenced {
            job: job.clone(),
            generation,
            master_port,
            ended: ended.count(),
            left: ended.left_names(),
        };
        self.intake
            .push(PendingEvidence::now(EvidenceSource::Agent, self.intake.node_entity(), body).urgent());
    }

    /// Runs the preflight on its own thread, so that fences and stops do not wait for a Python import. If no thread
    /// can be started, the controller's deadline ends its wait.
    fn preflight(&self, wanted: PreflightOrder) {
        let need = self.need.clone();
        let intake = self.intake.clone();
        let runtime = self.runtime.clone();
        let network = self.network.clone();
        let look = move || {
            let (mut failed, environment) = preflight::for_job(&wanted, &need);
            failed.extend(bad_ways(&wanted, &network, &runtime, &intake));
            let body = EvidenceBody::Preflighted {
                job: wanted.job,
                generation: wanted.generation,
                failed,
                environment,
            };
            intake.push(PendingEvidence::now(EvidenceSource::Agent, intake.node_entity(), body).urgent());
        };
        if let Err(problem) = std::thread::Builder::new().name("preflight".to_owned()).spawn(look) {
            tracing::warn!(%problem, "no thread for a preflight");
        }
    }

    /// A new generation may finish the images of the previous one only if the fence is durable.
    fn finish(&mut self, id: OrderId, wanted: FinishOrder, life: u64) {
        if let Err(problem) = self.fences.raise(&wanted.job, wanted.generation, life) {
            let reason = format!("the fence cannot be written to {}: {problem}", self.state_dir.display());
            return self.failed(id, &wanted.job, wanted.generation, reason);
        }
        self.checkpoints.fence(&wanted.job, wanted.generation);
        self.checkpoints.finish(wanted);
    }

    fn launch(&mut self, id: OrderId, launch: LaunchOrder, life: u64) {
        if !self.lease.is_held() {
            // The order may have waited while the agent was stopped, and its generation may be over elsewhere (RG-3).
            let reason = "the lease of this agent is over, and the controller has not answered since".to_owned();
            return self.failed(id, &launch.job, launch.generation, reason);
        }
        if let Err(problem) = self.fences.raise(&launch.job, launch.generation, life) {
            let reason = format!("the fence cannot be written to {}: {problem}", self.state_dir.display());
            return self.failed(id, &launch.job, launch.generation, reason);
        }
        // Their memory is needed for this job now.
        self.supervisors.end_kept(|job, _| *job != launch.job);
        self.standbys.end_prepared(|job| *job != launch.job);
        let launch = Arc::new(launch);
        let known = |slot: &rankguard_model::RankSlot| {
            let rank = RankRef {
                job: launch.job.clone(),
                generation: launch.generation,
                rank: slot.rank,
            };
            self.roster.knows(&rank)
        };
        let fresh: Vec<_> = launch.ranks.iter().copied().filter(|slot| !known(slot)).collect();
        if fresh.len() == launch.ranks.len() {
            self.checkpoints.start(&launch);
        }
        if !fresh.is_empty()
            && let Err(problem) = self.rendezvous.open(&launch)
        {
            let port = launch.master_port;
            let reason = format!("cannot serve the job's store on port {port}: {problem}");
            return self.failed(id, &launch.job, launch.generation, reason);
        }
        let mut started = None;
        for slot in fresh {
            match spawn(&self.launch_context(), &launch, slot) {
                Ok(start) => started = Some(start),
                Err(problem) => {
                    self.failed(id, &launch.job, launch.generation, problem.to_string());
                    break;
                }
            }
        }
        if let Some(start) = started {
            self.standbys.launched(&launch, &start);
        }
        self.supervisors.finish_launch(&launch.job, launch.generation);
    }

    fn launch_context(&self) -> LaunchContext<'_> {
        LaunchContext {
            state_dir: &self.state_dir,
            socket: &self.socket,
            node: &self.node,
            roster: &self.roster,
            supervisors: &self.supervisors,
            reports: &self.reports,
            mark: &self.mark,
            users: &self.users,
            environment: &self.rank_environment,
            flight_pipe: self.flight_pipe,
        }
    }

    /// Starts standby processes ahead of a launch, or ends them.
    fn prepare(&mut self, wanted: &PrepareOrder) {
        let start = prepared_start(&self.launch_context(), wanted).map_err(|problem| problem.to_string());
        let prepared = start.and_then(|start| self.standbys.prepare(wanted, &start));
        if let Err(problem) = prepared {
            self.report_prepared(PreparationReport {
                job: wanted.job.clone(),
                generation: wanted.generation,
                waiting: 0,
                problem: Some(problem),
            });
        }
    }

    fn report_preparations(&mut self) {
        let reports = self.standbys.reports();
        reports.into_iter().for_each(|report| self.report_prepared(report));
    }

    fn report_prepared(&self, report: PreparationReport) {
        let body = EvidenceBody::Prepared {
            job: report.job,
            generation: report.generation,
            waiting: report.waiting,
            problem: report.problem,
        };
        let entity = self.intake.node_entity();
        self.intake
            .push(PendingEvidence::now(EvidenceSource::Agent, entity, body).urgent());
    }

    fn stop(&mut self, job: &JobId, generation: Generation, grace: Duration, keeps_images: bool) {
        if keeps_images {
            // Started ahead, so that the launch that may follow does not wait for its supervisor.
            self.supervisors.prepare();
        }
        let which = |known: &JobId, of: Generation| known == job && of <= generation;
        let kept = if keeps_images && grace.is_zero() {
            self.let_leave(|rank| which(&rank.job, rank.generation));
            KeptProcesses::Wait
        } else {
            KeptProcesses::End
        };
        let ended = self.end_ranks(grace, kept, which);
        self.rendezvous.close(|known, of| known == job && of <= generation);
        if !keeps_images {
            self.checkpoints.forget(job);
            self.standbys.end(|known| known == job);
        }
        self.report_stopped(job, generation, &ended);
    }

    fn report_stopped(&self, job: &JobId, generation: Generation, ended: &EndedProcesses) {
        let body = EvidenceBody::Stopped {
            job: job.clone(),
            generation,
            ended: ended.count(),
            left: ended.left_names(),
        };
        let entity = self.intake.node_entity();
        self.intake
            .push(PendingEvidence::now(EvidenceSource::Agent, entity, body).urgent());
    }

    /// Ends all ranks because the lease expired. The evidence precedes the exits that follow from it.
    fn end_by_lease(&mut self, reason: &str) {
        if self.lease.is_held() {
            return;
        }
        let mut generations = BTreeSet::new();
        // Supervisors watch the lease as well, and may have ended these ranks already.
        for RunningRank { rank, .. } in self.roster.running() {
            generations.insert((rank.job, rank.generation));
        }
        for (job, generation) in generations {
            let text = format!("{reason}; no rank of job {job}, generation {generation}, runs on");
            tracing::warn!(%job, %generation, "{text}");
            let body = EvidenceBody::Line {
                text,
                context: Vec::new(),
                repeats: 1,
            };
            let mut says = mark(classes::NODE_AGENT_SILENT, Role::Confirmation, 0.9, LEASE_SIGNATURE);
            let fields = [("job", job.to_string()), ("generation", generation.to_string())];
            says.fields = fields
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect();
            let sighting = PendingEvidence::now(EvidenceSource::Agent, self.intake.node_entity(), body);
            self.intake.push(sighting.marked(vec![says]).urgent());
        }
        let ended = self.end_ranks(Duration::ZERO, KeptProcesses::End, |_, _| true);
        self.rendezvous.close(|_, _| true);
        self.standbys.end(|_| true);
        if !ended.left.is_empty() {
            let left = ended.left_names();
            tracing::error!(?left, "cannot end all processes of ranks; their supervisors try again");
        }
    }

    /// Ends the stores of generations without ranks on this node, as a store ends with rank 0 where rank 0 serves it.
    fn end_unused_stores(&mut self) {
        let running = self.roster.running();
        for (job, generation) in self.rendezvous.served() {
            let is_used = |running: &RunningRank| running.rank.job == job && running.rank.generation == generation;
            if !running.iter().any(is_used) {
                self.rendezvous.close(|known, of| *known == job && of == generation);
            }
        }
    }

    /// Asks the matching ranks that can to leave their generation, and waits until they have.
    fn let_leave(&self, which: impl Fn(&RankRef) -> bool) {
        let asked = self.roster.ask_to_leave(which);
        if !asked.is_empty() {
            self.roster.wait_gone(LEAVE_LIMIT, |rank| asked.contains(rank));
        }
    }

    /// Sends SIGTERM to all processes of the matching generations, and kills those that are left after the grace.
    fn end_ranks(
        &self,
        grace: Duration,
        kept: KeptProcesses,
        which: impl Fn(&JobId, Generation) -> bool,
    ) -> EndedProcesses {
        let theirs = |rank: &RankRef| which(&rank.job, rank.generation);
        self.roster.mark_ending(theirs);
        let mut ended = self.supervisors.signal(Signal::TERM, &which);
        self.roster.wait_gone(grace, theirs);
        ended.merge(self.supervisors.end(kept, &which));
        if ended.is_complete() {
            // The exits are reported before the answer.
            self.roster.wait_gone(self.kill_limit, theirs);
        }
        ended
    }

    fn end(&mut self, grace: Duration) -> RankEndReport {
        let running = self.roster.running();
        let mut jobs: BTreeMap<JobId, Generation> = BTreeMap::new();
        for RankRef { job, generation, .. } in running.iter().map(|running| running.rank.clone()) {
            let newest = jobs.entry(job).or_default();
            *newest = generation.max(*newest);
        }
        let mut left_behind = Vec::new();
        for (job, generation) in jobs {
            let ended = self.end_ranks(grace, KeptProcesses::End, |known, of| *known == job && of <= generation);
            // The controller needs no other proof that the node has no ranks.
            self.report_stopped(&job, generation, &ended);
            left_behind.extend(ended.left_names());
        }
        left_behind.extend(
            self.end_ranks(Duration::ZERO, KeptProcesses::End, |_, _| true)
                .left_names(),
        );
        left_behind.sort();
        left_behind.dedup();
        self.rendezvous.close(|_, _| true);
        self.standbys.end(|_| true);
        self.supervisors.close();
        RankEndReport {
            ranks_ended: running.len(),
            left_behind,
        }
    }

    fn failed(&self, order: OrderId, job: &JobId, generation: Generation, reason: String) {
        self.report_failure(order, job, generation, reason, None);
    }

    /// Reports an order that is not carried out; `newest` is set if a newer generation is the reason.
    fn report_failure(
        &self,
        order: OrderId,
        job: &JobId,
        generation: Generation,
        reason: String,
        newest: Option<Generation>,
    ) {
        tracing::warn!(%order, %job, %generation, reason, "cannot carry out an order");
        let body = EvidenceBody::OrderFailed {
            order,
            job: job.clone(),
            generation,
            reason,
            newest,
        };
        let entity = Entity::Job { job: job.clone() };
        self.intake
            .push(PendingEvidence::now(EvidenceSource::Agent, entity, body).urgent());
    }
}

/// Measures the links between the nodes of a job, if this node has to. Bad nodes are returned as failed checks;
/// results that blame no node become evidence.
fn bad_ways(
    wanted: &PreflightOrder,
    network: &PeerTransport,
    runtime: &Handle,
    intake: &EvidenceIntake,
) -> Vec<FailedCheck> {
    if wanted.between.len() < 2 {
        return Vec::new();
    }
    // Twice the deadline of a single check, because the measurement takes several rounds.
    let limit = Duration::from_millis(wanted.deadline_ms) * 2;
    let ways = runtime.block_on(links::before_job(network, &wanted.between, limit));
    if let Some(what) = ways.unknown {
        intake.gap(EvidenceSource::Nic, what, None);
    }
    for text in ways.single {
        let says = mark(classes::NETWORK_SLOW, Role::Confirmation, 0.6, "links.between");
        let body = EvidenceBody::Line {
            text,
            context: Vec::new(),
            repeats: 1,
        };
        let entity = Entity::Job {
            job: wanted.job.clone(),
        };
        intake.push(PendingEvidence::now(EvidenceSource::Nic, entity, body).marked(vec![says]));
    }
    ways.failed
}
