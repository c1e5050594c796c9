//! Start checkpoint of a job, and the run that its checkpoints belong to.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{CheckpointView, Generation, JobId, RunId, Step};

/// Checkpoints that a submission names as its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumeSource {
    /// Place of the checkpoints.
    pub place: ResumePlace,
    /// Step to start from; default: the newest committed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
}

/// Folder of checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "place", content = "name", rename_all = "kebab-case")]
pub enum ResumePlace {
    /// Folder of a job in the submission's own store.
    Job(JobId),
    /// Absolute path of a store with one job, of a job's folder, or of one checkpoint.
    Path(String),
}

impl fmt::Display for ResumeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            ResumePlace::Job(job) => write!(f, "{job}")?,
            ResumePlace::Path(path) => write!(f, "{path}")?,
        }
        self.step.map_or(Ok(()), |step| write!(f, ":{step}"))
    }
}

/// Checkpoint from which an attempt of a run started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStart {
    /// Job that wrote it.
    pub job: JobId,
    /// Store of the checkpoint, if it is not the job's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// Run of the checkpoint, if recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Step of the checkpoint.
    pub step: Step,
    /// Generation that wrote it.
    pub generation: Generation,
}

impl fmt::Display for RunStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} step {}", self.job, self.step)?;
        if let Some(run) = &self.run {
            write!(f, " (run {run})")?;
        }
        self.store.as_ref().map_or(Ok(()), |store| write!(f, " in {store}"))
    }
}

/// Exclusive claim of a job on its checkpoint folder, with the folder's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoreClaim {
    /// Run that owns the folder.
    pub run: RunId,
    /// First generation of this attempt; earlier generations belong to earlier attempts.
    pub first: Generation,
    /// Checkpoint to start from; absent for a start from scratch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<RunStart>,
    /// Committed checkpoints that the job may start from, oldest first; the last is its start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<CheckpointView>,
    /// Tensors for which only the same number of ranks can restore the start, the first few names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub same_size: Vec<String>,
    /// Newer checkpoints that were passed over, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<String>,
}
