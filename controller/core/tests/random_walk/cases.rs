//! Cases have an end: after its conclusion only evidence of its own failure changes a case, and the outcome of a closed
//! case changes only when an operator returns its node to use.

use std::collections::BTreeMap;

use rankguard_core::DecisionState;
use rankguard_model::{Case, CaseFinding, CaseId, CaseState, Entity, Timestamp};

/// State of each case after the previous event.
#[derive(Default)]
pub(super) struct CaseJudge {
    concluded: BTreeMap<CaseId, (Case, Timestamp)>,
}

impl CaseJudge {
    /// Compares the cases with their state before an event; `is_return` is true if an operator uncordoned a node.
    pub(super) fn look(&mut self, state: &DecisionState, now: Timestamp, is_return: bool) {
        self.concluded.retain(|id, _| state.cases().contains_key(id));
        for (id, case) in state.cases() {
            if case.state == CaseState::Open {
                continue;
            }
            let before = self.concluded.get(id);
            let is_same = before.is_some_and(|(before, _)| before.verdict == case.verdict);
            let at = match before {
                Some((before, at)) => {
                    compare(before, *at, case, state, is_return);
                    if is_same { *at } else { now }
                }
                None => now,
            };
            self.concluded.insert(*id, (case.clone(), at));
        }
    }
}

fn compare(before: &Case, concluded: Timestamp, case: &Case, state: &DecisionState, is_return: bool) {
    // Facts of the controller about one node have one evidence id.
    let is_same = |known: &CaseFinding, finding: &CaseFinding| {
        known.evidence == finding.evidence && (finding.evidence.seq.0 > 0 || known.text == finding.text)
    };
    let is_new = |finding: &&CaseFinding| !before.findings.iter().any(|known| is_same(known, finding));
    let new: Vec<&CaseFinding> = case.findings.iter().filter(is_new).collect();
    for finding in &new {
        assert!(
            is_of_the_failure(before, concluded, finding, state),
            "case {} was concluded at {concluded} and took in {finding:?}; it was {before:?}",
            case.id
        );
    }
    if new.is_empty() {
        assert_eq!(
            before.verdict, case.verdict,
            "case {} has another verdict without evidence",
            case.id
        );
    }
    if before.state == CaseState::FaultPresent && case.state == CaseState::Closed {
        let known = before.outcome.as_deref().unwrap_or_default();
        let outcome = case.outcome.as_deref().unwrap_or_default();
        assert!(
            outcome.starts_with(known) && outcome != known,
            "case {}: {outcome:?}",
            case.id
        );
    }
    // A case that leads to a restart after all is open again.
    let is_answered = before.plan != case.plan;
    if matches!(before.state, CaseState::Closed | CaseState::Recovered) && new.is_empty() && !is_answered {
        assert_eq!(before.state, case.state, "case {}", case.id);
        if before.outcome != case.outcome {
            let outcome = case.outcome.as_deref().unwrap_or_default();
            let is_recorded = is_return && outcome.contains("; an operator returned it to use at ");
            let known = before.outcome.as_deref().unwrap_or_default();
            let was_open = before.awaits_operator.is_some() && case.awaits_operator.is_none();
            let is_decided = was_open && outcome.starts_with(known);
            assert!(
                is_recorded || is_decided,
                "case {}: {:?} became {outcome:?}",
                case.id,
                before.outcome
            );
        }
    }
}

fn is_of_the_failure(before: &Case, concluded: Timestamp, finding: &CaseFinding, state: &DecisionState) -> bool {
    let was_drill = before.findings.iter().any(|known| known.synthetic);
    if finding.synthetic && !was_drill {
        return false;
    }
    match &finding.entity {
        Entity::Rank { job, generation, .. } => {
            (Some(job), Some(*generation)) == (before.job.as_ref(), before.generation)
        }
        Entity::Job { job } => Some(job) == before.job.as_ref(),
        machine => {
            let settle = std::time::Duration::from_millis(state.policy().settle_ms);
            finding.at <= concluded.after(settle)
                || *machine == before.verdict.blamed && finding.class == before.verdict.class
        }
    }
}
