//! Copies a checkpoint into the folder of another job: shards are linked, or copied across file systems; indexes and
//! the manifest are rewritten, because they contain the job name.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use rankguard_model::{JobId, RunId};
use rustix::io::Errno;

use crate::format::{CheckpointId, ChunkOrigin, Digest, LENT_FILE, Manifest, index_file, shard_file};
use crate::store::disk::{self, FileOperation};
use crate::store::{Store, StoreError, files};

/// Links a checkpoint of `job` in `from` into the folder of `own_job` in `to`, and commits it there as one of `run`.
/// Idempotent. The caller must hold a lease of the source.
pub(super) fn link_checkpoint(
    from: &Store,
    job: &JobId,
    id: CheckpointId,
    to: &Store,
    own_job: &JobId,
    run: &RunId,
) -> Result<Manifest, StoreError> {
    let checkpoint = from.load(job, id)?;
    let shards: BTreeSet<ChunkOrigin> = checkpoint
        .indexes
        .iter()
        .flat_map(|index| index.origins.iter().copied().chain([index.own()]))
        .collect();
    for shard in shards {
        let folder = to.dir(own_job, shard.id())?;
        files::ensure_dir_all(&folder)?;
        if shard.id() != id {
            files::put_bytes(&folder, LENT_FILE, b"shards here hold chunks of later checkpoints\n")?;
        }
        let source = from.shard_path(job, shard.id(), shard.rank)?;
        link_file(&source, &folder, &shard_file(shard.rank))?;
    }
    let mut manifest = checkpoint.manifest;
    let folder = to.dir(own_job, id)?;
    for (mut index, shard) in checkpoint.indexes.into_iter().zip(&mut manifest.shards) {
        index.job = own_job.clone();
        let bytes = index.to_bytes();
        shard.index = Digest::of(&bytes);
        files::put_bytes(&folder, &index_file(index.rank), &bytes)?;
    }
    manifest.job = own_job.clone();
    manifest.run = Some(run.clone());
    manifest.parent = None;
    to.commit(&manifest)?;
    Ok(manifest)
}

/// Creates a hard link to a file, or copies it to another file system.
fn link_file(source: &Path, folder: &Path, name: &str) -> Result<(), StoreError> {
    let target = folder.join(name);
    match disk::call(FileOperation::Link, &target, || fs::hard_link(source, &target)) {
        Ok(()) => files::sync_dir(folder),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::ACCESS) => {
                files::copy_file(source, folder, name)
            }
            _ => Err(StoreError::io("link", &target)(error)),
        },
    }
}
