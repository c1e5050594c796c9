//! The events of one journal commit, and what is owed once they are on disk.

use std::collections::BTreeSet;

use rankguard_core::{Event, Stamped};
use rankguard_model::{NodeId, Timestamp};

use crate::input::{Query, Reply};
use crate::journal;
use crate::roster::SessionId;

/// The events of one journal commit, and what is owed once they are on disk.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// In order.
    pub(crate) entries: Vec<Entry>,
    /// Agents that get an acknowledgement.
    pub(crate) acknowledge: BTreeSet<NodeId>,
    /// Questions, answered when all events have been taken in.
    pub(crate) queries: Vec<Query>,
}

/// One event on its way into the journal.
#[derive(Debug)]
pub(crate) struct Entry {
    /// As it reads back from the journal.
    pub(crate) stamped: Stamped,
    /// As the journal holds it.
    pub(crate) bytes: Vec<u8>,
    /// What is owed.
    pub(crate) after: After,
}

/// What is owed to somebody once an event has been taken in.
#[derive(Debug)]
pub(crate) enum After {
    /// Nothing.
    Nothing,
    /// The first message of a session, ahead of the orders that follow from the event.
    Welcome { node: NodeId, session: SessionId },
    /// The answer to an operator.
    Reply(Reply),
}

impl Batch {
    /// Adds an event. Fails when it cannot be read back from what the journal would hold.
    pub(crate) fn push(&mut self, at: Timestamp, event: Event, after: After) -> Result<(), serde_json::Error> {
        let bytes = journal::encode(&Stamped { at, event })?;
        let stamped = journal::decode(&bytes)?;
        self.entries.push(Entry { stamped, bytes, after });
        Ok(())
    }

    /// Takes the journal's part out.
    pub(crate) fn take_bytes(&mut self) -> Vec<Vec<u8>> {
        self.entries
            .iter_mut()
            .map(|entry| std::mem::take(&mut entry.bytes))
            .collect()
    }
}
