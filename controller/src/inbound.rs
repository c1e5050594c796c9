//! Inbound limits: one batch of evidence per session, and a number of bytes for all sessions.
//!
//! A session reads its next batch only after the one before is journalled or dropped. So each commit holds at most one
//! batch of a session, and an agent that sends faster is slowed down by its own stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rankguard_proto::v1;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

/// Largest message of an agent, bytes. Agents send at most [`rankguard_proto::EVIDENCE_BATCH_BYTES`] in a batch; older
/// ones send more when single pieces are large.
pub(crate) const AGENT_MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Pieces of evidence in one message.
const BATCH_PIECES_MAX: usize = 4_096;
/// Overhead of one piece of evidence in memory, bytes, on top of its bytes on the wire.
const PIECE_BYTES: usize = 1 << 10;
/// Bytes of batches of all sessions that wait or are being written. When they are used up, sessions wait.
pub(crate) const INBOUND_BYTES_MAX: usize = 48 << 20;
/// Bytes of batches in one commit; the rest waits for the next.
pub(crate) const COMMIT_BYTES_MAX: usize = 8 << 20;

/// Byte budget shared by all sessions.
#[derive(Debug, Clone)]
pub(crate) struct InboundBudget {
    bytes: Arc<Semaphore>,
    refused: Arc<AtomicU64>,
}

impl Default for InboundBudget {
    fn default() -> Self {
        Self {
            bytes: Arc::new(Semaphore::new(INBOUND_BYTES_MAX)),
            refused: Arc::default(),
        }
    }
}

/// Budget of one session.
#[derive(Debug)]
pub(crate) struct SessionBudget {
    all: InboundBudget,
    own: Arc<Semaphore>,
}

/// Permit for one batch in the controller; released when dropped.
#[derive(Debug)]
pub(crate) struct InboundPermit {
    /// Accounted bytes of the batch.
    pub(crate) bytes: usize,
    _all: Option<OwnedSemaphorePermit>,
    _own: Option<OwnedSemaphorePermit>,
}

impl InboundBudget {
    /// Creates the budget of a new session.
    pub(crate) fn session(&self) -> SessionBudget {
        SessionBudget {
            all: self.clone(),
            own: Arc::new(Semaphore::new(1)),
        }
    }

    /// Returns the bytes of batches that wait or are being written.
    pub(crate) fn used(&self) -> usize {
        INBOUND_BYTES_MAX - self.bytes.available_permits()
    }

    /// Returns the number of batches that were refused because of their size.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl SessionBudget {
    /// Waits until the session's previous batch is done and there is room for this one. A batch of too many pieces is
    /// refused.
    pub(crate) async fn admit(&self, batch: &v1::EvidenceBatch, wire_bytes: usize) -> Result<InboundPermit, Status> {
        let pieces = batch.evidence.len();
        if pieces > BATCH_PIECES_MAX {
            self.all.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Status::resource_exhausted(format!(
                "a batch of {pieces} pieces of evidence; send at most {BATCH_PIECES_MAX}"
            )));
        }
        let bytes = (wire_bytes + pieces * PIECE_BYTES).min(INBOUND_BYTES_MAX);
        let closed = |_| Status::unavailable("the controller is stopping");
        let own = Arc::clone(&self.own).acquire_owned().await.map_err(closed)?;
        let share = u32::try_from(bytes).unwrap_or(u32::MAX);
        let all = Arc::clone(&self.all.bytes)
            .acquire_many_owned(share)
            .await
            .map_err(closed)?;
        Ok(InboundPermit {
            bytes,
            _all: Some(all),
            _own: Some(own),
        })
    }
}

#[cfg(test)]
impl InboundPermit {
    /// Creates a permit without accounting.
    pub(crate) fn free() -> Self {
        Self {
            bytes: 0,
            _all: None,
            _own: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn batch(pieces: usize) -> v1::EvidenceBatch {
        v1::EvidenceBatch {
            evidence: vec![v1::Evidence::default(); pieces],
        }
    }

    const SOON: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn a_session_has_one_batch_at_a_time_and_others_are_not_held_up_by_it() {
        let budget = InboundBudget::default();
        let one = budget.session();
        let other = budget.session();
        let first = one.admit(&batch(1), 100).await.expect("room");
        assert!(timeout(SOON, one.admit(&batch(1), 100)).await.is_err(), "it must wait");
        other.admit(&batch(1), 100).await.expect("room for another session");
        drop(first);
        one.admit(&batch(1), 100).await.expect("room again");
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn rg_9_all_sessions_together_stay_within_the_bytes() {
        let budget = InboundBudget::default();
        let mut held = Vec::new();
        loop {
            let session = budget.session();
            match timeout(SOON, session.admit(&batch(1), AGENT_MESSAGE_BYTES_MAX)).await {
                Ok(permit) => held.push(permit.expect("room")),
                Err(_) => break,
            }
        }
        assert_eq!(held.len(), INBOUND_BYTES_MAX / (AGENT_MESSAGE_BYTES_MAX + PIECE_BYTES));
        assert!(budget.used() <= INBOUND_BYTES_MAX);
        let refused = budget.session().admit(&batch(BATCH_PIECES_MAX + 1), 1).await;
        assert_eq!(refused.expect_err("too many").code(), tonic::Code::ResourceExhausted);
        assert_eq!(budget.refused(), 1);
    }
}
