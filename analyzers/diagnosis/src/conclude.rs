//! Conclusion of a draft: the full result for the caller, a short one stored in the draft.

use std::collections::BTreeSet;

use rankguard_faults::Catalogue;
use rankguard_model::{CaseFinding, NodeId, ReasoningEntry, Role, Timestamp, rests_on_drill};

use crate::conclusion::DraftConclusion;
use crate::draft::Draft;
use crate::unordered::is_consequence_before;
use crate::{ConcludedDraft, SignalMeaning};

/// Returns the time of the earliest evidence of a failure: noise is none. With `is_ordered`, a consequence that is earlier
/// than the first cause by less than their order proves is none either.
fn first_effect(findings: &[CaseFinding], is_ordered: bool) -> Option<Timestamp> {
    let root = findings.first().filter(|first| is_ordered && first.role == Role::Root);
    let is_before = |finding: &CaseFinding| root.is_some_and(|root| is_consequence_before(finding, root));
    let effects = findings
        .iter()
        .filter(|finding| finding.role != Role::Noise && !is_before(finding));
    effects.map(|finding| finding.at).min()
}

/// Weighs a draft, stores its conclusion and returns the full result.
pub(crate) fn conclude(draft: &mut Draft, now: Timestamp, catalogue: &Catalogue) -> ConcludedDraft {
    let (opinion, separate) = draft.opinion(now, catalogue);
    let failed = draft.has_failed();
    draft.concluded = Some(DraftConclusion {
        at: now,
        class: opinion.verdict.class.clone(),
        blamed: opinion.verdict.blamed.clone(),
        failed,
        synthetic: draft.has_cause_limits.then(|| rests_on_drill(&opinion.findings)),
    });
    let first = if draft.has_cause_limits {
        first_effect(&opinion.findings, draft.has_fault_ends)
    } else {
        opinion.findings.first().map(|finding| finding.at)
    };
    let mut reasoning = opinion.reasoning;
    if draft.dropped > 0 {
        let text = format!(
            "{} further signs found no room in the case and were only counted.",
            draft.dropped
        );
        reasoning.push(ReasoningEntry { at: now, text });
    }
    if draft.repeats.counted > 0 {
        let text = format!(
            "{} further signs repeat what is in the case, the last of {}, and were only counted.",
            draft.repeats.counted, draft.repeats.last_at
        );
        reasoning.push(ReasoningEntry { at: now, text });
    }
    let effects = opinion.findings.iter().filter(|finding| finding.role != Role::Noise);
    let nodes: BTreeSet<&NodeId> = effects.filter_map(|finding| finding.entity.node()).collect();
    let nodes = nodes.len();
    if nodes > 1 {
        let text = format!("{nodes} nodes speak in this case.");
        reasoning.push(ReasoningEntry { at: now, text });
    }
    ConcludedDraft {
        draft: draft.id,
        job: draft.scope.job().cloned(),
        generation: draft.scope.generation(),
        first_at: first.or_else(|| draft.signs.first().map(|sign| sign.at)).unwrap_or(now),
        failed,
        verdict: opinion.verdict,
        findings: opinion.findings,
        reasoning,
        clears: opinion.clears,
        signature: opinion.signature,
        headline: opinion.headline,
        node_silent: draft.signs.iter().any(|sign| sign.what.is_silence()),
        stalled: draft.holds(&SignalMeaning::Stalled),
        has_cause_limits: draft.has_cause_limits,
        order_failed: draft.holds(&SignalMeaning::OrderFailed),
        separate,
    }
}
