//! Who speaks on a network: one private authority a cluster, names in certificates, mutual TLS 1.3.
//!
//! A [`Name`] says who somebody is (`rankguard://prod/agent/n1`) and stands in a certificate that the cluster's
//! [`Authority`] has signed; a [`Card`] is what a certificate says. [`Identity`] is a process's own: three files, read again
//! when they change. [`Network`] is how a process speaks: over loopback without any of this, or with an identity to whoever has one of
//! the same cluster. It gives out [`Wire`]s, which are authenticated streams, and [`Listener`]s of them.
//!
//! Invariants:
//! - Without an identity nothing but loopback is listened on or dialled.
//! - With one, no byte of a program is read from, or given to, somebody who has not shown a certificate of the same authority
//!   and cluster that is valid at this moment. Nothing is resumed: every connection shows its certificate anew.
//! - Whoever dials says whom it expects, and hears before its first byte whether the other side takes it (TLS 1.3 alone would
//!   tell it later, as a broken connection).
//! - A handshake has a deadline and holds up nobody else's; how many go on at once is bounded (RG-9).
//! - Files that cannot be used never take the place of ones that can (they are refused with file and reason).
//!
//! Absent: revocation (certificates are short-lived; a lost key is answered with a new authority), keys in hardware,
//! intermediate authorities of one's own making, and what ranks say to each other, which is the job's.

mod authority;
mod caller;
mod card;
mod files;
mod handshake;
mod held;
mod identity;
mod listener;
mod name;
mod network;
mod plain;
mod problem;
mod protocol;
mod refusals;
mod verify;
mod wire;

pub use authority::{Authority, AuthorityError, Issue};
pub use caller::{Caller, Gate};
pub use card::Card;
pub use files::Files;
pub use identity::{Identity, Standing};
pub use listener::Listener;
pub use name::{Name, NameError, Role};
pub use network::{Connector, DialError, Expected, Exposed, Network};
pub use problem::{Problem, Problems};
pub use protocol::Protocol;
pub use refusals::{Refusal, Refusals};
pub use wire::Wire;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// The one library of ciphers that is used here.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Makes the provider of this crate the default of the process; a provider that is already installed is kept.
pub fn install_crypto_provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Bytes that nobody can guess; `None` where the system gives none.
pub fn secret<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    provider().secure_random.fill(&mut bytes).ok()?;
    Some(bytes)
}

/// Seconds since 1970, by the wall clock: certificates know no other.
fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
