//! Entries in the order of their numbers, with missing and unreadable ones reported.

use std::path::Path;

use crate::{EntryCallback, JournalError, decode};

/// Passes entries on and tracks the next expected number.
pub(crate) struct EntrySequencer<'a> {
    path: &'a Path,
    next: u64,
    take: EntryCallback<'a>,
}

impl<'a> EntrySequencer<'a> {
    /// Expects entries from number `next` on.
    pub(crate) fn new(path: &'a Path, next: u64, take: EntryCallback<'a>) -> Self {
        Self { path, next, take }
    }

    /// Returns the next expected number, from 1.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Passes an entry on; one that was passed on before is skipped.
    pub(crate) fn entry(&mut self, number: u64, bytes: &[u8]) -> Result<(), JournalError> {
        if number < self.next {
            return Ok(());
        }
        let path = self.path;
        if number > self.next {
            (self.take)(Err(JournalError::Gap {
                path: path.to_owned(),
                entry: self.next,
            }))?;
        }
        self.next = number.saturating_add(1);
        (self.take)(decode(bytes).map_err(|source| JournalError::Unreadable {
            path: path.to_owned(),
            entry: number,
            source,
        }))
    }
}
