//! Time and size limits of diagnosis.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Settings of a [`Diagnosis`](crate::Diagnosis). Every wait and every collection is bounded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraftPolicy {
    /// Time without a new root or exit after which a draft is concluded; default 1.5 s.
    pub settle: Duration,
    /// Time after opening at which a draft is concluded in any case (RG-9); default 4.5 s. A draft with only cascades
    /// waits until then, because the first cause is often reported last (RG-7).
    pub cap: Duration,
    /// Settle time once no rank of the failed generation is left that could report something; default 0.3 s. A draft
    /// without an explanation waits twice as long.
    #[serde(default = "ended_settle", skip_serializing_if = "is_usual")]
    pub ended_settle: Duration,
    /// The same if the agents of all its nodes report what the kernel logged before an exit earlier than the exit: nothing
    /// that explains the failure is on its way then; default 0.1 s.
    #[serde(default = "ordered_settle", skip_serializing_if = "is_usual_if_ordered")]
    pub ordered_settle: Duration,
    /// Maximum time from a root to its cascade, and time for late evidence to join a concluded case; default 120 s.
    pub window: Duration,
    /// Maximum number of signs in one draft; default 512. If it is full, further cascades and noise are counted and
    /// dropped, roots and exits replace the newest cascade.
    pub draft_signs: usize,
    /// Maximum number of signs in the memory; default 2,048. If it is full, the oldest is removed.
    pub memory_signs: usize,
    /// Maximum number of drafts, open or concluded within the window. If reached, a sign opens none and is only
    /// remembered.
    #[serde(default = "unlimited")]
    pub drafts: usize,
    /// Maximum text of the signs of one draft, bytes. If reached, further signs are counted and dropped.
    #[serde(default = "unlimited")]
    pub draft_bytes: usize,
    /// Maximum text of the flight-recorder dumps of all jobs, bytes; default 64 MiB. If reached, further dumps are
    /// counted and not stored.
    #[serde(default = "dump_bytes")]
    pub dump_bytes: usize,
}

/// Returns no limit: readers of files hold their input in memory anyway.
fn unlimited() -> usize {
    usize::MAX
}

fn ended_settle() -> Duration {
    Duration::from_millis(300)
}

fn ordered_settle() -> Duration {
    Duration::from_millis(100)
}

fn is_usual_if_ordered(settle: &Duration) -> bool {
    *settle == ordered_settle()
}

fn is_usual(settle: &Duration) -> bool {
    *settle == ended_settle()
}

fn dump_bytes() -> usize {
    64 << 20
}

impl Default for DraftPolicy {
    fn default() -> Self {
        let settle = Duration::from_millis(1_500);
        Self {
            settle,
            cap: settle * 3,
            ended_settle: ended_settle(),
            ordered_settle: ordered_settle(),
            window: Duration::from_secs(120),
            draft_signs: 512,
            memory_signs: 2_048,
            drafts: unlimited(),
            draft_bytes: unlimited(),
            dump_bytes: dump_bytes(),
        }
    }
}
