//! `rankguard checkpoint pull`: fetches checkpoints from an object store.

use rankguard_checkpoint::Store;
use rankguard_checkpoint_tiers::object::{ObjectTier, PullReceipt};
use rankguard_console::waiting::WorkNote;
use rankguard_model::{JobId, Step};

use super::args::PullArgs;
use super::folder;
use super::url::{failed, tier};
use crate::display_text;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::runtime::block_on;

const PULLED: &[TableColumn<PullReceipt>] = &[
    ("job", |one| one.job.to_string()),
    ("checkpoint", |one| one.id.to_string()),
    ("read", |one| display_text::bytes(one.read_bytes)),
    ("kept", |one| display_text::bytes(one.kept_bytes)),
    ("took", |one| display_text::millis(one.took.as_secs_f64() * 1e3)),
    ("note", |one| {
        if one.already { "already present" } else { "" }.to_owned()
    }),
];

pub(super) fn run(args: &PullArgs) -> Result<CommandExit, CliError> {
    let tier = tier(&args.from, args.cap)?;
    let work = WorkNote::start("copying checkpoints from the object store");
    let pulled = block_on(pull(&tier, args))??;
    drop(work);
    listing::print(args.format.format, &pulled, PULLED);
    Ok(CommandExit::Fine)
}

async fn pull(tier: &ObjectTier, args: &PullArgs) -> Result<Vec<PullReceipt>, CliError> {
    let looking = "cannot list the checkpoints";
    let jobs = match &args.job {
        Some(job) => vec![JobId::from(job.as_str())],
        None => tier.jobs().await.map_err(|problem| failed(looking, problem))?,
    };
    let mut wanted = Vec::new();
    for job in jobs {
        let ids = tier.committed(&job).await.map_err(|problem| failed(looking, problem))?;
        let chosen = match args.step {
            Some(step) => ids.into_iter().rev().find(|id| id.step == Step(step)),
            None => ids.last().copied(),
        };
        wanted.extend(chosen.map(|id| (job, id)));
    }
    if wanted.is_empty() {
        let which = args.step.map_or_else(
            || "committed checkpoint".to_owned(),
            |step| format!("checkpoint of step {step}"),
        );
        return Err(CliError::failure(
            format!("no {which} at {}", tier.url()),
            "set --from to the URL of `rankguard checkpoint push --to`",
        ));
    }
    let store = Store::open(&args.dir).map_err(folder::failed)?;
    let mut pulled = Vec::new();
    for (job, id) in wanted {
        let what = format!("cannot pull checkpoint {id} of job {job}");
        pulled.push(
            tier.pull(&job, id, &store)
                .await
                .map_err(|problem| failed(&what, problem))?,
        );
    }
    Ok(pulled)
}
