//! Verification of every byte in an object store, as [`rankguard_checkpoint::verify`] does for a store on disk.

use std::collections::BTreeMap;
use std::path::PathBuf;

use futures_util::{StreamExt, TryStreamExt, stream};
use rankguard_checkpoint::StoreProblem;
use rankguard_checkpoint::format::{CheckpointId, ChunkOrigin, LENT_FILE, ShardIndex};
use rankguard_checkpoint::verify::{VerifiedCheckpoint, VerifyReport};
use rankguard_model::{JobId, Rank, Step};

use super::{ObjectError, ObjectLocation, ObjectTier};
use crate::shard::{ChunkMismatch, ShardFile, ShardPiece, files};

impl ObjectTier {
    /// Checks every committed checkpoint of a job, or those of one step, and continues after a problem. Returns an
    /// error only if the object store cannot be read.
    pub async fn verify(&self, job: &JobId, step: Option<Step>) -> Result<VerifyReport, ObjectError> {
        let mut report = VerifyReport::default();
        for (id, committed) in self.attempts(job).await? {
            if step.is_some_and(|step| step != id.step) {
                continue;
            }
            if committed {
                let (verified, problems) = self.verify_one(job, id).await?;
                report.checkpoints.push(verified);
                report.problems.extend(problems);
            } else if self.size(&self.place(job, id, LENT_FILE)?).await?.is_none() {
                report.torn.push(id);
            }
        }
        Ok(report)
    }

    async fn verify_one(
        &self,
        job: &JobId,
        id: CheckpointId,
    ) -> Result<(VerifiedCheckpoint, Vec<StoreProblem>), ObjectError> {
        let mut verified = VerifiedCheckpoint::unread(id);
        let manifest = match self.manifest(job, id).await {
            Ok(manifest) => manifest,
            Err(error) => {
                let problem = wrong(id, self.manifest_place(job, id)?, None, error)?;
                return Ok((verified, vec![problem]));
            }
        };
        (verified.world_size, verified.bytes) = (manifest.world_size, manifest.bytes());
        let mut problems = Vec::new();
        let mut indexes = Vec::new();
        for shard in &manifest.shards {
            match self.index(&manifest, shard.rank).await {
                Ok((index, _)) => {
                    verified.chunks += index.chunks.len() as u64;
                    problems.extend(self.verify_image(&index).await?);
                    indexes.push(index);
                }
                Err(error) => {
                    let place = self.index_place(job, id, shard.rank)?;
                    problems.push(wrong(id, place, Some(shard.rank), error)?);
                }
            }
        }
        verified.compare(&indexes);
        verified.intact = problems.is_empty();
        Ok((verified, problems))
    }

    /// Reads every chunk of an image, in its own shard file and in others.
    async fn verify_image(&self, index: &ShardIndex) -> Result<Vec<StoreProblem>, ObjectError> {
        let mut numbers: BTreeMap<(ChunkOrigin, u64), u32> = BTreeMap::new();
        for (number, place) in (0..).zip(index.places()) {
            numbers.insert((place.file, place.at), number);
        }
        let mut problems = Vec::new();
        for shard in files(std::slice::from_ref(index)) {
            let place = self.shard_place(&index.job, shard.file)?;
            let damaged = match self.damage(&place, &shard).await {
                Ok(damaged) => damaged,
                Err(error) => {
                    problems.push(wrong(index.id(), place, Some(index.rank), error)?);
                    continue;
                }
            };
            for damage in damaged {
                let chunk = numbers.get(&(shard.file, damage.at)).copied();
                let tensor = chunk.and_then(|chunk| index.chunking().tensor_of(chunk));
                let names = tensor.map(|tensor| index.tensors[tensor].boxed.name.clone());
                let ChunkMismatch { stated, found, .. } = damage;
                problems.push(StoreProblem {
                    checkpoint: Some(index.id()),
                    file: PathBuf::from(&place.url),
                    rank: Some(index.rank),
                    chunk,
                    tensors: names.into_iter().collect(),
                    what: format!("digest is {found}, the index says {stated}"),
                });
            }
        }
        Ok(problems)
    }

    /// Returns the chunks of a shard that differ from their index.
    async fn damage(&self, place: &ObjectLocation, shard: &ShardFile) -> Result<Vec<ChunkMismatch>, ObjectError> {
        let size = self.size(place).await?;
        let size = size.ok_or_else(|| ObjectError::Missing { url: place.url.clone() })?;
        if shard.whole && size != shard.bytes || size < shard.bytes {
            return Err(ObjectError::Size {
                url: place.url.clone(),
                stated: shard.bytes,
                found: size,
            });
        }
        let pieces = shard.pieces(size, self.limits.part_bytes);
        let looks = stream::iter(pieces).map(|piece| async move {
            let bytes = self.read_range(place, piece.range.clone()).await?;
            let one = |chunk| ShardPiece {
                range: piece.range.clone(),
                chunks: std::slice::from_ref(chunk),
            };
            let wrong = piece.chunks.iter().filter_map(|chunk| one(chunk).check(&bytes).err());
            Ok::<_, ObjectError>(wrong.collect::<Vec<_>>())
        });
        let found: Vec<Vec<ChunkMismatch>> = looks.buffered(self.requests()).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }
}

/// Converts an error to a problem of the checkpoint; an unreachable object store remains an error, because it proves
/// nothing.
fn wrong(
    id: CheckpointId,
    place: ObjectLocation,
    rank: Option<Rank>,
    error: ObjectError,
) -> Result<StoreProblem, ObjectError> {
    if error.is_remote() {
        return Err(error);
    }
    Ok(StoreProblem {
        checkpoint: Some(id),
        file: PathBuf::from(place.url),
        rank,
        chunk: None,
        tensors: Vec::new(),
        what: rankguard_model::with_causes(&error),
    })
}
