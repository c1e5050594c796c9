//! Starts of controllers on one journal, and their comparison with the journal marks that agents report.

use std::fmt;
use std::time::Duration;

use rankguard_model::{JournalGap, JournalMark, Timestamp};
use serde::{Deserialize, Serialize};

/// Starts that are recorded; the oldest are dropped first, and marks of dropped ones count as known.
const LIVES_MAX: usize = 256;
/// Announced starts of other journals; the oldest are dropped first.
const ANNOUNCED_MAX: usize = 64;
/// Gaps of the journal that are listed; the oldest are dropped first.
const GAPS_MAX: usize = 16;

/// Time after a start in which agents join and send what they have recorded.
const BACKLOG: Duration = Duration::from_secs(60);

/// Start of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ControllerStart {
    /// Random id, never 0.
    id: u64,
    /// Entries that the journal had at the start.
    from: u64,
    /// Time of the start; absent in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<Timestamp>,
    /// Time of the newest entry before the start; absent in a new journal, and in older ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    newest_at: Option<Timestamp>,
}

impl ControllerStart {
    pub(crate) fn new(id: u64, from: u64, at: Timestamp, newest_at: Option<Timestamp>) -> Self {
        Self {
            id,
            from,
            at: newest_at.is_some().then_some(at),
            newest_at,
        }
    }
}

/// Pauses that are recorded; the oldest are dropped first.
const PAUSES_MAX: usize = 16;

/// Difference of the measured clocks of agents and the controller, and the delay of a report, that are ignored.
const CLOCKS: Duration = Duration::from_secs(1);

/// Time in which the controller did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ControllerAbsence {
    /// Time of the newest entry of the journal before a restart, or at which it ran last before a pause.
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    /// True for a pause of a process that ran on.
    is_pause: bool,
}

impl ControllerAbsence {
    /// Returns true if a save of this time was made while the controller did not run.
    fn has(&self, saved_at: Timestamp) -> bool {
        self.from <= saved_at.after(CLOCKS) && saved_at <= self.to.after(CLOCKS)
    }

    /// Returns true if the process of the controller existed meanwhile.
    pub(crate) fn is_pause(&self) -> bool {
        self.is_pause
    }

    /// Returns true if most of a time lies inside.
    pub(crate) fn covers(&self, from: Timestamp, to: Timestamp) -> bool {
        let shared = self.to.min(to).millis_since(self.from.max(from));
        shared * 2 >= to.millis_since(from)
    }
}

impl fmt::Display for ControllerAbsence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, is_pause } = self;
        if *is_pause {
            write!(f, "the controller did not run from {from} to {to}")
        } else {
            write!(
                f,
                "the controller was restarted at {to}, and its journal ends at {from} before"
            )
        }
    }
}

/// Controller starts on one journal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerStarts {
    /// Journal id: the id of the first start; 0 before it.
    journal: u64,
    lives: Vec<ControllerStart>,
    has_forgotten: bool,
    announced: Vec<u64>,
    /// Entries that the journal was found to lack, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<JournalGap>,
    /// Times in which a controller on this journal did not run although its process existed, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pauses: Vec<ControllerAbsence>,
}

/// Difference between this journal and the one that an agent knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalLoss {
    /// This journal is a restored copy: it ends before an entry that the agent knows. Holds the number of lost entries,
    /// if known.
    RolledBack(Option<u64>),
    /// The agent was connected to a controller with another journal.
    Replaced,
}

impl ControllerStarts {
    /// Records a controller start.
    pub(crate) fn begin(&mut self, start: ControllerStart) {
        if self.journal == 0 {
            self.journal = start.id;
        }
        if self.lives.len() >= LIVES_MAX {
            self.lives.remove(0);
            self.has_forgotten = true;
        }
        self.lives.push(start);
    }

    /// Returns the time of the newest entry before the current start, and the time of the start.
    pub(crate) fn current_period(&self) -> Option<(Timestamp, Timestamp)> {
        let start = self.lives.last()?;
        start.newest_at.zip(start.at)
    }

    /// Returns the time from the newest entry of the journal to the restart of the controller, if a report is of that time, of
    /// an earlier one, or of the time in which agents send what they have recorded (before rules 9).
    pub(crate) fn absence_before(&self, reported: Timestamp) -> Option<(Timestamp, Timestamp)> {
        self.current_period()
            .filter(|(_, started)| reported <= started.after(BACKLOG))
    }

    /// Records a time in which the controller did not run.
    pub(crate) fn note_pause(&mut self, from: Timestamp, to: Timestamp) {
        if self.pauses.len() >= PAUSES_MAX {
            self.pauses.remove(0);
        }
        let is_pause = true;
        self.pauses.push(ControllerAbsence { from, to, is_pause });
    }

    /// Returns the newest time in which the controller did not run and in which a save was made.
    pub(crate) fn absence_at(&self, saved_at: Timestamp) -> Option<ControllerAbsence> {
        let restart = self.current_period().map(|(from, to)| ControllerAbsence {
            from,
            to,
            is_pause: false,
        });
        let all = self.pauses.iter().copied().chain(restart);
        all.filter(|absence| absence.has(saved_at))
            .max_by_key(|absence| absence.to)
    }

    /// Returns the entries that the journal was found to lack, oldest first.
    pub fn gaps(&self) -> &[JournalGap] {
        &self.gaps
    }

    pub(crate) fn note_gap(&mut self, gap: JournalGap) {
        if self.gaps.len() >= GAPS_MAX {
            self.gaps.remove(0);
        }
        self.gaps.push(gap);
    }

    /// Returns the id of the current start; 0 before the first.
    pub fn current(&self) -> u64 {
        self.lives.last().map_or(0, |life| life.id)
    }

    /// Returns the mark of the newest entry of a journal with `position` entries; `None` before the first start.
    pub fn mark(&self, position: u64) -> Option<JournalMark> {
        let life = self.lives.last()?.id;
        Some(JournalMark {
            journal: self.journal,
            life,
            position,
        })
    }

    /// Compares an agent's mark with this journal. Returns `None` if the journal contains everything that the agent
    /// knows.
    pub fn compare(&self, mark: &JournalMark) -> Option<JournalLoss> {
        let first = self.lives.first()?;
        if mark.journal != self.journal {
            return Some(JournalLoss::Replaced);
        }
        let Some(place) = self.lives.iter().position(|life| life.id == mark.life) else {
            let may_be_forgotten = self.has_forgotten && mark.position <= first.from;
            return (!may_be_forgotten).then_some(JournalLoss::RolledBack(None));
        };
        let end = self.lives.get(place + 1)?.from;
        (mark.position > end).then(|| JournalLoss::RolledBack(Some(mark.position - end)))
    }

    /// Returns true if the start belongs to this journal, as far as starts are recorded.
    pub(crate) fn has_begun(&self, life: u64) -> bool {
        self.lives.iter().any(|own| own.id == life)
    }

    /// Returns true if the loss behind this mark was announced.
    pub fn is_announced(&self, mark: &JournalMark) -> bool {
        self.announced.contains(&mark.life)
    }

    pub(crate) fn announce(&mut self, mark: &JournalMark) {
        if self.announced.len() >= ANNOUNCED_MAX {
            self.announced.remove(0);
        }
        self.announced.push(mark.life);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lives: &[(u64, u64)], mark: (u64, u64, u64), expect: Option<JournalLoss>) {
        let mut known = ControllerStarts::default();
        let start = |id: u64, from: u64| ControllerStart::new(id, from, Timestamp(0), None);
        lives.iter().for_each(|(id, from)| known.begin(start(*id, *from)));
        let (journal, life, position) = mark;
        let mark = JournalMark {
            journal,
            life,
            position,
        };
        assert_eq!(known.compare(&mark), expect);
    }

    #[test]
    fn a_mark_of_this_journal_is_known() {
        check(&[(1, 0), (2, 10)], (1, 1, 10), None);
        check(&[(1, 0), (2, 10)], (1, 2, 900), None);
        check(&[], (1, 1, 1), None);
    }

    #[test]
    fn a_mark_beyond_a_restored_copy_shows_the_loss() {
        check(&[(1, 0), (3, 10)], (1, 1, 14), Some(JournalLoss::RolledBack(Some(4))));
        check(&[(1, 0), (3, 10)], (1, 2, 14), Some(JournalLoss::RolledBack(None)));
        check(&[(5, 0)], (1, 1, 14), Some(JournalLoss::Replaced));
    }

    #[test]
    fn lives_that_were_forgotten_are_not_taken_for_a_loss() {
        let mut known = ControllerStarts::default();
        for life in 1..=LIVES_MAX as u64 + 10 {
            known.begin(ControllerStart::new(life, life * 10, Timestamp(0), None));
        }
        let mark = |life, position| JournalMark {
            journal: 1,
            life,
            position,
        };
        assert_eq!(known.compare(&mark(3, 35)), None);
        assert_eq!(known.compare(&mark(9_999, 35_000)), Some(JournalLoss::RolledBack(None)));
    }
}
