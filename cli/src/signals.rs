//! Signals as futures: SIGINT and SIGTERM stop the program, SIGHUP reloads files.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT and SIGTERM, caught since construction.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Installs the handlers: the signals no longer end the process by themselves.
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal and returns its name.
    pub(crate) async fn wait(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

/// SIGHUP, caught since construction.
pub(crate) struct HangupSignal(Signal);

impl HangupSignal {
    /// Installs the handler: the signal no longer ends the process.
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self(signal(SignalKind::hangup())?))
    }

    /// Waits for the next SIGHUP.
    pub(crate) async fn wait(&mut self) {
        self.0.recv().await;
    }
}
