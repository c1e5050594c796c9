//! Opening of a store in a directory, with errors for people.

use std::fs;
use std::path::Path;

use rankguard_checkpoint::{Store, StoreError};
use rankguard_model::{JobId, Step};

use super::{StoreArgs, url};
use crate::error::CliError;

/// Opens a store for reading; returns it with the selected jobs.
pub(super) fn open(dir: &Path, job: Option<&str>) -> Result<(Store, Vec<JobId>), CliError> {
    if let Some(url) = url::url(dir) {
        return Err(url::refuse(url));
    }
    read_folder(dir, "set --dir to the directory of `rankguard run --checkpoint-dir`")?;
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
                    "jobs in the store: {}",
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

/// Returns an error unless `dir` is a readable directory.
pub(super) fn read_folder(dir: &Path, hint: &'static str) -> Result<(), CliError> {
    let read = fs::read_dir(dir).map(drop);
    read.map_err(|problem| {
        CliError::failure(format!("cannot read the checkpoint store {}", dir.display()), hint).because(problem)
    })
}

/// Maps an error of reading a store.
pub(super) fn failed(problem: StoreError) -> CliError {
    CliError::failure("cannot read the checkpoint store", "check the permissions of this user").because(problem)
}

/// Sums the sizes of the files directly in a folder; unreadable files count 0.
pub(super) fn size_of(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .filter(fs::Metadata::is_file)
        .map(|file| file.len())
        .sum()
}

/// Error for a step without a checkpoint.
pub(super) fn nothing_at(step: Step, args: &StoreArgs) -> CliError {
    let hint = format!(
        "`rankguard checkpoint ls --dir {}` lists the checkpoints",
        args.dir.display()
    );
    CliError::failure(format!("no checkpoint of step {step} in {}", args.dir.display()), hint)
}
