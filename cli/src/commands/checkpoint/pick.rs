//! Selection of one checkpoint of a store by a reference, and progress notes.

use std::io;
use std::path::{Path, PathBuf};
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
    dir: PathBuf,
}

/// Returns the only job that has all of `wanted`.
pub(super) fn job(dir: &Path, job: Option<&str>, wanted: &[CheckpointRef]) -> Result<SelectedJob, CliError> {
    let (store, jobs) = folder::open(dir, job)?;
    let mut having = Vec::new();
    let mut seen = vec![false; wanted.len()];
    for job in jobs {
        let ids = store.committed_ids(&job).map_err(folder::failed)?;
        let has: Vec<bool> = wanted.iter().map(|which| newest(&ids, *which).is_some()).collect();
        seen.iter_mut().zip(&has).for_each(|(seen, has)| *seen |= has);
        if has.iter().all(|has| *has) {
            having.push((job, ids));
        }
    }
    let joined = |chosen: &dyn Fn(bool) -> bool, word: &str| {
        let steps = wanted.iter().zip(&seen).filter(|(_, seen)| chosen(**seen));
        steps.map(|(which, _)| which.to_string()).collect::<Vec<_>>().join(word)
    };
    match having.len() {
        1 => {
            let (job, ids) = having.remove(0);
            let dir = dir.to_owned();
            Ok(SelectedJob { store, job, ids, dir })
        }
        0 => {
            let hint = format!("{} lists the checkpoints", folder::command("ls", dir));
            let missing = joined(&|seen| !seen, " or ");
            let what = if missing.is_empty() {
                format!(
                    "no job has committed checkpoints of both steps {} in {}",
                    joined(&|_| true, " and "),
                    dir.display()
                )
            } else {
                format!("no committed checkpoint of step {missing} in {}", dir.display())
            };
            Err(CliError::failure(what, hint))
        }
        _ => {
            let steps = joined(&|_| true, " and ");
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
                format!("{} lists the checkpoints", folder::command("ls", &self.dir)),
            )
        })?;
        self.store.load(&self.job, id).map_err(|problem| {
            let explain = format!("explain {} --job {}", which.step, self.job);
            let hint = format!("{} shows the reason", folder::command(&explain, &self.dir));
            CliError::failure(format!("cannot use checkpoint {id}"), hint).because(problem)
        })
    }
}

/// Maps an error of an exchange of checkpoint `which` of the store in `dir`, with a hint.
pub(super) fn exchange(what: &str, dir: &Path, which: Option<CheckpointRef>, problem: ExchangeError) -> CliError {
    let hint = match &problem {
        ExchangeError::AlreadyThere { .. } => "choose a path that does not exist".to_owned(),
        ExchangeError::Damaged { .. } => "use another copy of these files; damaged files are not imported".to_owned(),
        ExchangeError::UnknownFormat { .. } | ExchangeError::Malformed { .. } | ExchangeError::Pickle { .. } => {
            "check that all files are present and complete".to_owned()
        }
        ExchangeError::Store(_) => format!("{} lists the checkpoints", folder::command("ls", dir)),
        ExchangeError::Restore(_) => format!("{} lists all damage", folder::command("verify", dir)),
        ExchangeError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            "check the path; its parent directory must exist".to_owned()
        }
        ExchangeError::Io { .. } => "check the free space and the permissions of this user".to_owned(),
        _ => match which {
            Some(which) => format!("{} lists its tensors", folder::command(&format!("show {which}"), dir)),
            None => "check that these files hold the tensors of one model".to_owned(),
        },
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
