//! Where a job starts from, and the run that its checkpoints belong to.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{CheckpointView, Generation, JobId, RunId, Step};

/// The checkpoints that a submission names as its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumeSource {
    /// Where they are.
    pub place: ResumePlace,
    /// The step to start from; the newest committed one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
}

/// A folder of checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "place", content = "name", rename_all = "kebab-case")]
pub enum ResumePlace {
    /// That of a job in the submission's own store.
    Job(JobId),
    /// An absolute path: of a store with one job, of a job's folder, or of one checkpoint.
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

/// The checkpoint that an attempt of a run started from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStart {
    /// The job that wrote it.
    pub job: JobId,
    /// Its store, where that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// Its run, where that is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Its step.
    pub step: Step,
    /// The generation that wrote it.
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

/// A job's right to write into its checkpoint folder, with what the folder holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoreClaim {
    /// The run that the folder belongs to.
    pub run: RunId,
    /// The first generation of this attempt; every generation before it belongs to earlier ones.
    pub first: Generation,
    /// The checkpoint that it starts from; absent for a start from nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<RunStart>,
    /// Committed checkpoints that the job may start from, oldest first; the last is its start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<CheckpointView>,
    /// Newer checkpoints that were passed over, with the reason of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<String>,
}
