//! Certificate revocation lists (RFC 5280, section 5): certificates that are refused before they expire.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::revocation_list::CertificateRevocationList;

use crate::certificate::CertificateFields;
use crate::identity::TlsIdentity;
use crate::verify::permitted_intermediates;

/// Maximum bytes of a serial number (RFC 5280, section 4.1.2.2).
const SERIAL_BYTES: usize = 20;

/// Serial number of a certificate; an authority never uses one twice. Its text is hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CertificateSerial(Vec<u8>);

impl CertificateSerial {
    /// Creates a serial number from its big-endian bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        Self(bytes[zeros..].to_vec())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for CertificateSerial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Text that is no serial number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no serial number: expected up to 40 hexadecimal digits, as `rankguard identity show` prints them")]
pub struct SerialError {
    text: String,
}

impl FromStr for CertificateSerial {
    type Err = SerialError;

    /// Parses hexadecimal digits, with or without colons between the bytes.
    fn from_str(text: &str) -> Result<Self, SerialError> {
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b':').collect();
        let value = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let is_whole = digits.len().is_multiple_of(2) && (1..=SERIAL_BYTES).contains(&(digits.len() / 2));
        let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
        let bytes: Option<Vec<u8>> = (is_whole && is_hex)
            .then(|| digits.chunks(2).map(value).collect())
            .flatten();
        let refused = || SerialError {
            text: text.chars().take(60).collect(),
        };
        bytes.map(|bytes| Self::of(&bytes)).ok_or_else(refused)
    }
}

/// Serial numbers of revoked certificates, with the Unix time of the revocation.
pub(crate) type RevokedSerials = BTreeMap<CertificateSerial, i64>;

/// Parses the lists of a PEM text and verifies that each is signed by one of these authorities. The time of their next
/// update is not enforced: a list that is not renewed keeps its entries.
pub(crate) fn parse_lists(pem: &[u8], authorities: &[CertificateDer<'_>]) -> Result<RevokedSerials, String> {
    let lists = CertificateRevocationListDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let lists = lists.map_err(|problem| format!("is not PEM: {problem}"))?;
    if lists.is_empty() {
        return Err("holds no revocation list (-----BEGIN X509 CRL-----)".to_owned());
    }
    let mut revoked = RevokedSerials::new();
    for list in &lists {
        let (_, list) = CertificateRevocationList::from_der(list.as_ref())
            .map_err(|problem| format!("holds a revocation list that cannot be read: {problem}"))?;
        let is_signer = |authority: &CertificateDer<'_>| {
            X509Certificate::from_der(authority).is_ok_and(|(_, authority)| {
                authority.subject() == list.issuer() && list.verify_signature(authority.public_key()).is_ok()
            })
        };
        if !authorities.iter().any(is_signer) {
            return Err("holds a revocation list that no authority of identity.ca has signed".to_owned());
        }
        let entries = list.iter_revoked_certificates();
        revoked.extend(entries.map(|entry| {
            let at = entry.revocation_date.timestamp();
            (CertificateSerial::of(entry.raw_serial()), at)
        }));
    }
    Ok(revoked)
}

/// Checks that a certificate is not revoked.
pub(crate) fn check(fields: &CertificateFields, revoked: &RevokedSerials) -> Result<(), Error> {
    if revoked.contains_key(&fields.serial) {
        return Err(CertificateError::Revoked.into());
    }
    Ok(())
}

/// Checks that none of the certificates is revoked.
pub(crate) fn check_all(certificates: &[CertificateDer<'_>], revoked: &RevokedSerials) -> Result<(), Error> {
    let fields = certificates.iter().filter_map(|der| CertificateFields::of(der).ok());
    fields.into_iter().try_for_each(|fields| check(&fields, revoked))
}

/// Fields of the revoked certificate that a client showed in a handshake; empty if it showed none.
pub(crate) type RevokedCaller = Arc<OnceLock<CertificateFields>>;

/// Verifier of client certificates that refuses revoked ones, for one connection.
#[derive(Debug)]
pub(crate) struct UnrevokedVerifier {
    pub(crate) inner: Arc<dyn ClientCertVerifier>,
    pub(crate) revoked: Arc<RevokedSerials>,
    /// Receives the fields of a refused certificate, because the error of a handshake does not carry them.
    pub(crate) refused: RevokedCaller,
}

impl ClientCertVerifier for UnrevokedVerifier {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let intermediates = permitted_intermediates(end_entity, intermediates);
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        // A certificate without a name of ours is refused after the handshake, with a better reason.
        if let Ok(fields) = CertificateFields::of(end_entity) {
            let checked = check(&fields, &self.revoked).and_then(|()| check_all(intermediates, &self.revoked));
            if checked.is_err() {
                self.refused.get_or_init(|| fields);
            }
            checked?;
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Check of an open connection: its peer's certificate, or that of its issuer, may be revoked while it lasts.
#[derive(Debug)]
pub(crate) struct ConnectionCheck {
    identity: TlsIdentity,
    /// Serial numbers of the certificates that the peer has shown, its own first.
    serials: Vec<CertificateSerial>,
    /// Reading of the identity's files at which the certificate was last found valid.
    checked: u64,
}

impl ConnectionCheck {
    /// Creates the check of a connection with a peer that has shown these certificates.
    pub(crate) fn new(identity: &TlsIdentity, shown: &[CertificateDer<'_>]) -> Self {
        let serial = |der| CertificateFields::of(der).ok().map(|fields| fields.serial);
        Self {
            identity: identity.clone(),
            serials: shown.iter().filter_map(serial).collect(),
            // The handshake may have used an older list.
            checked: 0,
        }
    }

    /// Fails once the certificate of the peer, or that of its issuer, is revoked.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let reading = self.identity.reading();
        if reading != self.checked {
            let revoked = self.identity.revoked();
            let found = self.serials.iter().position(|serial| revoked.contains_key(serial));
            if let Some(place) = found {
                let whose = if place == 0 { "the peer" } else { "the peer's issuer" };
                let what = format!(
                    "the certificate of {whose} (serial number {}) is revoked",
                    self.serials[place]
                );
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
            }
            self.checked = reading;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn serial_numbers_are_read_as_printed() {
        let serial = CertificateSerial::of(&[0, 0x4f, 0x01, 0xab]);
        assert_eq!(serial.to_string(), "4f01ab");
        assert_eq!("4f01ab".parse(), Ok(serial.clone()));
        assert_eq!("00:4F:01:AB".parse(), Ok(serial));
        for text in ["", "4f0", "xy", "+1", &"ab".repeat(21)] {
            assert!(text.parse::<CertificateSerial>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_no_list_and_no_panic(bytes: Vec<u8>) {
            prop_assert!(parse_lists(&bytes, &[]).is_err());
        }
    }
}
