//! Verification of every byte of a store.

use std::collections::BTreeMap;

use rankguard_model::{JobId, Step};
use serde::Serialize;

use crate::format::{CheckpointId, ShardIndex, tensor_differences};
use crate::store::direct::SectorBuffer;
use crate::store::reader::RangeReader;
use crate::store::runs;
use crate::store::{Checkpoint, Store, StoreError, StoreProblem};

/// Result of verifying a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Committed checkpoints, oldest first.
    pub checkpoints: Vec<VerifiedCheckpoint>,
    /// Folders without a manifest: in progress or torn. They are neither checkpoints nor problems.
    pub torn: Vec<CheckpointId>,
    /// All problems found.
    pub problems: Vec<StoreProblem>,
}

/// Verification result of one committed checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerifiedCheckpoint {
    pub id: CheckpointId,
    /// True if every byte is as committed.
    pub intact: bool,
    /// Number of shards; 0 if the manifest cannot be read.
    pub world_size: u32,
    /// Total size of the images, bytes.
    pub bytes: u64,
    /// Number of chunks read.
    pub chunks: u64,
    /// Names of tensors that ranks saved with different content, which is not damage.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differing: Vec<String>,
}

impl VerifiedCheckpoint {
    /// Creates the result of a checkpoint before anything was read.
    pub fn unread(id: CheckpointId) -> Self {
        Self {
            id,
            intact: false,
            world_size: 0,
            bytes: 0,
            chunks: 0,
            differing: Vec::new(),
        }
    }

    /// Records the tensors that differ between ranks, from the readable indexes.
    pub fn compare(&mut self, indexes: &[ShardIndex]) {
        let found = tensor_differences(indexes).into_iter();
        self.differing = found.map(|difference| difference.name).collect();
    }
}

impl VerifyReport {
    /// True if no problem was found.
    pub fn is_intact(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Verifies every committed checkpoint of a job, or those of one step. Continues after a problem, so that one damaged
/// file does not hide another.
pub fn verify(store: &Store, job: &JobId, step: Option<Step>) -> Result<VerifyReport, StoreError> {
    verify_paced(store, job, step, &mut |_| {})
}

/// Verifies as [`verify`] does, and calls `pace` with the bytes of each part before it is read; `pace` may wait to
/// limit disk load.
pub fn verify_paced(
    store: &Store,
    job: &JobId,
    step: Option<Step>,
    pace: &mut dyn FnMut(u64),
) -> Result<VerifyReport, StoreError> {
    let mut report = VerifyReport::default();
    for (id, committed) in store.folders(job)? {
        if step.is_some_and(|step| step != id.step) {
            continue;
        }
        if !committed {
            if !store.is_borrowed_from(job, id)? {
                report.torn.push(id);
            }
            continue;
        }
        let (verified, problems) = verify_one(store, job, id, pace)?;
        report.checkpoints.push(verified);
        report.problems.extend(problems);
    }
    Ok(report)
}

pub(crate) fn verify_one(
    store: &Store,
    job: &JobId,
    id: CheckpointId,
    pace: &mut dyn FnMut(u64),
) -> Result<(VerifiedCheckpoint, Vec<StoreProblem>), StoreError> {
    let mut verified = VerifiedCheckpoint::unread(id);
    let manifest = match store.manifest(job, id) {
        Ok(manifest) => manifest,
        Err(error) => {
            let problem = StoreProblem::of(id, store.manifest_path(job, id)?, None, &error);
            return Ok((verified, vec![problem]));
        }
    };
    (verified.world_size, verified.bytes) = (manifest.world_size, manifest.bytes());
    let mut problems = Vec::new();
    let mut indexes = Vec::new();
    for shard in &manifest.shards {
        match store.load_index(&manifest, shard.rank) {
            Ok(index) => {
                verified.chunks += index.chunks.len() as u64;
                problems.extend(verify_image(store, &index, pace)?);
                indexes.push(index);
            }
            Err(error) => {
                let path = store.index_path(job, id, shard.rank)?;
                problems.push(StoreProblem::of(id, path, Some(shard.rank), &error));
            }
        }
    }
    verified.compare(&indexes);
    verified.intact = problems.is_empty();
    Ok((verified, problems))
}

/// Returns a problem for every damaged chunk of a checkpoint.
pub(crate) fn verify_images(store: &Store, checkpoint: &Checkpoint) -> Result<Vec<StoreProblem>, StoreError> {
    let mut problems = Vec::new();
    for index in &checkpoint.indexes {
        problems.extend(verify_image(store, index, &mut |_| {})?);
    }
    Ok(problems)
}

/// Reads every chunk of a shard, including borrowed chunks.
fn verify_image(store: &Store, index: &ShardIndex, pace: &mut dyn FnMut(u64)) -> Result<Vec<StoreProblem>, StoreError> {
    let mut problems = Vec::new();
    let mut buffer = SectorBuffer::default();
    let chunking = index.chunking();
    let mut readers = BTreeMap::new();
    let runs = runs::of((0u32..).zip(index.places()).collect());
    for run in runs {
        let path = store.shard_path(&index.job, run.file.id(), run.file.rank)?;
        let reader = readers.entry(run.file).or_insert_with(|| RangeReader::open(&path));
        let reader = match reader {
            Ok(reader) => reader,
            Err(error) => {
                let named = problems.iter().any(|problem: &StoreProblem| problem.file == path);
                if !named {
                    problems.push(StoreProblem::of(index.id(), path, Some(index.rank), error));
                }
                continue;
            }
        };
        pace(run.end - run.at);
        let damage = match reader.read(&run.range(reader.bytes()), &mut buffer) {
            Ok(bytes) => run.damage(index, bytes),
            Err(error) => run
                .chunks
                .iter()
                .map(|(chunk, _)| (*chunk, format!("cannot be read: {error}")))
                .collect(),
        };
        problems.extend(damage.into_iter().map(|(chunk, what)| {
            let tensor = chunking
                .tensor_of(chunk)
                .map(|place| index.tensors[place].boxed.name.clone());
            StoreProblem {
                checkpoint: Some(index.id()),
                file: path.clone(),
                rank: Some(index.rank),
                chunk: Some(chunk),
                tensors: tensor.into_iter().collect(),
                what,
            }
        }));
    }
    Ok(problems)
}
