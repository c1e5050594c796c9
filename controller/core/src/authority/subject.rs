//! Subject of a claim, and the check that it belongs to the node that submits the claim.

use rankguard_model::{Entity, Generation, JobId, NodeId, Rank};

use super::{AuthorityResult, AuthorityRule, SubmittedEvidence, refuse, void};
use crate::{DecisionState, Job, Plan};

/// Subject of a claim, resolved against the state. It always belongs to the sender.
pub(super) enum EvidenceSubject<'a> {
    /// No subject narrower than the node that reports it.
    Unknown,
    /// The node as a whole.
    Node,
    /// Device of the node.
    Device,
    /// Job with present or past ranks on the node.
    Job(JobSubject<'a>),
    /// Rank that a plan placed on the node.
    Rank(RankSubject<'a>),
    /// Rank on the node of a generation that another journal has begun.
    ForeignRank,
}

/// Job with present or past ranks on the node.
pub(super) struct JobSubject<'a> {
    pub(super) job: &'a Job,
    /// True if the current plan places ranks of the job on the node.
    pub(super) is_current: bool,
}

/// Rank that a plan placed on the node.
pub(super) struct RankSubject<'a> {
    pub(super) job: &'a Job,
    /// Plan of the rank's generation.
    pub(super) plan: &'a Plan,
    pub(super) rank: Rank,
    /// True if the rank's generation is the current one.
    pub(super) is_current: bool,
}

/// Resolves the subject of a claim.
pub(super) fn check(claim: SubmittedEvidence<'_>) -> AuthorityResult<EvidenceSubject<'_>> {
    let SubmittedEvidence { sender, evidence, .. } = claim;
    let entity = &evidence.entity;
    if let Some(node) = entity.node().filter(|node| *node != sender) {
        return refuse(
            AuthorityRule::ForeignNode,
            format!("it is about {entity}, and node {node} is not {sender}"),
        );
    }
    match entity {
        Entity::Unknown => Ok(EvidenceSubject::Unknown),
        Entity::Node { .. } => Ok(EvidenceSubject::Node),
        Entity::Device { .. } => Ok(EvidenceSubject::Device),
        Entity::Job { job } => check_job(claim, job).map(EvidenceSubject::Job),
        Entity::Rank {
            job, generation, rank, ..
        } => check_rank(claim, job, *generation, *rank),
    }
}

/// Resolves a job that has, or had, ranks on the node of the session.
pub(super) fn check_job<'a>(claim: SubmittedEvidence<'a>, name: &JobId) -> AuthorityResult<JobSubject<'a>> {
    let Some(job) = claim.state.jobs().get(name) else {
        return void(format!("the controller knows no job {name}"));
    };
    let is_current = job.nodes().contains(claim.sender);
    let plans = PlanHistory::of(claim.state, job);
    if is_current || plans.clone().any(|plan| plan.nodes.contains(claim.sender)) {
        return Ok(JobSubject { job, is_current });
    }
    if plans.count() as u64 != job.generation().0 {
        return void(format!(
            "plans of job {name} were forgotten, and one of them may have used the node"
        ));
    }
    refuse(
        AuthorityRule::ForeignJob,
        format!("job {name} never had ranks on node {}", claim.sender),
    )
}

fn check_rank<'a>(
    claim: SubmittedEvidence<'a>,
    name: &JobId,
    generation: Generation,
    rank: Rank,
) -> AuthorityResult<EvidenceSubject<'a>> {
    let Some(job) = claim.state.jobs().get(name) else {
        if is_foreign(claim, name, generation, rank) {
            return Ok(EvidenceSubject::ForeignRank);
        }
        return void(format!("the controller knows no job {name}"));
    };
    let Some(plan) = PlanHistory::of(claim.state, job).find(|plan| plan.generation == generation) else {
        return void(format!("the controller knows no generation {generation} of job {name}"));
    };
    if plan.node_of(rank) != Some(claim.sender) {
        let place = plan.node_of(rank).map_or("nowhere", NodeId::as_str);
        return refuse(
            AuthorityRule::ForeignRank,
            format!("rank {rank} of generation {generation} of job {name} was placed on {place}"),
        );
    }
    let is_current = generation == job.generation();
    let waits = job.is_between_generations();
    if is_current && waits {
        return refuse(
            AuthorityRule::NotLaunched,
            format!("generation {generation} of job {name} has not been launched"),
        );
    }
    Ok(EvidenceSubject::Rank(RankSubject {
        job,
        plan,
        rank,
        is_current,
    }))
}

/// Returns true if the sender's agent reported the rank as one of a generation that another journal has begun.
fn is_foreign(claim: SubmittedEvidence<'_>, name: &JobId, generation: Generation, rank: Rank) -> bool {
    let node = claim.state.fleet().get(claim.sender);
    let foreign = node.into_iter().flat_map(|node| &node.foreign);
    let mut foreign = foreign.map(|running| &running.rank);
    foreign.any(|known| known.job == *name && known.generation == generation && known.rank == rank)
}

/// Recorded plans of a job, newest first.
#[derive(Clone)]
pub(super) struct PlanHistory<'a> {
    state: &'a DecisionState,
    next: Option<&'a Plan>,
}

impl<'a> PlanHistory<'a> {
    pub(super) fn of(state: &'a DecisionState, job: &'a Job) -> Self {
        Self {
            state,
            next: job.plan(),
        }
    }
}

impl<'a> Iterator for PlanHistory<'a> {
    type Item = &'a Plan;

    fn next(&mut self) -> Option<&'a Plan> {
        let plan = self.next?;
        self.next = plan.parent.and_then(|parent| self.state.plans().get(&parent));
        Some(plan)
    }
}
