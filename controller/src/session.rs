//! Agent session: join, evidence and heartbeats in; acknowledgements, orders and echoes out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rankguard_access::EnrolmentLedger;
use rankguard_identity::{ConnectionPeer, RefusalCounters, RefusalReason};
use rankguard_model::{Evidence, EvidenceId, NodeId, NodeInfo, Timestamp};
use rankguard_proto::v1::from_agent::Kind;
use rankguard_proto::{Message, REPLAY_HEADER, v1};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status, Streaming};
use tracing::{debug, warn};

use crate::access_control::node_certificate;
use crate::clock::MonotonicClock;
use crate::evidence_limits::limit_evidence;
use crate::gap::gap;
use crate::inbound::{InboundBudget, InboundPermit, SessionBudget};
use crate::input::LoopInput;
use crate::join;
use crate::liveness::NodeLiveness;
use crate::session_table::{OUTBOUND_MAX, OutboundBytes, OutboundSender, OutboundStream, SessionId, SessionLink};

/// Threads at a time that record certificates of agents.
const NOTES_MAX: usize = 4;
/// Time limit from the opening of a stream to its `join` message.
const JOIN_DEADLINE: Duration = Duration::from_secs(5);
/// Time limit to send the reason of a closed session.
const FAREWELL_DEADLINE: Duration = Duration::from_secs(1);

/// Interval at which a node with a waiting batch is marked as live, and the number of intervals it may wait.
const ADMISSION_WAIT: Duration = Duration::from_millis(500);
const ADMISSION_WAITS_MAX: u32 = 240;
/// Largest `join` message, bytes: names, addresses and running ranks.
const JOIN_BYTES_MAX: usize = 256 << 10;

/// gRPC service for agents.
#[derive(Debug)]
pub(crate) struct AgentService {
    inputs: mpsc::Sender<LoopInput>,
    liveness: Arc<NodeLiveness>,
    clock: MonotonicClock,
    /// True if only recorded evidence is accepted.
    replay_only: bool,
    refusals: RefusalCounters,
    inbound: InboundBudget,
    sessions: AtomicU64,
    /// Receives the certificates of agents; `None` if enrolment is off.
    ledger: Option<EnrolmentLedger>,
    /// Places of threads that record certificates: all agents return at once after a restart, and a disk may hang.
    notes: Arc<Semaphore>,
}

impl AgentService {
    pub(crate) fn new(
        inputs: mpsc::Sender<LoopInput>,
        liveness: Arc<NodeLiveness>,
        clock: MonotonicClock,
        replay_only: bool,
        refusals: RefusalCounters,
        inbound: InboundBudget,
    ) -> Self {
        Self {
            inputs,
            liveness,
            clock,
            replay_only,
            refusals,
            inbound,
            sessions: AtomicU64::new(1),
            ledger: None,
            notes: Arc::new(Semaphore::new(NOTES_MAX)),
        }
    }

    /// Records the certificates of agents, so that a join token does not make a second one for a node that has one.
    pub(crate) fn with_ledger(self, ledger: Option<EnrolmentLedger>) -> Self {
        Self { ledger, ..self }
    }

    fn note_certificate(&self, caller: &ConnectionPeer) {
        let (Some(ledger), Some(fields)) = (self.ledger.clone(), caller.certificate.clone()) else {
            return;
        };
        let room = Arc::clone(&self.notes);
        tokio::spawn(async move {
            // Closed never.
            let _place = room.acquire_owned().await;
            let noted = spawn_blocking(move || ledger.note(node_certificate(&fields), false)).await;
            if let Ok(Err(problem)) = noted {
                warn!(%problem, "the certificate of an agent is not recorded");
            }
        });
    }
}

#[tonic::async_trait]
impl v1::control_server::Control for AgentService {
    type SessionStream = OutboundStream;

    /// Returns the response headers at once and awaits the agent's first message afterwards: a client that opens the
    /// stream before it sends anything would otherwise deadlock.
    async fn session(
        &self,
        request: Request<Streaming<v1::FromAgent>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        welcome(self.replay_only, request.metadata().contains_key(REPLAY_HEADER))?;
        let caller = ConnectionPeer::of(&request).cloned();
        let caller = caller.ok_or_else(|| Status::internal("the caller of this session is unknown"))?;
        self.note_certificate(&caller);
        let (outbound, messages) = mpsc::channel(OUTBOUND_MAX);
        let waiting = OutboundBytes::default();
        let session = AgentSession {
            id: SessionId(self.sessions.fetch_add(1, Ordering::Relaxed)),
            caller,
            refusals: self.refusals.clone(),
            replay_only: self.replay_only,
            inbound: request.into_inner(),
            outbound: outbound.clone(),
            waiting: waiting.clone(),
            budget: self.inbound.session(),
            inputs: self.inputs.clone(),
            liveness: Arc::clone(&self.liveness),
            clock: self.clock,
        };
        // Ends with its stream: when the agent disconnects, the session table closes it, or the controller ends.
        tokio::spawn(async move {
            if let Err(status) = session.run().await {
                debug!(%status, "session ended");
                let _ = timeout(FAREWELL_DEADLINE, outbound.send(Err(status))).await;
            }
        });
        let mut response = Response::new(OutboundStream::new(messages, waiting));
        if self.replay_only {
            // Replay clients send nothing to a controller without this header.
            let yes = MetadataValue::from_static("true");
            response.metadata_mut().insert(REPLAY_HEADER, yes);
        }
        Ok(response)
    }
}

/// Refuses replays on a live controller and live agents on a replay-only controller.
fn welcome(replay_only: bool, is_replay: bool) -> Result<(), Status> {
    match (replay_only, is_replay) {
        (true, false) => Err(Status::failed_precondition(
            "this controller takes replays only; a live agent belongs to one that was started without --replay-only",
        )),
        (false, true) => Err(Status::failed_precondition(
            "this controller runs a live cluster: replay into one that was started with `rankguard controller \
             --replay-only`",
        )),
        _ => Ok(()),
    }
}

/// Open stream of one agent.
struct AgentSession {
    id: SessionId,
    caller: ConnectionPeer,
    refusals: RefusalCounters,
    replay_only: bool,
    inbound: Streaming<v1::FromAgent>,
    outbound: OutboundSender,
    waiting: OutboundBytes,
    budget: SessionBudget,
    inputs: mpsc::Sender<LoopInput>,
    liveness: Arc<NodeLiveness>,
    clock: MonotonicClock,
}

impl AgentSession {
    async fn run(mut self) -> Result<(), Status> {
        let info = self.join().await?;
        let node = info.node.clone();
        if !self.caller.speaks_for(&node) {
            let what = format!("{} may not open a session for node {node}", self.caller.words());
            self.refusals.record(RefusalReason::Node, self.caller.address, &what);
            return Err(Status::permission_denied(format!(
                "{what}: it takes that node's own certificate (`rankguard identity issue --ca DIR --role agent --name {node} --out DIR`)"
            )));
        }
        let (close, mut closed) = oneshot::channel();
        let link = SessionLink {
            outbound: self.outbound.clone(),
            waiting: self.waiting.clone(),
            close,
        };
        let session = self.id;
        self.forward_input(LoopInput::Joined { session, info, link }).await?;
        let ended = loop {
            tokio::select! {
                message = self.inbound.message() => match message {
                    Ok(Some(message)) => match self.take(&node, message).await {
                        Ok(()) => {}
                        Err(status) => break Err(status),
                    },
                    Ok(None) => break Ok(()),
                    Err(status) => break Err(status),
                },
                reason = &mut closed => {
                    // The agent receives the reason whether or not the event loop takes inputs.
                    let reason = reason.unwrap_or_else(|_| stopping());
                    let _ = timeout(FAREWELL_DEADLINE, self.outbound.send(Err(reason))).await;
                    return self.forward_input(LoopInput::Left { session, node }).await;
                }
            }
        };
        if let Err(status) = &ended {
            warn!(%node, %status, "session of an agent ended");
        }
        self.forward_input(LoopInput::Left { session, node }).await?;
        ended
    }

    async fn join(&mut self) -> Result<NodeInfo, Status> {
        let first = timeout(JOIN_DEADLINE, self.inbound.message()).await;
        let first = first.map_err(|_| {
            let limit = JOIN_DEADLINE.as_secs();
            Status::deadline_exceeded(format!("a session begins with `join`, and none came within {limit} s"))
        })??;
        match first.and_then(|message| message.kind) {
            Some(Kind::Join(info)) => {
                let bytes = info.encoded_len();
                if bytes > JOIN_BYTES_MAX {
                    let text = format!("`join` has {bytes} bytes; at most {JOIN_BYTES_MAX} are taken");
                    return Err(Status::invalid_argument(text));
                }
                let info = NodeInfo::try_from(info).map_err(|e| Status::invalid_argument(e.to_string()))?;
                // Recorded evidence has arbitrary node names, such as the path of a file.
                match join::problem(&info).filter(|_| !self.replay_only) {
                    Some(problem) => Err(Status::invalid_argument(format!("cannot take the join: {problem}"))),
                    None => Ok(info),
                }
            }
            _ => Err(Status::failed_precondition("a session begins with `join`")),
        }
    }

    async fn take(&mut self, node: &NodeId, message: v1::FromAgent) -> Result<(), Status> {
        let now = self.clock.now();
        self.liveness.record_message(node, now);
        match message.kind {
            Some(Kind::Heartbeat(heartbeat)) => {
                let echo = v1::HeartbeatEcho {
                    sent_ns: heartbeat.sent_ns,
                    controller_ns: now.0,
                };
                let kind = Some(v1::to_agent::Kind::Echo(echo));
                // A delayed echo would measure the queue and not the clock, so it is dropped.
                let message = v1::ToAgent { kind };
                let bytes = message.encoded_len();
                self.waiting.add(bytes);
                if self.outbound.try_send(Ok(message)).is_err() {
                    self.waiting.subtract(bytes);
                }
                Ok(())
            }
            Some(Kind::Evidence(batch)) => {
                let permit = self.admit(node, &batch).await?;
                let read = batch.evidence.into_iter().map(|one| read_evidence(node, one, now));
                let evidence = read.collect::<Result<Vec<_>, _>>()?;
                let session = self.id;
                let node = node.clone();
                self.forward_input(LoopInput::Evidence {
                    session,
                    node,
                    evidence,
                    permit,
                })
                .await
            }
            Some(Kind::Join(_)) => Err(Status::failed_precondition("`join` comes once, first")),
            // Message kind of a newer agent: this version can ignore it without loss.
            None => Ok(()),
        }
    }

    /// Waits for room. Later messages of the stream, including heartbeats, are not read meanwhile, so the node is
    /// marked as live: agents that resend their backlog after an outage must not be declared lost.
    async fn admit(&self, node: &NodeId, batch: &v1::EvidenceBatch) -> Result<InboundPermit, Status> {
        let admit = self.budget.admit(batch, batch.encoded_len());
        tokio::pin!(admit);
        for _ in 0..ADMISSION_WAITS_MAX {
            if let Ok(permit) = timeout(ADMISSION_WAIT, admit.as_mut()).await {
                self.liveness.record_message(node, self.clock.now());
                return permit;
            }
            self.liveness.record_message(node, self.clock.now());
        }
        Err(Status::resource_exhausted(
            "the controller has had no room for evidence for too long; join again",
        ))
    }

    async fn forward_input(&self, input: LoopInput) -> Result<(), Status> {
        self.inputs.send(input).await.map_err(|_| stopping())
    }
}

pub(crate) fn stopping() -> Status {
    Status::unavailable("the controller is stopping")
}

/// Converts evidence from the wire. Unreadable evidence becomes a gap in its place, so that it is neither lost silently
/// (RG-4) nor resent without end; without a sequence number the session ends.
fn read_evidence(node: &NodeId, message: v1::Evidence, now: Timestamp) -> Result<Evidence, Status> {
    let id = message.id.clone();
    let read = Evidence::try_from(message).map_err(|problem| problem.to_string());
    let evidence = match read.and_then(limit_evidence) {
        Ok(evidence) => evidence,
        Err(problem) => match id.map(EvidenceId::try_from) {
            Some(Ok(id)) => {
                let what = format!("evidence {} of node {node} could not be read: {problem}", id.seq);
                warn!(%node, "{what}");
                gap(id, now, what, 1)
            }
            _ => return Err(Status::invalid_argument(problem)),
        },
    };
    if evidence.id.node != *node {
        let other = &evidence.id.node;
        return Err(Status::invalid_argument(format!(
            "evidence of node {other} in a session of node {node}"
        )));
    }
    Ok(evidence)
}

#[cfg(test)]
mod tests {
    use rankguard_model::{Entity, EvidenceBody, EvidenceSource, Sequence};

    use super::*;

    fn message() -> v1::Evidence {
        v1::Evidence::from(&Evidence {
            id: EvidenceId {
                node: NodeId::from("n1"),
                seq: Sequence(7),
            },
            at: Timestamp(1),
            source: EvidenceSource::Gpu,
            entity: Entity::Unknown,
            body: EvidenceBody::RankFinished,
            marks: Vec::new(),
            synthetic: false,
        })
    }

    #[test]
    fn rg_4_evidence_that_cannot_be_read_becomes_a_gap_in_its_place() {
        let node = NodeId::from("n1");
        let mut spoilt = message();
        spoilt.source = 77;
        let evidence = read_evidence(&node, spoilt, Timestamp(9)).expect("it has a sequence number");
        assert_eq!(evidence.id.seq, Sequence(7));
        assert_eq!(evidence.at, Timestamp(9));
        let EvidenceBody::Gap { what, lost } = evidence.body else {
            panic!("{:?}", evidence.body)
        };
        assert_eq!(lost, Some(1));
        assert!(what.contains("`source`: value 77"), "{what}");
    }

    #[test]
    fn evidence_without_a_place_ends_the_session() {
        let node = NodeId::from("n1");
        let mut spoilt = message();
        spoilt.id = None;
        let status = read_evidence(&node, spoilt, Timestamp(9)).expect_err("no sequence number");
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
    }

    #[test]
    fn a_node_speaks_only_for_itself() {
        let status = read_evidence(&NodeId::from("n2"), message(), Timestamp(9)).expect_err("another node's");
        assert_eq!(status.message(), "evidence of node n1 in a session of node n2");
    }
}
