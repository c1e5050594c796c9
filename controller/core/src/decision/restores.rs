//! Restores of ranks, which the case of a recovery reports.
//!
//! The first step of one rank ends a recovery, and the other ranks may report their restores after it. The entry of the
//! closed case states how many ranks have restored, and each later report renews it until all have.

use rankguard_model::{JobId, Rank, ReasoningEntry, RestoreBytes};

use super::DecisionContext;

impl DecisionContext<'_> {
    /// Adds the bytes of a rank that restored.
    pub(super) fn rank_restored(&mut self, name: &JobId, rank: Rank, from: RestoreBytes) {
        let before = self.restore_text(name);
        let renews_reports = self.state.renews_restore_reports();
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        job.activity.restore_wait.take_if(|wait| wait.rank == rank);
        let all = &mut job.restored;
        all.arena = all.arena.saturating_add(from.arena);
        all.peer = all.peer.saturating_add(from.peer);
        all.disk = all.disk.saturating_add(from.disk);
        if !renews_reports {
            return;
        }
        let count = job.places().len();
        let was_complete = job.restore_report.ranks.len() >= count;
        job.restore_report.ranks.insert(rank);
        let case = job.restore_report.case.filter(|_| !was_complete);
        let after = self.restore_text(name);
        let case = case.and_then(|id| self.state.cases.get_mut(id));
        let (Some(case), Some(text)) = (case, after) else {
            return;
        };
        let entries = &mut case.actions;
        match entries.iter_mut().find(|entry| Some(&entry.text) == before.as_ref()) {
            Some(entry) => entry.text = text,
            None => entries.push(ReasoningEntry { at: self.at, text }),
        }
    }

    /// Returns the sentence about what the ranks of the current generation restored.
    pub(crate) fn restore_text(&self, name: &JobId) -> Option<String> {
        let job = self.state.jobs.get(name)?;
        job.restore_report.text(job.restored, job.places().len())
    }
}
