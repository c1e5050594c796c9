//! `rankguard checkpoint import`: foreign files as a committed checkpoint.

use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::{CheckpointId, check_job};
use rankguard_checkpoint_exchange::{ImportOf, Imported, Problem, import, open};
use rankguard_model::{Generation, JobId, Step};
use serde::Serialize;

use super::args::ImportArgs;
use super::pick;
use crate::args::Format;
use crate::error::CliError;
use crate::exit::Exit;
use crate::listing::{self, Column};
use crate::out;
use crate::words;

const PROBLEMS: &[Column<Problem>] = &[
    ("entry", |problem| problem.entry.clone()),
    ("what", |problem| problem.what.clone()),
];

/// Summary of an import.
#[derive(Serialize)]
struct Output {
    job: JobId,
    checkpoint: String,
    ranks: u32,
    #[serde(flatten)]
    imported: Imported,
}

pub(super) fn run(args: &ImportArgs) -> Result<Exit, CliError> {
    let job = JobId::from(args.job.as_str());
    check_job(&job).map_err(|problem| CliError::usage(problem.to_string(), "--job names the job"))?;
    let id = CheckpointId {
        step: Step(args.step),
        generation: Generation(args.generation),
    };
    let failed = |problem| pick::exchange(&format!("cannot import {}", args.path.display()), problem);
    let mut progress = pick::progress("checked", pick::bytes);
    let foreign = open(&args.path, &mut progress).map_err(failed)?;
    let store = Store::open(&args.dir).map_err(|problem| {
        let what = format!("cannot open the checkpoint store {}", args.dir.display());
        CliError::failure(what, "may this user write there?").because(problem)
    })?;
    let of = ImportOf {
        job: &job,
        id,
        ranks: args.ranks,
    };
    let mut progress = pick::progress("read", pick::bytes);
    let imported = import(&store, &foreign, &of, &mut progress).map_err(failed)?;
    let exit = if imported.problems.is_empty() {
        Exit::Fine
    } else {
        Exit::Finding
    };
    out::note(&format!(
        "job {job}, checkpoint {id}: {} tensors, {}, from {}, for {} ranks; {} problems",
        imported.tensors,
        words::bytes(imported.bytes),
        imported.format,
        args.ranks,
        imported.problems.len()
    ));
    let output = Output {
        job,
        checkpoint: id.to_string(),
        ranks: args.ranks,
        imported,
    };
    match args.format.format {
        Format::Json => out::json(&output),
        format => listing::print(format, &output.imported.problems, PROBLEMS),
    }
    Ok(exit)
}
