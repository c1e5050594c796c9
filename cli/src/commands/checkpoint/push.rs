//! `rankguard checkpoint push`: committed checkpoints into an object store.

use std::sync::Arc;

use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint_tiers::cap::Cap;
use rankguard_checkpoint_tiers::object::{ObjectError, ObjectTier, Pushed};
use rankguard_model::{JobId, Step};

use super::args::PushArgs;
use super::look;
use crate::error::CliError;
use crate::exit::Exit;
use crate::listing::{self, Column};
use crate::out;
use crate::runtime::block_on;
use crate::words;

const PUSHED: &[Column<Pushed>] = &[
    ("job", |one| one.job.to_string()),
    ("checkpoint", |one| one.id.to_string()),
    ("sent", |one| words::bytes(one.sent_bytes)),
    ("kept", |one| words::bytes(one.kept_bytes)),
    ("took", |one| words::millis(one.took.as_secs_f64() * 1e3)),
    ("note", |one| if one.already { "was there" } else { "" }.to_owned()),
];

/// A tier with a cap in MB a second.
pub(super) fn tier(url: &str, cap: Option<u64>) -> Result<ObjectTier, CliError> {
    let tier = ObjectTier::open(url).map_err(|problem| {
        CliError::usage(
            "cannot tell where that is",
            "file:///folder, s3://bucket/prefix, gs://bucket/prefix and az://container/prefix are places",
        )
        .because(problem)
    })?;
    Ok(tier.with_cap(Arc::new(Cap::new(cap.map(|cap| cap.saturating_mul(1_000_000))))))
}

/// A failure between a store and an object store.
pub(super) fn failed(what: &str, problem: ObjectError) -> CliError {
    let hint = match (problem.is_retryable(), problem.is_remote()) {
        (true, _) => "run it again: it goes on where it stopped",
        (false, true) => "`rankguard checkpoint push --help` tells what each kind of place needs in the environment",
        (false, false) => "`rankguard checkpoint verify` tells whether a store is sound, on disk or at a URL",
    };
    CliError::failure(what, hint).because(problem)
}

pub(super) fn run(args: &PushArgs) -> Result<Exit, CliError> {
    let tier = tier(&args.to, args.cap)?;
    let (store, jobs) = look::open(&args.store.dir, args.store.job.as_deref())?;
    let mut wanted = Vec::new();
    for job in jobs {
        let ids = store.committed_ids(&job).map_err(look::failed)?;
        let chosen = ids
            .into_iter()
            .filter(|id| args.step.is_none_or(|step| id.step == Step(step)));
        wanted.extend(chosen.map(|id| (job.clone(), id)));
    }
    if let (true, Some(step)) = (wanted.is_empty(), args.step) {
        return Err(look::nothing_at(Step(step), &args.store));
    }
    let pushed = block_on(push(&tier, &store, &wanted, args))??;
    listing::print(args.store.format.format, &pushed, PUSHED);
    if pushed.is_empty() {
        out::note("no committed checkpoints");
    }
    Ok(Exit::Fine)
}

async fn push(
    tier: &ObjectTier,
    store: &Store,
    wanted: &[(JobId, CheckpointId)],
    args: &PushArgs,
) -> Result<Vec<Pushed>, CliError> {
    let mut pushed = Vec::new();
    for (job, id) in wanted {
        let what = format!("cannot push checkpoint {id} of job {job}");
        pushed.push(
            tier.push(store, job, *id)
                .await
                .map_err(|problem| failed(&what, problem))?,
        );
    }
    if let Some(keep) = args.keep {
        let mut jobs: Vec<&JobId> = wanted.iter().map(|(job, _)| job).collect();
        jobs.dedup();
        for job in jobs {
            let what = format!("cannot remove old checkpoints of job {job}");
            let removed = tier
                .retain(job, keep, &[])
                .await
                .map_err(|problem| failed(&what, problem))?;
            for id in removed.checkpoints {
                out::note(&format!("removed checkpoint {id} of job {job} from {}", tier.url()));
            }
        }
    }
    Ok(pushed)
}
