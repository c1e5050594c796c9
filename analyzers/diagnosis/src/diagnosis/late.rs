//! Late evidence of a concluded failure that does not change the verdict.

use rankguard_model::{ClassId, Finding, Role};

use crate::conclusion::Conclusion;
use crate::glimpse::Glimpse;
use crate::{Change, DraftId};

/// Reason of a late finding.
const LATE: &str = "It arrived after the case was concluded and follows from it.";

/// Class, role and reason of late evidence in its case; the evidence gives the rest of the finding.
pub(super) struct Late {
    class: ClassId,
    role: Role,
    why: &'static str,
}

impl Late {
    pub(super) fn of(glimpse: &Glimpse<'_>, before: &Conclusion) -> Self {
        let class = glimpse.class();
        let (role, why) = match glimpse.mark() {
            Some(mark) if mark.role == Role::Noise => (Role::Noise, "It arrived after the case was concluded."),
            _ if class == Some(&before.class) => (Role::Confirmation, LATE),
            _ => (Role::Cascade, LATE),
        };
        let class = class.cloned().unwrap_or_else(|| "killed-by-signal".into());
        Self { class, role, why }
    }

    /// Adds the finding to the changes; equal findings from several marks of a line are added once.
    pub(super) fn join(self, draft: DraftId, glimpse: &Glimpse<'_>, changes: &mut Vec<Change>) {
        let is_known = changes.iter().any(|known| match known {
            Change::Late { draft: other, finding } => *other == draft && self.is(finding, glimpse),
            _ => false,
        });
        if !is_known {
            let finding = Box::new(self.finding(glimpse));
            changes.push(Change::Late { draft, finding });
        }
    }

    fn is(&self, finding: &Finding, glimpse: &Glimpse<'_>) -> bool {
        (&self.class, self.role, self.why) == (&finding.class, finding.role, finding.why.as_str())
            && *glimpse.evidence == finding.evidence
    }

    fn finding(self, glimpse: &Glimpse<'_>) -> Finding {
        Finding {
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
