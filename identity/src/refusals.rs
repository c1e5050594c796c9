//! Counters of refused peers; at most one log line per second.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rankguard_model::NodeId;

use crate::name::PeerName;
use crate::revocation::CertificateSerial;

/// Minimum time between two log lines, so that unauthenticated peers cannot fill a disk.
const QUIET: Duration = Duration::from_secs(1);

/// Maximum number of peers with a revoked certificate that are recorded.
const REVOKED_MAX: usize = 1_024;

/// Reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// The peer does not use TLS.
    Plain,
    /// The handshake exceeded its deadline.
    Slow,
    /// The certificate or the handshake is invalid.
    Certificate,
    /// The peer's role does not permit the request.
    Role,
    /// The peer acted for another node than its own.
    Node,
}

impl RefusalReason {
    const ALL: [Self; 5] = [Self::Plain, Self::Slow, Self::Certificate, Self::Role, Self::Node];

    /// Returns the label of the reason in metrics and logs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Slow => "slow",
            Self::Certificate => "certificate",
            Self::Role => "role",
            Self::Node => "node",
        }
    }
}

/// Counters of a process. Cheap to clone; all clones share one set.
#[derive(Clone, Default)]
pub struct RefusalCounters(Arc<RefusalState>);

#[derive(Default)]
struct RefusalState {
    counts: [AtomicU64; RefusalReason::ALL.len()],
    told: Mutex<Option<Instant>>,
    /// Serial numbers of revoked certificates that peers showed, by the name in them.
    revoked: Mutex<BTreeMap<PeerName, CertificateSerial>>,
}

impl RefusalCounters {
    /// Records a peer that showed a revoked certificate. Further names are ignored once [`REVOKED_MAX`] are recorded.
    pub(crate) fn note_revoked(&self, name: &PeerName, serial: &CertificateSerial) {
        let mut revoked = self.0.revoked.lock().unwrap_or_else(PoisonError::into_inner);
        if revoked.len() < REVOKED_MAX || revoked.contains_key(name) {
            revoked.insert(name.clone(), serial.clone());
        }
    }

    /// Forgets the revoked certificate of a peer that has shown a valid one.
    pub(crate) fn forget_revoked(&self, name: &PeerName) {
        self.0
            .revoked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }

    /// Returns the serial number of the revoked certificate that the agent of a node showed, if it has shown no valid
    /// one since.
    pub fn revoked_agent(&self, node: &NodeId) -> Option<CertificateSerial> {
        let revoked = self.0.revoked.lock().unwrap_or_else(PoisonError::into_inner);
        let of_node = revoked.iter().find(|(name, _)| name.is_agent_of(node));
        of_node.map(|(_, serial)| serial.clone())
    }

    /// Counts a refusal, and logs it if the last log line is old enough.
    pub fn record(&self, why: RefusalReason, peer: Option<SocketAddr>, what: &str) {
        let slot = RefusalReason::ALL.iter().position(|it| *it == why).unwrap_or_default();
        let count = self.0.counts[slot].fetch_add(1, Ordering::Relaxed) + 1;
        let mut told = self.0.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= QUIET) {
            *told = Some(Instant::now());
            let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
            tracing::warn!(peer, why = why.word(), count, "refused: {what}");
        }
    }

    /// Returns the number of refusals by reason.
    pub fn counts(&self) -> [(RefusalReason, u64); 5] {
        let mut slot = 0;
        RefusalReason::ALL.map(|why| {
            let count = self.0.counts[slot].load(Ordering::Relaxed);
            slot += 1;
            (why, count)
        })
    }
}

impl fmt::Debug for RefusalCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Refusals")
    }
}
