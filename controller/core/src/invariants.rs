//! Sentences that hold after every event. Random walks and the simulator check them; live controllers may.

use std::collections::BTreeMap;

use rankguard_diagnosis::Context;
use rankguard_model::{CaseState, JobId, NodeId, Role};

use crate::state::placed;
use crate::{Job, Phase, Plan, State};

/// A sentence that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The sentence.
    pub invariant: &'static str,
    /// Where it fails.
    pub detail: String,
}

type Check = fn(&State) -> Option<String>;

/// The sentences, each with its check.
pub const INVARIANTS: &[(&str, Check)] = &[
    ("no_node_serves_two_jobs", no_node_serves_two_jobs),
    ("ranks_are_numbered_without_gaps", ranks_are_numbered_without_gaps),
    ("a_job_has_the_size_it_allows", a_job_has_the_size_it_allows),
    ("every_waiting_phase_has_a_timer", every_waiting_phase_has_a_timer),
    ("cordons_stay_within_the_budget", cordons_stay_within_the_budget),
    ("a_cascade_is_never_blamed", a_cascade_is_never_blamed),
    ("checkpoints_are_committed_in_order", checkpoints_are_committed_in_order),
    (
        "a_generation_has_at_most_one_open_case",
        a_generation_has_at_most_one_open_case,
    ),
    (
        "calls_are_of_the_generation_that_acts",
        calls_are_of_the_generation_that_acts,
    ),
    ("every_case_says_what_clears_it", every_case_says_what_clears_it),
    ("diagnosis_knows_where_jobs_run", diagnosis_knows_where_jobs_run),
];

/// Everything that does not hold; empty when all is well.
pub fn check(state: &State) -> Vec<Violation> {
    INVARIANTS
        .iter()
        .filter_map(|(invariant, check)| check(state).map(|detail| Violation { invariant, detail }))
        .collect()
}

fn living(state: &State) -> impl Iterator<Item = &Job> {
    state.jobs.values().filter(|job| !job.is_over())
}

/// RG-3: two jobs on a node would fence each other's ranks.
fn no_node_serves_two_jobs(state: &State) -> Option<String> {
    let mut owner: BTreeMap<&NodeId, &Job> = BTreeMap::new();
    for job in living(state) {
        for node in job.nodes() {
            if let Some(other) = owner.insert(node, job) {
                return Some(format!("{node} serves {} and {}", other.spec.id, job.spec.id));
            }
        }
    }
    None
}

fn ranks_are_numbered_without_gaps(state: &State) -> Option<String> {
    living(state).find_map(|job| {
        let places: Vec<_> = job.plan.iter().flat_map(Plan::placements).collect();
        let gap = places
            .iter()
            .enumerate()
            .find(|(at, place)| place.rank.0 as usize != *at);
        gap.map(|(at, place)| format!("{}: place {at} holds rank {}", job.spec.id, place.rank))
    })
}

fn a_job_has_the_size_it_allows(state: &State) -> Option<String> {
    living(state).find_map(|job| {
        let (range, nodes) = (job.spec.nodes, job.nodes().len());
        let allowed = job.plan.is_none() || (range.min as usize..=range.max as usize).contains(&nodes);
        (!allowed).then(|| format!("{} has {nodes} nodes", job.spec.id))
    })
}

/// RG-9: every wait has a deadline.
fn every_waiting_phase_has_a_timer(state: &State) -> Option<String> {
    let waits = |job: &&Job| {
        matches!(
            job.phase,
            Phase::Pending { .. } | Phase::Fencing { .. } | Phase::Adopting { .. } | Phase::Launching { .. }
        )
    };
    living(state).filter(waits).find_map(|job| {
        let timer = state.timers.keys().any(
            |timer| matches!(timer, crate::Timer::PhaseDeadline { job: name, generation } if *name == job.spec.id && *generation == job.generation),
        );
        (!timer).then(|| format!("{} waits in {:?} without one", job.spec.id, job.phase))
    })
}

/// RG-6: a wrong diagnosis cannot empty the cluster.
fn cordons_stay_within_the_budget(state: &State) -> Option<String> {
    let (used, budget) = (
        state.fleet.cordoned_by_verdict(),
        state.policy.cordon_budget(state.fleet.len()),
    );
    (used > budget).then(|| format!("{used} nodes are cordoned, {budget} may be"))
}

/// RG-7: the first cause of a case is never a cascade, and nobody is blamed for noise.
fn a_cascade_is_never_blamed(state: &State) -> Option<String> {
    state.cases.all().values().find_map(|case| {
        let first = case.verdict.first_cause.as_ref()?;
        let finding = case.findings.iter().find(|finding| finding.evidence == *first)?;
        let guilty = matches!(finding.role, Role::Root | Role::Confirmation)
            || case
                .findings
                .iter()
                .any(|other| other.evidence == *first && other.role == Role::Root)
            || case.verdict.class.as_str().starts_with("unknown")
            || case.verdict.blamed.node().is_none();
        (!guilty).then(|| format!("case {} rests on {first}, a {:?}", case.id, finding.role))
    })
}

/// RG-1: what was committed stays, and newer ones come after it.
fn checkpoints_are_committed_in_order(state: &State) -> Option<String> {
    state.jobs.values().find_map(|job| {
        let pair = job
            .checkpoints
            .committed
            .windows(2)
            .find(|pair| pair[0].step >= pair[1].step)?;
        Some(format!(
            "{}: step {} stands before step {}",
            job.spec.id, pair[0].step, pair[1].step
        ))
    })
}

/// One failure is one case: whatever a generation's end brings belongs together.
fn a_generation_has_at_most_one_open_case(state: &State) -> Option<String> {
    let mut open = BTreeMap::new();
    let cases = state.cases.all().values().filter(|case| case.state == CaseState::Open);
    for (case, job) in cases.filter_map(|case| Some((case, case.job.as_ref()?))) {
        if let Some(other) = open.insert((job, case.generation), case.id) {
            return Some(format!("{job} has the open cases {other} and {}", case.id));
        }
    }
    None
}

/// RG-3: a checkpoint is called of nobody but the ranks that act.
fn calls_are_of_the_generation_that_acts(state: &State) -> Option<String> {
    living(state).find_map(|job| {
        let stale = job.calls.open().iter().find(|word| word.generation != job.generation)?;
        Some(format!(
            "{} is of generation {} and calls generation {}",
            job.spec.id, job.generation, stale.generation
        ))
    })
}

/// RG-10.
fn every_case_says_what_clears_it(state: &State) -> Option<String> {
    let silent = |case: &&rankguard_model::Case| case.state != CaseState::Open && case.clears.is_empty();
    state
        .cases
        .all()
        .values()
        .find(silent)
        .map(|case| format!("case {} does not", case.id))
}

/// What diagnosis is lent is what the jobs are.
fn diagnosis_knows_where_jobs_run(state: &State) -> Option<String> {
    let placed = |(name, job): (&JobId, &Job)| Some((name.clone(), placed(job)?));
    let context: Context = state.jobs.iter().filter_map(placed).collect();
    let differs = || format!("it knows {:?}, and the jobs are {context:?}", state.context);
    (context != state.context).then(differs)
}
