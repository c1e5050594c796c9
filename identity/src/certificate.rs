//! Contents of a certificate. Its signature is not verified here.

use std::net::IpAddr;

use rankguard_model::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::name::PeerName;
use crate::revocation::CertificateSerial;

/// Remaining days below which a certificate should be renewed.
const SOON_DAYS: f64 = 14.0;
/// Seconds of a day.
pub(crate) const DAY: i64 = 86_400;

/// Contents of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFields {
    /// Serial number.
    pub serial: CertificateSerial,
    /// Name of the owner.
    pub name: PeerName,
    /// Host names and addresses of the owner.
    pub hosts: Vec<String>,
    /// Start of the validity, in Unix seconds.
    pub from: i64,
    /// End of the validity, in Unix seconds.
    pub until: i64,
}

impl CertificateFields {
    /// Parses the first certificate of a PEM text; the error describes its fault.
    pub fn of_pem(text: &[u8]) -> Result<Self, String> {
        let der = CertificateDer::from_pem_slice(text).map_err(|problem| format!("holds no certificate: {problem}"))?;
        Self::of(&der)
    }

    pub(crate) fn of(der: &CertificateDer<'_>) -> Result<Self, String> {
        let (_, read) = X509Certificate::from_der(der).map_err(|problem| format!("is no certificate: {problem}"))?;
        let alternatives = read
            .subject_alternative_name()
            .map_err(|problem| format!("has names that cannot be read: {problem}"))?;
        let alternatives = alternatives.map_or(&[][..], |it| &it.value.general_names);
        let mut names = Vec::new();
        let mut hosts = Vec::new();
        for alternative in alternatives {
            match alternative {
                GeneralName::URI(uri) if PeerName::is_meant(uri) => {
                    names.push(uri.parse::<PeerName>().map_err(|problem| problem.to_string())?);
                }
                GeneralName::DNSName(host) => hosts.push((*host).to_owned()),
                GeneralName::IPAddress(bytes) => hosts.extend(address(bytes).map(|address| address.to_string())),
                _ => {}
            }
        }
        let name = match names.as_slice() {
            [name] => name.clone(),
            [] => {
                return Err(
                    "has no rankguard:// name; create a certificate with `rankguard identity issue`".to_owned(),
                );
            }
            _ => return Err(format!("names {} at once; it may name one", names.len())),
        };
        Ok(Self {
            serial: CertificateSerial::of(read.raw_serial()),
            name,
            hosts,
            from: read.validity().not_before.timestamp(),
            until: read.validity().not_after.timestamp(),
        })
    }

    /// Returns the remaining validity in days; negative after the expiry.
    pub fn days_left(&self) -> f64 {
        self.until.saturating_sub(crate::now()) as f64 / DAY as f64
    }

    /// Returns the end of the validity.
    pub fn valid_until(&self) -> Timestamp {
        Timestamp(self.until.saturating_mul(1_000_000_000))
    }

    /// Returns true if the certificate expires within 14 days or has expired, and should be renewed.
    pub fn ends_soon(&self) -> bool {
        self.days_left() < SOON_DAYS
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(four.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_are_no_certificate_and_no_panic(bytes: Vec<u8>) {
            prop_assert!(CertificateFields::of(&CertificateDer::from(bytes.clone())).is_err());
            prop_assert!(CertificateFields::of_pem(&bytes).is_err());
        }
    }
}
