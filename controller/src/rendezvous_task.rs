//! Task that owns the rendezvous of torchrun processes: their inputs, their streams, the clock and the states of nodes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use rankguard_model::TorchrunView;
use rankguard_proto::v1;
use rankguard_proto::v1::to_torchrun::Kind;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tonic::Status;
use tracing::{info, warn};

use crate::clock::MonotonicClock;
use crate::health::{SharedHealth, TorchrunCounts};
use crate::input::{LoopInput, OperatorQuery};
use crate::rendezvous::{
    JoinRequest, MemberDeparture, MemberId, NodeConditions, RefusalKind, RoundNotice, RoundRefusal, RunNotice,
    RunTable, TorchrunRound,
};

/// Inputs that may wait; when the queue is full, streams and status commands wait.
pub(crate) const RENDEZVOUS_INPUTS_MAX: usize = 256;
/// Messages that may wait for one member. When the queue is full, the stream is closed; the member opens another one.
pub(crate) const MEMBER_MESSAGES_MAX: usize = 16;
/// Interval of the decisions that depend on the time.
const TICK: Duration = Duration::from_millis(200);
/// Interval at which the states of the nodes are read.
const NODES_EVERY: Duration = Duration::from_millis(500);

/// Sender of messages to a member.
pub(crate) type MemberSender = mpsc::Sender<Result<v1::ToTorchrun, Status>>;

/// Controller's end of a member's stream.
#[derive(Debug)]
pub(crate) struct MemberLink {
    /// Number of the stream.
    pub(crate) stream: u64,
    pub(crate) outbound: MemberSender,
    /// Ends the stream when it is dropped.
    pub(crate) close: oneshot::Sender<()>,
}

/// Input of the task.
#[derive(Debug)]
pub(crate) enum RendezvousInput {
    Join {
        run: String,
        request: Box<JoinRequest>,
        link: MemberLink,
    },
    /// Message of a member.
    Message {
        run: String,
        member: MemberId,
        stream: u64,
        message: MemberMessage,
    },
    /// Query for status.
    View(oneshot::Sender<Vec<TorchrunView>>),
}

/// Message of a member after its join.
#[derive(Debug)]
pub(crate) enum MemberMessage {
    Requests {
        store_port: u16,
    },
    Finished,
    Leaves(MemberDeparture),
    /// No further round may begin.
    Closes,
    /// The stream ended.
    Disconnected,
}

/// Rendezvous with everything it owns.
#[derive(Debug)]
pub(crate) struct RendezvousTask {
    clock: MonotonicClock,
    table: RunTable,
    inputs: mpsc::Receiver<RendezvousInput>,
    links: BTreeMap<String, BTreeMap<MemberId, MemberLink>>,
    /// Event loop, which knows the states of the nodes.
    nodes: mpsc::Sender<LoopInput>,
    query: Option<oneshot::Receiver<NodeConditions>>,
    health: SharedHealth,
    /// Rounds that began.
    rounds: u64,
}

impl RendezvousTask {
    /// Creates the task. After a restart of the controller, members get time to state a running round.
    pub(crate) fn new(
        clock: MonotonicClock,
        is_restart: bool,
        inputs: mpsc::Receiver<RendezvousInput>,
        nodes: mpsc::Sender<LoopInput>,
        health: SharedHealth,
    ) -> Self {
        Self {
            clock,
            table: RunTable::new(clock.now(), is_restart),
            inputs,
            links: BTreeMap::new(),
            nodes,
            query: None,
            health,
            rounds: 0,
        }
    }

    /// Runs until it is dropped, which ends all streams.
    pub(crate) async fn run(mut self) -> Infallible {
        let mut ticks = ticking(TICK);
        let mut queries = ticking(NODES_EVERY);
        loop {
            let notices = tokio::select! {
                // The operator service and the rendezvous service hold senders for as long as the server runs.
                Some(input) = self.inputs.recv() => self.take(input),
                nodes = answer(&mut self.query) => match nodes {
                    Some(nodes) => self.table.set_nodes(self.clock.now(), nodes),
                    None => Vec::new(),
                },
                _ = ticks.tick() => self.table.tick(self.clock.now()),
                _ = queries.tick() => {
                    self.query_nodes();
                    Vec::new()
                }
            };
            self.send_all(notices);
            self.health.count_torchruns(TorchrunCounts {
                runs: self.table.runs(),
                processes: self.table.members(),
                rounds: self.rounds,
            });
        }
    }

    /// Requests the states of the nodes, unless the event loop is busy or an answer is still due.
    fn query_nodes(&mut self) {
        if self.table.is_empty() || self.query.is_some() {
            return;
        }
        let (reply, answer) = oneshot::channel();
        let query = LoopInput::Query(OperatorQuery::Conditions(reply));
        if self.nodes.try_send(query).is_ok() {
            self.query = Some(answer);
        }
    }

    fn take(&mut self, input: RendezvousInput) -> Vec<RunNotice> {
        match input {
            RendezvousInput::Join { run, request, link } => self.join(run, *request, link),
            RendezvousInput::Message {
                run,
                member,
                stream,
                message,
            } => self.message(&run, member, stream, message),
            RendezvousInput::View(reply) => {
                // The client may have disconnected.
                let _ = reply.send(self.table.views());
                Vec::new()
            }
        }
    }

    fn join(&mut self, run: String, request: JoinRequest, link: MemberLink) -> Vec<RunNotice> {
        let member = request.id;
        let node = request.profile.node.clone();
        let address = request.profile.address.clone();
        match self.table.join(self.clock.now(), &run, request) {
            Ok(notices) => {
                info!(run, %node, "torchrun joined");
                let kind = Kind::Joined(v1::RendezvousJoined { address });
                // The queue is empty and has room.
                let _ = link.outbound.try_send(Ok(v1::ToTorchrun { kind: Some(kind) }));
                self.links.entry(run).or_default().insert(member, link);
                notices
            }
            Err(refusal) => {
                warn!(run, %node, reason = refusal.reason, "torchrun refused");
                let kind = Some(Kind::Refusal(refusal_message(&refusal)));
                let _ = link.outbound.try_send(Ok(v1::ToTorchrun { kind }));
                Vec::new()
            }
        }
    }

    fn message(&mut self, run: &str, member: MemberId, stream: u64, message: MemberMessage) -> Vec<RunNotice> {
        let links = self.links.get(run);
        let link = links.and_then(|links| links.get(&member));
        // The member may have opened another stream, or was refused.
        if link.is_none_or(|link| link.stream != stream) {
            return Vec::new();
        }
        let now = self.clock.now();
        match message {
            MemberMessage::Requests { store_port } => self.table.request(now, run, member, store_port),
            MemberMessage::Finished => self.table.finish(now, run, member),
            MemberMessage::Closes => self
                .table
                .close(now, run, "a torchrun process closed the run".to_owned()),
            MemberMessage::Leaves(departure) => {
                self.unlink(run, member);
                self.table.leave(now, run, member, departure)
            }
            MemberMessage::Disconnected => {
                self.unlink(run, member);
                self.table.disconnect(now, run, member)
            }
        }
    }

    fn unlink(&mut self, run: &str, member: MemberId) {
        if let Some(links) = self.links.get_mut(run) {
            if let Some(link) = links.remove(&member) {
                drop(link.close);
            }
            if links.is_empty() {
                self.links.remove(run);
            }
        }
    }

    fn send_all(&mut self, notices: Vec<RunNotice>) {
        for RunNotice { run, member, notice } in notices {
            if let RoundNotice::RoundBegan(round) = &notice
                && round.rank(member) == Some(0)
            {
                self.rounds += 1;
            }
            report(&run, member, &notice);
            let is_last = matches!(notice, RoundNotice::Refused(_) | RoundNotice::RunFinished);
            let link = self.links.get(&run).and_then(|links| links.get(&member));
            let Some(link) = link else { continue };
            let message = v1::ToTorchrun {
                kind: Some(message_of(notice)),
            };
            let is_sent = link.outbound.try_send(Ok(message)).is_ok();
            if is_last {
                self.unlink(&run, member);
            } else if !is_sent {
                warn!(run, "torchrun does not read its messages; its stream is closed");
                self.unlink(&run, member);
                // The notices that follow concern other members at most at the next tick.
                let _ = self.table.disconnect(self.clock.now(), &run, member);
            }
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

fn report(run: &str, member: MemberId, notice: &RoundNotice) {
    match notice {
        RoundNotice::RoundBegan(round) if round.rank(member) == Some(0) => {
            let nodes: Vec<&str> = round.members.iter().map(|seat| seat.profile.node.as_str()).collect();
            info!(
                run,
                round = round.number,
                nodes = nodes.join(","),
                "a round of torchrun begins"
            );
        }
        RoundNotice::Refused(refusal) => warn!(
            run,
            reason = refusal.reason,
            "a request of torchrun ends without a round"
        ),
        RoundNotice::RoundOver { reason } => info!(run, reason, "a round of torchrun is over"),
        _ => {}
    }
}

fn message_of(notice: RoundNotice) -> Kind {
    match notice {
        RoundNotice::RoundBegan(round) => Kind::Round(round_message(&round)),
        RoundNotice::RoundOver { reason } => Kind::Over(v1::RoundOver { reason }),
        RoundNotice::Waits { reason } => Kind::Wait(v1::RoundWait { reason }),
        RoundNotice::Refused(refusal) => Kind::Refusal(refusal_message(&refusal)),
        RoundNotice::RunFinished => Kind::Finished(v1::RunFinished {}),
    }
}

fn refusal_message(refusal: &RoundRefusal) -> v1::RendezvousRefusal {
    let kind = match refusal.kind {
        RefusalKind::Closed => v1::RefusalKind::Closed,
        RefusalKind::TimedOut => v1::RefusalKind::TimedOut,
        RefusalKind::Denied => v1::RefusalKind::Denied,
    };
    v1::RendezvousRefusal {
        kind: kind.into(),
        reason: refusal.reason.clone(),
    }
}

fn round_message(round: &TorchrunRound) -> v1::TorchrunRound {
    let members = round.members.iter().map(|seat| v1::RoundMember {
        member: seat.id.0,
        node: seat.profile.node.to_string(),
        address: seat.profile.address.clone(),
        store_port: u32::from(seat.store_port),
    });
    v1::TorchrunRound {
        number: round.number,
        members: members.collect(),
    }
}
