//! Plan checker: a refused plan is never carried out.

use std::collections::BTreeSet;

use rankguard_model::NodeId;

use crate::{DecisionState, Plan};

/// Reason to refuse a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanProblem {
    /// The generation would not be newer than the one that acts (RG-3).
    #[error("generation {0} is not newer than the one that acts")]
    GenerationNotNewer(rankguard_model::Generation),
    /// A node is not usable.
    #[error("node {0} is lost, cordoned or unknown")]
    NodeNotUsable(NodeId),
    /// A node serves another job.
    #[error("node {0} serves another job")]
    NodeTaken(NodeId),
    /// A node is named twice.
    #[error("node {0} is named twice")]
    NodeTwice(NodeId),
    /// A node has too few slots.
    #[error("node {0} has fewer slots than {1}")]
    TooFewSlots(NodeId, u32),
    /// The job does not allow this number of nodes.
    #[error("{0} nodes are outside what the job allows")]
    SizeNotAllowed(usize),
    /// The job does not exist.
    #[error("the job does not exist")]
    NoSuchJob,
}

/// Returns all problems of a plan; empty if it may be carried out.
pub fn plan_check(state: &DecisionState, plan: &Plan) -> Vec<PlanProblem> {
    let Some(job) = state.jobs.get(&plan.job) else {
        return vec![PlanProblem::NoSuchJob];
    };
    let mut problems = Vec::new();
    if plan.generation <= job.generation().max(state.floors.of(&plan.job)) {
        problems.push(PlanProblem::GenerationNotNewer(plan.generation));
    }
    let range = job.node_range();
    if !(range.min as usize..=range.max as usize).contains(&plan.nodes.len()) {
        problems.push(PlanProblem::SizeNotAllowed(plan.nodes.len()));
    }
    let taken = state.nodes_of_other_jobs(&plan.job);
    let mut seen = BTreeSet::new();
    for name in &plan.nodes {
        if !seen.insert(name) {
            problems.push(PlanProblem::NodeTwice(name.clone()));
        }
        if taken.contains(name) {
            problems.push(PlanProblem::NodeTaken(name.clone()));
        }
        match state.fleet.get(name) {
            Some(node) if node.is_usable() => {
                if node.info.slots < plan.ranks_per_node {
                    problems.push(PlanProblem::TooFewSlots(name.clone(), plan.ranks_per_node));
                }
            }
            _ => problems.push(PlanProblem::NodeNotUsable(name.clone())),
        }
    }
    problems
}
