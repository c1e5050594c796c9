//! Orders of the controller, carried out one after the other on one thread that lives as long as the agent.
//!
//! The thread matters twice: ranks die with the thread that started them, and a fence must be up before the launch that
//! follows it. Orders may come again: each is carried out at most once in effect (RG-3).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use rankguard_checkpoint::format::CheckpointId;
use rankguard_identity::Network;
use rankguard_model::{
    Body, Entity, FailedCheck, Finish, Generation, JobId, Launch, NodeId, Order, OrderId, Preflight, RankRef, Role,
    Source,
};
use rustix::process::Signal;
use tokio::runtime::Handle;

use crate::checkpoint::Checkpoints;
use crate::collectors::{FlightDumps, JobLogs, mark};
use crate::fences::Fences;
use crate::intake::Intake;
use crate::links;
use crate::preflight::{self, Need};
use crate::ranks::{Roster, Surroundings, reserve, spawn};
use crate::sighting::Sighting;

/// Orders that may wait. When it is full the session waits with reading, and the controller sends again what it misses.
const QUEUE: usize = 256;

/// What the thread needs.
pub(crate) struct Orders {
    pub(crate) node: NodeId,
    pub(crate) host: String,
    pub(crate) state_dir: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) kill_limit: Duration,
    pub(crate) fences: Fences,
    pub(crate) roster: Roster,
    pub(crate) intake: Intake,
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) job_logs: JobLogs,
    pub(crate) flight: FlightDumps,
    /// As [`crate::Settings::flight_recorder_pipe`].
    pub(crate) flight_pipe: bool,
    /// The node as preflight sees it: trees and libraries.
    pub(crate) need: Need,
    /// Where the ways between nodes are measured.
    pub(crate) runtime: Handle,
    pub(crate) network: Network,
}

/// A wish of the thread's owner.
#[allow(clippy::large_enum_variant, reason = "errands are few and are moved once")]
pub(crate) enum Errand {
    /// An order of the controller.
    Order(OrderId, Order),
    /// The agent goes: end all ranks and the thread.
    End {
        /// Between SIGTERM and SIGKILL.
        grace: Duration,
    },
}

/// How the thread left the node.
#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) ranks_ended: usize,
    pub(crate) left_behind: Vec<String>,
}

/// A queue for errands.
pub(crate) fn queue() -> (SyncSender<Errand>, Receiver<Errand>) {
    sync_channel(QUEUE)
}

impl Orders {
    /// Until told to end, or until nobody can send errands any more.
    pub(crate) fn run(mut self, errands: &Receiver<Errand>) -> Left {
        loop {
            match errands.recv() {
                Ok(Errand::Order(id, order)) => self.carry_out(id, order),
                Ok(Errand::End { grace }) => return self.end(grace),
                Err(_) => return self.end(Duration::ZERO),
            }
        }
    }

    fn carry_out(&mut self, id: OrderId, order: Order) {
        let (job, generation) = order.fence();
        let (job, newest) = (job.clone(), self.fences.of(job));
        // Keeping an older checkpoint in memory is harmless and often right.
        if generation < newest && !matches!(order, Order::Keep { .. }) {
            let reason = format!("generation {generation} may no longer act: generation {newest} does");
            return self.failed(id, &job, generation, reason);
        }
        match order {
            Order::Fence {
                job,
                generation,
                reserve_port,
            } => self.fence(id, &job, generation, reserve_port),
            Order::Preflight(wanted) => self.preflight(wanted),
            Order::Finish(wanted) => self.finish(id, wanted),
            Order::Launch(launch) => self.launch(id, launch),
            Order::Keep {
                job,
                generation,
                step,
                stays,
            } => self.checkpoints.keep(&job, CheckpointId { step, generation }, stays),
            Order::Stop {
                job,
                generation,
                grace_ms,
            } => self.stop(&job, generation, Duration::from_millis(grace_ms)),
            Order::Checkpoint {
                job,
                generation,
                number,
                call,
            } => self.roster.call(&job, generation, number, call),
        }
    }

    fn fence(&mut self, id: OrderId, job: &JobId, generation: Generation, reserve_port: bool) {
        if let Err(problem) = self.fences.raise(job, generation) {
            let reason = format!("the fence cannot be written to {}: {problem}", self.state_dir.display());
            return self.failed(id, job, generation, reason);
        }
        self.checkpoints.fence(job, generation);
        let left = self.roster.kill_below(job, generation, self.kill_limit);
        if !left.is_empty() {
            let pids: Vec<String> = left.iter().map(|rank| format!("rank {}", rank.rank)).collect();
            let reason = format!("{} did not die within {:?}", pids.join(", "), self.kill_limit);
            return self.failed(id, job, generation, reason);
        }
        let master_port = reserve_port.then(|| reserve(&self.host).ok()).flatten();
        let body = Body::Fenced {
            job: job.clone(),
            generation,
            master_port,
        };
        let entity = Entity::Node {
            node: self.node.clone(),
        };
        self.intake.push(Sighting::now(Source::Agent, entity, body).urgent());
    }

    /// Looks on a thread of its own: whoever asks for fences and stops must not wait for a Python that imports. Should there
    /// be no thread, the controller's wait has a deadline.
    fn preflight(&self, wanted: Preflight) {
        let (need, intake, runtime) = (self.need.clone(), self.intake.clone(), self.runtime.clone());
        let network = self.network.clone();
        let look = move || {
            let (mut failed, environment) = preflight::for_job(&wanted, &need);
            failed.extend(bad_ways(&wanted, &network, &runtime, &intake));
            let body = Body::Preflighted {
                job: wanted.job,
                generation: wanted.generation,
                failed,
                environment,
            };
            intake.push(Sighting::now(Source::Agent, intake.node_entity(), body).urgent());
        };
        if let Err(problem) = std::thread::Builder::new().name("preflight".to_owned()).spawn(look) {
            tracing::warn!(%problem, "no thread for a preflight");
        }
    }

    /// Only a fence that stands lets the generation after speak for what the one before has left.
    fn finish(&mut self, id: OrderId, wanted: Finish) {
        if let Err(problem) = self.fences.raise(&wanted.job, wanted.generation) {
            let reason = format!("the fence cannot be written to {}: {problem}", self.state_dir.display());
            return self.failed(id, &wanted.job, wanted.generation, reason);
        }
        self.checkpoints.fence(&wanted.job, wanted.generation);
        self.checkpoints.finish(wanted);
    }

    fn launch(&mut self, id: OrderId, launch: Launch) {
        if let Err(problem) = self.fences.raise(&launch.job, launch.generation) {
            let reason = format!("the fence cannot be written to {}: {problem}", self.state_dir.display());
            return self.failed(id, &launch.job, launch.generation, reason);
        }
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
        for slot in fresh {
            let around = Surroundings {
                state_dir: &self.state_dir,
                socket: &self.socket,
                node: &self.node,
                roster: &self.roster,
                intake: &self.intake,
                job_logs: &self.job_logs,
                flight: &self.flight,
                flight_pipe: self.flight_pipe,
            };
            if let Err(problem) = spawn(&around, &launch, slot) {
                return self.failed(id, &launch.job, launch.generation, problem.to_string());
            }
        }
    }

    fn stop(&mut self, job: &JobId, generation: Generation, grace: Duration) {
        let theirs = |rank: &RankRef| rank.job == *job && rank.generation <= generation;
        self.roster.signal(Signal::TERM, theirs);
        if !self.roster.wait_gone(grace, theirs).is_empty() {
            self.roster.signal(Signal::KILL, theirs);
            self.roster.wait_gone(self.kill_limit, theirs);
        }
        self.checkpoints.forget(job);
    }

    fn end(&mut self, grace: Duration) -> Left {
        let all = |_: &RankRef| true;
        let ranks_ended = self.roster.signal(Signal::TERM, all);
        if !self.roster.wait_gone(grace, all).is_empty() {
            self.roster.signal(Signal::KILL, all);
        }
        let left = self.roster.wait_gone(self.kill_limit, all);
        let told = |rank: &RankRef| format!("rank {} of job {} did not die", rank.rank, rank.job);
        Left {
            ranks_ended,
            left_behind: left.iter().map(told).collect(),
        }
    }

    fn failed(&self, order: OrderId, job: &JobId, generation: Generation, reason: String) {
        tracing::warn!(%order, %job, %generation, reason, "cannot carry out an order");
        let body = Body::OrderFailed {
            order,
            job: job.clone(),
            generation,
            reason,
        };
        let entity = Entity::Job { job: job.clone() };
        self.intake.push(Sighting::now(Source::Agent, entity, body).urgent());
    }
}

/// Has the ways between the nodes of a job measured, where that is this node's part. Nodes that are bad are failed checks; what
/// blames no node is evidence.
fn bad_ways(wanted: &Preflight, network: &Network, runtime: &Handle, intake: &Intake) -> Vec<FailedCheck> {
    if wanted.between.len() < 2 {
        return Vec::new();
    }
    // Twice the wait for a single thing: it takes several rounds.
    let limit = Duration::from_millis(wanted.deadline_ms) * 2;
    let ways = runtime.block_on(links::before_job(network, &wanted.between, limit));
    if let Some(what) = ways.unknown {
        intake.gap(Source::Nic, what, None);
    }
    for text in ways.single {
        let says = mark("network-slow", Role::Confirmation, 0.6, "links.between");
        let body = Body::Line {
            text,
            context: Vec::new(),
            repeats: 1,
        };
        let entity = Entity::Job {
            job: wanted.job.clone(),
        };
        intake.push(Sighting::now(Source::Nic, entity, body).marked(vec![says]));
    }
    ways.failed
}
