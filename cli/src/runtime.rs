//! Tokio runtime of async commands.

use std::future::Future;
use std::time::Duration;

use rankguard_identity::PeerTransport;
use tokio::runtime::{Builder, Runtime};

use crate::error::CliError;

/// Builds a runtime with two worker threads.
pub(crate) fn build() -> Result<Runtime, CliError> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|problem| {
        CliError::failure(
            "cannot start the runtime",
            "check the limits of processes and threads (`ulimit -u`)",
        )
        .because(problem)
    })
}

/// Runs a future to completion on this thread.
pub(crate) fn block_on<F: Future>(work: F) -> Result<F::Output, CliError> {
    let runtime = build()?;
    let output = runtime.block_on(work);
    // A task blocked in a system call must not keep a finished command from ending.
    runtime.shutdown_timeout(Duration::from_secs(2));
    Ok(output)
}

/// Reloads the identity files. A failure is logged and the current identity stays in use.
pub(crate) async fn reload_identity(network: PeerTransport) {
    if let Err(problem) = tokio::task::spawn_blocking(move || network.reload()).await {
        tracing::error!(%problem, "cannot reload the identity");
    }
}
