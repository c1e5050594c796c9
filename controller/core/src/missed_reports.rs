//! Reasons for which the report of a rank about its save is missing: the controller did not run, or the node was silent.
//!
//! A reason must be supported by times: a save is compared with the times in which the controller did not run, and with
//! those in which no evidence of the node arrived. A missing report alone is no fault of the rank.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_model::{NodeId, Rank, Step, Timestamp};
use serde::{Deserialize, Serialize};

use crate::checkpoints::OpenAttempt;
use crate::decision::DecisionContext;
use crate::{ControllerStarts, Fleet, Plan};

/// Time without evidence from which on a node was silent: agents of running ranks report at least every second.
const SILENCE: Duration = Duration::from_secs(3);
/// Difference of the measured clocks of an agent and the controller, and the delay of a report, that are ignored.
const CLOCKS: Duration = Duration::from_secs(1);

/// Times at which the evidence of a node arrived (since rules 9).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReportTimes {
    /// Arrival of the newest evidence.
    newest: Option<Timestamp>,
    /// Newest time of at least [`SILENCE`] in which none arrived.
    silence: Option<(Timestamp, Timestamp)>,
}

impl ReportTimes {
    pub(crate) fn is_empty(&self) -> bool {
        self.newest.is_none()
    }

    /// Records the arrival of evidence.
    pub(crate) fn note(&mut self, at: Timestamp) {
        let newest = self.newest.replace(at);
        let silence = newest.map(|newest| (newest, at));
        self.silence = silence.filter(|(from, to)| to.since(*from) >= SILENCE).or(self.silence);
    }

    /// Returns the time in which no evidence arrived and in which a save was made; it has no end if none has arrived since.
    fn silence_at(&self, now: Timestamp, saved_at: Timestamp) -> Option<(Timestamp, Option<Timestamp>)> {
        let is_after = |from: Timestamp| from <= saved_at.after(CLOCKS);
        let newest = self.newest?;
        if is_after(newest) && now.since(newest) >= SILENCE {
            return Some((newest, None));
        }
        let (from, to) = self.silence?;
        (is_after(from) && saved_at <= to).then_some((from, Some(to)))
    }
}

/// Reasons for missing reports of attempts that gave way to later ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MissingReports {
    /// Time from the newest entry of the journal to the restart of the controller, regardless of the time of the save (before rules
    /// 9).
    Absence(Option<(Timestamp, Timestamp)>),
    /// Reason of each attempt.
    Reasons(BTreeMap<Step, String>),
}

/// State from which the reasons follow.
pub(crate) struct ReportContext<'a> {
    now: Timestamp,
    fleet: &'a Fleet,
    lives: &'a ControllerStarts,
    plan: Option<&'a Plan>,
}

impl<'a> ReportContext<'a> {
    pub(crate) fn new(now: Timestamp, fleet: &'a Fleet, lives: &'a ControllerStarts, plan: Option<&'a Plan>) -> Self {
        Self {
            now,
            fleet,
            lives,
            plan,
        }
    }

    /// Returns the reasons of attempts that lack the report of a rank.
    pub(crate) fn missing_reports(&self, attempts: Vec<OpenAttempt>) -> MissingReports {
        let reason = |open: OpenAttempt| {
            let reason = self.reason(open.missing?, open.saved_at);
            Some((open.step, reason))
        };
        MissingReports::Reasons(attempts.into_iter().filter_map(reason).collect())
    }

    fn reason(&self, rank: Rank, saved_at: Option<Timestamp>) -> String {
        let node = self.plan.and_then(|plan| plan.node_of(rank));
        let cause = saved_at.and_then(|saved_at| self.cause(node, saved_at));
        let cause = cause.unwrap_or_else(|| "why is not known".to_owned());
        let place = node.map(|node| format!(" on node {node}")).unwrap_or_default();
        format!("later steps took its place before rank {rank}{place} was reported to have saved it; {cause}")
    }

    fn cause(&self, node: Option<&NodeId>, saved_at: Timestamp) -> Option<String> {
        // A generation that was planned after a restart has no saves of before.
        let is_planned_before = self.plan.is_some_and(|plan| plan.life != self.lives.current());
        let absence = self.lives.absence_at(saved_at);
        let absence = absence.filter(|absence| absence.is_pause() || is_planned_before);
        let node = node.and_then(|node| self.fleet.get(node));
        let silent = node.and_then(|node| Some((node, node.reports.silence_at(self.now, saved_at)?)));
        let Some((node, (from, to))) = silent else {
            return absence.map(|absence| absence.to_string());
        };
        // Agents are silent as long as the controller does not run.
        if let Some(absence) = absence.filter(|absence| absence.covers(from, to.unwrap_or(self.now))) {
            return Some(absence.to_string());
        }
        let node = &node.info.node;
        Some(match to {
            Some(to) => format!("no report of node {node} arrived from {from} to {to}"),
            None => format!("no report of node {node} had arrived since {from}"),
        })
    }
}

impl DecisionContext<'_> {
    /// Records a time in which the controller did not run.
    pub(crate) fn controller_paused(&mut self, since: Timestamp) {
        if !self.state.has_exact_cases() {
            return;
        }
        self.state.lives.note_pause(since, self.at);
        let now = self.at;
        self.announce(format!(
            "the controller did not run from {since} to {now}: its process was stopped, or its machine or its disk did not \
             respond"
        ));
    }

    /// Records the arrival of evidence of a node.
    pub(crate) fn note_report_time(&mut self, node: &NodeId) {
        let at = self.at;
        let is_exact = self.state.has_exact_cases();
        if let Some(node) = self.state.fleet.get_mut(node).filter(|_| is_exact) {
            node.reports.note(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: i64) -> Timestamp {
        Timestamp::from_millis(second * 1_000)
    }

    #[test]
    fn a_save_lies_in_the_silence_that_lasts_or_in_the_newest_that_has_ended() {
        let mut times = ReportTimes::default();
        assert_eq!(times.silence_at(second(9), second(9)), None);
        [1, 2, 3, 10, 11].into_iter().for_each(|at| times.note(second(at)));
        assert_eq!(
            times.silence_at(second(11), second(5)),
            Some((second(3), Some(second(10))))
        );
        assert_eq!(times.silence_at(second(11), second(11)), None);
        assert_eq!(times.silence_at(second(13), second(12)), None);
        assert_eq!(times.silence_at(second(14), second(12)), Some((second(11), None)));
        assert_eq!(times.silence_at(second(14), second(1)), None);
    }
}
