//! A store in a folder: opened, or why it cannot be.

use std::fs;
use std::path::Path;

use rankguard_checkpoint::{Store, StoreError};
use rankguard_model::{JobId, Step};

use super::{StoreArgs, url};
use crate::error::CliError;

/// A store that can be read, and the jobs that were asked for.
pub(super) fn open(dir: &Path, job: Option<&str>) -> Result<(Store, Vec<JobId>), CliError> {
    if let Some(url) = url::url(dir) {
        return Err(url::refuse(url));
    }
    read_folder(
        dir,
        "--dir names the directory that `rankguard run --checkpoint-dir` was given",
    )?;
    let store = Store::at(dir);
    let jobs = store.jobs().map_err(failed)?;
    match job.map(JobId::from) {
        None => Ok((store, jobs)),
        Some(job) if jobs.contains(&job) => Ok((store, vec![job])),
        Some(job) => {
            let known: Vec<&str> = jobs.iter().map(JobId::as_str).collect();
            let what = format!("the store {} has no job {job}", dir.display());
            Err(CliError::failure(
                what,
                format!(
                    "it has: {}",
                    if known.is_empty() {
                        "none".into()
                    } else {
                        known.join(", ")
                    }
                ),
            ))
        }
    }
}

/// Refuses what is no folder that can be read.
pub(super) fn read_folder(dir: &Path, hint: &'static str) -> Result<(), CliError> {
    let read = fs::read_dir(dir).map(drop);
    read.map_err(|problem| {
        CliError::failure(format!("cannot read the checkpoint store {}", dir.display()), hint).because(problem)
    })
}

/// A store that could not be read on.
pub(super) fn failed(problem: StoreError) -> CliError {
    CliError::failure("cannot read the checkpoint store", "may this user read all of it?").because(problem)
}

/// Bytes of the files right in a folder; what cannot be read counts nothing.
pub(super) fn size_of(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .filter(fs::Metadata::is_file)
        .map(|file| file.len())
        .sum()
}

/// What was asked for by its step is not there.
pub(super) fn nothing_at(step: Step, args: &StoreArgs) -> CliError {
    let hint = format!(
        "`rankguard checkpoint ls --dir {}` lists what there is",
        args.dir.display()
    );
    CliError::failure(format!("no checkpoint of step {step} in {}", args.dir.display()), hint)
}
