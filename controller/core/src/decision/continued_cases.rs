//! Cases that were closed without a restart, and whose failure ended ranks after all.
//!
//! A program reports an error, the case is concluded while its process is still alive, and the process ends a moment later: that
//! is one failure with two cases, because a verdict is not taken back. The first one refers to the second.

use rankguard_diagnosis::ConcludedDraft;
use rankguard_model::{Case, CaseId, CaseState};

use super::DecisionContext;

impl DecisionContext<'_> {
    /// Lets closed cases with the first cause of a new case refer to it.
    pub(crate) fn refer_to_continuation(&mut self, newer: CaseId, concluded: &ConcludedDraft) {
        let Some(cause) = concluded.verdict.first_cause.as_ref() else {
            return;
        };
        if !self.state.keeps_present_faults() {
            return;
        }
        let is_begun_by_it = |case: &&Case| {
            let is_answered = case.plan.is_some() || case.state != CaseState::Closed;
            case.id < newer
                && !is_answered
                && case.job == concluded.job
                && case.verdict.first_cause.as_ref() == Some(cause)
        };
        let of_failure = self.state.cases.all().values().filter(is_begun_by_it);
        let of_failure: Vec<CaseId> = of_failure.map(|case| case.id).collect();
        for id in of_failure {
            if let Some(case) = self.state.cases.get_mut(id) {
                case.outcome = Some(format!("its ranks ended after the verdict, see case {newer}"));
            }
        }
    }
}
