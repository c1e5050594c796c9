//! Authorisation of evidence bodies by subject.

use rankguard_model::{CopyTier, EvidenceBody, FailedCheck, Generation, JobId, OrderId, ShardSeal};

use super::subject::{EvidenceSubject, PlanHistory, RankSubject, check_job};
use super::{AuthorityResult, AuthorityRule, SubmittedEvidence, refuse, steps, void};
use crate::decision::BETWEEN;

/// Failed checks accepted from one preflight.
const CHECKS_MAX: usize = 1_024;

/// Checks the body of a claim against its subject.
pub(super) fn check(claim: SubmittedEvidence<'_>, subject: &EvidenceSubject<'_>) -> AuthorityResult {
    if matches!(subject, EvidenceSubject::ForeignRank) {
        return check_foreign(claim);
    }
    match &claim.evidence.body {
        EvidenceBody::Line { .. } | EvidenceBody::Sample { .. } | EvidenceBody::Gap { .. } => Ok(()),
        EvidenceBody::Fenced { job, generation, .. } | EvidenceBody::Stopped { job, generation, .. } => {
            let EvidenceSubject::Node = subject else {
                return wrong_entity(claim);
            };
            check_fence(claim, job, *generation)
        }
        EvidenceBody::ShardsFinished { job, generation, .. } | EvidenceBody::Prepared { job, generation, .. } => {
            let EvidenceSubject::Node = subject else {
                return wrong_entity(claim);
            };
            check_fence(claim, job, *generation)
        }
        EvidenceBody::Preflighted {
            job,
            generation,
            failed,
            ..
        } => {
            let EvidenceSubject::Node = subject else {
                return wrong_entity(claim);
            };
            check_preflight(claim, job, *generation, failed)
        }
        EvidenceBody::OrderFailed {
            order, job, generation, ..
        } => check_order(claim, *order, job, *generation),
        EvidenceBody::Copied { generation, tier, .. } => check_copy(claim, subject, *generation, *tier),
        EvidenceBody::RankStarted { .. }
        | EvidenceBody::RankExited { .. }
        | EvidenceBody::RankFinished
        | EvidenceBody::Progress { .. }
        | EvidenceBody::ShardSealed { .. }
        | EvidenceBody::ShardDurable { .. }
        | EvidenceBody::ShardFailed { .. }
        | EvidenceBody::Restored { .. }
        | EvidenceBody::FlightDump { .. } => match subject {
            EvidenceSubject::Rank(about) => check_rank(claim, about),
            _ => wrong_entity(claim),
        },
    }
}

/// Accepts steps and exits of foreign ranks; anything else about them concerns a job without a record.
fn check_foreign(claim: SubmittedEvidence<'_>) -> AuthorityResult {
    match (&claim.evidence.body, claim.evidence.entity.job()) {
        (EvidenceBody::RankExited { .. }, _) => Ok(()),
        (EvidenceBody::Progress { step_ms, own_ms, .. }, _) => {
            check_millis(*step_ms)?;
            own_ms.map_or(Ok(()), check_millis)
        }
        (_, Some(job)) => void(format!("the controller knows no job {job}")),
        (_, None) => wrong_entity(claim),
    }
}

fn wrong_entity(claim: SubmittedEvidence<'_>) -> AuthorityResult {
    let entity = &claim.evidence.entity;
    refuse(
        AuthorityRule::WrongEntity,
        format!("what it reports cannot be about: {entity}"),
    )
}

fn check_rank(claim: SubmittedEvidence<'_>, about: &RankSubject<'_>) -> AuthorityResult {
    let step = |step| steps::check(about.job, claim.now, step);
    match &claim.evidence.body {
        EvidenceBody::RankExited { pid, .. } => check_process(about, *pid),
        EvidenceBody::Progress {
            step: reached,
            step_ms,
            own_ms,
            ..
        } => {
            check_millis(*step_ms)?;
            own_ms.map_or(Ok(()), check_millis)?;
            step(*reached)
        }
        EvidenceBody::ShardSealed {
            step: sealed, stall_ms, ..
        } => {
            check_millis(*stall_ms)?;
            step(*sealed)
        }
        EvidenceBody::ShardFailed { step: failed, .. } => step(*failed),
        EvidenceBody::Restored { step: restored, .. } => step(*restored),
        EvidenceBody::ShardDurable { seal } => {
            check_seal(about, seal)?;
            step(seal.step)
        }
        _ => Ok(()),
    }
}

fn check_millis(value: f64) -> AuthorityResult {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    refuse(AuthorityRule::OutOfRange, format!("{value} ms is no time"))
}

/// Checks that the process that ended is the one that was started, if its start was reported.
fn check_process(about: &RankSubject<'_>, pid: u32) -> AuthorityResult {
    let started = about
        .job
        .launch_record
        .process_of(about.rank)
        .filter(|_| about.is_current);
    match started {
        Some(started) if started != pid => refuse(
            AuthorityRule::WrongProcess,
            format!(
                "rank {} was started as process {started}, and process {pid} is said to have ended",
                about.rank
            ),
        ),
        _ => Ok(()),
    }
}

fn check_seal(about: &RankSubject<'_>, seal: &ShardSeal) -> AuthorityResult {
    let rank = about.rank;
    let world = about.plan.world_size();
    let is_digest = |text: &str| text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if seal.rank == rank && seal.world_size == world && is_digest(&seal.index) {
        return Ok(());
    }
    refuse(
        AuthorityRule::WrongShard,
        format!(
            "rank {rank} of {world} reports a shard of rank {} of {} with index {:?}",
            seal.rank, seal.world_size, seal.index
        ),
    )
}

/// Accepts answers about jobs outside [`PlanHistory`] as well: every node of a plan and of the plans before it is
/// fenced and asked for shards, and a returning node is also fenced for jobs that are over or unknown, below a
/// generation that no plan has. A fence request or an order permits the answer.
fn check_fence(claim: SubmittedEvidence<'_>, name: &JobId, generation: Generation) -> AuthorityResult {
    let requests = claim.state.fleet.get(claim.sender).map(|node| &node.fences);
    let request = requests.and_then(|requests| requests.get(name));
    let is_requested = request.is_some_and(|request| request.generation == generation);
    if is_requested || claim.state.orders_sent.was_sent(claim.sender, name, generation) {
        return Ok(());
    }
    let about = check_job(claim, name)?;
    if generation > about.job.generation() {
        return void(format!("the controller knows no generation {generation} of job {name}"));
    }
    Ok(())
}

fn check_preflight(
    claim: SubmittedEvidence<'_>,
    name: &JobId,
    generation: Generation,
    failed: &[FailedCheck],
) -> AuthorityResult {
    let about = check_job(claim, name)?;
    let Some(plan) = PlanHistory::of(claim.state, about.job).find(|plan| plan.generation == generation) else {
        return void(format!("the controller knows no generation {generation} of job {name}"));
    };
    if !plan.nodes.contains(claim.sender) {
        return refuse(
            AuthorityRule::NoOrder,
            format!(
                "node {} was not asked about generation {generation} of job {name}",
                claim.sender
            ),
        );
    }
    if failed.len() > CHECKS_MAX {
        return refuse(
            AuthorityRule::OutOfRange,
            format!("{} failed checks are too many", failed.len()),
        );
    }
    // Only the first node of a job measures the links between all of them, so only it reports about other nodes.
    let measures = plan.nodes.first() == Some(claim.sender);
    let names_others = |check: &&FailedCheck| check.check == BETWEEN && check.subject != claim.sender.as_str();
    match failed.iter().find(names_others) {
        Some(check) if !measures => refuse(
            AuthorityRule::ForeignNode,
            format!(
                "it says that node {:?} fails, and it was not asked to measure",
                check.subject
            ),
        ),
        _ => Ok(()),
    }
}

fn check_order(claim: SubmittedEvidence<'_>, order: OrderId, name: &JobId, generation: Generation) -> AuthorityResult {
    if !matches!(claim.evidence.entity.job(), Some(job) if job == name) {
        return wrong_entity(claim);
    }
    let sender = claim.sender;
    match claim.state.orders_sent.find(sender, order) {
        Some(sent) if sent.job == *name && sent.generation == generation => Ok(()),
        Some(sent) => refuse(
            AuthorityRule::NoOrder,
            format!(
                "order {order} was about generation {} of job {}",
                sent.generation, sent.job
            ),
        ),
        // A journal that was restored from a backup lacks the newest orders.
        None if order >= claim.state.next_order || claim.state.orders_sent.may_have_forgotten(sender, order) => {
            void(format!("the controller does not remember order {order}"))
        }
        None => refuse(AuthorityRule::NoOrder, format!("node {sender} never got order {order}")),
    }
}

fn check_copy(
    claim: SubmittedEvidence<'_>,
    subject: &EvidenceSubject<'_>,
    generation: Generation,
    tier: CopyTier,
) -> AuthorityResult {
    let EvidenceBody::Copied { step, took_ms, .. } = &claim.evidence.body else {
        return Ok(());
    };
    check_millis(*took_ms)?;
    match (subject, tier) {
        (EvidenceSubject::Rank(about), CopyTier::Peer | CopyTier::Parity) => {
            if about.plan.generation != generation {
                let own = about.plan.generation;
                return refuse(
                    AuthorityRule::WrongShard,
                    format!("a rank of generation {own} reports a copy of generation {generation}"),
                );
            }
            steps::check(about.job, claim.now, *step)
        }
        (EvidenceSubject::Job(about), CopyTier::Mirror) => steps::check(about.job, claim.now, *step),
        _ => wrong_entity(claim),
    }
}
