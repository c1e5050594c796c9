//! Signing of requests by a controller: an issuer below the authority, or the authority itself.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rcgen::{Issuer, KeyPair, PublicKeyData as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::authority::{AuthorityError, KEY_BYTES, io_error, peer_params, read_back};
use crate::certificate::{CertificateFields, DAY};
use crate::files;
use crate::name::{PeerName, PeerRole};
use crate::request::{self, RequestError};

/// Seconds by which a certificate is valid before its creation, because the clocks of a cluster differ.
const LEEWAY: i64 = 300;

/// Validity of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValidityPeriod {
    /// Start, Unix seconds.
    pub from: i64,
    /// End, Unix seconds.
    pub until: i64,
}

impl ValidityPeriod {
    /// Returns the period of this many seconds from now on; it starts 5 minutes earlier, because clocks differ.
    pub fn seconds(seconds: i64) -> Self {
        let now = crate::now();
        Self {
            from: now - LEEWAY,
            until: now.saturating_add(seconds),
        }
    }

    pub(crate) fn days(days: u32) -> Self {
        Self::seconds(i64::from(days) * DAY)
    }
}

/// Certificate and key that sign.
pub(crate) struct SigningPair {
    pub(crate) card: CertificateFields,
    /// PEM of the certificate.
    pub(crate) certificate: String,
    pub(crate) issuer: Issuer<'static, KeyPair>,
}

impl SigningPair {
    /// Reads a certificate of one of these roles and its key.
    pub(crate) fn read(certificate: &Path, key: &Path, roles: &[PeerRole]) -> Result<Self, AuthorityError> {
        let read =
            |path: &Path| rankguard_files::read_text(path, KEY_BYTES).map_err(|source| io_error("read", path, source));
        let text = read(certificate)?;
        let key_text = read(key)?;
        let card = read_back(text.as_bytes(), certificate)?;
        if !roles.contains(&card.name.role()) {
            return Err(unusable(certificate, format!("is the certificate of {}", card.name)));
        }
        let pair = KeyPair::from_pem(&key_text);
        let pair = pair.map_err(|problem| unusable(key, format!("holds no key: {problem}")))?;
        if x509_key(text.as_bytes()).is_none_or(|public| public != pair.public_key_raw()) {
            let why = "is not the key of the certificate beside it";
            return Err(unusable(key, why.to_owned()));
        }
        let issuer = Issuer::from_ca_cert_pem(&text, pair);
        let issuer = issuer.map_err(|problem| unusable(certificate, format!("cannot sign: {problem}")))?;
        Ok(Self {
            card,
            certificate: text,
            issuer,
        })
    }
}

/// Returns the public key of a certificate.
fn x509_key(pem: &[u8]) -> Option<Vec<u8>> {
    use x509_parser::prelude::{FromDer as _, X509Certificate};
    let der = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, read) = X509Certificate::from_der(&der).ok()?;
    Some(read.public_key().subject_public_key.data.to_vec())
}

fn unusable(path: &Path, why: String) -> AuthorityError {
    AuthorityError::Unusable {
        path: path.to_owned(),
        why,
    }
}

/// Signed certificate of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedCertificate {
    /// Contents of the certificate.
    pub fields: CertificateFields,
    /// PEM of the certificate, and of the issuer's where the authority itself has not signed it.
    pub chain: String,
}

/// Signer of requests: an issuer (`rankguard identity issue-intermediate`), or the authority of the cluster.
pub struct CertificateIssuer {
    pair: SigningPair,
}

impl std::fmt::Debug for CertificateIssuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CertificateIssuer").field(&self.pair.card).finish()
    }
}

impl CertificateIssuer {
    /// Reads certificate and key, and checks that the key is private and that one of the authorities in the file `ca` is
    /// the issuer's certificate or has signed it.
    pub fn open(certificate: &Path, key: &Path, ca: &Path) -> Result<Self, AuthorityError> {
        let metadata = std::fs::metadata(key).map_err(|source| io_error("read", key, source))?;
        let mode = metadata.mode() & 0o777;
        if mode & 0o077 != 0 {
            let why = format!("can be read by others (mode {mode:03o}): chmod 600 {}", key.display());
            return Err(unusable(key, why));
        }
        let pair = SigningPair::read(certificate, key, &[PeerRole::Issuer, PeerRole::Authority])?;
        let roots = files::read_ca(ca).map_err(|why| unusable(ca, why))?;
        let der = CertificateDer::from_pem_slice(pair.certificate.as_bytes());
        let der = der.map_err(|problem| unusable(certificate, format!("is not PEM: {problem}")))?;
        if !roots.certificates.contains(&der) {
            is_signed(&der, &roots.certificates).map_err(|why| unusable(certificate, why))?;
        }
        Ok(Self { pair })
    }

    /// Returns the contents of the issuer's certificate.
    pub fn fields(&self) -> &CertificateFields {
        &self.pair.card
    }

    /// Checks a request as [`sign`](Self::sign) does; returns the SHA-256 of its public key.
    pub fn key_digest(request: &[u8], name: &PeerName) -> Result<[u8; 32], RequestError> {
        let key = request::checked_key(request, name)?;
        let mut digest = [0; 32];
        digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, key.der_bytes()).as_ref());
        Ok(digest)
    }

    /// Checks a certificate signing request (DER, PKCS #10) for this name and signs a certificate of at most
    /// `seconds`; it does not outlive the issuer.
    pub fn sign(&self, request: &[u8], name: &PeerName, seconds: i64) -> Result<SignedCertificate, RequestError> {
        let key = request::checked_key(request, name)?;
        let mut validity = ValidityPeriod::seconds(seconds);
        if self.pair.card.until <= crate::now() {
            return Err(RequestError::IssuerOver);
        }
        validity.until = validity.until.min(self.pair.card.until);
        let failed = |problem: AuthorityError| RequestError::Signing(problem.to_string());
        let params = peer_params(name, &[], validity).map_err(failed)?;
        let signed = params.signed_by(&key, &self.pair.issuer);
        let mut chain = signed
            .map_err(|problem| RequestError::Signing(problem.to_string()))?
            .pem();
        let fields = CertificateFields::of_pem(chain.as_bytes()).map_err(RequestError::Signing)?;
        if self.pair.card.name.role() == PeerRole::Issuer {
            chain += &self.pair.certificate;
        }
        Ok(SignedCertificate { fields, chain })
    }
}

/// Checks that an authority has signed an issuer's certificate, which is valid now.
fn is_signed(issuer: &CertificateDer<'_>, authorities: &[CertificateDer<'_>]) -> Result<(), String> {
    // The verifier of peers refuses every authority as a peer, so the signature is checked here.
    use x509_parser::prelude::{FromDer as _, X509Certificate};
    let (_, read) = X509Certificate::from_der(issuer).map_err(|problem| format!("is no certificate: {problem}"))?;
    let validity = read.validity();
    let now = crate::now();
    if now < validity.not_before.timestamp() || now >= validity.not_after.timestamp() {
        return Err("is not valid now; `rankguard identity issue-intermediate` makes a new one".to_owned());
    }
    let is_found = authorities.iter().any(|authority| has_signed(authority, issuer));
    is_found
        .then_some(())
        .ok_or_else(|| "is not signed by identity.ca".to_owned())
}

/// Returns true if an authority has signed a certificate.
pub(crate) fn has_signed(authority: &CertificateDer<'_>, certificate: &CertificateDer<'_>) -> bool {
    use x509_parser::prelude::{FromDer as _, X509Certificate};
    let parsed = X509Certificate::from_der(authority)
        .ok()
        .zip(X509Certificate::from_der(certificate).ok());
    parsed.is_some_and(|((_, authority), (_, certificate))| {
        authority.subject() == certificate.issuer()
            && certificate.verify_signature(Some(authority.public_key())).is_ok()
    })
}
