//! Closed cases without a restart of which the failure ended ranks later.
//!
//! A program reports an error, the case is concluded while its process is still alive, and the process ends a moment later: that
//! is one failure with two cases, because a closed case is not changed. The second one names the first.

use rankguard_diagnosis::ConcludedDraft;
use rankguard_model::{Case, CaseId, CaseState, ReasoningEntry};

use super::DecisionContext;

impl DecisionContext<'_> {
    /// Names in a new case the closed case with the same first cause for which nothing was restarted.
    pub(crate) fn name_continued_case(&mut self, newer: CaseId, concluded: &ConcludedDraft) {
        let at = self.at;
        let Some(cause) = concluded.verdict.first_cause.as_ref() else {
            return;
        };
        if !self.state.has_exact_cases() {
            return;
        }
        let is_begun_by_it = |case: &&Case| {
            let is_unanswered = case.plan.is_none() && case.state == CaseState::Closed;
            let is_same = case.job == concluded.job && case.verdict.first_cause.as_ref() == Some(cause);
            case.id < newer && is_unanswered && is_same
        };
        let Some(older) = self
            .state
            .cases
            .all()
            .values()
            .rfind(is_begun_by_it)
            .map(|case| case.id)
        else {
            return;
        };
        if let Some(case) = self.state.cases.get_mut(newer) {
            let text = format!(
                "Case {older} has the same first cause: it was concluded before the ends of ranks were reported."
            );
            case.reasoning.push(ReasoningEntry { at, text });
        }
    }
}
