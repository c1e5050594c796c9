//! Scopes to which a sign may belong, and signs that open a draft.

use rankguard_faults::Catalogue;
use rankguard_model::{Entity, EvidenceSource, Generation, JobId, Role};

use crate::attribution::is_in_use;
use crate::knowledge::ClassEntry;
use crate::scope::ScopeRef;
use crate::signal_ref::{MeaningRef, SignalRef};
use crate::{DraftPolicy, JobContext, PlacementIndex};

/// Signature of the agents' reports of a loss that is not finite.
const LOSS_SIGNATURE: &str = "ranks.loss";

/// Calls `each` with every scope of a sign: for a machine each job on it that `concerns` accepts, or the node itself if
/// `each` returns false for all of them, because their work has ended.
pub(crate) fn each_scope<'a>(
    glimpse: &SignalRef<'a>,
    context: &'a PlacementIndex,
    policy: &DraftPolicy,
    concerns: impl Fn(&JobId, &JobContext) -> bool,
    mut each: impl FnMut(ScopeRef<'a>) -> bool,
) {
    let machine = match glimpse.entity {
        Entity::Rank { job, generation, .. } => {
            each(ScopeRef::Job(job, *generation));
            return;
        }
        Entity::Job { job } => {
            let known = context.job(job);
            let generation = known.map(|known| known.generation).unwrap_or_default();
            let is_older = known
                .and_then(|known| known.since)
                .is_some_and(|since| glimpse.at < since);
            let generation = if is_older {
                Generation(generation.0.saturating_sub(1))
            } else {
                generation
            };
            each(ScopeRef::Job(job, generation));
            return;
        }
        Entity::Node { node } | Entity::Device { node, .. } => node,
        Entity::Unknown => &glimpse.evidence.node,
    };
    let mut idle = true;
    let users = context.jobs_on(machine);
    let users = users.filter(|(job, known)| is_in_use(known, glimpse.at, policy) && concerns(job, known));
    for (job, known) in users {
        idle &= !each(ScopeRef::Job(job, known.generation));
    }
    if idle {
        each(ScopeRef::Node(machine));
    }
}

/// Returns true if a sign is a failure by itself: a rank that ended, a silent node, a machine that reports an
/// outright fault, a checkpoint that could not be stored although training continues, a loss that is not finite. A message of a program is a
/// failure only if the program then ends, so it is remembered until that happens.
pub(crate) fn opens(glimpse: &SignalRef<'_>, catalogue: &Catalogue) -> bool {
    match glimpse.meaning {
        MeaningRef::Plain(_) => true,
        MeaningRef::Mark(mark) if glimpse.source == EvidenceSource::Checkpoint => mark.role == Role::Root,
        // Sequence 0 is a fact of the caller, submitted only if it matters.
        MeaningRef::Mark(_) if glimpse.evidence.seq.0 == 0 => true,
        // The rank reports it with each step until it ends, and goes on.
        MeaningRef::Mark(mark) if mark.signature == LOSS_SIGNATURE => glimpse.source == EvidenceSource::Ranks,
        MeaningRef::Mark(mark) => {
            mark.role == Role::Root
                && glimpse.source != EvidenceSource::JobLog
                && ClassEntry::of(catalogue, &mark.class).is_outright_fault()
        }
    }
}
