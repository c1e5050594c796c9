//! State that all connections share: the store, and the unsent replies of each client.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::StoreFigures;
use crate::StoreLimits;
use crate::state::{ClientId, ReplySink, RequestRefusal, StoreState};
use crate::wire::{ProtocolViolation, RequestDecoder, StoreReply};

/// Requests of one connection that are carried out before others have their turn.
const TURN_REQUESTS: usize = 64;
/// Capacity above which the empty buffer of replies is freed.
const IDLE_BYTES: usize = 16 << 10;

/// Reason for which the server closes a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum CloseReason {
    #[error(transparent)]
    Violation(#[from] ProtocolViolation),
    #[error(transparent)]
    Refusal(#[from] RequestRefusal),
    #[error("connections would buffer {bytes} bytes")]
    BuffersFull { bytes: usize },
    #[error("{connections} connections are open")]
    TooManyConnections { connections: usize },
    #[error("no VALIDATE request in time")]
    ValidationLate,
}

/// Socket of a connection, to which also other connections write.
#[derive(Debug)]
pub(super) struct ClientSocket {
    pub(super) stream: TcpStream,
    /// Wakes the connection's task: replies are unsent, or the socket has failed.
    pub(super) wake: Notify,
}

/// Buffers of a connection.
#[derive(Debug)]
struct ClientBuffers {
    peer: Arc<ClientSocket>,
    /// Encoded replies.
    unsent: Vec<u8>,
    /// Bytes of `unsent` that have been sent already.
    sent: usize,
    /// Capacity of the decoder.
    received_bytes: usize,
    /// The socket has failed, or the connection was closed in favor of others.
    has_failed: bool,
}

impl ClientBuffers {
    fn bytes(&self) -> usize {
        self.unsent.capacity() + self.received_bytes
    }
}

/// Buffers of all connections.
#[derive(Debug, Default)]
struct BufferTable {
    clients: BTreeMap<ClientId, ClientBuffers>,
    /// Clients with new replies.
    touched: Vec<ClientId>,
    /// Bytes of all buffers.
    bytes: usize,
}

impl ReplySink for BufferTable {
    fn send(&mut self, to: ClientId, reply: &StoreReply<'_>) {
        let Some(buffers) = self.clients.get_mut(&to).filter(|buffers| !buffers.has_failed) else {
            return;
        };
        let before = buffers.unsent.capacity();
        if buffers.unsent.len() == buffers.sent {
            self.touched.push(to);
        }
        reply.encode(&mut buffers.unsent);
        self.bytes = self.bytes - before + buffers.unsent.capacity();
    }
}

impl BufferTable {
    /// Number of unsent bytes to a client; `None` if its connection has ended.
    fn backlog(&self, client: ClientId) -> Option<usize> {
        let buffers = self.clients.get(&client)?;
        (!buffers.has_failed).then(|| buffers.unsent.len() - buffers.sent)
    }

    /// Sends what a socket accepts.
    fn flush(&mut self, client: ClientId) {
        let Some(buffers) = self.clients.get_mut(&client) else {
            return;
        };
        while buffers.sent < buffers.unsent.len() {
            match buffers.peer.stream.try_write(&buffers.unsent[buffers.sent..]) {
                Ok(bytes) => buffers.sent += bytes,
                Err(error) => {
                    buffers.has_failed = error.kind() != io::ErrorKind::WouldBlock;
                    buffers.peer.wake.notify_one();
                    return;
                }
            }
        }
        buffers.unsent.clear();
        buffers.sent = 0;
        if buffers.unsent.capacity() > IDLE_BYTES {
            self.bytes -= buffers.unsent.capacity();
            buffers.unsent = Vec::new();
        }
    }

    fn flush_touched(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for client in touched.drain(..) {
            self.flush(client);
        }
        self.touched = touched;
    }

    /// Returns the client with the most buffered bytes.
    fn largest(&self) -> Option<(ClientId, usize)> {
        let open = self.clients.iter().filter(|(_, buffers)| !buffers.has_failed);
        open.map(|(client, buffers)| (*client, buffers.bytes()))
            .max_by_key(|(_, bytes)| *bytes)
    }

    /// Ends a connection and frees its replies; its task frees the rest at once.
    fn evict(&mut self, client: ClientId) {
        if let Some(buffers) = self.clients.get_mut(&client) {
            self.bytes -= buffers.bytes();
            buffers.unsent = Vec::new();
            buffers.sent = 0;
            buffers.received_bytes = 0;
            buffers.has_failed = true;
            buffers.peer.wake.notify_one();
        }
    }

    fn remove(&mut self, client: ClientId) {
        if let Some(buffers) = self.clients.remove(&client) {
            self.bytes -= buffers.bytes();
        }
    }
}

/// Progress of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnEnd {
    /// All complete requests are carried out.
    Drained,
    /// Requests are left for the next turn.
    More,
}

/// Store, buffers and figures.
#[derive(Debug)]
pub(super) struct StoreHub {
    limits: StoreLimits,
    store: StoreState,
    buffers: BufferTable,
    next_client: u64,
    requests: u64,
    closed_connections: u64,
    last_reason: Option<String>,
}

impl StoreHub {
    pub(super) fn new(limits: StoreLimits) -> Self {
        Self {
            store: StoreState::new(limits.clone()),
            limits,
            buffers: BufferTable::default(),
            next_client: 0,
            requests: 0,
            closed_connections: 0,
            last_reason: None,
        }
    }

    pub(super) fn limits(&self) -> &StoreLimits {
        &self.limits
    }

    pub(super) fn figures(&self) -> StoreFigures {
        StoreFigures {
            connections: self.buffers.clients.len(),
            keys: self.store.keys(),
            stored_bytes: self.store.stored_bytes(),
            buffered_bytes: self.buffers.bytes,
            requests: self.requests,
            closed_connections: self.closed_connections,
            last_reason: self.last_reason.clone(),
        }
    }

    pub(super) fn remove_prefix(&mut self, prefix: &[u8]) -> usize {
        self.store.remove_prefix(prefix)
    }

    /// Registers a connection, unless there are too many.
    pub(super) fn connect(&mut self, peer: &Arc<ClientSocket>) -> Option<ClientId> {
        let connections = self.buffers.clients.len();
        if connections >= self.limits.connections {
            self.record(&CloseReason::TooManyConnections { connections });
            return None;
        }
        let client = ClientId(self.next_client);
        self.next_client += 1;
        let buffers = ClientBuffers {
            peer: Arc::clone(peer),
            unsent: Vec::new(),
            sent: 0,
            received_bytes: 0,
            has_failed: false,
        };
        self.buffers.clients.insert(client, buffers);
        Some(client)
    }

    /// Forgets a connection and its waits.
    pub(super) fn disconnect(&mut self, client: ClientId) {
        self.buffers.remove(client);
        self.store.disconnect(client, &mut self.buffers);
        self.buffers.flush_touched();
    }

    /// Counts a connection that the server closes.
    pub(super) fn record(&mut self, reason: &CloseReason) {
        self.closed_connections += 1;
        self.last_reason = Some(reason.to_string());
    }

    /// Makes room for a decoder that will have this capacity.
    pub(super) fn admit_decoder(&mut self, client: ClientId, capacity: usize) -> Result<(), CloseReason> {
        let present = self
            .buffers
            .clients
            .get(&client)
            .map_or(0, |buffers| buffers.received_bytes);
        self.admit(client, capacity.saturating_sub(present))
    }

    /// Counts the present capacity of a decoder.
    pub(super) fn resize_decoder(&mut self, client: ClientId, capacity: usize) {
        if let Some(buffers) = self.buffers.clients.get_mut(&client)
            && !buffers.has_failed
        {
            self.buffers.bytes = self.buffers.bytes - buffers.received_bytes + capacity;
            buffers.received_bytes = capacity;
        }
    }

    /// Carries out requests of a client and sends what they cause.
    pub(super) fn take_turn(&mut self, client: ClientId, decoder: &mut RequestDecoder) -> Result<TurnEnd, CloseReason> {
        let end = self.execute(client, decoder);
        self.buffers.flush_touched();
        end
    }

    /// Number of unsent bytes to a client; `None` if its connection has ended.
    pub(super) fn backlog(&self, client: ClientId) -> Option<usize> {
        self.buffers.backlog(client)
    }

    /// Sends what a socket accepts.
    pub(super) fn flush(&mut self, client: ClientId) {
        self.buffers.flush(client);
    }

    fn execute(&mut self, client: ClientId, decoder: &mut RequestDecoder) -> Result<TurnEnd, CloseReason> {
        for _ in 0..TURN_REQUESTS {
            let Some(request) = decoder.next_request()? else {
                return Ok(TurnEnd::Drained);
            };
            self.requests += 1;
            self.store.execute(client, &request, &mut self.buffers)?;
            self.admit(client, 0)?;
            if self
                .backlog(client)
                .is_none_or(|bytes| bytes > self.limits.backlog_bytes)
            {
                break;
            }
        }
        Ok(TurnEnd::More)
    }

    /// Makes room for more bytes of a client: closes connections that buffer more than it would, the largest first.
    fn admit(&mut self, client: ClientId, more: usize) -> Result<(), CloseReason> {
        let own = self.buffers.clients.get(&client).map_or(0, ClientBuffers::bytes);
        while self.buffers.bytes + more > self.limits.buffered_bytes {
            let bytes = self.buffers.bytes + more;
            let reason = CloseReason::BuffersFull { bytes };
            match self.buffers.largest() {
                Some((largest, bytes)) if largest != client && bytes > own + more => {
                    self.buffers.evict(largest);
                    self.record(&reason);
                }
                _ => return Err(reason),
            }
        }
        Ok(())
    }
}
