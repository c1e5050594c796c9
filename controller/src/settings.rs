//! What a controller is told before it starts.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use rankguard_core::Policy;

use crate::{CatalogueFiles, ControllerError};

/// Silence limits below this would take a busy machine for a lost one.
const SILENCE_LIMIT_MIN: Duration = Duration::from_millis(100);

/// Everything a controller needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where agents and operators reach it. Loopback only; port 0 takes the port of the last run if it is free, or
    /// any. The address in use stands in `<state_dir>/controller.addr`.
    pub listen: SocketAddr,
    /// Directory of the journal and the address file. One controller a directory.
    pub state_dir: PathBuf,
    /// Silence after which a node counts as lost.
    pub silence_limit: Duration,
    /// What verdicts rest on besides the built-in catalogue.
    pub catalogue: CatalogueFiles,
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
            catalogue: CatalogueFiles::default(),
            policy: Policy::default(),
        }
    }

    /// Refuses what no controller can run with.
    pub(crate) fn check(&self) -> Result<(), ControllerError> {
        if !self.listen.ip().is_loopback() {
            return Err(ControllerError::NotLoopback { address: self.listen });
        }
        if self.silence_limit < SILENCE_LIMIT_MIN {
            return Err(ControllerError::SilenceLimit {
                limit_ms: self.silence_limit.as_millis(),
                min_ms: SILENCE_LIMIT_MIN.as_millis(),
            });
        }
        Ok(())
    }
}
