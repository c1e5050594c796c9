//! History that an agent records of its spool and of its controller's journal. It shows whether either was replaced by
//! an older copy, such as a backup (RG-3, RG-4).

use serde::{Deserialize, Serialize};

use crate::{Generation, JobId, Sequence};

/// Period in which each sequence number of a spool refers to the same evidence. Every start of the agent begins an
/// epoch, and so does every renumbering of evidence that was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpoolEpoch {
    /// Random id, never 0.
    pub id: u64,
    /// Newest sequence number of the spool when the epoch ended; for the current epoch, when this value was read.
    pub end: Sequence,
}

/// Newest entry of a controller's journal that an agent knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalMark {
    /// Journal id: the id of the first start of a controller on it. Random, never 0.
    pub journal: u64,
    /// Id of the controller start that wrote the entry. Random, never 0.
    pub life: u64,
    /// Number of entries of the journal, up to and including this one.
    pub position: u64,
}

/// Newest generation of a job in the orders that an agent received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFence {
    /// Job of the orders.
    pub job: JobId,
    /// Newest generation in these orders.
    pub generation: Generation,
    /// Id of the controller start in which that generation began; 0 if unknown. Equal numbers are the same generation
    /// only if this id is equal, too.
    pub life: u64,
}

/// History that an agent reports when it joins. Agents of earlier versions report an empty one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeHistory {
    /// Epochs of the spool, oldest first; the last one is current.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<SpoolEpoch>,
    /// Newest journal entry that the agent knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalMark>,
    /// Newest generation of each job in the latest orders of the controller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fences: Vec<JobFence>,
}

impl NodeHistory {
    /// Returns true if the history is empty.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Finding that a spool is a restored copy: the original delivered more evidence after the copy was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoredSpool {
    /// Sequence numbers up to this one refer to the same evidence in the copy and in the original; 0 if they share no
    /// epoch.
    pub common: Sequence,
}

/// Compares the epochs of a spool (`own`) with those that the node reported at its last join. `acknowledged` is the
/// newest sequence number of the node in the controller's journal. Returns `None` if the spool is the original, or if
/// either list is empty.
///
/// An agent reports each epoch before it delivers evidence in it. So a spool is the original if and only if it contains
/// the last reported epoch and its end there is not below `acknowledged`.
pub fn restored_spool(own: &[SpoolEpoch], reported: &[SpoolEpoch], acknowledged: Sequence) -> Option<RestoredSpool> {
    let (last, _) = (reported.last()?, own.last()?);
    let own_end = |id: u64| own.iter().rev().find(|epoch| epoch.id == id).map(|epoch| epoch.end);
    match own_end(last.id) {
        Some(end) if acknowledged <= end => None,
        Some(end) => Some(RestoredSpool { common: end }),
        None => {
            let shared = reported
                .iter()
                .rev()
                .find_map(|epoch| Some(epoch.end.min(own_end(epoch.id)?)));
            Some(RestoredSpool {
                common: shared.unwrap_or_default(),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(all: &[(u64, u64)]) -> Vec<SpoolEpoch> {
        let epoch = |&(id, end)| SpoolEpoch { id, end: Sequence(end) };
        all.iter().map(epoch).collect()
    }

    fn check(own: &[(u64, u64)], reported: &[(u64, u64)], acknowledged: u64, common: Option<u64>) {
        let found = restored_spool(&epochs(own), &epochs(reported), Sequence(acknowledged));
        assert_eq!(found.map(|restored| restored.common.0), common);
    }

    #[test]
    fn a_spool_that_goes_on_is_not_restored() {
        check(&[(1, 5)], &[], 0, None);
        check(&[(1, 5)], &[(1, 3)], 5, None);
        check(&[(1, 5), (2, 9)], &[(1, 3)], 4, None);
        // Epochs that were never reported in a join are unknown to the controller.
        check(&[(1, 5), (2, 9), (3, 12)], &[(1, 3)], 5, None);
    }

    #[test]
    fn a_copy_is_known_by_the_epoch_or_the_number_that_it_lacks() {
        // The original went on in the same epoch.
        check(&[(1, 5), (3, 9)], &[(1, 3)], 7, Some(5));
        // The original was restarted.
        check(&[(1, 5), (3, 9)], &[(1, 5), (2, 5)], 5, Some(5));
        check(&[(1, 5), (3, 9)], &[(1, 8), (2, 8)], 9, Some(5));
        // A different state directory.
        check(&[(9, 2)], &[(1, 5)], 5, Some(0));
    }

    #[test]
    fn what_knows_no_epochs_is_not_judged() {
        check(&[], &[(1, 5)], 5, None);
        check(&[(1, 5)], &[], 9, None);
    }
}
