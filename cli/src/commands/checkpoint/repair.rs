//! `rankguard checkpoint repair`: rebuilds damaged parts from parity, or replaces them with copies from other stores.

use std::path::PathBuf;

use rankguard_checkpoint::repair::{MirrorSource, RepairEntry, repair};
use rankguard_checkpoint::{Store, StoreProblem};
use rankguard_checkpoint_tiers::parity::ParityMirror;
use rankguard_console::waiting::WorkNote;
use rankguard_model::{JobId, Step};
use serde::Serialize;

use super::args::RepairArgs;
use super::folder::{failed, nothing_at, open, read_folder};
use super::remote::mirror;
use crate::display_text::{count, or_dash, or_empty};
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;
use crate::runtime::build;

/// A repair, or a remaining problem.
#[derive(Serialize)]
struct RepairLine {
    job: JobId,
    checkpoint: String,
    /// `repaired` or `damaged`.
    state: &'static str,
    file: String,
    rank: Option<u32>,
    chunk: Option<u32>,
    tensors: Vec<String>,
    bytes: Option<u64>,
    what: String,
    from: Option<String>,
}

const LINES: &[TableColumn<RepairLine>] = &[
    ("job", |line| line.job.to_string()),
    ("checkpoint", |line| line.checkpoint.clone()),
    ("state", |line| line.state.to_owned()),
    ("rank", |line| or_empty(line.rank)),
    ("chunk", |line| or_empty(line.chunk)),
    ("tensors", |line| line.tensors.join(" ")),
    ("bytes", |line| or_empty(line.bytes)),
    ("file", |line| line.file.clone()),
    ("what", |line| line.what.clone()),
    ("from", |line| line.from.clone().unwrap_or_default()),
];

pub(super) fn run(args: &RepairArgs) -> Result<CommandExit, CliError> {
    let runtime = build()?;
    let mirrors: Vec<Box<dyn MirrorSource>> = args
        .from
        .iter()
        .map(|place| mirror(place, &runtime))
        .collect::<Result<_, _>>()?;
    let (store, jobs) = open(&args.store.dir, args.store.job.as_deref())?;
    let parity = parity_root(args, &store)?.map(|root| ParityMirror::new(&store, &root));
    let parity = parity.iter().map(|parity| parity as &dyn MirrorSource);
    let mirrors: Vec<&dyn MirrorSource> = parity.chain(mirrors.iter().map(|mirror| &**mirror)).collect();
    let step = args.step.map(Step);
    let mut lines = Vec::new();
    let mut looked_at = 0;
    let work = WorkNote::start("reading and repairing checkpoints");
    for job in jobs {
        let repaired = repair(&store, &mirrors, &job, step).map_err(failed)?;
        looked_at += repaired.checkpoints.len();
        lines.extend(repaired.mended.into_iter().map(|mended| RepairLine::of(&job, mended)));
        lines.extend(repaired.left.iter().map(|problem| RepairLine::damaged(&job, problem)));
        for id in repaired.torn {
            out::note(&format!("job {job}, checkpoint {id}: skipped, it has no manifest"));
        }
    }
    drop(work);
    if let (Some(step), 0) = (step, looked_at) {
        return Err(nothing_at(step, &args.store));
    }
    listing::print(args.store.format.format, &lines, LINES);
    let left = lines.iter().filter(|line| line.state == "damaged").count();
    out::note(&format!(
        "{} read, {}, {} remain",
        count(looked_at, "checkpoint"),
        count(lines.len() - left, "repair"),
        count(left, "problem")
    ));
    Ok(if left == 0 {
        CommandExit::Fine
    } else {
        CommandExit::Finding
    })
}

/// Returns the directory of the parity; `None` if only other stores are used.
fn parity_root(args: &RepairArgs, store: &Store) -> Result<Option<PathBuf>, CliError> {
    if let Some(root) = &args.parity {
        read_folder(
            root,
            "set --parity to the directory of `rankguard checkpoint parity --to`",
        )?;
        return Ok(Some(root.clone()));
    }
    let usual = store.parity_root();
    if usual.is_dir() {
        return Ok(Some(usual));
    }
    if args.from.is_empty() {
        return Err(CliError::usage(
            format!(
                "cannot repair {}: it has no parity, and no other store is given",
                store.root().display()
            ),
            "set --from to a store with copies, or --parity to the directory of `rankguard checkpoint parity --to`",
        ));
    }
    Ok(None)
}

impl RepairLine {
    fn of(job: &JobId, mended: RepairEntry) -> Self {
        Self {
            job: job.clone(),
            checkpoint: mended.checkpoint.to_string(),
            state: "repaired",
            file: mended.file.display().to_string(),
            rank: mended.rank.map(|rank| rank.0),
            chunk: mended.chunk,
            tensors: mended.tensors,
            bytes: Some(mended.bytes),
            what: mended.what,
            from: Some(mended.from),
        }
    }

    fn damaged(job: &JobId, problem: &StoreProblem) -> Self {
        Self {
            job: job.clone(),
            checkpoint: or_dash(problem.checkpoint),
            state: "damaged",
            file: problem.file.display().to_string(),
            rank: problem.rank.map(|rank| rank.0),
            chunk: problem.chunk,
            tensors: problem.tensors.clone(),
            bytes: None,
            what: problem.what.clone(),
            from: None,
        }
    }
}
