//! SHA-256 fingerprint of an authority's certificate: what a node without a certificate knows of its cluster.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::issuer::has_signed;

/// Fingerprint of an authority's certificate (DER), as `openssl x509 -noout -fingerprint -sha256` prints it. Its text is 64
/// hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuthorityFingerprint([u8; 32]);

/// Text that is no fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no fingerprint: expected the SHA-256 of the authority's certificate, 64 hexadecimal digits")]
pub struct FingerprintError {
    text: String,
}

impl AuthorityFingerprint {
    /// Returns the fingerprint of the first certificate of a PEM text; `None` if it holds none.
    pub fn of_pem(text: &[u8]) -> Option<Self> {
        CertificateDer::from_pem_slice(text).ok().map(|der| Self::of(&der))
    }

    /// Returns the fingerprints of all certificates of a PEM file; none if it cannot be read.
    pub fn all_of_file(path: &Path) -> Vec<Self> {
        certificates(path).iter().map(Self::of).collect()
    }

    /// Returns the fingerprint of the authority in the file `ca` that has signed the certificate in a file; `None` if there
    /// is none.
    pub fn of_signer(certificate: &Path, ca: &Path) -> Option<Self> {
        let leaf = certificates(certificate).into_iter().next()?;
        let signer = certificates(ca)
            .into_iter()
            .find(|authority| has_signed(authority, &leaf))?;
        Some(Self::of(&signer))
    }

    pub(crate) fn of(der: &CertificateDer<'_>) -> Self {
        let mut digest = [0; 32];
        digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, der).as_ref());
        Self(digest)
    }
}

/// Returns the certificates of a PEM file; none if it cannot be read.
fn certificates(path: &Path) -> Vec<CertificateDer<'static>> {
    let text = rankguard_files::read_text(path, crate::authority::KEY_BYTES).unwrap_or_default();
    let all = CertificateDer::pem_slice_iter(text.as_bytes());
    all.filter_map(Result::ok).collect()
}

impl fmt::Display for AuthorityFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for AuthorityFingerprint {
    type Err = FingerprintError;

    /// Parses hexadecimal digits, with or without `sha256:` before them and colons between the bytes.
    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let wrong = || FingerprintError {
            text: text.chars().take(100).collect(),
        };
        let plain = text.trim().strip_prefix("sha256:").unwrap_or(text.trim());
        let digits: Vec<u8> = plain.bytes().filter(|byte| *byte != b':').collect();
        if digits.len() != 64 {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let value = |digit: u8| {
                char::from(digit)
                    .to_digit(16)
                    .and_then(|value| u8::try_from(value).ok())
            };
            let (high, low) = value(pair[0]).zip(value(pair[1])).ok_or_else(wrong)?;
            *byte = high << 4 | low;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_openssl_prints_it() {
        let print = AuthorityFingerprint::of(&CertificateDer::from(vec![1, 2, 3]));
        let text = print.to_string();
        assert_eq!(text.parse(), Ok(print));
        let colons: Vec<String> = text
            .as_bytes()
            .chunks(2)
            .map(|pair| String::from_utf8_lossy(pair).to_uppercase())
            .collect();
        assert_eq!(format!("sha256:{}", colons.join(":")).parse(), Ok(print));
        for wrong in [
            "",
            "ab",
            &text[1..],
            &format!("{text}0"),
            &text.replace(&text[..1], "g"),
        ] {
            assert!(wrong.parse::<AuthorityFingerprint>().is_err(), "{wrong}");
        }
    }
}
