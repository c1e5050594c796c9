//! What an agent remembers of its own past and of its controller's, so that neither goes on from a restored copy unnoticed
//! (RG-3, RG-4).

use serde::{Deserialize, Serialize};

use crate::{Generation, JobId, Sequence};

/// A stretch in the life of a spool during which its numbers keep their meaning. A start of the agent begins one, and so
/// does every change of numbers that were not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpoolEpoch {
    /// Random, never 0.
    pub id: u64,
    /// Newest number of the spool when the epoch ended; of the epoch that lasts, when it was read.
    pub end: Sequence,
}

/// The newest entry of a controller's journal that an agent knows of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalMark {
    /// The journal: the first start of a controller on it. Random, never 0.
    pub journal: u64,
    /// The start of the controller that wrote the entry. Random, never 0.
    pub life: u64,
    /// How many entries the journal had.
    pub position: u64,
}

/// The newest generation of a job that an agent was ordered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFence {
    /// The job.
    pub job: JobId,
    /// Its newest generation.
    pub generation: Generation,
    /// The start of the controller in which that generation was begun; 0 where it is not known. A generation is one and the
    /// same only where this is equal, too.
    pub life: u64,
}

/// What an agent remembers and reports when it joins. All of it is empty for an agent of an earlier version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeHistory {
    /// The epochs of its spool, oldest first; the last one lasts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<SpoolEpoch>,
    /// The newest entry of a journal that it knows of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalMark>,
    /// Generations that it was ordered, those of the newest orders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fences: Vec<JobFence>,
}

impl NodeHistory {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A spool that is a restored copy: after the copy was made, the original delivered more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoredSpool {
    /// Numbers up to this one have the same meaning in the copy and in the original; 0 where they have no epoch in common.
    pub common: Sequence,
}

/// Compares the epochs of a spool with those that the controller knows from the node's last join, of which it has journalled
/// everything up to `acknowledged`. `None` where the spool goes on from there, or where one side knows no epochs.
///
/// The original reported each of its epochs before it delivered anything in it. So the spool goes on exactly if it knows the
/// last reported epoch, and that epoch had reached every acknowledged number.
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
        // Lives that never joined are unknown to the controller.
        check(&[(1, 5), (2, 9), (3, 12)], &[(1, 3)], 5, None);
    }

    #[test]
    fn a_copy_is_known_by_the_epoch_or_the_number_that_it_lacks() {
        // The original went on in the same epoch.
        check(&[(1, 5), (3, 9)], &[(1, 3)], 7, Some(5));
        // The original was started again.
        check(&[(1, 5), (3, 9)], &[(1, 5), (2, 5)], 5, Some(5));
        check(&[(1, 5), (3, 9)], &[(1, 8), (2, 8)], 9, Some(5));
        // Another directory.
        check(&[(9, 2)], &[(1, 5)], 5, Some(0));
    }

    #[test]
    fn what_knows_no_epochs_is_not_judged() {
        check(&[], &[(1, 5)], 5, None);
        check(&[(1, 5)], &[], 9, None);
    }
}
