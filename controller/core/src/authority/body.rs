//! Authorisation of evidence bodies by subject.

use rankguard_model::{Body, CopyTier, FailedCheck, Generation, JobId, OrderId, ShardSeal};

use super::subject::{PlanHistory, RankSubject, Subject, check_job};
use super::{Checked, Claim, Rule, refuse, steps, void};
use crate::brain::BETWEEN;

/// Failed checks accepted from one preflight.
const CHECKS_MAX: usize = 1_024;

/// Checks the body of a claim against its subject.
pub(super) fn check(claim: Claim<'_>, subject: &Subject<'_>) -> Checked {
    match &claim.evidence.body {
        Body::Line { .. } | Body::Sample { .. } | Body::Gap { .. } => Ok(()),
        Body::Fenced { job, generation, .. } | Body::Stopped { job, generation, .. } => {
            let Subject::Node = subject else {
                return wrong_entity(claim);
            };
            check_fence(claim, job, *generation)
        }
        Body::ShardsFinished { job, generation, .. } => {
            let Subject::Node = subject else {
                return wrong_entity(claim);
            };
            check_fence(claim, job, *generation)
        }
        Body::Preflighted {
            job,
            generation,
            failed,
            ..
        } => {
            let Subject::Node = subject else {
                return wrong_entity(claim);
            };
            check_preflight(claim, job, *generation, failed)
        }
        Body::OrderFailed {
            order, job, generation, ..
        } => check_order(claim, *order, job, *generation),
        Body::Copied { generation, tier, .. } => check_copy(claim, subject, *generation, *tier),
        Body::RankStarted { .. }
        | Body::RankExited { .. }
        | Body::RankFinished
        | Body::Progress { .. }
        | Body::ShardSealed { .. }
        | Body::ShardDurable { .. }
        | Body::ShardFailed { .. }
        | Body::Restored { .. }
        | Body::FlightDump { .. } => match subject {
            Subject::Rank(about) => check_rank(claim, about),
            _ => wrong_entity(claim),
        },
    }
}

fn wrong_entity(claim: Claim<'_>) -> Checked {
    let entity = &claim.evidence.entity;
    refuse(Rule::WrongEntity, format!("what it reports cannot be about: {entity}"))
}

fn check_rank(claim: Claim<'_>, about: &RankSubject<'_>) -> Checked {
    let step = |step| steps::check(about.job, claim.now, step);
    match &claim.evidence.body {
        Body::RankExited { pid, .. } => check_process(about, *pid),
        Body::Progress {
            step: reached,
            step_ms,
            own_ms,
            ..
        } => {
            check_millis(*step_ms)?;
            own_ms.map_or(Ok(()), check_millis)?;
            step(*reached)
        }
        Body::ShardSealed {
            step: sealed, stall_ms, ..
        } => {
            check_millis(*stall_ms)?;
            step(*sealed)
        }
        Body::ShardFailed { step: failed, .. } => step(*failed),
        Body::Restored { step: restored, .. } => step(*restored),
        Body::ShardDurable { seal } => {
            check_seal(about, seal)?;
            step(seal.step)
        }
        _ => Ok(()),
    }
}

fn check_millis(value: f64) -> Checked {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    refuse(Rule::OutOfRange, format!("{value} ms is no time"))
}

/// Checks that the process that ended is the one that was started, if its start was reported.
fn check_process(about: &RankSubject<'_>, pid: u32) -> Checked {
    let started = about
        .job
        .launch_record
        .process_of(about.rank)
        .filter(|_| about.is_current);
    match started {
        Some(started) if started != pid => refuse(
            Rule::WrongProcess,
            format!(
                "rank {} was started as process {started}, and process {pid} is said to have ended",
                about.rank
            ),
        ),
        _ => Ok(()),
    }
}

fn check_seal(about: &RankSubject<'_>, seal: &ShardSeal) -> Checked {
    let (rank, world) = (about.rank, about.plan.world_size());
    let is_digest = |text: &str| text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if seal.rank == rank && seal.world_size == world && is_digest(&seal.index) {
        return Ok(());
    }
    refuse(
        Rule::WrongShard,
        format!(
            "rank {rank} of {world} reports a shard of rank {} of {} with index {:?}",
            seal.rank, seal.world_size, seal.index
        ),
    )
}

/// Accepts answers about jobs outside [`PlanHistory`] as well: every node of a plan and of the plans before it is
/// fenced and asked for shards, and a returning node is also fenced for jobs that are over or unknown, below a
/// generation that no plan has. A fence request or an order permits the answer.
fn check_fence(claim: Claim<'_>, name: &JobId, generation: Generation) -> Checked {
    let requests = claim.state.fleet.get(claim.sender).map(|node| &node.fences);
    let request = requests.and_then(|requests| requests.get(name));
    let is_requested = request.is_some_and(|request| request.generation == generation);
    if is_requested || claim.state.orders_sent.was_sent(claim.sender, name, generation) {
        return Ok(());
    }
    let about = check_job(claim, name)?;
    if generation > about.job.generation {
        return void(format!("the controller knows no generation {generation} of job {name}"));
    }
    Ok(())
}

fn check_preflight(claim: Claim<'_>, name: &JobId, generation: Generation, failed: &[FailedCheck]) -> Checked {
    let about = check_job(claim, name)?;
    let Some(plan) = PlanHistory::of(claim.state, about.job).find(|plan| plan.generation == generation) else {
        return void(format!("the controller knows no generation {generation} of job {name}"));
    };
    if !plan.nodes.contains(claim.sender) {
        return refuse(
            Rule::NoOrder,
            format!(
                "node {} was not asked about generation {generation} of job {name}",
                claim.sender
            ),
        );
    }
    if failed.len() > CHECKS_MAX {
        return refuse(Rule::OutOfRange, format!("{} failed checks are too many", failed.len()));
    }
    // Only the first node of a job measures the links between all of them, so only it reports about other nodes.
    let measures = plan.nodes.first() == Some(claim.sender);
    let names_others = |check: &&FailedCheck| check.check == BETWEEN && check.subject != claim.sender.as_str();
    match failed.iter().find(names_others) {
        Some(check) if !measures => refuse(
            Rule::ForeignNode,
            format!(
                "it says that node {:?} fails, and it was not asked to measure",
                check.subject
            ),
        ),
        _ => Ok(()),
    }
}

fn check_order(claim: Claim<'_>, order: OrderId, name: &JobId, generation: Generation) -> Checked {
    if !matches!(claim.evidence.entity.job(), Some(job) if job == name) {
        return wrong_entity(claim);
    }
    let sender = claim.sender;
    match claim.state.orders_sent.find(sender, order) {
        Some(sent) if sent.job == *name && sent.generation == generation => Ok(()),
        Some(sent) => refuse(
            Rule::NoOrder,
            format!(
                "order {order} was about generation {} of job {}",
                sent.generation, sent.job
            ),
        ),
        // A journal that was restored from a backup lacks the newest orders.
        None if order >= claim.state.next_order || claim.state.orders_sent.may_have_forgotten(sender, order) => {
            void(format!("the controller does not remember order {order}"))
        }
        None => refuse(Rule::NoOrder, format!("node {sender} never got order {order}")),
    }
}

fn check_copy(claim: Claim<'_>, subject: &Subject<'_>, generation: Generation, tier: CopyTier) -> Checked {
    let Body::Copied { step, took_ms, .. } = &claim.evidence.body else {
        return Ok(());
    };
    check_millis(*took_ms)?;
    match (subject, tier) {
        (Subject::Rank(about), CopyTier::Peer | CopyTier::Parity) => {
            if about.plan.generation != generation {
                let own = about.plan.generation;
                return refuse(
                    Rule::WrongShard,
                    format!("a rank of generation {own} reports a copy of generation {generation}"),
                );
            }
            steps::check(about.job, claim.now, *step)
        }
        (Subject::Job(about), CopyTier::Mirror) => steps::check(about.job, claim.now, *step),
        _ => wrong_entity(claim),
    }
}
