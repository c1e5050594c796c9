//! Settings of a controller.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use rankguard_core::Policy;
use rankguard_identity::{PeerRole, PeerTransport};
use rankguard_journal::JournalRetention;
use rankguard_notify::NotifySettings;

use crate::catalogue::CatalogueFiles;
use crate::enrolment::EnrolmentSettings;
use crate::error::ControllerError;
use crate::notify_reload::NotifyReload;
use crate::scheduled_report::ReportSettings;

/// Shortest silence limit; a shorter one would declare busy machines lost.
const SILENCE_LIMIT_MIN: Duration = Duration::from_millis(100);

/// Settings of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Listen address for agents and operators. Loopback only without an identity; port 0 takes the port of the last
    /// run if it is free, else any. The address in use is written to `<state_dir>/controller.addr`.
    pub listen: SocketAddr,
    /// Directory of the journal and the address file; one controller per directory.
    pub state_dir: PathBuf,
    /// Silence after which a node counts as lost.
    pub silence_limit: Duration,
    /// Transport: with an identity, agents and operators must have one too. A replay-only controller uses loopback
    /// regardless of this setting.
    pub network: PeerTransport,
    /// Files added to the built-in catalogue.
    pub catalogue: CatalogueFiles,
    /// Retention of the journal.
    pub journal: JournalRetention,
    /// HTTP address for health and metrics (`/healthz`, `/readyz`, `/metrics`); absent: disabled; port 0 takes a free
    /// port. Any client that reaches the port is served.
    pub metrics_listen: Option<String>,
    /// Listen address of the HTTP API; absent: disabled. Loopback only without an identity; port 0 takes the port of the last
    /// run if it is free, else any. The address in use is written to `<state_dir>/http.addr`.
    pub http_listen: Option<SocketAddr>,
    /// Lighthouse for torchft.
    pub torchft: TorchftSettings,
    /// Receivers of notifications, and limits of alarms. A replay-only controller sends none.
    pub notify: NotifySettings,
    /// Scheduled reports of the fleet; absent: none. A replay-only controller makes none.
    pub report: Option<ReportSettings>,
    /// Handle for receivers that are read again.
    pub notify_reload: NotifyReload,
    /// Enrolment of nodes; absent: off.
    pub enrolment: Option<EnrolmentSettings>,
    /// Settings of the decision core. Fixed for the life of a journal: a replay under other settings would give another
    /// history.
    pub policy: Policy,
}

/// Settings of the lighthouse for torchft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TorchftSettings {
    /// Listen address; absent: disabled. Without TLS and authentication: any client that reaches the port is served.
    pub listen: Option<SocketAddr>,
    /// Minimum of replicas in a quorum.
    pub replicas_min: u32,
    /// Maximum wait for healthy replicas that have not requested a quorum.
    pub join_timeout: Duration,
    /// Silence after which a replica counts as lost.
    pub heartbeat_timeout: Duration,
}

impl Default for TorchftSettings {
    /// Returns the defaults of torchft's own lighthouse.
    fn default() -> Self {
        Self {
            listen: None,
            replicas_min: 1,
            join_timeout: Duration::from_secs(60),
            heartbeat_timeout: Duration::from_secs(5),
        }
    }
}

impl Settings {
    /// Returns the defaults for a state directory: port 7700 of loopback, a silence limit of five seconds.
    pub fn new(state_dir: impl Into<PathBuf>) -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7700)),
            state_dir: state_dir.into(),
            silence_limit: Duration::from_secs(5),
            network: PeerTransport::loopback(),
            catalogue: CatalogueFiles::default(),
            journal: JournalRetention::default(),
            metrics_listen: None,
            http_listen: None,
            torchft: TorchftSettings::default(),
            notify: NotifySettings::default(),
            report: None,
            notify_reload: NotifyReload::default(),
            enrolment: None,
            policy: Policy::default(),
        }
    }

    /// Checks the listen addresses and the silence limit.
    pub(crate) fn check(&self) -> Result<(), ControllerError> {
        self.network
            .may_use(self.listen.ip())
            .map_err(|source| ControllerError::Exposed {
                address: self.listen,
                source,
            })?;
        if let Some(address) = self.http_listen {
            let allowed = self.network.may_use(address.ip());
            allowed.map_err(|source| ControllerError::HttpExposed { address, source })?;
        }
        if let Some(address) = self.torchft.listen.filter(|address| address.ip().is_unspecified()) {
            return Err(ControllerError::TorchftExposed { address });
        }
        if self.silence_limit < SILENCE_LIMIT_MIN {
            return Err(ControllerError::SilenceLimit {
                limit_ms: self.silence_limit.as_millis(),
                min_ms: SILENCE_LIMIT_MIN.as_millis(),
            });
        }
        Ok(())
    }

    /// Checks that the identity is usable and has the controller role. Reads files.
    pub(crate) fn check_identity(&self) -> Result<(), ControllerError> {
        let Some(identity) = self.network.identity() else {
            return Ok(());
        };
        let card = identity
            .reload()
            .map_err(|problems| ControllerError::Identity { problems })?;
        match card.name.role() {
            PeerRole::Controller => Ok(()),
            _ => Err(ControllerError::Role {
                file: identity.files().certificate.clone(),
                name: card.name.short(),
            }),
        }
    }
}
