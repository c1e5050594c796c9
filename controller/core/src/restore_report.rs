//! Restores of a generation, as the case of its recovery reports them.

use std::collections::BTreeSet;

use rankguard_model::{CaseId, Rank, RestoreBytes};
use serde::{Deserialize, Serialize};

/// Ranks of a generation that restored, and the case that reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RestoreReport {
    pub(crate) ranks: BTreeSet<Rank>,
    /// Closed case of the recovery; further restores extend its entry until all ranks have restored.
    pub(crate) case: Option<CaseId>,
}

impl RestoreReport {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the sentence about the restored bytes of a generation of `count` ranks; `None` before the first byte.
    pub(crate) fn text(&self, bytes: RestoreBytes, count: usize) -> Option<String> {
        let RestoreBytes { arena, peer, disk } = bytes;
        let sum = arena.saturating_add(peer).saturating_add(disk);
        let share = match self.ranks.len() {
            known if (1..count).contains(&known) => format!(" in {known} of {count} ranks"),
            _ => String::new(),
        };
        (bytes != RestoreBytes::default()).then(|| {
            format!(
                "restored {sum} bytes{share}: {arena} from arenas of the same node, {peer} from peers, {disk} from disk"
            )
        })
    }
}
