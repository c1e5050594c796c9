//! Verified identity, from which TLS configurations are made.

use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::certificate::CertificateFields;
use crate::files::TrustedAuthorities;
use crate::protocol::AlpnProtocol;
use crate::revocation::{RevokedCaller, RevokedSerials, UnrevokedVerifier};

/// Identity from one reading of its files: authority, certificate, key and revocation list. The certificate is verified.
#[derive(Debug)]
pub(crate) struct LoadedIdentity {
    /// Fields of this process's certificate.
    pub(crate) card: CertificateFields,
    key: Arc<CertifiedKey>,
    /// Certificates of the cluster's authority.
    roots: Arc<RootCertStore>,
    authorities: Vec<CertificateDer<'static>>,
    /// Verifier of client certificates.
    callers: Arc<dyn ClientCertVerifier>,
    /// The same verifier for a listener that admits clients without a certificate.
    optional_callers: Arc<dyn ClientCertVerifier>,
    /// Certificates that are refused.
    revoked: Arc<RevokedSerials>,
}

impl LoadedIdentity {
    /// Combines the parts. Fails if `roots` cannot verify client certificates.
    pub(crate) fn new(
        card: CertificateFields,
        key: Arc<CertifiedKey>,
        authorities: TrustedAuthorities,
        revoked: Arc<RevokedSerials>,
    ) -> Result<Self, String> {
        let roots = authorities.store;
        let builder = || WebPkiClientVerifier::builder_with_provider(roots.clone(), crate::provider());
        let text = |problem: VerifierBuilderError| problem.to_string();
        let callers = builder().build().map_err(text)?;
        let optional_callers = builder().allow_unauthenticated().build().map_err(text)?;
        Ok(Self {
            card,
            key,
            roots,
            authorities: authorities.certificates,
            callers,
            optional_callers,
            revoked,
        })
    }

    pub(crate) fn revoked(&self) -> &Arc<RevokedSerials> {
        &self.revoked
    }

    pub(crate) fn roots(&self) -> &Arc<RootCertStore> {
        &self.roots
    }

    /// Returns the configuration of a listener for TLS 1.3 and one application protocol: clients must present a
    /// certificate of the authority, unless `admits_anonymous`, and sessions are not resumed. `refused` receives a revoked
    /// certificate that the client shows.
    pub(crate) fn server(
        &self,
        protocol: &[u8],
        admits_anonymous: bool,
        refused: &RevokedCaller,
    ) -> Result<Arc<ServerConfig>, rustls::Error> {
        let callers = if admits_anonymous {
            &self.optional_callers
        } else {
            &self.callers
        };
        let builder = ServerConfig::builder_with_provider(crate::provider()).with_protocol_versions(&[&TLS13])?;
        let builder = builder.with_client_cert_verifier(Arc::new(UnrevokedVerifier {
            inner: callers.clone(),
            revoked: self.revoked.clone(),
            refused: refused.clone(),
        }));
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(self.key.clone())));
        config.alpn_protocols = vec![protocol.to_owned()];
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// Returns the configuration for clients that have no certificate yet. The chain ends with the certificates of the
    /// authorities, of which such a client knows the fingerprint.
    pub(crate) fn enrolment_server(&self) -> Result<Arc<ServerConfig>, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(crate::provider()).with_protocol_versions(&[&TLS13])?;
        let chain = self.key.cert.iter().chain(&self.authorities).cloned().collect();
        let key = CertifiedKey::new(chain, self.key.key.clone());
        let resolver = SingleCertAndKey::from(key);
        let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = vec![AlpnProtocol::enrolment().name().to_owned()];
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// Returns the configuration of a client for TLS 1.3 and one application protocol: `verifier` checks the server's
    /// certificate, and sessions are not resumed.
    pub(crate) fn client(
        &self,
        protocol: &[u8],
        verifier: Arc<dyn ServerCertVerifier>,
    ) -> Result<Arc<ClientConfig>, rustls::Error> {
        let builder = ClientConfig::builder_with_provider(crate::provider()).with_protocol_versions(&[&TLS13])?;
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(self.key.clone())));
        config.alpn_protocols = vec![protocol.to_owned()];
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Arc::new(config))
    }
}
