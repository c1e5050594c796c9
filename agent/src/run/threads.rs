//! Named threads of the agent.

use std::thread::JoinHandle;

use crate::error::AgentError;

/// Starts a thread with the name of a part of the agent.
pub(super) fn spawn_thread<T: Send + 'static>(
    part: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, AgentError> {
    let started = std::thread::Builder::new().name(part.to_owned()).spawn(work);
    started.map_err(|source| AgentError::Thread { part, source })
}
