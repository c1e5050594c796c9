//! How long to wait and how much to keep.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Settings of a [`Diagnosis`](crate::Diagnosis). All bounds are part of the promise: nothing waits or grows without one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// A draft is concluded when no new root or exit arrived for this long.
    pub settle: Duration,
    /// A draft is concluded this long after it was opened, whatever arrives (RG-9). A draft in which only cascades were
    /// seen waits until then, because the first cause is often reported last (RG-7).
    pub cap: Duration,
    /// How long a root may precede its cascade, and how long late evidence still joins a concluded case.
    pub window: Duration,
    /// Signs kept for one draft. When it is full, further cascades and noise are counted and dropped, roots and exits
    /// replace the newest cascade.
    pub draft_signs: usize,
    /// Signs remembered because they may belong to a failure that shows later. When full, the oldest is forgotten.
    pub memory_signs: usize,
    /// Drafts that are gathered, or were concluded within the window. When full, a sign opens none and is remembered only.
    #[serde(default = "unlimited")]
    pub drafts: usize,
    /// Text of the signs of one draft, bytes. When full, further signs are counted and dropped.
    #[serde(default = "unlimited")]
    pub draft_bytes: usize,
    /// Text of the flight-recorder dumps of all jobs, bytes. When full, further dumps are counted and left where they are.
    #[serde(default = "dump_bytes")]
    pub dump_bytes: usize,
}

/// Readers of files have what they read in memory anyway.
fn unlimited() -> usize {
    usize::MAX
}

fn dump_bytes() -> usize {
    64 << 20
}

impl Default for Policy {
    fn default() -> Self {
        let settle = Duration::from_millis(1_500);
        Self {
            settle,
            cap: settle * 3,
            window: Duration::from_secs(120),
            draft_signs: 512,
            memory_signs: 2_048,
            drafts: unlimited(),
            draft_bytes: unlimited(),
            dump_bytes: dump_bytes(),
        }
    }
}
