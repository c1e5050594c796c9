//! Batches: the events of one journal commit, with the replies that are due after it.

use std::collections::BTreeSet;

use rankguard_core::{Event, StampedEvent};
use rankguard_journal::{decode, encode};
use rankguard_model::{NodeId, Timestamp};

use crate::authority::StartedProcesses;
use crate::inbound::InboundPermit;
use crate::input::{CommandReply, OperatorQuery};
use crate::session_table::SessionId;

/// Events of one journal commit, with the replies that are due after it.
#[derive(Debug, Default)]
pub(crate) struct EventBatch {
    pub(crate) entries: Vec<BatchEntry>,
    /// Agents that receive an acknowledgement.
    pub(crate) acknowledge: BTreeSet<NodeId>,
    /// Inbound permits of its evidence.
    pub(crate) permits: Vec<InboundPermit>,
    /// Queries, answered after all events have been applied.
    pub(crate) queries: Vec<OperatorQuery>,
    /// Rank processes that its evidence reports as started.
    pub(crate) started: StartedProcesses,
}

/// Event with its journal entry.
#[derive(Debug)]
pub(crate) struct BatchEntry {
    /// Event as decoded from the entry.
    pub(crate) stamped: StampedEvent,
    /// Encoded journal entry.
    pub(crate) bytes: Vec<u8>,
    /// Reply that is due after the event.
    pub(crate) after: DeferredReply,
}

/// Reply that is due after an event has been applied.
#[derive(Debug)]
pub(crate) enum DeferredReply {
    Nothing,
    /// First message of a session, sent before the orders that follow from the event.
    Welcome {
        node: NodeId,
        session: SessionId,
    },
    /// Reply to an operator.
    Reply(CommandReply),
}

impl EventBatch {
    /// Adds an event. Fails if the event cannot be decoded from its encoded entry.
    pub(crate) fn push(&mut self, at: Timestamp, event: Event, after: DeferredReply) -> Result<(), serde_json::Error> {
        let bytes = encode(&StampedEvent { at, event })?;
        let stamped = decode(&bytes)?;
        self.entries.push(BatchEntry { stamped, bytes, after });
        Ok(())
    }

    /// Adds events that were held while the journal could not be written. An event that cannot be encoded is logged and
    /// dropped.
    pub(crate) fn events(&mut self, held: Vec<Event>, at: Timestamp) {
        for event in held {
            if let Err(problem) = self.push(at, event, DeferredReply::Nothing) {
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
