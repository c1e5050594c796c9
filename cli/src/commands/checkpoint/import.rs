//! `rankguard checkpoint import`: foreign files as a committed checkpoint.

use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::{CheckpointId, check_job};
use rankguard_checkpoint_exchange::{ImportProblem, ImportReport, ImportTarget, import, open};
use rankguard_model::{Generation, JobId, Step};
use serde::Serialize;

use super::args::ImportArgs;
use super::pick;
use crate::args::OutputFormat;
use crate::display_text;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;

const PROBLEMS: &[TableColumn<ImportProblem>] = &[
    ("entry", |problem| problem.entry.clone()),
    ("what", |problem| problem.what.clone()),
];

/// Summary of an import.
#[derive(Serialize)]
struct ImportSummary {
    job: JobId,
    checkpoint: String,
    ranks: u32,
    #[serde(flatten)]
    imported: ImportReport,
}

pub(super) fn run(args: &ImportArgs) -> Result<CommandExit, CliError> {
    let job = JobId::from(args.job.as_str());
    check_job(&job).map_err(|problem| CliError::usage(problem.to_string(), "select another name with --job"))?;
    let id = CheckpointId {
        step: Step(args.step),
        generation: Generation(args.generation),
    };
    let failed = |problem| {
        pick::exchange(
            &format!("cannot import {}", args.path.display()),
            &args.dir,
            None,
            problem,
        )
    };
    let mut progress = pick::progress("checked", pick::bytes);
    let foreign = open(&args.path, &mut progress).map_err(failed)?;
    let store = Store::open(&args.dir).map_err(|problem| {
        let what = format!("cannot open the checkpoint store {}", args.dir.display());
        CliError::failure(what, "check the permissions of this user").because(problem)
    })?;
    let of = ImportTarget {
        job: &job,
        id,
        ranks: args.ranks,
    };
    let mut progress = pick::progress("read", pick::bytes);
    let imported = import(&store, &foreign, &of, &mut progress).map_err(failed)?;
    let exit = if imported.problems.is_empty() {
        CommandExit::Fine
    } else {
        CommandExit::Finding
    };
    let already = if imported.is_already_imported {
        "already imported with the same content, nothing was written: "
    } else {
        ""
    };
    out::note(&format!(
        "job {job}, checkpoint {id}: {already}{}, {}, from {}, for {}; {}",
        display_text::count(usize::try_from(imported.tensors).unwrap_or(usize::MAX), "tensor"),
        display_text::bytes(imported.bytes),
        imported.format,
        display_text::count(args.ranks as usize, "rank"),
        display_text::count(imported.problems.len(), "problem")
    ));
    let output = ImportSummary {
        job,
        checkpoint: id.to_string(),
        ranks: args.ranks,
        imported,
    };
    match args.format.format {
        OutputFormat::Json => out::json(&output),
        OutputFormat::Table if output.imported.problems.is_empty() => {}
        format => listing::print(format, &output.imported.problems, PROBLEMS),
    }
    Ok(exit)
}
