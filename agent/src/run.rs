//! Life of an agent: open, start, wait, end.

mod foundation;
mod injector;
mod outlets;
mod peers;
mod running;
mod shared;
mod spool_writer;
mod threads;

use std::future::Future;

use self::foundation::AgentFoundation;
use self::running::RunningAgent;
use crate::error::{AgentError, ShutdownReport};
use crate::memory;
use crate::settings::AgentSettings;

/// Runs the agent until `shutdown`. Leaves no process, socket or shared memory behind.
pub async fn run(settings: AgentSettings, shutdown: impl Future<Output = ()>) -> Result<ShutdownReport, AgentError> {
    let foundation = AgentFoundation::open(settings).await?;
    let mut agent = RunningAgent::start(foundation).await?;
    let memory_return = tokio::spawn(async {
        tokio::time::sleep(memory::SETTLED).await;
        memory::give_back();
    });
    let unexpected = agent.wait(shutdown).await;
    memory_return.abort();
    let report = agent.end(unexpected.is_none()).await;
    match unexpected {
        Some(part) => Err(AgentError::PartEnded {
            part,
            problem: "its thread is gone".to_owned(),
        }),
        None => Ok(report),
    }
}
