//! Invariants of the state that hold after every event. Random walks and the simulator check them; live controllers
//! may.

use std::collections::BTreeMap;

use rankguard_diagnosis::{PlacementIndex, STAMP_RESOLUTION};
use rankguard_model::{Case, CaseState, Entity, JobId, NodeId, Role, Timestamp};

use crate::state::placed;
use crate::{DecisionState, Job, JobPhase, Plan, TimerKey};

/// Violation of an invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvariantViolation {
    /// Name of the invariant.
    pub invariant: &'static str,
    /// Place of the violation.
    pub detail: String,
}

type InvariantCheck = fn(&DecisionState) -> Option<String>;

/// All invariants, each with its check.
pub const INVARIANTS: &[(&str, InvariantCheck)] = &[
    ("no_node_serves_two_jobs", no_node_serves_two_jobs),
    ("ranks_are_numbered_without_gaps", ranks_are_numbered_without_gaps),
    ("a_job_has_the_size_it_allows", a_job_has_the_size_it_allows),
    ("every_waiting_phase_has_a_timer", every_waiting_phase_has_a_timer),
    ("ended_ranks_are_followed", ended_ranks_are_followed),
    ("cordons_stay_within_the_budget", cordons_stay_within_the_budget),
    ("restarts_stay_within_the_budget", restarts_stay_within_the_budget),
    ("every_fence_has_a_deadline", every_fence_has_a_deadline),
    ("every_preparation_ends", every_preparation_ends),
    ("one_generation_may_commit", one_generation_may_commit),
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
    ("present_faults_are_open_cases", present_faults_are_open_cases),
    ("cases_rest_on_machines_in_use", cases_rest_on_machines_in_use),
    ("cases_rest_on_nothing_cleared", cases_rest_on_nothing_cleared),
    ("histories_stay_within_their_limits", histories_stay_within_their_limits),
    ("generations_lie_above_their_floors", generations_lie_above_their_floors),
];

/// RG-9: standby processes on further nodes are prepared for jobs that work; an awaited report has a deadline, and agents end
/// processes without a repeated order.
fn every_preparation_ends(state: &DecisionState) -> Option<String> {
    state.jobs.iter().find_map(|(name, job)| {
        let repetition = TimerKey::Spares { job: name.clone() };
        if !job.spares.is_empty() && (job.is_over() || !state.timers.contains_key(&repetition)) {
            return Some(format!("{name} has spare nodes without an end"));
        }
        let preparation = job.preparation.as_ref()?;
        let timer = TimerKey::Grow { job: name.clone() };
        let is_disturbed = !job.is_running() || job.case().is_some() || state.cases.is_settling(name);
        if job.is_over() {
            return Some(format!("{name} has ended and prepares nodes"));
        }
        // After the deadline the job is called to checkpoint without the reports.
        let is_awaited = preparation.has_unreported() && job.growth().is_none();
        (is_awaited && !is_disturbed && !state.timers.contains_key(&timer))
            .then(|| format!("{name} waits for prepared nodes without a deadline"))
    })
}

/// Returns all violations.
pub fn check(state: &DecisionState) -> Vec<InvariantViolation> {
    INVARIANTS
        .iter()
        .filter_map(|(invariant, check)| check(state).map(|detail| InvariantViolation { invariant, detail }))
        .collect()
}

fn living(state: &DecisionState) -> impl Iterator<Item = &Job> {
    state.jobs.values().filter(|job| !job.is_over())
}

/// RG-3: two jobs on one node would fence each other's ranks.
fn no_node_serves_two_jobs(state: &DecisionState) -> Option<String> {
    let mut owner: BTreeMap<&NodeId, &Job> = BTreeMap::new();
    for job in living(state) {
        for node in job.nodes().iter().filter(|node| state.has_node(job, node)) {
            if let Some(other) = owner.insert(node, job) {
                return Some(format!("{node} serves {} and {}", other.spec.id, job.spec.id));
            }
        }
    }
    None
}

fn ranks_are_numbered_without_gaps(state: &DecisionState) -> Option<String> {
    living(state).find_map(|job| {
        let places: Vec<_> = job.plan().into_iter().flat_map(Plan::placements).collect();
        let gap = places
            .iter()
            .enumerate()
            .find(|(at, place)| place.rank.0 as usize != *at);
        gap.map(|(at, place)| format!("{}: place {at} holds rank {}", job.spec.id, place.rank))
    })
}

fn a_job_has_the_size_it_allows(state: &DecisionState) -> Option<String> {
    living(state).find_map(|job| {
        let range = job.spec.nodes;
        let nodes = job.nodes().len();
        let allowed = job.plan().is_none() || (range.min as usize..=range.max as usize).contains(&nodes);
        (!allowed).then(|| format!("{} has {nodes} nodes", job.spec.id))
    })
}

/// RG-9: every wait has a deadline.
fn every_waiting_phase_has_a_timer(state: &DecisionState) -> Option<String> {
    let waits = |job: &&Job| {
        matches!(
            job.phase(),
            JobPhase::Pending { .. }
                | JobPhase::Fencing { .. }
                | JobPhase::Adopting { .. }
                | JobPhase::Launching { .. }
        )
    };
    living(state).filter(waits).find_map(|job| {
        let timer = state.timers.keys().any(
            |timer| matches!(timer, TimerKey::PhaseDeadline { job: name, generation } if *name == job.spec.id && *generation == job.generation()),
        );
        (!timer).then(|| format!("{} waits in {:?} without one", job.spec.id, job.phase()))
    })
}

/// RG-9: a job does not count as running without its ranks. A verdict is awaited, or a restart has a time.
fn ended_ranks_are_followed(state: &DecisionState) -> Option<String> {
    if !state.follows_ended_ranks() {
        return None;
    }
    living(state).find_map(|job| {
        let name = &job.spec.id;
        let timer = TimerKey::EndedRanks {
            job: name.clone(),
            generation: job.generation(),
        };
        let is_followed = state.cases.is_settling(name) || state.timers.contains_key(&timer) || job.hang.case.is_some();
        let ended = job.ended_ranks();
        (!ended.is_empty() && !is_followed).then(|| format!("{name} has lost {ended:?}, and nothing follows"))
    })
}

/// RG-6: a wrong diagnosis cannot empty the cluster. Nodes may be lost after a cordon, so the largest limit recorded
/// with one of the cordons applies.
fn cordons_stay_within_the_budget(state: &DecisionState) -> Option<String> {
    let cordons = state.fleet.iter().filter_map(|(_, node)| node.cordon.as_ref());
    let limits: Vec<usize> = cordons
        .filter(|cordon| cordon.case.is_some())
        .map(|cordon| cordon.limit)
        .collect();
    let used = limits.len();
    let limit = limits.iter().copied().max().unwrap_or(0);
    (used > limit).then(|| format!("{used} nodes are cordoned by verdicts, {limit} may be"))
}

/// RG-6: the number of restarts without a checkpoint in between is limited.
fn restarts_stay_within_the_budget(state: &DecisionState) -> Option<String> {
    let over = |job: &&Job| job.fruitless_restarts() > job.spec.max_restarts;
    let job = state.jobs.values().find(over)?;
    Some(format!(
        "{} was restarted {} times without a checkpoint, {} are allowed",
        job.spec.id,
        job.fruitless_restarts(),
        job.spec.max_restarts
    ))
}

/// RG-3, RG-9: a live node with open fences takes no work, and its answer has a deadline.
fn every_fence_has_a_deadline(state: &DecisionState) -> Option<String> {
    state.fleet.iter().find_map(|(name, node)| {
        let fencing = node.lost_since.is_none() && !node.fences.is_empty();
        let timer = state.timers.contains_key(&TimerKey::Fence { node: name.clone() });
        if fencing && node.is_usable() {
            return Some(format!("{name} is usable and has not confirmed its fences"));
        }
        (fencing != timer).then(|| format!("{name}: fences wait: {fencing}, a timer is set: {timer}"))
    })
}

/// RG-3: the commit right belongs to the generation that acts or, before its ranks start, to the one that trained last.
fn one_generation_may_commit(state: &DecisionState) -> Option<String> {
    state.jobs.values().find_map(|job| {
        let committable = job.committable()?;
        let adopting = matches!(job.phase(), JobPhase::Adopting { .. });
        let right = if adopting {
            job.checkpoints.trained() == committable && committable < job.generation()
        } else {
            committable == job.generation()
        };
        (!right).then(|| {
            format!(
                "{} is of generation {} and {committable} may commit in {:?}",
                job.spec.id,
                job.generation(),
                job.phase()
            )
        })
    })
}

/// RG-7: the first cause of a case is never a cascade or noise.
fn a_cascade_is_never_blamed(state: &DecisionState) -> Option<String> {
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

/// RG-1: committed checkpoints are listed in the order of their steps.
fn checkpoints_are_committed_in_order(state: &DecisionState) -> Option<String> {
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

/// A failure is one case: all evidence about the end of a generation belongs together.
fn a_generation_has_at_most_one_open_case(state: &DecisionState) -> Option<String> {
    let mut open = BTreeMap::new();
    let cases = state.cases.all().values().filter(|case| case.state == CaseState::Open);
    for (case, job) in cases.filter_map(|case| Some((case, case.job.as_ref()?))) {
        if let Some(other) = open.insert((job, case.generation), case.id) {
            return Some(format!("{job} has the open cases {other} and {}", case.id));
        }
    }
    None
}

/// RG-3: no generation acts under a number that a node has received in an order before.
fn generations_lie_above_their_floors(state: &DecisionState) -> Option<String> {
    let acts = |job: &&Job| !job.is_pending();
    living(state).filter(acts).find_map(|job| {
        let floor = state.floors.of(&job.spec.id);
        (job.generation() <= floor)
            .then(|| format!("{} acts as {} and was ordered {floor}", job.spec.id, job.generation()))
    })
}

/// RG-3: checkpoint calls go only to the generation that acts.
fn calls_are_of_the_generation_that_acts(state: &DecisionState) -> Option<String> {
    living(state).find_map(|job| {
        let stale = job
            .calls
            .open()
            .iter()
            .find(|word| word.generation != job.generation())?;
        Some(format!(
            "{} is of generation {} and calls generation {}",
            job.spec.id,
            job.generation(),
            stale.generation
        ))
    })
}

/// RG-10: every case that is not open states what clears it.
fn every_case_says_what_clears_it(state: &DecisionState) -> Option<String> {
    let silent = |case: &&rankguard_model::Case| case.state != CaseState::Open && case.clears.is_empty();
    state
        .cases
        .all()
        .values()
        .find(silent)
        .map(|case| format!("case {} does not", case.id))
}

/// A case in state `FaultPresent` has a fault that is present, and its end closes the case.
fn present_faults_are_open_cases(state: &DecisionState) -> Option<String> {
    let listed: Vec<_> = state.cases.with_present_fault().map(|case| case.id).collect();
    let cases = state.cases.all().values();
    let held: Vec<_> = cases
        .filter(|case| case.state == CaseState::FaultPresent)
        .map(|case| case.id)
        .collect();
    if listed != held {
        return Some(format!("{listed:?} are listed, and {held:?} are in that state"));
    }
    let mut present = state.cases.with_present_fault();
    let past = present.find(|case| !state.has_present_fault(case))?;
    Some(format!("the fault of case {} is over", past.id))
}

/// The context of diagnosis matches the jobs.
fn diagnosis_knows_where_jobs_run(state: &DecisionState) -> Option<String> {
    let has_case_ends = state.has_case_ends();
    let placed = |(name, job): (&JobId, &Job)| Some((name.clone(), placed(job, has_case_ends)?));
    let context: PlacementIndex = state.jobs.iter().filter_map(placed).collect();
    let differs = || format!("it knows {:?}, and the jobs are {context:?}", state.context);
    (context != state.context).then(differs)
}

/// Findings about machines in a job's case concern nodes of the job's generations.
fn cases_rest_on_machines_in_use(state: &DecisionState) -> Option<String> {
    let cases = state.has_case_ends().then(|| state.cases.all().values());
    cases.into_iter().flatten().find_map(|case| {
        let job = case.job.as_ref()?;
        let generation = case.generation?;
        let plans: Vec<&Plan> = state.plans.values().filter(|plan| plan.job == *job).collect();
        // Plans that were removed give no information.
        plans.iter().find(|plan| plan.generation == generation)?;
        let had = |node: &NodeId| plans.iter().any(|plan| plan.nodes.contains(node));
        let stray = case.findings.iter().find(|finding| match &finding.entity {
            Entity::Node { node } | Entity::Device { node, .. } => !had(node),
            Entity::Rank { job: other, .. } | Entity::Job { job: other } => other != job,
            Entity::Unknown => false,
        })?;
        Some(format!("case {} of job {job} holds {:?}", case.id, stray.entity))
    })
}

/// Evidence that an operator cleared is in no case that was opened later, unless the case was split from one that was
/// open when the node was cleared.
fn cases_rest_on_nothing_cleared(state: &DecisionState) -> Option<String> {
    let all = state.cases.all();
    let was_open = |case: &Case, cleared: Timestamp| {
        let mut others = all.values().filter(|other| other.id < case.id && other.job == case.job);
        others.any(|other| other.opened_at <= cleared && other.closed_at.is_none_or(|closed| closed > cleared))
    };
    all.values().find_map(|case| {
        let stale = case.findings.iter().find(|finding| match &finding.entity {
            Entity::Node { node } | Entity::Device { node, .. } => {
                let is_older = |cleared: Timestamp| finding.at.after(STAMP_RESOLUTION) <= cleared;
                let is_stale = |cleared: &Timestamp| is_older(*cleared) && case.opened_at > *cleared;
                let cleared = state.diagnosis.cleared_at(node).filter(is_stale);
                finding.evidence.seq.0 > 0 && cleared.is_some_and(|cleared| !was_open(case, cleared))
            }
            _ => false,
        })?;
        Some(format!(
            "case {} rests on {} from before a clearing",
            case.id, stale.text
        ))
    })
}

/// RG-9: each history has a limit.
fn histories_stay_within_their_limits(state: &DecisionState) -> Option<String> {
    if state.unlimited {
        return None;
    }
    state
        .beyond_limits()
        .map(|(what, count, most)| format!("{count} {what}, {most} may be"))
}
