//! Identity of network peers: one private authority per cluster, names in certificates, mutual TLS 1.3.
//!
//! A [`PeerName`] identifies a peer (`rankguard://prod/agent/n1`) in a certificate that the cluster's [`CertificateAuthority`] has
//! signed; a [`CertificateFields`] holds the contents of a certificate. [`TlsIdentity`] is that of this process: three files that are
//! read again when they change. [`PeerTransport`] is the transport: loopback without identity, or with an identity to any
//! peer of the same cluster. It creates [`PeerStream`]s, which are authenticated streams, and [`PeerListener`]s of them.
//!
//! Invariants:
//! - Without an identity only loopback is listened on or dialled.
//! - With an identity, no application byte is read from, or sent to, a peer that has not presented a currently valid
//!   certificate of the same authority and cluster. The only exception is a listener that admits anonymous TLS clients on
//!   purpose: their peer has no name and no rights, and the service authenticates each request. Sessions are not resumed: every connection presents its
//!   certificate.
//! - A dialler states the expected peer, and learns before its first byte whether that peer accepts it (TLS 1.3 alone
//!   would report it later, as a broken connection).
//! - A handshake has a deadline and delays no other; concurrent handshakes are bounded (RG-9).
//! - Unusable files never replace usable ones (they are refused with file and reason).
//! - A certificate of the revocation list is refused in every handshake, and an open connection with it ends at its next
//!   byte after the list was read.
//!
//! - A certificate that an issuer signed is accepted for an agent only, so that the key of an issuer makes no operator.
//! - A node without a certificate sends its token only to a controller whose authority has a fingerprint that it was given.
//!
//! Absent: OCSP, hardware keys, and traffic between ranks, which belongs to the job.

mod authority;
mod caller;
mod certificate;
mod enrolment;
mod files;
mod fingerprint;
mod handshake;
mod identity;
mod issuer;
mod listener;
mod loaded;
mod name;
mod network;
mod plaintext_refusal;
mod problem;
mod protocol;
mod refusals;
mod request;
mod revocation;
mod rotation;
mod verify;
mod wire;

pub use authority::{AuthorityError, CertificateAuthority, IssueRequest, IssuedCertificate, IssuerFiles};
pub use caller::{ConnectionPeer, MethodRoles, PathRecorder, RefusalObserver, RequestPath, RoleInterceptor};
pub use certificate::CertificateFields;
pub use enrolment::{EnrolmentConnection, dial_enrolment};
pub use files::IdentityFiles;
pub use fingerprint::{AuthorityFingerprint, FingerprintError};
pub use identity::{IdentityStatus, TlsIdentity};
pub use issuer::{CertificateIssuer, SignedCertificate, ValidityPeriod};
pub use listener::{EnrolmentListener, PeerListener};
pub use name::{NameError, PeerName, PeerRole};
pub use network::{ChannelConnector, DialError, ExpectedPeer, ExposedAddress, PeerTransport};
pub use plaintext_refusal::REQUIRES_TLS;
pub use problem::{IdentityProblem, IdentityProblems};
pub use protocol::AlpnProtocol;
pub use refusals::{RefusalCounters, RefusalReason};
pub use request::{KeyRequest, RequestError};
pub use revocation::{CertificateSerial, SerialError};
pub use wire::PeerStream;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// Returns the only cryptography provider in use.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Makes the provider of this crate the default of the process; a provider that is already installed is kept.
pub fn install_crypto_provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Returns random bytes for a secret; `None` if the system provides none.
pub fn secret<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    provider().secure_random.fill(&mut bytes).ok()?;
    Some(bytes)
}

/// Returns the wall-clock time in Unix seconds, the time base of certificates.
fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
