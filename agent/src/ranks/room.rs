//! Limits on concurrent rank connections and on the log lines about them (RG-9).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rankguard_model::RankRef;

/// Maximum concurrent connections that have not named their rank.
const GREETINGS_MAX: usize = 64;
/// Maximum concurrent connections of one rank: its trainer, and one that is being replaced.
const SESSIONS_OF_RANK_MAX: usize = 4;
/// Maximum concurrent connections: all ranks of the largest node, twice.
const SESSIONS_MAX: usize = 2_048;
/// Minimum time between two log lines about connections.
const QUIET: Duration = Duration::from_secs(1);

/// Counts of open connections. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct SessionLimits(Arc<Mutex<ConnectionCounts>>);

#[derive(Debug, Default)]
struct ConnectionCounts {
    greetings: usize,
    ranks: BTreeMap<RankRef, usize>,
    logged: Option<Instant>,
    unlogged: u64,
}

/// Counted connection; dropping it frees the place.
#[derive(Debug)]
pub(super) struct CountedSession {
    room: SessionLimits,
    rank: Option<RankRef>,
}

impl SessionLimits {
    fn lock(&self) -> MutexGuard<'_, ConnectionCounts> {
        // The counters are consistent between any two statements, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a place for a connection without a rank; `None` if there are too many.
    pub(super) fn enter(&self) -> Option<CountedSession> {
        let mut all = self.lock();
        if all.greetings >= GREETINGS_MAX || all.ranks.values().sum::<usize>() >= SESSIONS_MAX {
            return None;
        }
        all.greetings += 1;
        let room = self.clone();
        Some(CountedSession { room, rank: None })
    }

    /// Logs a failure, at most once a second; the others are counted.
    pub(super) fn report(&self, what: &str) {
        let mut all = self.lock();
        if all.logged.is_some_and(|logged| logged.elapsed() < QUIET) {
            all.unlogged += 1;
            return;
        }
        all.logged = Some(Instant::now());
        let not_logged = std::mem::take(&mut all.unlogged);
        drop(all);
        tracing::warn!(not_logged, "a rank's connection ended: {what}");
    }
}

impl CountedSession {
    /// Assigns the connection to the rank that it has named. Returns false if that rank has too many connections.
    pub(super) fn name(&mut self, rank: &RankRef) -> bool {
        let mut all = self.room.lock();
        let count = all.ranks.entry(rank.clone()).or_default();
        if *count >= SESSIONS_OF_RANK_MAX {
            return false;
        }
        *count += 1;
        all.greetings = all.greetings.saturating_sub(1);
        self.rank = Some(rank.clone());
        true
    }
}

impl Drop for CountedSession {
    fn drop(&mut self) {
        let mut all = self.room.lock();
        let Some(rank) = self.rank.take() else {
            all.greetings = all.greetings.saturating_sub(1);
            return;
        };
        if let Some(count) = all.ranks.get_mut(&rank) {
            *count -= 1;
            if *count == 0 {
                all.ranks.remove(&rank);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::{Generation, JobId, Rank};

    use super::*;

    fn rank(number: u32) -> RankRef {
        RankRef {
            job: JobId::from("llm"),
            generation: Generation(1),
            rank: Rank(number),
        }
    }

    #[test]
    fn places_are_bounded_and_given_back() {
        let room = SessionLimits::default();
        let mut places: Vec<_> = (0..GREETINGS_MAX).filter_map(|_| room.enter()).collect();
        assert!(places.len() == GREETINGS_MAX && room.enter().is_none());
        let named = places
            .iter_mut()
            .filter_map(|place| place.name(&rank(0)).then_some(()))
            .count();
        assert_eq!(named, SESSIONS_OF_RANK_MAX);
        assert!(
            room.enter().is_some(),
            "who has a name is no longer counted with those who have none"
        );
        drop(places);
        let all = room.lock();
        assert!(all.greetings == 0 && all.ranks.is_empty(), "{all:?}");
    }
}
