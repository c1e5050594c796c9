//! Task that owns the lighthouse of torchft: requests of replicas, the clock, ids on disk and the states of nodes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::clock::MonotonicClock;
use crate::health::{SharedHealth, TorchftCounts};
use crate::input::{LoopInput, OperatorQuery};
use crate::lighthouse::{LighthouseTerms, QuorumMachine, REPLICAS_MAX, ReplicaId, ReplicaMember, ReplicaQuorum};
use crate::quorum_ids::QuorumIds;
use crate::rendezvous::NodeConditions;

/// Inputs that may wait; when the queue is full, the requests wait.
pub(crate) const LIGHTHOUSE_INPUTS_MAX: usize = 256;
/// Interval of the decisions that depend on the time, as in torchft's lighthouse.
const TICK: Duration = Duration::from_millis(100);
/// Interval at which the states of the nodes are read.
const NODES_EVERY: Duration = Duration::from_millis(500);

/// Answer to a quorum request; the text states why a replica is refused.
pub(crate) type QuorumAnswer = Result<Arc<ReplicaQuorum>, String>;

/// Input of the task.
#[derive(Debug)]
pub(crate) enum LighthouseInput {
    Heartbeat {
        id: ReplicaId,
        reply: oneshot::Sender<Result<(), String>>,
    },
    Request {
        member: Box<ReplicaMember>,
        reply: oneshot::Sender<QuorumAnswer>,
    },
}

/// Lighthouse with everything it owns.
#[derive(Debug)]
pub(crate) struct LighthouseTask {
    clock: MonotonicClock,
    machine: QuorumMachine,
    ids: QuorumIds,
    inputs: mpsc::Receiver<LighthouseInput>,
    /// Requests that wait, by replica.
    waiting: BTreeMap<ReplicaId, oneshot::Sender<QuorumAnswer>>,
    /// Event loop, which knows the states of the nodes.
    nodes: mpsc::Sender<LoopInput>,
    query: Option<oneshot::Receiver<NodeConditions>>,
    health: SharedHealth,
    /// Newest status that was logged.
    status: String,
    /// True after an id could not be written, until one can.
    is_blocked: bool,
}

impl LighthouseTask {
    pub(crate) fn new(
        clock: MonotonicClock,
        terms: LighthouseTerms,
        ids: QuorumIds,
        inputs: mpsc::Receiver<LighthouseInput>,
        nodes: mpsc::Sender<LoopInput>,
        health: SharedHealth,
    ) -> Self {
        Self {
            clock,
            machine: QuorumMachine::new(clock.now(), terms, ids.first(), ids.is_restart()),
            ids,
            inputs,
            waiting: BTreeMap::new(),
            nodes,
            query: None,
            health,
            status: String::new(),
            is_blocked: false,
        }
    }

    /// Runs until it is dropped, which ends all requests.
    pub(crate) async fn run(mut self) -> Infallible {
        let mut ticks = ticking(TICK);
        let mut queries = ticking(NODES_EVERY);
        loop {
            tokio::select! {
                // The service holds a sender for as long as the server runs.
                Some(input) = self.inputs.recv() => self.take(input),
                nodes = answer(&mut self.query) => {
                    if let Some(nodes) = nodes {
                        self.machine.set_nodes(nodes);
                        self.decide();
                    }
                }
                _ = ticks.tick() => {
                    self.withdraw_ended();
                    self.machine.tick(self.clock.now());
                    self.decide();
                    self.report();
                }
                _ = queries.tick() => self.query_nodes(),
            }
        }
    }

    /// Requests the states of the nodes, unless the event loop is busy or an answer is still due.
    fn query_nodes(&mut self) {
        if self.machine.is_empty() || self.query.is_some() {
            return;
        }
        let (reply, answer) = oneshot::channel();
        let query = LoopInput::Query(OperatorQuery::Conditions(reply));
        if self.nodes.try_send(query).is_ok() {
            self.query = Some(answer);
        }
    }

    fn take(&mut self, input: LighthouseInput) {
        let now = self.clock.now();
        let refusal = || format!("the lighthouse has {REPLICAS_MAX} replicas already");
        match input {
            LighthouseInput::Heartbeat { id, reply } => {
                let is_known = self.machine.heartbeat(now, &id);
                // The client may have disconnected.
                let _ = reply.send(is_known.then_some(()).ok_or_else(refusal));
            }
            LighthouseInput::Request { member, reply } => {
                let id = member.id.clone();
                if !self.machine.request(now, *member) {
                    let _ = reply.send(Err(refusal()));
                    return;
                }
                self.waiting.insert(id, reply);
                self.withdraw_ended();
                self.decide();
            }
        }
    }

    /// Withdraws the requests of clients that ended their call.
    fn withdraw_ended(&mut self) {
        let machine = &mut self.machine;
        self.waiting.retain(|id, reply| {
            let is_open = !reply.is_closed();
            if !is_open {
                machine.withdraw(id);
            }
            is_open
        });
    }

    fn decide(&mut self) {
        // On disk before it is used.
        if let Err(problem) = self.ids.reserve(self.machine.next_id()) {
            if !self.is_blocked {
                warn!(%problem, "cannot reserve an id for the next quorum of torchft; replicas wait");
            }
            self.is_blocked = true;
            return;
        }
        self.is_blocked = false;
        let before = self.machine.newest().map(|quorum| quorum.id);
        let Some(quorum) = self.machine.decide(self.clock.now()) else {
            return;
        };
        if before != Some(quorum.id) {
            let replicas: Vec<&str> = quorum.members.iter().map(|member| member.id.0.as_str()).collect();
            let step = quorum.members.iter().map(|member| member.step).max();
            info!(
                quorum = quorum.id,
                step,
                replicas = replicas.join(","),
                "a quorum of torchft begins"
            );
        }
        for member in &quorum.members {
            if let Some(reply) = self.waiting.remove(&member.id) {
                let _ = reply.send(Ok(Arc::clone(&quorum)));
            }
        }
    }

    /// Logs why requests wait when the reason changes, and counts replicas.
    fn report(&mut self) {
        let quorum = self.machine.newest();
        self.health.count_torchft(TorchftCounts {
            replicas: self.machine.replicas(),
            members: quorum.map_or(0, |quorum| quorum.members.len()),
            quorum: quorum.map_or(0, |quorum| quorum.id),
        });
        let status = self.machine.status();
        if !self.waiting.is_empty() && status != self.status {
            info!(status, "replicas of torchft wait for a quorum");
            self.status = status.to_owned();
        }
    }
}

fn ticking(every: Duration) -> Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Waits for an answer that is due; `None` if the event loop dropped it.
async fn answer(query: &mut Option<oneshot::Receiver<NodeConditions>>) -> Option<NodeConditions> {
    match query {
        Some(pending) => {
            let answer = pending.await.ok();
            *query = None;
            answer
        }
        None => std::future::pending().await,
    }
}
