//! Rows of `ls` and `verify`, for stores on disk and object stores: one per folder, one per finding.

use rankguard_checkpoint::StoreProblem;
use rankguard_checkpoint::format::{AttemptSet, CheckpointId, Manifest};
use rankguard_checkpoint::verify::VerifyReport;
use rankguard_model::{Generation, JobId, RunId, Step};
use serde::Serialize;

use crate::display_text::{self, or_empty};
use crate::listing::TableColumn;

/// A folder of the store.
#[derive(Serialize)]
pub(super) struct FolderRow {
    job: JobId,
    step: Step,
    generation: u64,
    /// `committed`, `superseded`, `torn`, `borrowed` or `damaged`.
    state: &'static str,
    /// Run that wrote the checkpoint.
    run: Option<RunId>,
    world_size: Option<u32>,
    bytes: Option<u64>,
    what: Option<String>,
}

/// Columns of [`FolderRow`].
pub(super) const FOLDERS: &[TableColumn<FolderRow>] = &[
    ("job", |folder| folder.job.to_string()),
    ("step", |folder| folder.step.to_string()),
    ("generation", |folder| folder.generation.to_string()),
    ("state", |folder| folder.state.to_owned()),
    ("run", |folder| or_empty(folder.run.as_ref())),
    ("ranks", |folder| or_empty(folder.world_size)),
    ("size", |folder| or_empty(folder.bytes.map(display_text::bytes))),
    ("bytes", |folder| or_empty(folder.bytes)),
    ("note", |folder| folder.what.clone().unwrap_or_default()),
];

impl FolderRow {
    fn new(job: &JobId, id: CheckpointId, state: &'static str) -> Self {
        Self {
            job: job.clone(),
            step: id.step,
            generation: id.generation.0,
            state,
            run: None,
            world_size: None,
            bytes: None,
            what: None,
        }
    }

    /// Describes a committed checkpoint; `bytes` is the size of its files, if known.
    pub(super) fn committed(job: &JobId, manifest: &Manifest, bytes: Option<u64>) -> Self {
        Self {
            world_size: Some(manifest.world_size),
            bytes,
            run: manifest.run.clone(),
            ..Self::new(job, manifest.id(), "committed")
        }
    }

    /// Marks the folder as superseded if a later attempt of its run replaced it.
    pub(super) fn among(mut self, attempts: &AttemptSet) -> Self {
        let id = CheckpointId {
            step: self.step,
            generation: Generation(self.generation),
        };
        if let (Some(first), "committed") = (attempts.superseded_by(id), self.state) {
            self.state = "superseded";
            self.what = Some(format!("superseded by the attempt that began at generation {first}"));
        }
        self
    }

    pub(super) fn torn(job: &JobId, id: CheckpointId, bytes: Option<u64>) -> Self {
        Self {
            bytes,
            what: Some("no manifest: incomplete, being written or being removed".to_owned()),
            ..Self::new(job, id, "torn")
        }
    }

    /// Describes the folder of a removed checkpoint with shards that others need.
    pub(super) fn borrowed(job: &JobId, id: CheckpointId, bytes: Option<u64>) -> Self {
        Self {
            bytes,
            what: Some("removed, except shards with chunks that other checkpoints share".to_owned()),
            ..Self::new(job, id, "borrowed")
        }
    }

    pub(super) fn damaged(job: &JobId, id: CheckpointId, what: String) -> Self {
        Self {
            what: Some(what),
            ..Self::new(job, id, "damaged")
        }
    }

    /// True if the manifest cannot be read.
    pub(super) fn is_damaged(&self) -> bool {
        self.state == "damaged"
    }

    /// Sort key among the folders of a job.
    pub(super) fn place(&self) -> (Step, u64) {
        (self.step, self.generation)
    }
}

/// A problem of a checkpoint, or a row for an intact one.
#[derive(Serialize)]
pub(super) struct FindingRow {
    job: JobId,
    checkpoint: String,
    state: &'static str,
    chunks: Option<u64>,
    bytes: Option<u64>,
    file: Option<String>,
    rank: Option<u32>,
    chunk: Option<u32>,
    tensors: Vec<String>,
    what: String,
}

impl FindingRow {
    /// True if the folder has no manifest.
    pub(super) fn is_torn(&self) -> bool {
        self.state == "torn"
    }
}

/// Columns of [`FindingRow`].
pub(super) const FOUND: &[TableColumn<FindingRow>] = &[
    ("job", |found| found.job.to_string()),
    ("checkpoint", |found| found.checkpoint.clone()),
    ("state", |found| found.state.to_owned()),
    ("chunks", |found| or_empty(found.chunks)),
    ("size", |found| or_empty(found.bytes.map(display_text::bytes))),
    ("rank", |found| or_empty(found.rank)),
    ("chunk", |found| or_empty(found.chunk)),
    ("tensors", |found| found.tensors.join(" ")),
    ("file", |found| or_empty(found.file.as_ref())),
    ("what", |found| found.what.clone()),
];

/// Converts a verification report of a job to rows.
pub(super) fn findings(job: &JobId, report: &VerifyReport) -> Vec<FindingRow> {
    let nothing = |id: CheckpointId, state| FindingRow {
        job: job.clone(),
        checkpoint: id.to_string(),
        state,
        chunks: None,
        bytes: None,
        file: None,
        rank: None,
        chunk: None,
        tensors: Vec::new(),
        what: String::new(),
    };
    let mut found = Vec::new();
    for checkpoint in &report.checkpoints {
        let state = if checkpoint.intact { "intact" } else { "damaged" };
        let chunks = Some(checkpoint.chunks);
        let bytes = Some(checkpoint.bytes);
        found.push(FindingRow {
            chunks,
            bytes,
            what: differing(&checkpoint.differing),
            tensors: checkpoint.differing.clone(),
            ..nothing(checkpoint.id, state)
        });
        for problem in report
            .problems
            .iter()
            .filter(|problem| problem.checkpoint == Some(checkpoint.id))
        {
            found.push(damage(problem, nothing(checkpoint.id, "damage")));
        }
    }
    found.extend(report.torn.iter().map(|id| FindingRow {
        what: "no manifest".to_owned(),
        ..nothing(*id, "torn")
    }));
    found
}

/// Describes tensors that ranks saved with different content; empty if there are none.
fn differing(tensors: &[String]) -> String {
    if tensors.is_empty() {
        return String::new();
    }
    let (verb, them) = if tensors.len() == 1 {
        ("differs", "it")
    } else {
        ("differ", "them")
    };
    format!(
        "{} {verb} between ranks; restoring {them} with another world size requires replicate=",
        display_text::count(tensors.len(), "tensor")
    )
}

fn damage(problem: &StoreProblem, nothing: FindingRow) -> FindingRow {
    FindingRow {
        file: Some(problem.file.display().to_string()),
        rank: problem.rank.map(|rank| rank.0),
        chunk: problem.chunk,
        tensors: problem.tensors.clone(),
        what: problem.what.clone(),
        ..nothing
    }
}
