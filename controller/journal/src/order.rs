//! Entries in the order of their numbers, and what is wrong with them.

use std::path::Path;

use crate::{JournalError, Take, decode};

/// Hands entries on and knows which one comes next.
pub(crate) struct Order<'a> {
    path: &'a Path,
    next: u64,
    take: Take<'a>,
}

impl<'a> Order<'a> {
    /// Entries from number `next` on.
    pub(crate) fn new(path: &'a Path, next: u64, take: Take<'a>) -> Self {
        Self { path, next, take }
    }

    /// The number that is wanted next, from 1.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// An entry; one that was handed on before is left out.
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
