//! Task of a connection.

use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::hub::{ClientSocket, CloseReason, StoreHub, TurnEnd};
use super::lock;
use crate::state::ClientId;
use crate::wire::RequestDecoder;

/// Connection of a client; its drop removes the client from the store.
pub(super) struct ClientConnection {
    hub: Arc<Mutex<StoreHub>>,
    peer: Arc<ClientSocket>,
    client: ClientId,
    decoder: RequestDecoder,
}

impl ClientConnection {
    /// Registers a connection, unless there are too many.
    pub(super) fn open(stream: TcpStream, hub: &Arc<Mutex<StoreHub>>) -> Option<Self> {
        let wake = Notify::new();
        let peer = Arc::new(ClientSocket { stream, wake });
        let mut locked = lock(hub);
        let client = locked.connect(&peer)?;
        let decoder = RequestDecoder::new(locked.limits().clone());
        drop(locked);
        Some(Self {
            hub: Arc::clone(hub),
            peer,
            client,
            decoder,
        })
    }

    /// Serves the connection until its client closes it or loses it.
    pub(super) async fn run(mut self) {
        // A client that has gone is no event.
        if let Ok(Err(reason)) = self.serve().await {
            lock(&self.hub).record(&reason);
        }
    }

    /// Returns an I/O error or the end of the stream as `Err` and `Ok(Ok)`, and a reason of the server as `Ok(Err)`.
    async fn serve(&mut self) -> io::Result<Result<(), CloseReason>> {
        let (validation, backlog_limit) = {
            let hub = lock(&self.hub);
            (hub.limits().validation, hub.limits().backlog_bytes)
        };
        let mut deadline = pin!(tokio::time::sleep(validation));
        let mut has_more = false;
        loop {
            let Some(backlog) = lock(&self.hub).backlog(self.client) else {
                return Ok(Ok(()));
            };
            let may_work = backlog <= backlog_limit;
            if may_work && !has_more {
                match self.read() {
                    Ok(Ok(0)) => return Ok(Ok(())),
                    Ok(Ok(_)) => has_more = true,
                    Ok(Err(reason)) => return Ok(Err(reason)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            if may_work && has_more {
                match lock(&self.hub).take_turn(self.client, &mut self.decoder) {
                    Ok(end) => has_more = end == TurnEnd::More,
                    Err(reason) => return Ok(Err(reason)),
                }
                if has_more {
                    tokio::task::yield_now().await;
                }
                continue;
            }
            let is_validated = self.decoder.is_validated();
            tokio::select! {
                ready = self.peer.stream.readable(), if may_work => ready?,
                ready = self.peer.stream.writable(), if backlog > 0 => {
                    ready?;
                    lock(&self.hub).flush(self.client);
                }
                () = self.peer.wake.notified() => {}
                () = deadline.as_mut(), if !is_validated => return Ok(Err(CloseReason::ValidationLate)),
            }
        }
    }

    /// Reads what the socket has; 0 is the end of the stream.
    fn read(&mut self) -> io::Result<Result<usize, CloseReason>> {
        let wanted = self.decoder.wanted_capacity();
        if wanted > self.decoder.capacity()
            && let Err(reason) = lock(&self.hub).admit_decoder(self.client, wanted)
        {
            return Ok(Err(reason));
        }
        let before = self.decoder.capacity();
        let read = self.peer.stream.try_read_buf(self.decoder.read_buffer());
        if self.decoder.capacity() != before {
            lock(&self.hub).resize_decoder(self.client, self.decoder.capacity());
        }
        read.map(Ok)
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        lock(&self.hub).disconnect(self.client);
    }
}
