//! Errors of the bulk protocol.

use std::time::Duration;

use rankguard_identity::{DialError, ExposedAddress};
use serde::{Deserialize, Serialize};

/// Reason for which a receiver refuses a request; sent as part of its reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum TransferRefusal {
    #[error("generation {asked} may no longer act: generation {fence} does")]
    Stale { asked: u64, fence: u64 },
    #[error("it has room for {room} of the {wanted} bytes; give it more memory for replicas, or keep fewer")]
    Full { wanted: u64, room: u64 },
    #[error("chunk {chunk} arrived damaged: digest is {found}, the index says {stated}")]
    Damaged { chunk: u32, stated: String, found: String },
    #[error("another image of that name is there already")]
    Conflict,
    #[error("{missing} pieces are missing")]
    Incomplete { missing: u32 },
    #[error("it knows no such image; offer it first")]
    Unknown,
    #[error("it keeps nothing on disk")]
    NoDisk,
    #[error("the peer holds no parity, or does not know the parity lane")]
    NoParity,
    #[error("{node} has no part in generation {generation} of this job")]
    Stranger { node: String, generation: u64 },
    #[error("{0}")]
    Failed(String),
}

/// Error of a transfer between two agents. Messages name the peer, except [`BulkError::Exposed`], which names the
/// address, and [`BulkError::Image`], which is a local error.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum BulkError {
    #[error(transparent)]
    Exposed(#[from] ExposedAddress),
    #[error("cannot reach {peer}")]
    Dial { peer: String, source: DialError },
    #[error("cannot {what} {peer}")]
    Io {
        what: &'static str,
        peer: String,
        source: std::io::Error,
    },
    #[error("{peer} did not {what} within {limit:?}")]
    Deadline {
        what: &'static str,
        peer: String,
        limit: Duration,
    },
    #[error("{peer} does not use the protocol of agents: {problem}")]
    Protocol { peer: String, problem: String },
    #[error("{peer} refuses: {refusal}")]
    Refused { peer: String, refusal: TransferRefusal },
    #[error("cannot read the image at byte {at}")]
    Image { at: u64, source: std::io::Error },
}

impl BulkError {
    /// Returns true if the same call may succeed later. A retry does not send data again that the peer has accepted.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Io { .. } | Self::Deadline { .. } => true,
            Self::Dial { source, .. } => !source.is_about_identity(),
            Self::Refused { refusal, .. } => matches!(
                refusal,
                TransferRefusal::Full { .. } | TransferRefusal::Damaged { .. } | TransferRefusal::Failed(_)
            ),
            _ => false,
        }
    }
}
