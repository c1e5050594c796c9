//! Whose failure a sign may belong to, and whether it is one by itself.

use rankguard_faults::Catalogue;
use rankguard_model::{Entity, NodeId, Role, Severity, Source};

use crate::{Context, Scope, Sign, What, knowledge};

/// Whose failure a sign may belong to.
pub(crate) fn scopes(sign: &Sign, context: &Context) -> Vec<Scope> {
    match &sign.entity {
        Entity::Rank { job, generation, .. } => {
            vec![Scope::Job {
                job: job.clone(),
                generation: *generation,
            }]
        }
        Entity::Job { job } => {
            let generation = context.jobs.get(job).map(|known| known.generation).unwrap_or_default();
            vec![Scope::Job {
                job: job.clone(),
                generation,
            }]
        }
        Entity::Node { node } | Entity::Device { node, .. } => of_node(node, context),
        Entity::Unknown => of_node(&sign.evidence.node, context),
    }
}

fn of_node(node: &NodeId, context: &Context) -> Vec<Scope> {
    let jobs: Vec<Scope> = context
        .jobs_on(node)
        .map(|(job, known)| Scope::Job {
            job: job.clone(),
            generation: known.generation,
        })
        .collect();
    if jobs.is_empty() {
        vec![Scope::Node { node: node.clone() }]
    } else {
        jobs
    }
}

/// Whether a sign is a failure by itself: a rank that ended, a silent node, a machine that reports an outright fault, a
/// checkpoint that could not be kept although training goes on. What a program writes is a failure only when the program then ends, so it is remembered until that happens.
pub(crate) fn opens(sign: &Sign, catalogue: &Catalogue) -> bool {
    match &sign.what {
        What::Exit { .. } | What::Silent | What::Stalled | What::OrderFailed => true,
        What::Mark(mark) if sign.source == Source::Checkpoint => mark.role == Role::Root,
        // What a caller says is said because it matters.
        What::Mark(_) if sign.evidence.seq.0 == 0 => true,
        What::Mark(mark) => {
            mark.role == Role::Root
                && knowledge::is_machine(catalogue, &mark.class)
                && knowledge::severity(catalogue, &mark.class) == Severity::Failure
                && knowledge::role(catalogue, &mark.class) == Role::Root
                && sign.source != Source::JobLog
        }
    }
}
