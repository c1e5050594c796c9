//! Event batches: collected by the intake, written to the journal in one commit, then applied in order.

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
    /// Nodes with evidence in the batch; their agents receive an acknowledgement after the commit.
    pub(crate) acknowledge: BTreeSet<NodeId>,
    /// Permits of its evidence; dropping them frees their bytes in the inbound budget.
    pub(crate) permits: Vec<InboundPermit>,
    /// Queries of operators, answered after all events have been applied.
    pub(crate) queries: Vec<OperatorQuery>,
    /// Bytes of the journal entries that [`EventBatch::take_bytes`] has taken out.
    pub(crate) taken: usize,
    /// Rank processes that its evidence reports as started.
    pub(crate) started: StartedProcesses,
}

/// Event with its journal entry.
#[derive(Debug)]
pub(crate) struct BatchEntry {
    /// Event as decoded from the entry, so that the live state is the one that a replay gives.
    pub(crate) stamped: StampedEvent,
    /// Encoded journal entry; empty after [`EventBatch::take_bytes`].
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
    /// Result of an operator's command.
    Reply(CommandReply),
}

impl EventBatch {
    /// Adds an event. Fails if it cannot be encoded, or cannot be decoded from its entry.
    pub(crate) fn push(&mut self, at: Timestamp, event: Event, after: DeferredReply) -> Result<(), serde_json::Error> {
        let bytes = encode(&StampedEvent { at, event })?;
        let stamped = decode(&bytes)?;
        self.entries.push(BatchEntry { stamped, bytes, after });
        Ok(())
    }

    /// Adds events that were held while the journal could not be written, with the time `at`. Events that cannot be
    /// encoded are dropped and logged.
    pub(crate) fn events(&mut self, held: Vec<Event>, at: Timestamp) {
        for event in held {
            if let Err(problem) = self.push(at, event, DeferredReply::Nothing) {
                tracing::error!(%problem, "an event cannot be written to the journal and is dropped");
            }
        }
    }

    /// Takes the encoded entries out for the journal.
    pub(crate) fn take_bytes(&mut self) -> Vec<Vec<u8>> {
        self.taken = self.entries.iter().map(|entry| entry.bytes.len()).sum();
        self.entries
            .iter_mut()
            .map(|entry| std::mem::take(&mut entry.bytes))
            .collect()
    }
}
