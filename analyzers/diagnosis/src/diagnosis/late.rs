//! Late evidence of a concluded failure that does not change the verdict.

use rankguard_faults::{Catalogue, classes};
use rankguard_model::{CaseFinding, ClassId, Classification, Role};

use crate::conclusion::DraftConclusion;
use crate::knowledge::ClassEntry;
use crate::own_fault::FirstCause;
use crate::roles::class_of;
use crate::signal_ref::{MeaningRef, SignalRef};
use crate::{DraftChange, DraftId, SeparateFailure};

/// Reason of a late finding.
const LATE: &str = "It arrived after the case was concluded and follows from it.";
/// Reason of a late fault that does not follow from the first cause.
const OWN: &str = "It arrived after the case was concluded and is a fault of its own.";

/// Class, role and reason of late evidence in its case; the evidence gives the rest of the finding.
pub(super) struct LateFinding {
    class: ClassId,
    role: Role,
    why: &'static str,
    /// True if the repair of the case does not include it.
    is_separate: bool,
}

impl LateFinding {
    /// Classifies late evidence. `has_fault_limits` allows for faults that do not follow from the first cause;
    /// `has_fault_ends` gives each end the class of its own exit.
    pub(super) fn of(
        glimpse: &SignalRef<'_>,
        before: &DraftConclusion,
        has_fault_limits: bool,
        has_fault_ends: bool,
        catalogue: &Catalogue,
    ) -> Self {
        let class = glimpse.class();
        let first = ClassEntry::of(catalogue, &before.class);
        let cause = FirstCause {
            blamed: &before.blamed,
            is_machine: first.is_machine(),
            is_network: first.layer() == "network",
            synthetic: before.synthetic == Some(true),
        };
        let is_own = |mark: &Classification| {
            let known = ClassEntry::of(catalogue, &mark.class);
            has_fault_limits && !glimpse.synthetic && cause.is_beside(known, mark, glimpse.entity)
        };
        let (role, why) = match glimpse.mark() {
            Some(mark) if is_own(mark) => (Role::Root, OWN),
            Some(mark) if mark.role == Role::Noise => (Role::Noise, "It arrived after the case was concluded."),
            _ if class == Some(&before.class) => (Role::Confirmation, LATE),
            _ => (Role::Cascade, LATE),
        };
        let class = match (class, &glimpse.meaning) {
            (None, MeaningRef::Plain(meaning)) if has_fault_ends => class_of(meaning),
            (known, _) => known.cloned().unwrap_or_else(|| classes::KILLED_BY_SIGNAL.into()),
        };
        let is_same_machine = first.is_machine() && before.blamed.node() == glimpse.node();
        Self {
            class,
            role,
            why,
            is_separate: role == Role::Root && !is_same_machine,
        }
    }

    /// Returns true if it is a failure of its own.
    pub(super) fn is_separate(&self) -> bool {
        self.is_separate
    }

    /// Adds the finding to the changes. Evidence with several marks is added once, as noise only if all marks are noise.
    pub(super) fn join(
        self,
        draft: DraftId,
        glimpse: &SignalRef<'_>,
        separate: Option<SeparateFailure>,
        changes: &mut Vec<DraftChange>,
    ) {
        let known = changes.iter_mut().find_map(|known| match known {
            DraftChange::Late {
                draft: other, finding, ..
            } if *other == draft && finding.evidence == *glimpse.evidence => Some(finding),
            _ => None,
        });
        match known {
            Some(known) if known.role == Role::Noise && self.role != Role::Noise => **known = self.finding(glimpse),
            Some(_) => {}
            None => {
                let finding = Box::new(self.finding(glimpse));
                let separate = separate.map(Box::new);
                changes.push(DraftChange::Late {
                    draft,
                    finding,
                    separate,
                });
            }
        }
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
