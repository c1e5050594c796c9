//! Batches: the events of one journal commit, with the replies that are due after it.

use std::collections::BTreeSet;

use rankguard_core::{Event, Stamped};
use rankguard_model::{NodeId, Timestamp};

use crate::authority::StartedProcesses;
use crate::inbound::InboundPermit;
use crate::input::{Query, Reply};
use crate::journal;
use crate::roster::SessionId;

/// Events of one journal commit, with the replies that are due after it.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) entries: Vec<Entry>,
    /// Agents that receive an acknowledgement.
    pub(crate) acknowledge: BTreeSet<NodeId>,
    /// Inbound permits of its evidence.
    pub(crate) permits: Vec<InboundPermit>,
    /// Queries, answered after all events have been applied.
    pub(crate) queries: Vec<Query>,
    /// Rank processes that its evidence reports as started.
    pub(crate) started: StartedProcesses,
}

/// Event with its journal entry.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Event as decoded from the entry.
    pub(crate) stamped: Stamped,
    /// Encoded journal entry.
    pub(crate) bytes: Vec<u8>,
    /// Reply that is due after the event.
    pub(crate) after: After,
}

/// Reply that is due after an event has been applied.
#[derive(Debug)]
pub(crate) enum After {
    Nothing,
    /// First message of a session, sent before the orders that follow from the event.
    Welcome {
        node: NodeId,
        session: SessionId,
    },
    /// Reply to an operator.
    Reply(Reply),
}

impl Batch {
    /// Adds an event. Fails if the event cannot be decoded from its encoded entry.
    pub(crate) fn push(&mut self, at: Timestamp, event: Event, after: After) -> Result<(), serde_json::Error> {
        let bytes = journal::encode(&Stamped { at, event })?;
        let stamped = journal::decode(&bytes)?;
        self.entries.push(Entry { stamped, bytes, after });
        Ok(())
    }

    /// Adds events that were held while the journal could not be written. An event that cannot be encoded is logged and
    /// dropped.
    pub(crate) fn events(&mut self, held: Vec<Event>, at: Timestamp) {
        for event in held {
            if let Err(problem) = self.push(at, event, After::Nothing) {
                tracing::error!(%problem, "an event cannot be written to the journal and is dropped");
            }
        }
    }

    /// Takes the encoded entries out for the journal.
    pub(crate) fn take_bytes(&mut self) -> Vec<Vec<u8>> {
        self.entries
            .iter_mut()
            .map(|entry| std::mem::take(&mut entry.bytes))
            .collect()
    }
}
