//! Opening of a store in a directory, with errors for people.

use std::fs;
use std::path::Path;

use rankguard_checkpoint::format::{CheckpointId, MANIFEST_FILE};
use rankguard_checkpoint::{Store, StoreError};
use rankguard_model::{JobId, JobView, Step};

use super::{StoreArgs, url};
use crate::client_command::quoted;
use crate::error::CliError;

/// Opens a store for reading; returns it with the selected jobs.
pub(super) fn open(dir: &Path, job: Option<&str>) -> Result<(Store, Vec<JobId>), CliError> {
    if let Some(url) = url::url(dir) {
        return Err(url::refuse(url));
    }
    read_folder(dir, "set --dir to the directory of `rankguard run --checkpoint-dir`")?;
    refuse_job_folder(dir)?;
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

/// Returns an error if `dir` holds checkpoints itself, because it is then the folder of a job.
fn refuse_job_folder(dir: &Path) -> Result<(), CliError> {
    let is_checkpoint = |entry: &fs::DirEntry| {
        let is_named = entry.file_name().to_string_lossy().parse::<CheckpointId>().is_ok();
        is_named && entry.path().join(MANIFEST_FILE).is_file()
    };
    let mut entries = fs::read_dir(dir).into_iter().flatten().flatten();
    if !entries.any(|entry| is_checkpoint(&entry)) {
        return Ok(());
    }
    let full = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let hint = match (full.parent(), full.file_name()) {
        (Some(store), Some(job)) => format!("set --dir {} --job {}", store.display(), job.to_string_lossy()),
        _ => "set --dir to its parent".to_owned(),
    };
    let what = format!("{} is the folder of a job, not a checkpoint store", dir.display());
    Err(CliError::usage(what, hint))
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

/// Formats a command of this family on a store, as it can be entered.
pub(super) fn command(words: &str, dir: &Path) -> String {
    format!(
        "`rankguard checkpoint {words} --dir {}`",
        quoted(&dir.display().to_string())
    )
}

/// Returns true if a job saves to the store in a directory.
pub(super) fn is_store_of(view: &JobView, dir: &Path) -> bool {
    let place = |dir: &Path| std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let policy = view.spec.checkpoint.as_ref();
    policy.is_some_and(|policy| place(Path::new(&policy.store)) == place(dir))
}

/// Error for a step without a checkpoint.
pub(super) fn nothing_at(step: Step, args: &StoreArgs) -> CliError {
    let hint = format!("{} lists the checkpoints", command("ls", &args.dir));
    CliError::failure(format!("no checkpoint of step {step} in {}", args.dir.display()), hint)
}
