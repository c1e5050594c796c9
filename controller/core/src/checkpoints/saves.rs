//! Saves under way: images that ranks have sealed, and that the store does not have completely.

use std::time::Duration;

use rankguard_model::{Generation, Rank, Step, Timestamp};

use super::JobCheckpoints;

/// Saves with a recorded time; the oldest is dropped first.
const SEALED_MAX: usize = 8;
/// Shortest time after which a save that is not complete is reported.
const LONG_SAVE: Duration = Duration::from_secs(5);

/// Save that is not complete in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenSave {
    step: Step,
    /// Time of the first sealed image.
    since: Timestamp,
    /// First rank that has sealed its image and whose shard is not durable; absent if only the commit is missing.
    rank: Option<Rank>,
}

impl OpenSave {
    /// Describes the save as a clause.
    pub(crate) fn describe(&self, store: &str) -> String {
        let Self { step, since, rank } = self;
        match rank {
            Some(rank) => {
                format!("a save of step {step} has been under way since {since} on rank {rank}, into the store {store}")
            }
            None => {
                format!("a save of step {step} has been under way since {since}: its commit into the store {store}")
            }
        }
    }
}

impl JobCheckpoints {
    /// Records the time of a seal.
    pub(crate) fn note_seal(&mut self, generation: Generation, step: Step, at: Timestamp) {
        let sealed_at = self.sealed_at.entry((generation, step)).or_insert(at);
        *sealed_at = at.min(*sealed_at);
        if self.sealed_at.len() > SEALED_MAX {
            self.sealed_at.pop_first();
        }
    }

    /// Returns the oldest save of the newest generation that has been under way for long; `None` if all are complete or void.
    pub(crate) fn save_under_way(&self, at: Timestamp) -> Option<OpenSave> {
        let done = self.newest().map(|newest| newest.step);
        let mut sealed = self.sealed_at.iter().filter(|((generation, step), since)| {
            let is_open = Some(*step) > done && !self.attempts.is_void(*generation, *step);
            is_open && *generation == self.trained && at.since(**since) >= LONG_SAVE
        });
        let ((generation, step), since) = sealed.next()?;
        let stored = self.attempts.images(*generation, *step);
        let mut ranks = self
            .stall_ms
            .get(&(*generation, *step))
            .into_iter()
            .flat_map(|ranks| ranks.keys());
        let rank = ranks.find(|rank| stored.is_none_or(|stored| !stored.contains_key(rank)));
        Some(OpenSave {
            step: *step,
            since: *since,
            rank: rank.copied(),
        })
    }
}
