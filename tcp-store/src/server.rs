//! Server of a store: one thread, on which each connection is a task.

mod connection;
mod hub;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::StoreLimits;
use connection::ClientConnection;
use hub::StoreHub;

/// Pause after a failed accept, for which missing file descriptors are the usual cause.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Present figures of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreFigures {
    pub connections: usize,
    /// Keys with a value and non-empty queues.
    pub keys: usize,
    /// Bytes of keys, values, queues and waits.
    pub stored_bytes: usize,
    /// Bytes of received requests and unsent replies.
    pub buffered_bytes: usize,
    /// Requests since the start.
    pub requests: u64,
    /// Connections that were closed for a violation or a limit since the start.
    pub closed_connections: u64,
    /// Reason for the last of them.
    pub last_reason: Option<String>,
}

/// Running store. It ends when the handle is dropped.
#[derive(Debug)]
pub struct StoreHandle {
    hub: Arc<Mutex<StoreHub>>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// Serves a store on a bound listener, on a thread of its own.
pub fn serve(listener: std::net::TcpListener, limits: StoreLimits) -> io::Result<StoreHandle> {
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let listener = {
        let _context = runtime.enter();
        TcpListener::from_std(listener)?
    };
    let hub = Arc::new(Mutex::new(StoreHub::new(limits)));
    let (stop, stopped) = watch::channel(false);
    let served = Arc::clone(&hub);
    let thread = std::thread::Builder::new()
        .name("tcp-store".to_owned())
        .spawn(move || runtime.block_on(accept(listener, served, stopped)))?;
    Ok(StoreHandle {
        hub,
        address,
        stop,
        thread: Some(thread),
    })
}

impl StoreHandle {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn figures(&self) -> StoreFigures {
        lock(&self.hub).figures()
    }

    /// Removes all keys and queues with this prefix and returns their number. Clients of torch put `/` before each key.
    pub fn remove_prefix(&self, prefix: &[u8]) -> usize {
        lock(&self.hub).remove_prefix(prefix)
    }

    /// Closes the listener and all connections, and waits for the end of the thread.
    pub fn shutdown(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has closed all connections, too.
            let _ = thread.join();
        }
    }
}

impl Drop for StoreHandle {
    fn drop(&mut self) {
        self.end();
    }
}

/// Accepts connections until `stopped` is set.
async fn accept(listener: TcpListener, hub: Arc<Mutex<StoreHub>>, mut stopped: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => break,
            _ = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                // Without this option replies are later, but still right.
                let _ = stream.set_nodelay(true);
                if let Some(connection) = ClientConnection::open(stream, &hub) {
                    connections.spawn(connection.run());
                }
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
    connections.shutdown().await;
}

/// Locks the state; a panic in another holder leaves it usable, since replies and requests are whole.
fn lock(hub: &Mutex<StoreHub>) -> MutexGuard<'_, StoreHub> {
    hub.lock().unwrap_or_else(PoisonError::into_inner)
}
