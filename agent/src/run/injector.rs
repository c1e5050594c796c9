//! Start and end of fault injection.

use super::shared::SharedServices;
use crate::collectors::{CollectorSet, InjectionTargets};
use crate::error::AgentError;
use crate::inject::{InjectSocket, InjectionContext, InjectionExecutor, InjectionThread};

/// Socket that takes injections and the thread that ends them.
pub(super) struct FaultInjector {
    socket: InjectSocket,
    thread: InjectionThread,
}

impl FaultInjector {
    /// Opens the socket, if the settings allow injection; otherwise removes one that an earlier agent left.
    pub(super) fn start(services: &SharedServices, collectors: &CollectorSet) -> Result<Option<Self>, AgentError> {
        let settings = &services.settings;
        if !settings.injection {
            InjectSocket::absent(&settings.state_dir);
            return Ok(None);
        }
        let InjectionTargets {
            xids,
            overlay,
            uses,
            scenario,
        } = collectors.injectable.clone();
        let context = InjectionContext {
            knowledge: settings.knowledge.clone(),
            intake: services.intake.clone(),
            roster: services.roster.clone(),
            spool: services.spool.clone(),
            xids,
            overlay,
            uses,
            scenario,
        };
        let opened = InjectionExecutor::open(context).map_err(|source| AgentError::Thread { part: "inject", source });
        let (executor, thread) = opened?;
        let socket = InjectSocket::start(&settings.state_dir, executor).map_err(|source| AgentError::LocalSocket {
            path: settings.state_dir.clone(),
            source,
        })?;
        tracing::warn!("faults may be injected into this agent (agent.injection)");
        Ok(Some(Self { socket, thread }))
    }

    /// Closes the socket and ends all injections.
    pub(super) async fn end(self) {
        self.socket.end().await;
        let thread = self.thread;
        let _ = tokio::task::spawn_blocking(move || thread.end()).await;
    }
}
