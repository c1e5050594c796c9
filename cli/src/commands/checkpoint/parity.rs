//! `rankguard checkpoint parity`: adds parity to the shards of a store.

use std::path::Path;

use rankguard_checkpoint_tiers::parity::{ParityError, ProtectionReport, protect, prune};
use rankguard_console::waiting::WorkNote;
use rankguard_model::{JobId, Step};
use serde::Serialize;

use super::args::ParityArgs;
use super::folder;
use crate::display_text;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;

/// A checkpoint with parity.
#[derive(Serialize)]
struct ParityLine {
    job: JobId,
    #[serde(flatten)]
    done: ProtectionReport,
}

const UNDER: &[TableColumn<ParityLine>] = &[
    ("job", |one| one.job.to_string()),
    ("checkpoint", |one| one.done.id.to_string()),
    ("groups", |one| one.done.groups.to_string()),
    ("parity", |one| one.done.parity.to_string()),
    ("shards", |one| display_text::bytes(one.done.shard_bytes)),
    ("parity size", |one| display_text::bytes(one.done.parity_bytes)),
    ("note", |one| {
        let all = one.done.already == one.done.groups;
        if all { "already present" } else { "" }.to_owned()
    }),
];

pub(super) fn run(args: &ParityArgs) -> Result<CommandExit, CliError> {
    let (store, jobs) = folder::open(&args.store.dir, args.store.job.as_deref())?;
    let not_added = |problem| failed(&args.store.dir, problem);
    let root = args.to.clone().unwrap_or_else(|| store.parity_root());
    let mut all = Vec::new();
    let work = WorkNote::start("computing parity");
    for job in jobs {
        for id in store.committed_ids(&job).map_err(folder::failed)? {
            if args.step.is_some_and(|step| id.step != Step(step)) {
                continue;
            }
            let size = args.group_size as usize;
            let parity = args.parity as usize;
            let done = protect(&store, &job, id, &root, size, parity).map_err(not_added)?;
            let job = job.clone();
            all.push(ParityLine { job, done });
        }
        let pruned = prune(&store, &job, &root).map_err(not_added)?;
        if pruned > 0 {
            out::note(&format!(
                "removed the parity of {pruned} removed checkpoints of job {job}"
            ));
        }
    }
    drop(work);
    if let (true, Some(step)) = (all.is_empty(), args.step) {
        return Err(folder::nothing_at(Step(step), &args.store));
    }
    listing::print(args.store.format.format, &all, UNDER);
    if all.is_empty() {
        out::note("no committed checkpoints");
    }
    Ok(CommandExit::Fine)
}

fn failed(dir: &Path, problem: ParityError) -> CliError {
    let verify = folder::command("verify", dir);
    CliError::failure(
        "cannot add parity to the store",
        format!("{verify} lists damage; use another --to for groups of another size"),
    )
    .because(problem)
}
