//! Certificates for agents: the first one for a join token, and each further one for the certificate before.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rankguard_access::{
    AuditDoor, AuditOutcome, EnrolmentRefusal, IssueAttempt, NewAuditEntry, NodeCertificate, RateLimiter,
};
use rankguard_identity::{
    AuthorityFingerprint, CertificateFields, CertificateIssuer, ConnectionPeer, PeerName, PeerRole, PeerTransport,
    RequestError, SignedCertificate, TlsIdentity,
};
use rankguard_model::PrintableText;
use rankguard_proto::v1;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tonic::Status;
use tracing::warn;

use crate::access_control::{AccessControl, node_certificate};
use crate::error::ControllerError;

/// Refused enrolments of an address that are recorded and answered in detail: a burst, and the interval of further ones.
const REFUSALS_BURST: u32 = 10;
const REFUSAL_INTERVAL: Duration = Duration::from_secs(30);
/// The same of all addresses together, so that many addresses cannot push older entries out of the audit log.
const REFUSALS_BURST_ALL: u32 = 100;
const REFUSAL_INTERVAL_ALL: Duration = Duration::from_secs(10);
/// Renewals of a node: a burst, and the interval of further ones.
const RENEWALS_BURST: u32 = 5;
const RENEWAL_INTERVAL: Duration = Duration::from_secs(600);
/// Remaining days of the issuer below which its end is logged.
const ISSUER_DAYS: f64 = 30.0;

/// Settings of the enrolment of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrolmentSettings {
    /// Certificate of the issuer (PEM): one of `rankguard identity issue-intermediate`, or the authority's.
    pub ca: PathBuf,
    /// Key of that certificate (PEM), readable by its owner only.
    pub ca_key: PathBuf,
    /// Validity of the certificates of agents.
    pub valid: Duration,
}

/// Issuing of certificates to agents; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Enrolment(Arc<EnrolmentState>);

#[derive(Debug)]
struct EnrolmentState {
    access: AccessControl,
    /// `None` if enrolment is off.
    signer: Option<EnrolmentSigner>,
    refusals: RateLimiter,
    all_refusals: RateLimiter,
    renewals: RateLimiter,
}

#[derive(Debug)]
struct EnrolmentSigner {
    issuer: CertificateIssuer,
    identity: TlsIdentity,
    /// Validity of a certificate, seconds.
    valid_s: i64,
}

/// Refusal of an enrolment: reason and advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefusedEnrolment {
    pub(crate) reason: String,
    pub(crate) hint: &'static str,
    /// Join token of the request, if it is known.
    token: Option<String>,
}

impl RefusedEnrolment {
    fn new(reason: impl Into<String>, hint: &'static str) -> Self {
        Self {
            reason: reason.into(),
            hint,
            token: None,
        }
    }
}

const OFF: &str = "enrolment is off at this controller";
const OFF_HINT: &str = "set enrolment.ca and enrolment.ca_key of the controller, or copy a certificate of `rankguard identity \
                        issue` to the node";

const ISSUER_REVOKED_HINT: &str =
    "`rankguard identity issue-intermediate` makes another issuer for enrolment.ca of the controller";

impl Enrolment {
    /// Opens the issuer, if it is configured.
    pub(crate) async fn open(
        settings: Option<EnrolmentSettings>,
        network: &PeerTransport,
        access: AccessControl,
    ) -> Result<Self, ControllerError> {
        let signer = match settings {
            Some(settings) => Some(open_signer(settings, network).await?),
            None => None,
        };
        Ok(Self(Arc::new(EnrolmentState {
            access,
            signer,
            refusals: RateLimiter::new(REFUSALS_BURST, REFUSAL_INTERVAL),
            all_refusals: RateLimiter::new(REFUSALS_BURST_ALL, REFUSAL_INTERVAL_ALL),
            renewals: RateLimiter::new(RENEWALS_BURST, RENEWAL_INTERVAL),
        })))
    }

    pub(crate) fn access(&self) -> &AccessControl {
        &self.0.access
    }

    /// Returns true if the controller signs certificates.
    pub(crate) fn is_on(&self) -> bool {
        self.0.signer.is_some()
    }

    /// Returns the fingerprint of the authority, which nodes need to enrol; fails with a reason if enrolment is off.
    pub(crate) fn fingerprint(&self) -> Result<AuthorityFingerprint, Status> {
        let signer = self.0.signer.as_ref().ok_or_else(|| Status::failed_precondition(OFF))?;
        // Of several authorities that which a node can verify this controller with.
        let files = signer.identity.files();
        let print = AuthorityFingerprint::of_signer(&files.certificate, &files.ca);
        print.ok_or_else(|| Status::unavailable("the authority's certificate cannot be read (identity.ca)"))
    }

    /// Issues a certificate to a node with a join token, and records it or the refusal.
    pub(crate) async fn enrol(
        &self,
        address: Option<SocketAddr>,
        request: v1::EnrolRequest,
    ) -> Result<v1::AgentCertificate, RefusedEnrolment> {
        let node = PrintableText::first(&request.node, 128).to_string();
        let enrolment = self.clone();
        let ip = address.map(|address| address.ip());
        // A certificate that was signed is recorded also if the node has hung up meanwhile.
        let issued = tokio::spawn(async move { enrolment.issue(ip, request).await });
        let issued = issued
            .await
            .unwrap_or_else(|_| Err(RefusedEnrolment::new("the controller is stopping", "")));
        match issued {
            Err(refusal) => Err(self.record_refusal(ip, node, refusal).await),
            issued => issued,
        }
    }

    async fn issue(
        &self,
        ip: Option<IpAddr>,
        request: v1::EnrolRequest,
    ) -> Result<v1::AgentCertificate, RefusedEnrolment> {
        let v1::EnrolRequest { token, node, request } = request;
        let state = self.0.clone();
        let signer = state
            .signer
            .as_ref()
            .ok_or_else(|| RefusedEnrolment::new(OFF, OFF_HINT))?;
        signer
            .check_issuer()
            .await
            .map_err(|why| RefusedEnrolment::new(why, ISSUER_REVOKED_HINT))?;
        let ca = authority_pem(signer).map_err(|why| RefusedEnrolment::new(why, ""))?;
        let now = state.access.clock.now();
        let (ledger, text, name) = (state.access.ledger.clone(), token.clone(), node.clone());
        let id = blocking(move || ledger.check(&text, &name, now))
            .await?
            .map_err(refused)?;
        let with_token = |refusal: RefusedEnrolment| RefusedEnrolment {
            token: Some(id.clone()),
            ..refusal
        };
        let name = signer.name(&node).map_err(with_token)?;
        let key = CertificateIssuer::key_digest(&request, &name);
        let key = key.map_err(|problem| with_token(request_refused(&problem)))?;
        let entry = entry("enrolment.enrol", format!("join token {id}"), ip, node.clone());
        let begun = state.access.begin(entry).await;
        let ticket = begun.map_err(|why| with_token(RefusedEnrolment::new(unrecorded(&why), "")))?;
        let shared = state.clone();
        let runtime = Handle::current();
        let issued = blocking(move || {
            let Some(signer) = &shared.signer else {
                return Err(EnrolmentRefusal::Signing(OFF.to_owned()));
            };
            let is_revoked = |serial: &str| {
                let serial = serial.parse();
                serial.is_ok_and(|serial| runtime.block_on(signer.identity.is_revoked(&serial)))
            };
            let sign = || {
                let signed = signer.sign(&request, &name).map_err(|problem| problem.to_string())?;
                let SignedCertificate { fields, chain } = signed;
                Ok((fields.serial.to_string(), fields.valid_until(), chain))
            };
            let attempt = IssueAttempt {
                token: &token,
                node: &node,
                key,
                now,
            };
            shared.access.ledger.issue(attempt, is_revoked, sign)
        });
        let issued = issued.await?;
        let (outcome, message) = match &issued {
            Ok(issued) => {
                let again = if issued.is_repeated { ", sent again" } else { "" };
                let NodeCertificate { serial, until, .. } = &issued.certificate;
                (
                    AuditOutcome::Done,
                    format!("serial number {serial}, valid until {until}{again}"),
                )
            }
            Err(refusal) => (AuditOutcome::Refused, refusal.to_string()),
        };
        state.access.end(ticket, outcome, message).await;
        match issued {
            Ok(issued) => Ok(v1::AgentCertificate {
                chain: issued.certificate.chain,
                ca,
            }),
            // Recorded already.
            Err(refusal) => Err(RefusedEnrolment {
                token: Some(String::new()),
                ..refused(refusal)
            }),
        }
    }

    /// Records a refusal unless the address, or all addresses together, have had too many.
    async fn record_refusal(&self, ip: Option<IpAddr>, node: String, refusal: RefusedEnrolment) -> RefusedEnrolment {
        let is_recorded = refusal.token.as_ref().is_some_and(String::is_empty);
        let now = Instant::now();
        if let Err(wait) = self.0.refusals.take(&address_key(ip), now) {
            let seconds = wait.as_secs() + 1;
            let reason =
                format!("this address has too many refused enrolments; details are given again in {seconds} s");
            return RefusedEnrolment::new(reason, "");
        }
        if !is_recorded && self.0.all_refusals.take("", now).is_ok() {
            let actor = match &refusal.token {
                Some(id) => format!("join token {id}"),
                None => "a node without a certificate".to_owned(),
            };
            let entry = entry("enrolment.enrol", actor, ip, node);
            self.0.access.refuse(entry, refusal.reason.clone()).await;
        }
        refusal
    }

    /// Issues the next certificate to an agent for the name in its present one.
    pub(crate) async fn renew(&self, peer: ConnectionPeer, request: Vec<u8>) -> Result<v1::AgentCertificate, Status> {
        let enrolment = self.clone();
        let renewed = tokio::spawn(async move { enrolment.renew_now(&peer, request).await });
        renewed
            .await
            .unwrap_or_else(|_| Err(Status::unavailable("the controller is stopping")))
    }

    async fn renew_now(&self, peer: &ConnectionPeer, request: Vec<u8>) -> Result<v1::AgentCertificate, Status> {
        let state = &self.0;
        let signer = state.signer.as_ref().ok_or_else(|| Status::failed_precondition(OFF))?;
        let (Some(name), Some(certificate)) = (peer.name.as_deref(), peer.certificate.as_deref()) else {
            return Err(Status::failed_precondition("the caller has no certificate"));
        };
        if name.role() != PeerRole::Agent {
            return Err(Status::permission_denied("only agents renew their certificates"));
        }
        if state.renewals.take(name.own(), Instant::now()).is_err() {
            return Err(Status::resource_exhausted(
                "this node has renewed its certificate too often",
            ));
        }
        let ip = peer.address.map(|address| address.ip());
        let entry = entry("enrolment.renew", peer.words(), ip, name.own().to_owned());
        // The list may have changed since the connection was opened.
        if signer.identity.is_revoked(&certificate.serial).await {
            let why = format!(
                "the certificate of {} (serial number {}) is revoked",
                name.short(),
                certificate.serial
            );
            state.access.refuse(entry, why.clone()).await;
            return Err(Status::permission_denied(why));
        }
        signer.check_issuer().await.map_err(Status::failed_precondition)?;
        let ca = authority_pem(signer).map_err(Status::unavailable)?;
        let ticket = state.access.begin(entry).await;
        let ticket = ticket.map_err(|why| Status::unavailable(unrecorded(&why)))?;
        let signed = signer.sign(&request, name);
        let result = match signed {
            Ok(signed) => self
                .note(signed.fields.clone())
                .await
                .map(|()| signed)
                .map_err(Status::unavailable),
            Err(problem) => Err(Status::invalid_argument(problem.to_string())),
        };
        let (outcome, message) = match &result {
            Ok(SignedCertificate { fields, .. }) => {
                let (serial, until, old) = (&fields.serial, fields.valid_until(), &certificate.serial);
                let message = format!("serial number {serial}, valid until {until}, after {old}");
                (AuditOutcome::Done, message)
            }
            Err(refusal) => (AuditOutcome::Refused, refusal.message().to_owned()),
        };
        state.access.end(ticket, outcome, message).await;
        result.map(|signed| v1::AgentCertificate {
            chain: signed.chain,
            ca,
        })
    }

    /// Records the newest certificate of a node.
    async fn note(&self, fields: CertificateFields) -> Result<(), String> {
        let ledger = self.0.access.ledger.clone();
        let noted = spawn_blocking(move || ledger.note(node_certificate(&fields), true)).await;
        noted
            .map_err(|problem| problem.to_string())?
            .map_err(|problem| format!("the certificate was not issued: {problem}"))
    }
}

impl EnrolmentSigner {
    /// Fails if the certificate of the issuer is revoked: every peer would refuse what it signs.
    async fn check_issuer(&self) -> Result<(), String> {
        let serial = &self.issuer.fields().serial;
        if self.identity.is_revoked(serial).await {
            return Err(format!(
                "the certificate of the issuer (enrolment.ca, serial number {serial}) is revoked"
            ));
        }
        Ok(())
    }

    fn name(&self, node: &str) -> Result<PeerName, RefusedEnrolment> {
        let name = PeerName::new(self.issuer.fields().name.cluster(), PeerRole::Agent, node);
        name.map_err(|problem| RefusedEnrolment::new(problem.to_string(), ""))
    }

    fn sign(&self, request: &[u8], name: &PeerName) -> Result<SignedCertificate, RequestError> {
        let days = self.issuer.fields().days_left();
        if days < ISSUER_DAYS {
            warn!("the certificate of the issuer (enrolment.ca) is valid for {days:.1} more days: issue a new one");
        }
        self.issuer.sign(request, name, self.valid_s)
    }
}

async fn open_signer(settings: EnrolmentSettings, network: &PeerTransport) -> Result<EnrolmentSigner, ControllerError> {
    let Some(identity) = network.identity().cloned() else {
        return Err(ControllerError::EnrolmentWithoutIdentity);
    };
    let opened = spawn_blocking(move || {
        let issuer = CertificateIssuer::open(&settings.ca, &settings.ca_key, &identity.files().ca);
        let issuer = issuer.map_err(|source| ControllerError::Enrolment { source })?;
        Ok(EnrolmentSigner {
            issuer,
            identity,
            valid_s: i64::try_from(settings.valid.as_secs()).unwrap_or(i64::MAX),
        })
    });
    opened.await.map_err(|problem| ControllerError::Task {
        task: "enrolment",
        problem: problem.to_string(),
    })?
}

/// Reads the certificates of the authorities, which a node stores.
fn authority_pem(signer: &EnrolmentSigner) -> Result<String, String> {
    const CA_BYTES: u64 = 1 << 20;
    let path: &Path = &signer.identity.files().ca;
    rankguard_files::read_text(path, CA_BYTES).map_err(|problem| format!("cannot read {}: {problem}", path.display()))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, RefusedEnrolment> {
    let done = spawn_blocking(work).await;
    done.map_err(|_| RefusedEnrolment::new("the controller is stopping", ""))
}

fn unrecorded(why: &str) -> String {
    format!("no certificate is issued, because it cannot be recorded: {why}")
}

fn request_refused(problem: &RequestError) -> RefusedEnrolment {
    RefusedEnrolment::new(problem.to_string(), "use `rankguard agent enrol` of this version")
}

fn refused(refusal: EnrolmentRefusal) -> RefusedEnrolment {
    let hint = match &refusal {
        EnrolmentRefusal::Malformed => "copy the value that `rankguard join-token create` printed into the file",
        EnrolmentRefusal::Unknown
        | EnrolmentRefusal::Expired { .. }
        | EnrolmentRefusal::Revoked { .. }
        | EnrolmentRefusal::UsedUp { .. }
        | EnrolmentRefusal::OtherNode { .. } => "`rankguard join-token create` creates another token",
        EnrolmentRefusal::HasCertificate { .. } => {
            "revoke the certificate (`rankguard identity revoke`) and copy the list to the controller, or create the token with \
             --replace"
        }
        EnrolmentRefusal::RevokedKey => "remove the key of the node, so that it creates another one",
        EnrolmentRefusal::Signing(_) | EnrolmentRefusal::File { .. } => "the log of the controller has the cause",
    };
    if matches!(refusal, EnrolmentRefusal::Signing(_) | EnrolmentRefusal::File { .. }) {
        tracing::error!("cannot enrol a node: {refusal}");
    }
    let token = match &refusal {
        EnrolmentRefusal::Expired { id }
        | EnrolmentRefusal::Revoked { id }
        | EnrolmentRefusal::UsedUp { id, .. }
        | EnrolmentRefusal::OtherNode { id, .. } => Some(id.clone()),
        _ => None,
    };
    RefusedEnrolment {
        token,
        ..RefusedEnrolment::new(refusal.to_string(), hint)
    }
}

fn entry(action: &str, actor: String, ip: Option<IpAddr>, node: String) -> NewAuditEntry {
    let door = if action == "enrolment.renew" {
        AuditDoor::Grpc
    } else {
        AuditDoor::Enrolment
    };
    NewAuditEntry {
        actor,
        door,
        address: ip.map(|ip| ip.to_string()),
        action: action.to_owned(),
        target: node,
        detail: String::new(),
        key: None,
    }
}

/// Returns the key of an address in the table of limits: of IPv6 the network of 64 bits, which one machine may have whole.
fn address_key(ip: Option<IpAddr>) -> String {
    match ip.map(|ip| ip.to_canonical()) {
        Some(IpAddr::V4(address)) => address.to_string(),
        Some(IpAddr::V6(address)) => format!("{:x?}", &address.segments()[..4]),
        None => String::new(),
    }
}
