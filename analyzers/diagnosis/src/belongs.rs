//! Whose failure a sign may belong to, and whether it is one by itself.

use rankguard_faults::Catalogue;
use rankguard_model::{Entity, Role, Source};

use crate::Context;
use crate::glimpse::{Glimpse, Meaning};
use crate::knowledge::Known;
use crate::scope::ScopeRef;

/// Whose failure a sign may belong to: a machine's is that of each job on it, and its own where none runs there.
pub(crate) fn scopes<'a>(glimpse: &Glimpse<'a>, context: &'a Context) -> impl Iterator<Item = ScopeRef<'a>> {
    let (own, machine) = match glimpse.entity {
        Entity::Rank { job, generation, .. } => (Some(ScopeRef::Job(job, *generation)), None),
        Entity::Job { job } => {
            let known = context.job(job).map(|known| known.generation);
            (Some(ScopeRef::Job(job, known.unwrap_or_default())), None)
        }
        Entity::Node { node } | Entity::Device { node, .. } => (None, Some(node)),
        Entity::Unknown => (None, Some(&glimpse.evidence.node)),
    };
    let there = machine.into_iter().flat_map(|node| context.jobs_on(node));
    let mut jobs = there
        .map(|(job, known)| ScopeRef::Job(job, known.generation))
        .peekable();
    let idle = machine.filter(|_| jobs.peek().is_none());
    own.or(idle.map(ScopeRef::Node)).into_iter().chain(jobs)
}

/// Whether a sign is a failure by itself: a rank that ended, a silent node, a machine that reports an outright fault, a
/// checkpoint that could not be kept although training goes on. What a program writes is a failure only when the program then
/// ends, so it is remembered until that happens.
pub(crate) fn opens(glimpse: &Glimpse<'_>, catalogue: &Catalogue) -> bool {
    match glimpse.meaning {
        Meaning::Plain(_) => true,
        Meaning::Mark(mark) if glimpse.source == Source::Checkpoint => mark.role == Role::Root,
        // What a caller says is said because it matters.
        Meaning::Mark(_) if glimpse.evidence.seq.0 == 0 => true,
        Meaning::Mark(mark) => {
            mark.role == Role::Root
                && glimpse.source != Source::JobLog
                && Known::of(catalogue, &mark.class).is_outright_fault()
        }
    }
}
