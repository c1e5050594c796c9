//! Tokens and audit log of this controller, with its clock.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rankguard_access::{
    AuditDoor, AuditError, AuditLog, AuditOutcome, AuditTicket, EnrolmentLedger, NewAuditEntry, NodeCertificate,
    RateLimiter, TokenStore,
};
use rankguard_identity::{CertificateFields, ConnectionPeer, RefusalObserver};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{error, info};

use crate::clock::MonotonicClock;
use crate::error::ControllerError;

/// Interval at which the times of use of tokens are written.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);
/// Interval of attempts to write the audit log again after a failed write.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Refusals of a peer without a right to a service that are recorded: a burst, and the interval of further ones.
const REFUSALS_BURST: u32 = 10;
const REFUSAL_INTERVAL: Duration = Duration::from_secs(60);

/// Tokens and audit log; clones share them.
#[derive(Debug, Clone)]
pub(crate) struct AccessControl {
    pub(crate) tokens: TokenStore,
    pub(crate) audit: AuditLog,
    /// Join tokens and the certificates of nodes.
    pub(crate) ledger: EnrolmentLedger,
    pub(crate) clock: MonotonicClock,
}

impl AccessControl {
    /// Opens the files of a state directory. A damaged token file prevents the start: it may lack revocations.
    pub(crate) async fn open(dir: &Path, clock: MonotonicClock) -> Result<Self, ControllerError> {
        let dir = dir.to_owned();
        let opened = spawn_blocking(move || {
            let tokens = TokenStore::open(&dir).map_err(|source| ControllerError::Tokens { source })?;
            let audit = AuditLog::open(&dir, clock.now()).map_err(|source| ControllerError::Audit { source })?;
            let ledger =
                EnrolmentLedger::open(&dir, clock.now()).map_err(|source| ControllerError::Ledger { source })?;
            Ok(Self {
                tokens,
                audit,
                ledger,
                clock,
            })
        });
        opened.await.map_err(|problem| ControllerError::Task {
            task: "access control",
            problem: problem.to_string(),
        })?
    }

    /// Records a change before it is carried out.
    pub(crate) async fn begin(&self, entry: NewAuditEntry) -> Result<AuditTicket, String> {
        let (audit, now) = (self.audit.clone(), self.clock.now());
        let begun = blocking(move || audit.begin(entry, now)).await;
        begun.inspect_err(|problem| error!("a change cannot be recorded in the audit log: {problem}"))
    }

    /// Records the result of a change. If that fails, the log of the controller has the cause, and the result is unknown.
    pub(crate) async fn end(&self, ticket: AuditTicket, outcome: AuditOutcome, message: String) {
        let audit = self.audit.clone();
        if let Err(problem) = blocking(move || audit.end(ticket, outcome, &message)).await {
            error!("the result of a change is not in the audit log: {problem}");
        }
    }

    /// Records a refused change. The change is refused in any case.
    pub(crate) async fn refuse(&self, entry: NewAuditEntry, why: String) {
        let (audit, now) = (self.audit.clone(), self.clock.now());
        if let Err(problem) = blocking(move || audit.refuse(entry, &why, now)).await {
            error!("a refused change is not in the audit log: {problem}");
        }
    }

    /// Returns an observer of refused peers, which records a bounded number of refusals of each.
    pub(crate) fn refusal_observer(&self) -> RefusalObserver {
        let access = self.clone();
        let recorded = RateLimiter::new(REFUSALS_BURST, REFUSAL_INTERVAL);
        Arc::new(move |peer: &ConnectionPeer, why: &str| {
            let actor = peer.words();
            if recorded.take(&actor, Instant::now()).is_err() {
                return;
            }
            let entry = NewAuditEntry {
                actor,
                door: AuditDoor::Grpc,
                address: peer.address.map(|address| address.ip().to_string()),
                action: "access.authorize".to_owned(),
                target: String::new(),
                detail: String::new(),
                key: None,
            };
            let (access, why) = (access.clone(), why.to_owned());
            tokio::spawn(async move { access.refuse(entry, why).await });
        })
    }

    /// Tries regularly to write the audit log again while its latest write has failed.
    pub(crate) async fn probe_regularly(&self) -> Infallible {
        loop {
            sleep(PROBE_INTERVAL).await;
            if self.audit.failure().is_none() {
                continue;
            }
            let (audit, now) = (self.audit.clone(), self.clock.now());
            if blocking(move || audit.probe(now)).await.is_ok() {
                info!("the audit log can be written again");
            }
        }
    }

    /// Writes the times of use of tokens and unsaved revocations regularly.
    pub(crate) async fn save_regularly(&self) -> Infallible {
        loop {
            sleep(SAVE_INTERVAL).await;
            self.save().await;
        }
    }

    /// Writes the times of use of tokens and unsaved revocations.
    pub(crate) async fn save(&self) {
        let tokens = self.tokens.clone();
        if let Ok(Err(problem)) = spawn_blocking(move || tokens.save_rest()).await {
            error!("the latest uses and revocations of tokens are not saved: {problem}");
        }
    }
}

/// Returns the record of a certificate without a token.
pub(crate) fn node_certificate(fields: &CertificateFields) -> NodeCertificate {
    NodeCertificate {
        node: fields.name.own().to_owned(),
        serial: fields.serial.to_string(),
        until: fields.valid_until(),
        token: None,
        key: String::new(),
        chain: String::new(),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AuditError> + Send + 'static,
) -> Result<T, String> {
    let done = spawn_blocking(work).await;
    done.map_err(|problem| problem.to_string())?
        .map_err(|problem| problem.to_string())
}
