//! Accept loop: connections bounded in number and time.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Pause after a failed accept (for example with too many open files), to avoid a busy loop.
const PAUSE: Duration = Duration::from_millis(100);

/// Source of incoming connections.
pub(crate) trait ConnectionSource {
    type Stream;

    /// Accepts the next connection.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl ConnectionSource for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

impl ConnectionSource for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

/// Serves at most `most` connections at a time, each for at most `deadline`; further ones wait in the kernel's
/// backlog. Never returns; dropping it drops all its connections.
pub(crate) async fn attend<L, F>(listener: L, most: usize, deadline: Duration, answer: impl Fn(L::Stream) -> F)
where
    L: ConnectionSource,
    F: Future<Output = ()> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(most));
    let mut open = JoinSet::new();
    loop {
        while open.try_join_next().is_some() {}
        let Ok(permit) = room.clone().acquire_owned().await else {
            return;
        };
        match listener.next().await {
            Ok(stream) => {
                let answered = tokio::time::timeout(deadline, answer(stream));
                open.spawn(async move {
                    let _ = answered.await;
                    drop(permit);
                });
            }
            Err(problem) => {
                tracing::debug!(%problem, "cannot take a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
