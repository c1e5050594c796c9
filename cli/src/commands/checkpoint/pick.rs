//! Selection of one checkpoint of a store by a reference, and progress notes.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint::{Checkpoint, Store};
use rankguard_checkpoint_exchange::ExchangeError;
use rankguard_model::JobId;

use super::args::CheckpointRef;
use super::folder;
use crate::display_text;
use crate::error::CliError;
use crate::out;

/// A store and one job of it.
pub(super) struct SelectedJob {
    pub(super) store: Store,
    pub(super) job: JobId,
    ids: Vec<CheckpointId>,
}

/// Returns the only job that has all of `wanted`.
pub(super) fn job(dir: &Path, job: Option<&str>, wanted: &[CheckpointRef]) -> Result<SelectedJob, CliError> {
    let (store, jobs) = folder::open(dir, job)?;
    let mut having = Vec::new();
    for job in jobs {
        let ids = store.committed_ids(&job).map_err(folder::failed)?;
        if wanted.iter().all(|which| newest(&ids, *which).is_some()) {
            having.push((job, ids));
        }
    }
    let steps: Vec<String> = wanted.iter().map(ToString::to_string).collect();
    let steps = steps.join(" and ");
    match having.len() {
        1 => {
            let (job, ids) = having.remove(0);
            Ok(SelectedJob { store, job, ids })
        }
        0 => {
            let hint = format!(
                "`rankguard checkpoint ls --dir {}` lists the checkpoints",
                dir.display()
            );
            let what = format!("no committed checkpoint of step {steps} in {}", dir.display());
            Err(CliError::failure(what, hint))
        }
        _ => {
            let names: Vec<&str> = having.iter().map(|(job, _)| job.as_str()).collect();
            let what = format!("several jobs have step {steps}: {}", names.join(", "));
            Err(CliError::usage(what, "select one with --job NAME"))
        }
    }
}

fn newest(ids: &[CheckpointId], which: CheckpointRef) -> Option<CheckpointId> {
    let fits = |id: &&CheckpointId| {
        id.step == which.step && which.generation.is_none_or(|generation| generation == id.generation)
    };
    ids.iter().rev().find(fits).copied()
}

impl SelectedJob {
    /// Loads one of the checkpoints that [`job`] selected.
    pub(super) fn load(&self, which: CheckpointRef) -> Result<Checkpoint, CliError> {
        let id = newest(&self.ids, which).ok_or_else(|| {
            CliError::failure(
                format!("no committed checkpoint of step {which}"),
                "`rankguard checkpoint ls` lists the checkpoints",
            )
        })?;
        self.store.load(&self.job, id).map_err(|problem| {
            let hint = format!("`rankguard checkpoint explain {}` shows the reason", which.step);
            CliError::failure(format!("cannot use checkpoint {id}"), hint).because(problem)
        })
    }
}

/// Maps an error of a foreign format, with a hint.
pub(super) fn exchange(what: &str, problem: ExchangeError) -> CliError {
    let hint = match &problem {
        ExchangeError::AlreadyThere { .. } => "choose a path that does not exist",
        ExchangeError::Damaged { .. } => "use another copy of these files; damaged files are not imported",
        ExchangeError::UnknownFormat { .. } | ExchangeError::Malformed { .. } | ExchangeError::Pickle { .. } => {
            "check that all files are present and complete"
        }
        ExchangeError::Store(_) => {
            "`rankguard checkpoint ls` lists the checkpoints; select another --step or --generation"
        }
        ExchangeError::Restore(_) => "`rankguard checkpoint verify` lists all damage",
        ExchangeError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            "check the path; its parent directory must exist"
        }
        ExchangeError::Io { .. } => "check the free space and the permissions of this user",
        _ => "`rankguard checkpoint show` lists the tensors of a checkpoint",
    };
    CliError::failure(what, hint).because(problem)
}

/// Interval between progress notes.
const EVERY: Duration = Duration::from_secs(2);

/// Prints progress notes; work shorter than [`EVERY`] prints none.
pub(super) fn progress(what: &'static str, count: fn(u64) -> String) -> impl FnMut(u64, u64) + Send {
    let mut printed = Instant::now();
    move |done, total| {
        if printed.elapsed() >= EVERY {
            printed = Instant::now();
            out::note(&format!("{what}: {} of {}", count(done), count(total)));
        }
    }
}

/// Formats bytes for [`progress`].
pub(super) fn bytes(count: u64) -> String {
    display_text::bytes(count)
}

/// Formats numbers as ranges: `0-3, 5`.
pub(super) fn runs(numbers: &[u32]) -> String {
    let mut text: Vec<String> = Vec::new();
    for run in numbers.chunk_by(|one, next| one + 1 == *next) {
        text.push(match run {
            [only] => only.to_string(),
            _ => format!("{}-{}", run[0], run[run.len() - 1]),
        });
    }
    text.join(", ")
}

/// Formats a shape: `4096x1024`, or `scalar`.
pub(super) fn shape(shape: &[u64]) -> String {
    if shape.is_empty() {
        return "scalar".to_owned();
    }
    shape.iter().map(u64::to_string).collect::<Vec<_>>().join("x")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_shapes_are_short() {
        assert_eq!(runs(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!((shape(&[]), shape(&[4, 2])), ("scalar".to_owned(), "4x2".to_owned()));
    }

    #[test]
    fn a_checkpoint_has_two_names() {
        let which: CheckpointRef = "10-g2".parse().expect("a name");
        assert_eq!("000000000010-g2".parse(), Ok(which));
        assert_eq!(which.to_string(), "10-g2");
        assert!("x".parse::<CheckpointRef>().is_err() && "1-g".parse::<CheckpointRef>().is_err());
    }
}
