//! `rankguard checkpoint push`: mirrors committed checkpoints to an object store.

use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint_tiers::object::{ObjectTier, PushReceipt};
use rankguard_console::waiting::WorkNote;
use rankguard_model::{JobId, Step};

use super::args::PushArgs;
use super::folder;
use super::url::{failed, tier};
use crate::display_text;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;
use crate::runtime::block_on;

const PUSHED: &[TableColumn<PushReceipt>] = &[
    ("job", |one| one.job.to_string()),
    ("checkpoint", |one| one.id.to_string()),
    ("sent", |one| display_text::bytes(one.sent_bytes)),
    ("kept", |one| display_text::bytes(one.kept_bytes)),
    ("took", |one| display_text::millis(one.took.as_secs_f64() * 1e3)),
    ("note", |one| {
        if one.already { "already present" } else { "" }.to_owned()
    }),
];

pub(super) fn run(args: &PushArgs) -> Result<CommandExit, CliError> {
    let tier = tier(&args.to, args.cap)?;
    let (store, jobs) = folder::open(&args.store.dir, args.store.job.as_deref())?;
    let mut wanted = Vec::new();
    for job in jobs {
        let ids = store.committed_ids(&job).map_err(folder::failed)?;
        let chosen = ids
            .into_iter()
            .filter(|id| args.step.is_none_or(|step| id.step == Step(step)));
        wanted.extend(chosen.map(|id| (job.clone(), id)));
    }
    if let (true, Some(step)) = (wanted.is_empty(), args.step) {
        return Err(folder::nothing_at(Step(step), &args.store));
    }
    let work = WorkNote::start("copying checkpoints to the object store");
    let pushed = block_on(push(&tier, &store, &wanted, args))??;
    drop(work);
    listing::print(args.store.format.format, &pushed, PUSHED);
    if pushed.is_empty() {
        out::note("no committed checkpoints");
    }
    Ok(CommandExit::Fine)
}

async fn push(
    tier: &ObjectTier,
    store: &Store,
    wanted: &[(JobId, CheckpointId)],
    args: &PushArgs,
) -> Result<Vec<PushReceipt>, CliError> {
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
