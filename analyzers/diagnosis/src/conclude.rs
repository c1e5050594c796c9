//! Conclusion of a draft: the full result for the caller, a short one stored in the draft.

use rankguard_faults::Catalogue;
use rankguard_model::{Reason, Timestamp};

use crate::conclusion::Conclusion;
use crate::draft::Draft;
use crate::{Concluded, What};

/// Weighs a draft, stores its conclusion and returns the full result.
pub(crate) fn conclude(draft: &mut Draft, now: Timestamp, catalogue: &Catalogue) -> Concluded {
    let opinion = draft.opinion(now, catalogue);
    let failed = draft.has_failed();
    draft.concluded = Some(Conclusion {
        at: now,
        class: opinion.verdict.class.clone(),
        blamed: opinion.verdict.blamed.clone(),
        failed,
    });
    let first = opinion.findings.first().map(|finding| finding.at);
    let mut reasoning = opinion.reasoning;
    if draft.dropped > 0 {
        let text = format!(
            "{} further signs found no room in the case and were only counted.",
            draft.dropped
        );
        reasoning.push(Reason { at: now, text });
    }
    if draft.repeats.counted > 0 {
        let text = format!(
            "{} further signs repeat what is in the case, the last of {}, and were only counted.",
            draft.repeats.counted, draft.repeats.last_at
        );
        reasoning.push(Reason { at: now, text });
    }
    let nodes = draft.nodes();
    if nodes > 1 {
        let text = format!("{nodes} nodes speak in this case.");
        reasoning.push(Reason { at: now, text });
    }
    Concluded {
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
        node_silent: draft.holds(&What::Silent),
        stalled: draft.holds(&What::Stalled),
        order_failed: draft.holds(&What::OrderFailed),
    }
}
