//! Epochs of a spool: periods in which its numbers keep their meaning.
//!
//! Every start of the agent begins an epoch, and so does every renumbering of evidence that was not sent. Each has a
//! random id, is reported to the controller before anything is delivered in it, and is stored with the newest number
//! that kept its meaning. A restored copy of the state directory lacks epochs that the controller knows
//! ([`rankguard_model::restored_spool`]).
//!
//! Limits: evidence that a directory recorded and could not deliver before it was replaced by its copy is lost without
//! a trace if it had no session since the copy. A copy that is restored a second time, or was made of a restored
//! directory that had not joined, may deliver its evidence a second time, but loses nothing.

use rankguard_model::{Sequence, SpoolEpoch};
use redb::{ReadableTable, Table, TableDefinition};

use super::{SpoolError, database};

/// Position to id, end and a flag if it may have been reported, oldest first. The end of the last one is not used.
pub(super) const EPOCHS: TableDefinition<'_, u64, (u64, u64, u64)> = TableDefinition::new("epochs");

/// Most epochs that are retained, the current one included.
const EPOCHS_MAX: usize = 32;

/// All epochs of one spool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct EpochChain {
    past: Vec<PastEpoch>,
    current: u64,
    /// True if a controller may know the current one.
    reported: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PastEpoch {
    id: u64,
    end: u64,
    reported: bool,
}

/// Returns a random id for an epoch.
pub(super) fn new_id() -> Result<u64, SpoolError> {
    let bytes: [u8; 8] = rankguard_identity::secret().ok_or(SpoolError::Random)?;
    Ok(u64::from_le_bytes(bytes).max(1))
}

impl EpochChain {
    pub(super) fn read(table: &impl ReadableTable<u64, (u64, u64, u64)>) -> Result<Self, SpoolError> {
        let mut past = Vec::new();
        for entry in table.iter().map_err(database)? {
            let (id, end, reported) = entry.map_err(database)?.1.value();
            past.push(PastEpoch {
                id,
                end,
                reported: reported > 0,
            });
        }
        let last = past.pop();
        Ok(Self {
            past,
            current: last.map_or(0, |last| last.id),
            reported: last.is_some_and(|last| last.reported),
        })
    }

    pub(super) fn write(&self, table: &mut Table<'_, u64, (u64, u64, u64)>) -> Result<(), SpoolError> {
        table.retain(|_, _| false).map_err(database)?;
        let current = PastEpoch {
            id: self.current,
            end: 0,
            reported: self.reported,
        };
        for (position, epoch) in (0..).zip(self.past.iter().chain([&current])) {
            let value = (epoch.id, epoch.end, u64::from(epoch.reported));
            table.insert(position, value).map_err(database)?;
        }
        Ok(())
    }

    /// Ends the current epoch with number `end`, the newest that keeps its meaning, and begins another.
    pub(super) fn begin(&mut self, id: u64, end: u64) {
        let before = self.past.last().map_or(0, |epoch| epoch.end);
        // An unreported epoch without numbers has no use.
        if self.current > 0 && (self.reported || end > before) {
            self.past.push(PastEpoch {
                id: self.current,
                end,
                reported: self.reported,
            });
        }
        if self.past.len() >= EPOCHS_MAX {
            // Unreported epochs only locate a copy more precisely.
            let spare = self.past.iter().rposition(|epoch| !epoch.reported);
            self.past.remove(spare.unwrap_or(0));
        }
        (self.current, self.reported) = (id, false);
    }

    /// Sets the epochs of a restored copy, once it holds only evidence that the controller does not know: the shared
    /// epochs, the epoch of the original that delivered up to `acknowledged`, and a new one. Only numbers up to
    /// `settled` have kept their meaning.
    pub(super) fn adopt(&mut self, reported: &[SpoolEpoch], settled: u64, acknowledged: u64, id: u64) {
        let knows = |epoch: &PastEpoch| reported.iter().any(|other| other.id == epoch.id);
        let shared = self.past.iter().rposition(knows).map_or(0, |place| place + 1);
        self.past.truncate(shared);
        for epoch in &mut self.past {
            epoch.end = epoch.end.min(settled);
        }
        if let Some(original) = reported.last() {
            self.past.retain(|epoch| epoch.id != original.id);
            self.past.push(PastEpoch {
                id: original.id,
                end: acknowledged,
                reported: true,
            });
        }
        (self.current, self.reported) = (id, false);
    }

    /// Returns the id of the current epoch.
    pub(super) fn current(&self) -> u64 {
        self.current
    }

    /// Marks the current epoch as reported. Returns false if it already was.
    pub(super) fn report(&mut self) -> bool {
        !std::mem::replace(&mut self.reported, true)
    }

    /// Returns all epochs, oldest first; `last` is the newest number of the spool.
    pub(super) fn list(&self, last: u64) -> Vec<SpoolEpoch> {
        let epoch = |id, end| SpoolEpoch { id, end: Sequence(end) };
        let past = self.past.iter().map(|past| epoch(past.id, past.end));
        past.chain([epoch(self.current, last)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(chain: &EpochChain) -> Vec<(u64, u64)> {
        chain.list(99).iter().map(|epoch| (epoch.id, epoch.end.0)).collect()
    }

    #[test]
    fn reported_epochs_outlive_those_that_nobody_knows() {
        let mut chain = EpochChain::default();
        chain.begin(1, 0);
        assert!(chain.report());
        for id in 2..1_000 {
            chain.begin(id, id);
        }
        let known = ids(&chain);
        assert!(known.len() <= EPOCHS_MAX);
        assert_eq!(known[0], (1, 2));
        assert_eq!(known.last(), Some(&(999, 99)));
    }

    #[test]
    fn an_epoch_without_numbers_that_nobody_knows_is_forgotten() {
        let mut chain = EpochChain::default();
        chain.begin(1, 0);
        chain.begin(2, 0);
        chain.begin(3, 4);
        chain.begin(4, 4);
        assert_eq!(ids(&chain), [(2, 4), (4, 99)]);
    }

    #[test]
    fn a_copy_goes_on_from_the_original() {
        let mut chain = EpochChain::default();
        chain.begin(1, 0);
        chain.report();
        chain.begin(3, 5);
        chain.begin(4, 9);
        let epoch = |id, end| SpoolEpoch { id, end: Sequence(end) };
        chain.adopt(&[epoch(1, 5), epoch(2, 5)], 5, 7, 6);
        assert_eq!(ids(&chain), [(1, 5), (2, 7), (6, 99)]);
        assert_eq!(
            rankguard_model::restored_spool(&chain.list(9), &[epoch(1, 5), epoch(2, 5)], Sequence(7)),
            None
        );
    }
}
