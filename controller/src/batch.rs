//! The events of one journal commit, and what is owed once they are on disk.

use std::collections::BTreeSet;

use rankguard_core::{Event, Stamped};
use rankguard_model::{NodeId, Timestamp};

use crate::authority::StartedProcesses;
use crate::inbound::InboundPermit;
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
    /// Room that its evidence takes up.
    pub(crate) permits: Vec<InboundPermit>,
    /// Questions, answered when all events have been taken in.
    pub(crate) queries: Vec<Query>,
    /// Processes of ranks that its evidence reports as started.
    pub(crate) started: StartedProcesses,
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

    /// Adds events that were held, where they can be written now; else they are held on.
    pub(crate) fn events(&mut self, held: Vec<Event>, at: Timestamp) {
        for event in held {
            if let Err(problem) = self.push(at, event, After::Nothing) {
                tracing::error!(%problem, "an event cannot be written to the journal and is dropped");
            }
        }
    }

    /// Takes the journal's part out.
    pub(crate) fn take_bytes(&mut self) -> Vec<Vec<u8>> {
        self.entries
            .iter_mut()
            .map(|entry| std::mem::take(&mut entry.bytes))
            .collect()
    }
}
