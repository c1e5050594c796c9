//! Verification that the peer is the one that was dialled.

use rankguard_model::NodeId;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};

use crate::certificate::CertificateFields;
use crate::loaded::LoadedIdentity;
use crate::name::{PeerName, PeerRole};
use crate::revocation;

/// Returns the certificates through which a peer's may be verified: those of issuers for an agent, none for others. So the
/// key of an issuer makes certificates of agents only.
pub(crate) fn permitted_intermediates<'c>(
    end_entity: &CertificateDer<'_>,
    intermediates: &'c [CertificateDer<'c>],
) -> &'c [CertificateDer<'c>] {
    match CertificateFields::of(end_entity) {
        Ok(fields) if fields.name.role() == PeerRole::Agent => intermediates,
        _ => &[],
    }
}

/// Peer that a dialler expects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedPeer {
    /// The controller of this cluster, at the host that was dialled.
    Controller,
    /// The agent of this node, at any address: its name identifies it.
    Agent(NodeId),
}

impl ExpectedPeer {
    fn is(&self, name: &PeerName) -> bool {
        match self {
            Self::Controller => name.role() == PeerRole::Controller,
            Self::Agent(node) => name.is_agent_of(node),
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Controller => "the controller".to_owned(),
            Self::Agent(node) => format!("the agent of {node}"),
        }
    }

    fn checks_host(&self) -> bool {
        !matches!(self, Self::Agent(_))
    }
}

/// Verifier of the dialled peer's certificate.
#[derive(Debug)]
pub(crate) struct PeerVerifier {
    held: std::sync::Arc<LoadedIdentity>,
    expected: ExpectedPeer,
    algorithms: WebPkiSupportedAlgorithms,
}

impl PeerVerifier {
    pub(crate) fn new(held: std::sync::Arc<LoadedIdentity>, expected: ExpectedPeer) -> Self {
        let algorithms = crate::provider().signature_verification_algorithms;
        Self {
            held,
            expected,
            algorithms,
        }
    }

    fn is_expected(&self, card: &CertificateFields) -> Result<(), String> {
        let own = self.held.card.name.cluster();
        if card.name.cluster() != own {
            return Err(format!("it is {}, and this is cluster {own}", card.name));
        }
        if !self.expected.is(&card.name) {
            return Err(format!("it is {} and not {}", card.name.short(), self.expected.words()));
        }
        Ok(())
    }
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let roots = self.held.roots();
        let intermediates = permitted_intermediates(end_entity, intermediates);
        verify_server_cert_signed_by_trust_anchor(&parsed, roots, intermediates, now, self.algorithms.all)?;
        let card = CertificateFields::of(end_entity).map_err(foreign)?;
        revocation::check(&card, self.held.revoked())?;
        revocation::check_all(intermediates, self.held.revoked())?;
        self.is_expected(&card).map_err(foreign)?;
        if self.expected.checks_host() && verify_server_name(&parsed, server_name).is_err() {
            let mismatch = CertificateError::NotValidForNameContext {
                expected: server_name.to_owned(),
                presented: card.hosts,
            };
            return Err(mismatch.into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// A valid certificate of another peer than the expected one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct ForeignCertificate(String);

pub(crate) fn foreign(what: String) -> Error {
    CertificateError::Other(OtherError(std::sync::Arc::new(ForeignCertificate(what)))).into()
}
