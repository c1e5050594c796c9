//! Late evidence of a concluded failure that does not change the verdict.

use rankguard_faults::classes;
use rankguard_model::{CaseFinding, ClassId, Role};

use crate::conclusion::DraftConclusion;
use crate::signal_ref::SignalRef;
use crate::{DraftChange, DraftId};

/// Reason of a late finding.
const LATE: &str = "It arrived after the case was concluded and follows from it.";

/// Class, role and reason of late evidence in its case; the evidence gives the rest of the finding.
pub(super) struct LateFinding {
    class: ClassId,
    role: Role,
    why: &'static str,
}

impl LateFinding {
    pub(super) fn of(glimpse: &SignalRef<'_>, before: &DraftConclusion) -> Self {
        let class = glimpse.class();
        let (role, why) = match glimpse.mark() {
            Some(mark) if mark.role == Role::Noise => (Role::Noise, "It arrived after the case was concluded."),
            _ if class == Some(&before.class) => (Role::Confirmation, LATE),
            _ => (Role::Cascade, LATE),
        };
        let class = class.cloned().unwrap_or_else(|| classes::KILLED_BY_SIGNAL.into());
        Self { class, role, why }
    }

    /// Adds the finding to the changes; equal findings from several marks of a line are added once.
    pub(super) fn join(self, draft: DraftId, glimpse: &SignalRef<'_>, changes: &mut Vec<DraftChange>) {
        let is_known = changes.iter().any(|known| match known {
            DraftChange::Late { draft: other, finding } => *other == draft && self.is(finding, glimpse),
            _ => false,
        });
        if !is_known {
            let finding = Box::new(self.finding(glimpse));
            changes.push(DraftChange::Late { draft, finding });
        }
    }

    fn is(&self, finding: &CaseFinding, glimpse: &SignalRef<'_>) -> bool {
        (&self.class, self.role, self.why) == (&finding.class, finding.role, finding.why.as_str())
            && *glimpse.evidence == finding.evidence
    }

    fn finding(self, glimpse: &SignalRef<'_>) -> CaseFinding {
        CaseFinding {
            evidence: glimpse.evidence.clone(),
            at: glimpse.at,
            source: glimpse.source,
            entity: glimpse.entity.clone(),
            class: self.class,
            role: self.role,
            confidence: 0.8,
            text: glimpse.text.clone().into_owned(),
            why: self.why.to_owned(),
            synthetic: glimpse.synthetic,
        }
    }
}
