//! Session table: at most one session per node.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};

use rankguard_model::NodeId;
use rankguard_proto::v1::to_agent::Kind;
use rankguard_proto::{Message, v1};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tonic::Status;
use tracing::warn;

/// Messages that may wait for one agent. When the queue is full the agent does not read: its session is closed, and it
/// receives the missed orders when it joins again.
pub(crate) const OUTBOUND_MAX: usize = 256;

/// Bytes that may wait for one agent; beyond them its session is closed as well.
pub(crate) const OUTBOUND_BYTES_MAX: usize = 16 << 20;

/// Sender of messages to an agent.
pub(crate) type OutboundSender = mpsc::Sender<Result<v1::ToAgent, Status>>;

/// Session number within one controller start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionId(pub(crate) u64);

/// Controller's end of a session.
#[derive(Debug)]
pub(crate) struct SessionLink {
    pub(crate) outbound: OutboundSender,
    /// Bytes that wait in `outbound`.
    pub(crate) waiting: OutboundBytes,
    /// Ends the session with a reason; dropping it ends the session as well.
    pub(crate) close: oneshot::Sender<Status>,
}

#[derive(Debug)]
struct SessionEntry {
    session: SessionId,
    /// Incarnation of the agent.
    incarnation: String,
    link: SessionLink,
    /// True once `Joined` was sent, which precedes any order.
    welcomed: bool,
}

/// Sessions by node.
#[derive(Debug, Default)]
pub(crate) struct SessionTable {
    seats: BTreeMap<NodeId, SessionEntry>,
    /// Sessions with a connection that a message found closed, with the incarnations of their agents, until each reports its
    /// end.
    cut_off: BTreeMap<NodeId, (SessionId, String)>,
}

impl SessionTable {
    /// Registers a new session of a node. An older one is closed, and its further messages are ignored.
    pub(crate) fn register_session(&mut self, node: &NodeId, session: SessionId, incarnation: &str, link: SessionLink) {
        let seat = SessionEntry {
            session,
            incarnation: incarnation.to_owned(),
            link,
            welcomed: false,
        };
        self.cut_off.remove(node);
        if let Some(old) = self.seats.insert(node.clone(), seat) {
            close(old, Status::aborted(format!("node {node} has opened another session")));
        }
    }

    /// Returns true if this is the current session of the node.
    pub(crate) fn is_current(&self, node: &NodeId, session: SessionId) -> bool {
        self.seats.get(node).is_some_and(|seat| seat.session == session)
    }

    /// Returns true if the current session of the node belongs to another agent.
    pub(crate) fn is_held_by_other(&self, node: &NodeId, incarnation: &str) -> bool {
        self.seats.get(node).is_some_and(|seat| seat.incarnation != incarnation)
    }

    /// Returns the number of connected nodes.
    pub(crate) fn len(&self) -> usize {
        self.seats.len()
    }

    /// Removes a session that has ended. Returns true if it was the newest of its node and its end was not expected: neither
    /// was it closed for a reason that the decision core knows, nor has another one replaced it.
    pub(crate) fn leave(&mut self, node: &NodeId, session: SessionId) -> bool {
        if self.is_current(node, session) {
            return self.seats.remove(node).is_some();
        }
        let is_cut_off = self.cut_off.get(node).is_some_and(|(known, _)| *known == session);
        is_cut_off && self.cut_off.remove(node).is_some()
    }

    /// Returns true if a session of another agent of the node was cut off and has not reported its end.
    pub(crate) fn has_cut_off_other(&self, node: &NodeId, incarnation: &str) -> bool {
        self.cut_off.get(node).is_some_and(|(_, known)| known != incarnation)
    }

    /// Returns the nodes with a session.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        self.seats.keys().cloned().collect()
    }

    /// Returns true if the node has a session.
    pub(crate) fn is_seated(&self, node: &NodeId) -> bool {
        self.seats.contains_key(node)
    }

    /// Closes the session of a node, if there is one.
    pub(crate) fn close(&mut self, node: &NodeId, reason: Status) {
        if let Some(seat) = self.seats.remove(node) {
            close(seat, reason);
        }
    }

    /// Closes all sessions.
    pub(crate) fn close_all(&mut self, reason: &Status) {
        for (_, seat) in std::mem::take(&mut self.seats) {
            close(seat, reason.clone());
        }
    }

    /// Sends the first message of a session and permits orders after it.
    pub(crate) fn welcome(&mut self, node: &NodeId, session: SessionId, joined: v1::Joined) {
        if let Some(seat) = self.seats.get_mut(node).filter(|seat| seat.session == session) {
            seat.welcomed = true;
            self.send(node, Kind::Joined(joined));
        }
    }

    /// Sends a message to a node. Returns false if the node has no open session: the message is dropped.
    pub(crate) fn send(&mut self, node: &NodeId, kind: Kind) -> bool {
        let Some(seat) = self.seats.get(node).filter(|seat| seat.welcomed) else {
            return false;
        };
        let message = v1::ToAgent { kind: Some(kind) };
        let bytes = message.encoded_len();
        if seat.link.waiting.get() + bytes > OUTBOUND_BYTES_MAX.max(bytes) {
            warn!(%node, bytes = OUTBOUND_BYTES_MAX, "agent does not read its messages; its session is closed");
            let reason = format!("messages of {OUTBOUND_BYTES_MAX} bytes wait and are not read; join again");
            self.close(node, Status::resource_exhausted(reason));
            return false;
        }
        // Counted before sending, because the stream may take the message at once.
        seat.link.waiting.add(bytes);
        match seat.link.outbound.try_send(Ok(message)) {
            Ok(()) => true,
            Err(TrySendError::Closed(_)) => {
                self.cut_off(node);
                false
            }
            Err(TrySendError::Full(_)) => {
                warn!(%node, waiting = OUTBOUND_MAX, "agent does not read its messages; its session is closed");
                let reason = format!("{OUTBOUND_MAX} messages wait and are not read; join again");
                self.close(node, Status::resource_exhausted(reason));
                false
            }
        }
    }

    /// Removes a session with a closed connection. It reports its end as the others do.
    fn cut_off(&mut self, node: &NodeId) {
        if let Some(seat) = self.seats.remove(node) {
            self.cut_off.insert(node.clone(), (seat.session, seat.incarnation));
        }
    }
}

/// Bytes that wait in a channel; clones share the count.
#[derive(Debug, Clone, Default)]
pub(crate) struct OutboundBytes(Arc<AtomicI64>);

impl OutboundBytes {
    fn get(&self) -> usize {
        usize::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(0)
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as i64, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, bytes: usize) {
        self.0.fetch_sub(bytes as i64, Ordering::Relaxed);
    }
}

/// Stream of messages to an agent; a message counts as waiting until it is taken.
#[derive(Debug)]
pub(crate) struct OutboundStream {
    messages: mpsc::Receiver<Result<v1::ToAgent, Status>>,
    waiting: OutboundBytes,
}

impl OutboundStream {
    pub(crate) fn new(messages: mpsc::Receiver<Result<v1::ToAgent, Status>>, waiting: OutboundBytes) -> Self {
        Self { messages, waiting }
    }
}

impl Stream for OutboundStream {
    type Item = Result<v1::ToAgent, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.messages.poll_recv(context);
        if let Poll::Ready(Some(Ok(message))) = &next {
            self.waiting.subtract(message.encoded_len());
        }
        next
    }
}

fn close(seat: SessionEntry, reason: Status) {
    // A session that has ended meanwhile needs no reason.
    let _ = seat.link.close.send(reason);
}

#[cfg(test)]
mod tests {
    use super::*;

    type OutboundSender = mpsc::Receiver<Result<v1::ToAgent, Status>>;

    fn link() -> (SessionLink, OutboundSender, oneshot::Receiver<Status>) {
        let (outbound, messages) = mpsc::channel(OUTBOUND_MAX);
        let (close, closed) = oneshot::channel();
        let link = SessionLink {
            outbound,
            waiting: OutboundBytes::default(),
            close,
        };
        (link, messages, closed)
    }

    fn ack(sequence: u64) -> Kind {
        Kind::Ack(v1::EvidenceAck { sequence, position: 0 })
    }

    fn joined() -> v1::Joined {
        v1::Joined {
            acknowledged: 0,
            silence_limit_ms: 1,
            ..v1::Joined::default()
        }
    }

    #[test]
    fn nothing_goes_out_before_the_welcome() {
        let node = NodeId::from("n1");
        let mut roster = SessionTable::default();
        let (link, mut messages, _closed) = link();
        roster.register_session(&node, SessionId(1), "1", link);
        assert!(!roster.send(&node, ack(1)));
        roster.welcome(&node, SessionId(1), joined());
        assert!(roster.send(&node, ack(2)));
        let kinds: Vec<_> = std::iter::from_fn(|| messages.try_recv().ok())
            .map(|message| message.expect("no status").kind)
            .collect();
        assert_eq!(kinds, [Some(Kind::Joined(joined())), Some(ack(2))]);
    }

    #[test]
    fn a_new_session_closes_the_old_one_and_outlives_its_end() {
        let node = NodeId::from("n1");
        let mut roster = SessionTable::default();
        let ((first, _first_messages, mut first_closed), (second, _messages, _closed)) = (link(), link());
        roster.register_session(&node, SessionId(1), "1", first);
        roster.register_session(&node, SessionId(2), "1", second);
        assert_eq!(first_closed.try_recv().expect("a reason").code(), tonic::Code::Aborted);
        roster.leave(&node, SessionId(1));
        assert!(roster.is_current(&node, SessionId(2)));
    }

    #[test]
    fn rg_9_bytes_that_wait_are_bounded_and_those_that_were_taken_do_not_count() {
        let node = NodeId::from("n1");
        let mut roster = SessionTable::default();
        let (link, messages, mut closed) = link();
        let mut stream = OutboundStream::new(messages, link.waiting.clone());
        roster.register_session(&node, SessionId(1), "1", link);
        roster.welcome(&node, SessionId(1), joined());
        let large = || {
            let order = rankguard_model::AgentOrder::Stop {
                job: "j".repeat(OUTBOUND_BYTES_MAX / 4).into(),
                generation: rankguard_model::Generation(1),
                grace_ms: 1,
                keeps_images: false,
            };
            Kind::Order(v1::OrderFrame {
                id: 1,
                order: Some((&order).into()),
                life: 0,
            })
        };
        let mut context = Context::from_waker(std::task::Waker::noop());
        for _ in 0..20 {
            assert!(roster.send(&node, large()));
            while Pin::new(&mut stream).poll_next(&mut context).is_ready() {}
        }
        let sent = (0..5).filter(|_| roster.send(&node, large())).count();
        assert_eq!(sent, 3);
        assert_eq!(
            closed.try_recv().expect("a reason").code(),
            tonic::Code::ResourceExhausted
        );
    }

    /// An agent that was killed: the controller sends it a message before it receives the end of the connection.
    #[test]
    fn a_session_that_a_message_did_not_reach_still_reports_its_end_once() {
        let node = NodeId::from("n1");
        let mut roster = SessionTable::default();
        let (link, messages, mut closed) = link();
        roster.register_session(&node, SessionId(1), "1", link);
        roster.welcome(&node, SessionId(1), joined());
        drop(messages);
        assert!(!roster.send(&node, ack(1)));
        assert!(!roster.is_seated(&node));
        assert!(closed.try_recv().is_err(), "its task ends without a reason");
        assert!(roster.has_cut_off_other(&node, "2") && !roster.has_cut_off_other(&node, "1"));
        assert!(roster.leave(&node, SessionId(1)));
        assert!(!roster.leave(&node, SessionId(1)));
    }

    #[test]
    fn the_end_of_a_session_that_another_replaced_or_the_controller_closed_is_expected() {
        let node = NodeId::from("n1");
        let mut roster = SessionTable::default();
        let ((first, first_messages, _), (second, _messages, _closed)) = (link(), link());
        roster.register_session(&node, SessionId(1), "1", first);
        roster.welcome(&node, SessionId(1), joined());
        drop(first_messages);
        assert!(!roster.send(&node, ack(1)));
        roster.register_session(&node, SessionId(2), "1", second);
        assert!(!roster.leave(&node, SessionId(1)));
        roster.close(&node, Status::unavailable("silent for too long; join again"));
        assert!(!roster.leave(&node, SessionId(2)));
    }

    #[test]
    fn an_agent_that_does_not_read_loses_its_session() {
        let node = NodeId::from("n1");
        let mut roster = SessionTable::default();
        let (link, _messages, mut closed) = link();
        roster.register_session(&node, SessionId(1), "1", link);
        roster.welcome(&node, SessionId(1), joined());
        let sent = (1..=OUTBOUND_MAX as u64 + 5)
            .filter(|sequence| roster.send(&node, ack(*sequence)))
            .count();
        assert_eq!(sent, OUTBOUND_MAX - 1);
        assert_eq!(
            closed.try_recv().expect("a reason").code(),
            tonic::Code::ResourceExhausted
        );
    }
}
