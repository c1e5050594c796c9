//! `rankguard checkpoint repair`: replaces damaged parts with good copies from other stores.

use rankguard_checkpoint::StoreProblem;
use rankguard_checkpoint::repair::{MirrorSource, RepairEntry, repair};
use rankguard_console::waiting::WorkNote;
use rankguard_model::{JobId, Step};
use serde::Serialize;

use super::args::RepairArgs;
use super::folder::{failed, nothing_at, open};
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
    let mirrors: Vec<&dyn MirrorSource> = mirrors.iter().map(|mirror| &**mirror).collect();
    let (store, jobs) = open(&args.store.dir, args.store.job.as_deref())?;
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
