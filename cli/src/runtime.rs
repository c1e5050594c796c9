//! The runtime of commands that wait.

use std::future::Future;
use std::time::Duration;

use rankguard_identity::Network;
use tokio::runtime::{Builder, Runtime};

use crate::error::CliError;

/// A runtime for a command.
pub(crate) fn build() -> Result<Runtime, CliError> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|problem| {
        CliError::failure("cannot start the runtime", "are there too many processes or threads?").because(problem)
    })
}

/// Runs something that waits, on this thread.
pub(crate) fn block_on<F: Future>(work: F) -> Result<F::Output, CliError> {
    let runtime = build()?;
    let output = runtime.block_on(work);
    // What is still blocked in a system call must not keep a finished command from ending.
    runtime.shutdown_timeout(Duration::from_secs(2));
    Ok(output)
}

/// Reads the files of the identity again. What cannot be used is logged and changes nothing.
pub(crate) async fn reload_identity(network: Network) {
    if let Err(problem) = tokio::task::spawn_blocking(move || network.reload()).await {
        tracing::error!(%problem, "the identity could not be read again");
    }
}
