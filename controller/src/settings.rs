//! What a controller is told before it starts.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use rankguard_core::Policy;
use rankguard_identity::{Network, Role};

use crate::{CatalogueFiles, ControllerError, JournalRetention};

/// Silence limits below this would take a busy machine for a lost one.
const SILENCE_LIMIT_MIN: Duration = Duration::from_millis(100);

/// Everything a controller needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where agents and operators reach it. Loopback only without an identity; port 0 takes the port of the last run if it is free, or
    /// any. The address in use stands in `<state_dir>/controller.addr`.
    pub listen: SocketAddr,
    /// Directory of the journal and the address file. One controller a directory.
    pub state_dir: PathBuf,
    /// Silence after which a node counts as lost.
    pub silence_limit: Duration,
    /// How it speaks: with an identity, agents and operators must have one too. A controller that takes replays only speaks
    /// over loopback, whatever is set: what it holds is made up.
    pub network: Network,
    /// What verdicts rest on besides the built-in catalogue.
    pub catalogue: CatalogueFiles,
    /// How much of the journal is kept.
    pub journal: JournalRetention,
    /// Where health and numbers are served over HTTP (`/healthz`, `/readyz`, `/metrics`); nowhere when absent, port 0 takes a free
    /// one. Any client that reaches the port is served.
    pub metrics_listen: Option<String>,
    /// How the brain decides. Fixed for the life of a journal: a replay under other rules would be another history.
    pub policy: Policy,
}

impl Settings {
    /// The defaults for a state directory: port 7700 of loopback, five seconds of silence.
    pub fn new(state_dir: impl Into<PathBuf>) -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7700)),
            state_dir: state_dir.into(),
            silence_limit: Duration::from_secs(5),
            network: Network::loopback(),
            catalogue: CatalogueFiles::default(),
            journal: JournalRetention::default(),
            metrics_listen: None,
            policy: Policy::default(),
        }
    }

    /// Refuses what no controller can run with.
    pub(crate) fn check(&self) -> Result<(), ControllerError> {
        self.network
            .may_use(self.listen.ip())
            .map_err(|source| ControllerError::Exposed {
                address: self.listen,
                source,
            })?;
        if self.silence_limit < SILENCE_LIMIT_MIN {
            return Err(ControllerError::SilenceLimit {
                limit_ms: self.silence_limit.as_millis(),
                min_ms: SILENCE_LIMIT_MIN.as_millis(),
            });
        }
        Ok(())
    }

    /// Refuses an identity that cannot be used, or is somebody else's. Reads files.
    pub(crate) fn check_identity(&self) -> Result<(), ControllerError> {
        let Some(identity) = self.network.identity() else {
            return Ok(());
        };
        let card = identity
            .reload()
            .map_err(|problems| ControllerError::Identity { problems })?;
        match card.name.role() {
            Role::Controller => Ok(()),
            _ => Err(ControllerError::Role {
                file: identity.files().certificate.clone(),
                name: card.name.short(),
            }),
        }
    }
}
