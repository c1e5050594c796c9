//! First connection of a node that has no certificate: TLS to a controller whose authority has a known fingerprint.
//!
//! The controller sends the certificates of its authorities in the handshake. The node trusts that of the fingerprint, and
//! through it the controller, before it sends a byte.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::caller::ConnectionPeer;
use crate::certificate::CertificateFields;
use crate::fingerprint::AuthorityFingerprint;
use crate::handshake::{self, WELCOME};
use crate::name::PeerRole;
use crate::network::{DialError, PeerTransport, host};
use crate::protocol::AlpnProtocol;
use crate::verify::foreign;
use crate::wire::PeerStream;

/// Connection of a node without a certificate.
#[derive(Debug)]
pub struct EnrolmentConnection {
    /// Stream to the controller.
    pub stream: PeerStream,
    /// Contents of the controller's certificate; its name has the cluster.
    pub controller: CertificateFields,
}

/// Connects to a controller (`host:port`) within `limit`. The connection fails unless the controller has a valid
/// certificate for this host from an authority with one of the fingerprints.
pub async fn dial_enrolment(
    address: &str,
    pins: &[AuthorityFingerprint],
    limit: Duration,
) -> Result<EnrolmentConnection, DialError> {
    let dialled = tokio::time::timeout(limit, dial_now(address, pins)).await;
    dialled.unwrap_or_else(|_| {
        let address = address.to_owned();
        Err(DialError::Late { address, limit })
    })
}

async fn dial_now(address: &str, pins: &[AuthorityFingerprint]) -> Result<EnrolmentConnection, DialError> {
    let name = host(address)?;
    let (at, stream) = PeerTransport::connect_to_any(address, name).await?;
    let mut secured = handshake(at, name, stream, pins).await?;
    let failed = |why: String| DialError::Handshake { address: at, why };
    match secured.read_u8().await {
        Ok(WELCOME) => {}
        Ok(_) => return Err(failed("the peer does not use the Rankguard protocol".to_owned())),
        Err(problem) => return Err(failed(handshake::failed(&problem))),
    }
    let shown = secured.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let shown = shown.ok_or_else(|| "it shows no certificate".to_owned());
    let controller = shown.and_then(CertificateFields::of).map_err(failed)?;
    let caller = ConnectionPeer::encrypted(at, Some(controller.name.clone()));
    let stream = PeerStream::tls(secured.into(), caller, None);
    Ok(EnrolmentConnection { stream, controller })
}

async fn handshake(
    at: SocketAddr,
    host: &str,
    stream: TcpStream,
    pins: &[AuthorityFingerprint],
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, DialError> {
    let failed = |why: String| DialError::Handshake { address: at, why };
    let verifier = PinnedVerifier {
        pins: pins.to_vec(),
        algorithms: crate::provider().signature_verification_algorithms,
    };
    let builder = ClientConfig::builder_with_provider(crate::provider()).with_protocol_versions(&[&TLS13]);
    let builder = builder.map_err(|problem| failed(handshake::words(&problem)))?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![AlpnProtocol::enrolment().name().to_owned()];
    config.resumption = rustls::client::Resumption::disabled();
    let name = ServerName::try_from(host.to_owned()).unwrap_or_else(|_| at.ip().into());
    let secured = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    secured.map_err(|problem| failed(handshake::failed(&problem)))
}

/// Verifier of a controller whose authority is known by its fingerprint.
#[derive(Debug)]
struct PinnedVerifier {
    pins: Vec<AuthorityFingerprint>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // While one authority replaces another, either of them may have signed the controller's certificate.
        let mut roots = RootCertStore::empty();
        for der in intermediates {
            let is_pinned = self.pins.contains(&AuthorityFingerprint::of(der));
            let is_authority = || CertificateFields::of(der).is_ok_and(|it| it.name.role() == PeerRole::Authority);
            if is_pinned && is_authority() {
                roots.add(der.clone().into_owned())?;
            }
        }
        if roots.is_empty() {
            return Err(foreign(
                "it has no authority of the expected fingerprint: the fingerprint is wrong, or this is not the controller".to_owned(),
            ));
        }
        let parsed = ParsedCertificate::try_from(end_entity)?;
        // A controller's certificate comes from the authority itself.
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], now, self.algorithms.all)?;
        let fields = CertificateFields::of(end_entity).map_err(foreign)?;
        if fields.name.role() != PeerRole::Controller {
            return Err(foreign(format!("it is {} and not the controller", fields.name)));
        }
        if verify_server_name(&parsed, server_name).is_err() {
            let mismatch = CertificateError::NotValidForNameContext {
                expected: server_name.to_owned(),
                presented: fields.hosts,
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
