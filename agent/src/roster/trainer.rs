//! Process that trains for a rank, to recognise a second one in the same generation.
//!
//! All ranks of a generation start from one checkpoint. A process that a wrapper starts again begins elsewhere than the
//! ranks beside it, so it may neither restore nor save.

use rankguard_model::{RankRef, Step};

use super::RankRoster;
use crate::processes::ProcessEntry;

/// Process that trained for a rank and has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndedTrainer {
    pub(crate) pid: u32,
    /// Newest step of the rank.
    pub(crate) step: Option<Step>,
    /// True if it reported that all work is done.
    pub(crate) is_finished: bool,
}

impl EndedTrainer {
    /// Returns the work of the process, in words.
    pub(crate) fn work(&self) -> String {
        let Self { pid, step, .. } = self;
        step.map_or_else(
            || format!("process {pid} saved for the same rank"),
            |step| format!("process {pid} of the same rank made step {step}"),
        )
    }
}

impl RankRoster {
    /// Records the first process that trains for a rank. A process in another namespace has the id 0 and is not recorded.
    pub(crate) fn note_trainer(&self, rank: &RankRef, pid: u32) {
        if let Some(entry) = self.lock().get_mut(rank).filter(|_| pid != 0) {
            entry.trainer.get_or_insert(pid);
        }
    }

    /// Returns the ended process that trained for a rank before the process `pid`; `None` if there is none, or if the job has
    /// no checkpoint store.
    pub(crate) fn ended_trainer(&self, rank: &RankRef, pid: u32) -> Option<EndedTrainer> {
        let ranks = self.lock();
        let entry = ranks
            .get(rank)
            .filter(|entry| !entry.launch.checkpoint_store.is_empty())?;
        let earlier = entry.trainer.filter(|earlier| pid != 0 && *earlier != pid)?;
        let (step, is_finished) = (entry.step, entry.finished);
        drop(ranks);
        let is_alive = ProcessEntry::read(earlier).is_some_and(|process| process.is_alive());
        (!is_alive).then_some(EndedTrainer {
            pid: earlier,
            step,
            is_finished,
        })
    }

    /// Returns true for the first refused process of a rank, which is reported; later ones are not.
    pub(crate) fn note_refused_process(&self, rank: &RankRef) -> bool {
        let mut ranks = self.lock();
        let entry = ranks.get_mut(rank);
        entry.is_some_and(|entry| !std::mem::replace(&mut entry.refused_process, true))
    }
}
