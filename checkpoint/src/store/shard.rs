//! Writing one rank's shard.

use std::io::Read;
use std::path::Path;

use rankguard_model::ShardSeal;

use crate::ImageSource;
use crate::format::{CheckpointId, Digest, ShardDraft, ShardIndex, crc32c, index_file, shard_file};
use crate::store::files::{self, Put, Temp};
use crate::store::{Store, StoreError};

/// A shard that is durable.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// What the manifest needs to know of it.
    pub seal: ShardSeal,
    /// Its index.
    pub index: ShardIndex,
}

impl Store {
    /// Makes a sealed image durable: checks each chunk against the rank's checksum, digests that same copy and writes it,
    /// then the index. When this returns, both files are whole, synced and under their names. May be repeated: a shard
    /// that is there with the same content is fine, with other content it is an error.
    ///
    /// The caller has made sure that the generation may still act (RG-3).
    pub fn write_shard(&self, draft: &ShardDraft, image: &dyn ImageSource) -> Result<Written, StoreError> {
        let rank = draft.rank;
        draft.check().map_err(|problem| StoreError::Draft { rank, problem })?;
        let dir = self.ensure_checkpoint_dir(draft)?;
        let (shard_name, index_name) = (shard_file(rank), index_file(rank));
        files::clear_temps(&dir, Some(&shard_name))?;
        files::clear_temps(&dir, Some(&index_name))?;

        let mut shard = Temp::start(&dir, &shard_name, draft.image_bytes)?;
        let mut digests = Vec::with_capacity(draft.crcs.len());
        let mut buffer = Vec::new();
        for chunk in 0..draft.chunking().count() {
            read_checked(draft, image, chunk, &mut buffer)?;
            digests.push(Digest::of(&buffer));
            shard.write(&buffer)?;
        }
        let put = shard.put()?;
        let index = draft
            .clone()
            .into_index(digests)
            .map_err(|problem| StoreError::Draft { rank, problem })?;
        if put == Put::AlreadyThere && !holds(&dir.join(&shard_name), &index)? {
            return Err(StoreError::Conflict {
                path: dir.join(shard_name),
            });
        }
        let bytes = index.to_bytes();
        if files::put_bytes(&dir, &index_name, &bytes)? == Put::AlreadyThere {
            let path = dir.join(index_name);
            if files::read(&path, bytes.len())? != bytes {
                return Err(StoreError::Conflict { path });
            }
        }
        let seal = ShardSeal {
            rank,
            step: index.step,
            world_size: index.world_size,
            index: Digest::of(&bytes).to_string(),
            bytes: index.image_bytes,
        };
        Ok(Written { seal, index })
    }

    fn ensure_checkpoint_dir(&self, draft: &ShardDraft) -> Result<std::path::PathBuf, StoreError> {
        let id: CheckpointId = draft.id();
        files::ensure_dir(&self.job_dir(&draft.job)?)?;
        let dir = self.dir(&draft.job, id)?;
        files::ensure_dir(&dir)?;
        Ok(dir)
    }
}

/// Puts a private copy of a chunk into `buffer` and checks it: what is digested and written is what was checked, even if
/// the rank changes the slot meanwhile.
fn read_checked(
    draft: &ShardDraft,
    image: &dyn ImageSource,
    chunk: u32,
    buffer: &mut Vec<u8>,
) -> Result<(), StoreError> {
    let rank = draft.rank;
    let range = draft.chunking().range(chunk).expect("counted by the same chunking");
    buffer.resize((range.end - range.start) as usize, 0);
    let read = image.read_at(range.start, buffer);
    read.map_err(|source| StoreError::ImageUnreadable { rank, chunk, source })?;
    let (stated, found) = (draft.crcs[chunk as usize], crc32c(buffer));
    if stated == found {
        return Ok(());
    }
    let hit = |at: u64, bytes: u64| at < range.end && at.saturating_add(bytes) > range.start;
    let tensor = draft
        .tensors
        .iter()
        .find(|entry| hit(entry.at, entry.boxed.bytes().unwrap_or(0)));
    Err(StoreError::ImageDamaged {
        rank,
        chunk,
        tensor: tensor.map_or_else(String::new, |entry| entry.boxed.name.clone()),
        stated,
        found,
    })
}

/// Whether the file at `path` is exactly the image that `index` describes.
fn holds(path: &Path, index: &ShardIndex) -> Result<bool, StoreError> {
    let (mut file, bytes) = files::open(path)?;
    if bytes != index.image_bytes {
        return Ok(false);
    }
    let mut buffer = Vec::new();
    for (range, digest) in index.chunking().ranges().zip(&index.chunks) {
        buffer.resize((range.end - range.start) as usize, 0);
        file.read_exact(&mut buffer).map_err(StoreError::io("read", path))?;
        if Digest::of(&buffer) != *digest {
            return Ok(false);
        }
    }
    Ok(true)
}
