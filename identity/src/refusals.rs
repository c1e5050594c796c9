//! Who was refused: counted always, told at most once a second.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Least time between two lines of a log: strangers must not fill a disk.
const QUIET: Duration = Duration::from_secs(1);

/// Why somebody was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It speaks without TLS.
    Plain,
    /// It said nothing in time.
    Slow,
    /// Its certificate, or its handshake, is not good.
    Certificate,
    /// It may not ask for this in its role.
    Role,
    /// It spoke for another node than its own.
    Node,
}

impl Refusal {
    const ALL: [Self; 5] = [Self::Plain, Self::Slow, Self::Certificate, Self::Role, Self::Node];

    /// Its word in numbers and logs.
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

/// The refusals of a process. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub struct Refusals(Arc<Inner>);

#[derive(Default)]
struct Inner {
    counts: [AtomicU64; Refusal::ALL.len()],
    told: Mutex<Option<Instant>>,
}

impl Refusals {
    /// Counts one, and logs it if the last line is old enough.
    pub fn tell(&self, why: Refusal, peer: Option<SocketAddr>, what: &str) {
        let slot = Refusal::ALL.iter().position(|it| *it == why).unwrap_or_default();
        let count = self.0.counts[slot].fetch_add(1, Ordering::Relaxed) + 1;
        let mut told = self.0.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= QUIET) {
            *told = Some(Instant::now());
            let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
            tracing::warn!(peer, why = why.word(), count, "refused: {what}");
        }
    }

    /// How many there were of each.
    pub fn counts(&self) -> [(Refusal, u64); 5] {
        let mut slot = 0;
        Refusal::ALL.map(|why| {
            let count = self.0.counts[slot].load(Ordering::Relaxed);
            slot += 1;
            (why, count)
        })
    }
}

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Refusals")
    }
}
