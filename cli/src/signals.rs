//! Signals as something to wait for: SIGINT and SIGTERM end, SIGHUP reads again.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both signals, caught from its making on.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// From now on the signals no longer end the process by themselves.
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next one; its name.
    pub(crate) async fn wait(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

/// SIGHUP, caught from its making on.
pub(crate) struct Hangup(Signal);

impl Hangup {
    /// From now on the signal no longer ends the process.
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self(signal(SignalKind::hangup())?))
    }

    /// Waits for the next one.
    pub(crate) async fn wait(&mut self) {
        self.0.recv().await;
    }
}
