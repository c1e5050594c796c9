//! Names of folders and files in a checkpoint store: `<store>/<job>/<step:012>-g<generation>/rank-<rank:05>.shard`.

use std::fmt;
use std::str::FromStr;

use rankguard_model::{Generation, JobId, Rank, RestorePoint, Step};
use serde::{Deserialize, Serialize};

/// File that makes a folder a checkpoint.
pub const MANIFEST_FILE: &str = "MANIFEST";

/// File that marks a removed checkpoint folder with shards that later checkpoints still borrow chunks from.
pub const LENT_FILE: &str = "LENT";

/// Id of a checkpoint of a job: step and generation.
///
/// Ordered by generation first, then step, and "newest" means greatest in this order. A generation starts from a
/// committed checkpoint, so a commit of a later generation is the continuation, even when it was started from an older
/// step on purpose; and a commit that a stale generation manages to make can never become the newest (RG-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CheckpointId {
    /// Training step of the checkpoint.
    pub step: Step,
    /// Generation that wrote the checkpoint.
    pub generation: Generation,
}

impl Ord for CheckpointId {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.generation, self.step).cmp(&(other.generation, other.step))
    }
}

impl PartialOrd for CheckpointId {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl From<&RestorePoint> for CheckpointId {
    fn from(point: &RestorePoint) -> Self {
        Self {
            step: point.step,
            generation: point.generation,
        }
    }
}

impl From<CheckpointId> for RestorePoint {
    fn from(id: CheckpointId) -> Self {
        Self {
            step: id.step,
            generation: id.generation,
        }
    }
}

impl fmt::Display for CheckpointId {
    /// Writes the folder name of the checkpoint; sorts by step in a directory listing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012}-g{}", self.step.0, self.generation.0)
    }
}

impl FromStr for CheckpointId {
    type Err = NameError;

    fn from_str(folder: &str) -> Result<Self, NameError> {
        let error = || NameError::Folder {
            name: folder.chars().take(64).collect(),
        };
        let (step, generation) = folder.split_once("-g").ok_or_else(error)?;
        let id = Self {
            step: Step(step.parse().map_err(|_| error())?),
            generation: Generation(generation.parse().map_err(|_| error())?),
        };
        // Accept one spelling only, or two folders could represent the same checkpoint.
        if id.to_string() == folder { Ok(id) } else { Err(error()) }
    }
}

/// Reason why a name cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum NameError {
    #[error(
        "job name {name:?} cannot be a folder: use 1 to 128 letters, digits, '.', '_' or '-', not beginning with '.'"
    )]
    Job { name: String },
    #[error("{name:?} is no checkpoint folder; those are called <step>-g<generation>")]
    Folder { name: String },
}

/// Validates that the job name is a plain folder name: it comes from users and becomes part of a path.
pub fn check_job(job: &JobId) -> Result<(), NameError> {
    let name = job.as_str();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if (1..=128).contains(&name.len()) && !name.starts_with('.') && name.chars().all(plain) {
        Ok(())
    } else {
        Err(NameError::Job {
            name: name.chars().take(128).collect(),
        })
    }
}

/// Returns the file name of the image of a rank.
pub fn shard_file(rank: Rank) -> String {
    format!("rank-{:05}.shard", rank.0)
}

/// Returns the file name of the index of a rank.
pub fn index_file(rank: Rank) -> String {
    format!("rank-{:05}.index", rank.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(step: u64, generation: u64) -> CheckpointId {
        CheckpointId {
            step: Step(step),
            generation: Generation(generation),
        }
    }

    #[test]
    fn a_folder_has_one_spelling() {
        assert_eq!(id(120, 3).to_string(), "000000000120-g3");
        assert_eq!("000000000120-g3".parse(), Ok(id(120, 3)));
        for other in [
            "120-g3",
            "000000000120-g03",
            "000000000120-g+3",
            "000000000120",
            "-g",
            "x-g1",
        ] {
            assert!(other.parse::<CheckpointId>().is_err(), "{other}");
        }
    }

    #[test]
    fn a_stale_generation_is_never_newest() {
        assert!(id(110, 2) > id(200, 1));
        assert!(id(200, 2) > id(110, 2));
    }

    #[test]
    fn a_job_name_cannot_leave_its_folder() {
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "../x",
            "a\0b",
            ".hidden",
            "naïve",
            &"x".repeat(129),
        ] {
            assert!(check_job(&JobId::from(bad)).is_err(), "{bad:?}");
        }
        assert_eq!(check_job(&JobId::from("llama-7b_v1.2")), Ok(()));
    }
}
