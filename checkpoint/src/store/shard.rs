//! Writing the shard of a rank.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rankguard_model::{Rank, ShardSeal};

use crate::arena::kernel;
use crate::format::{
    Digest, KnownChunks, MANIFEST_FILE, MAX_INDEX_BYTES, ShardIndex, TENSOR_ALIGN, index_file, shard_file,
};
use crate::image::{ImageSource, MappedImage};
use crate::store::direct::{BLOCK, STRETCH, SectorBuffer};
use crate::store::files::{self, RenameResult, TempFile};
use crate::store::reader::RangeReader;
use crate::store::runs::{self, ChunkRun};
use crate::store::{Store, StoreError};

/// Shard that was made durable.
#[derive(Debug, Clone, PartialEq)]
pub struct WrittenShard {
    /// Entry for the manifest.
    pub seal: ShardSeal,
    /// Index as written to disk.
    pub index: ShardIndex,
    /// Bytes of the image that were written; the rest is stored in other files.
    pub new_bytes: u64,
}

/// Role of the process that writes a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriterRole {
    /// The agent of the rank: the only writer, unless that agent is believed to be gone.
    Owner,
    /// Another agent in its place.
    Another,
}

impl Store {
    /// Makes a whole sealed image durable: verifies every chunk against the rank's digest and writes it, then the
    /// index. On return, both files are complete, synced and under their final names. Idempotent: an existing shard
    /// with the same content is accepted; one with other content is an error, unless no index names it yet, in which
    /// case an earlier attempt left it.
    ///
    /// The caller must ensure that the generation may still act (RG-3).
    pub fn write_shard(&self, index: &ShardIndex, image: &dyn ImageSource) -> Result<WrittenShard, StoreError> {
        self.write_new(index, image, &KnownChunks::default())
    }

    /// Writes a shard as [`write_shard`](Self::write_shard) does, but does not write chunks that are `known` to lie in
    /// other files of this job's store.
    pub fn write_new(
        &self,
        index: &ShardIndex,
        image: &dyn ImageSource,
        known: &KnownChunks,
    ) -> Result<WrittenShard, StoreError> {
        self.write_as(index, image, known, WriterRole::Owner)
    }

    /// Makes the image of a rank durable if its agent may be gone or only unresponsive. That agent, or another one with
    /// a copy of the image, may write the same shard at the same time. Removes only files that it wrote itself, so the
    /// first writer wins, and the others find the same content or fail.
    pub fn adopt_shard(&self, index: &ShardIndex, image: &dyn ImageSource) -> Result<WrittenShard, StoreError> {
        self.write_as(index, image, &KnownChunks::default(), WriterRole::Another)
    }

    fn write_as(
        &self,
        index: &ShardIndex,
        image: &dyn ImageSource,
        known: &KnownChunks,
        writer: WriterRole,
    ) -> Result<WrittenShard, StoreError> {
        let dir = self.folder_for(index)?;
        if let Some(written) = earlier(&dir, index)? {
            return Ok(written);
        }
        let index = index.borrowing(known);
        if writer == WriterRole::Owner {
            clear(&dir, index.rank)?;
        }

        let file_bytes = index.file_bytes();
        let mut shard = TempFile::start_direct(&dir, &shard_file(index.rank), file_bytes)?;
        let new_bytes = match image.mapped().filter(|_| index.borrowed.is_empty()) {
            Some(mapped) => write_mapped(&mut shard, &index, mapped, file_bytes)?,
            None => write_packed(&mut shard, &index, image)?,
        };
        let seal = put(&dir, shard, &index, writer)?;
        Ok(WrittenShard { seal, index, new_bytes })
    }

    /// Creates the folder of an image and returns it.
    pub(super) fn folder_for(&self, index: &ShardIndex) -> Result<PathBuf, StoreError> {
        let rank = index.rank;
        index.check().map_err(|problem| StoreError::Image { rank, problem })?;
        files::ensure_dir(&self.job_dir(&index.job)?)?;
        let dir = self.dir(&index.job, index.id())?;
        files::ensure_dir(&dir)?;
        Ok(dir)
    }
}

/// Removes temporary files that an exited writer of this shard left.
pub(super) fn clear(dir: &Path, rank: Rank) -> Result<(), StoreError> {
    files::clear_temps(dir, Some(&shard_file(rank)))?;
    files::clear_temps(dir, Some(&index_file(rank)))?;
    Ok(())
}

/// Renames a written shard to its final name, then writes its index.
pub(super) fn put(
    dir: &Path,
    shard: TempFile,
    index: &ShardIndex,
    writer: WriterRole,
) -> Result<ShardSeal, StoreError> {
    let shard_name = shard_file(index.rank);
    let index_name = index_file(index.rank);
    shard.cut()?;
    // If the folder cannot be listed, the error is returned: absence is not proven.
    let there = files::names(dir)?.unwrap_or_default();
    let has = |name: &str| there.iter().any(|other| other == name);
    if writer == WriterRole::Owner && has(&shard_name) && !has(&index_name) && !has(MANIFEST_FILE) {
        // An attempt that ended between shard and index may have borrowed from other files. An absent file is not
        // removed: another agent that adopts this image may create it at any moment.
        files::remove_file(&dir.join(&shard_name))?;
    }
    if shard.put()? == RenameResult::AlreadyThere && !holds(&dir.join(&shard_name), index)? {
        return Err(StoreError::Conflict {
            path: dir.join(shard_name),
        });
    }
    let bytes = index.to_bytes();
    if files::put_bytes(dir, &index_name, &bytes)? == RenameResult::AlreadyThere {
        let path = dir.join(index_name);
        if files::read(&path, bytes.len())? != bytes {
            return Err(StoreError::Conflict { path });
        }
    }
    Ok(seal(index, &bytes))
}

/// Returns the manifest entry of an index with the file content `bytes`.
pub(super) fn seal(index: &ShardIndex, bytes: &[u8]) -> ShardSeal {
    ShardSeal {
        rank: index.rank,
        step: index.step,
        world_size: index.world_size,
        index: Digest::of(bytes).to_string(),
        bytes: index.image_bytes,
        ledger: index.ledger,
        schema: index.schema.clone(),
    }
}

/// Returns the shard if an earlier attempt wrote the same image, with any borrowed chunks.
fn earlier(dir: &Path, index: &ShardIndex) -> Result<Option<WrittenShard>, StoreError> {
    let bytes = match files::read(&dir.join(index_file(index.rank)), MAX_INDEX_BYTES) {
        Ok(bytes) => bytes,
        Err(StoreError::Missing { .. }) => return Ok(None),
        Err(problem) => return Err(problem),
    };
    let Ok(there) = ShardIndex::from_bytes(&bytes) else {
        return Ok(None);
    };
    let mut own = there.clone();
    (own.origins, own.borrowed) = (index.origins.clone(), index.borrowed.clone());
    if own != *index || !holds(&dir.join(shard_file(index.rank)), &there)? {
        return Ok(None);
    }
    Ok(Some(WrittenShard {
        seal: seal(&there, &bytes),
        index: there,
        new_bytes: 0,
    }))
}

/// Writes an image directly from mapped memory, while another thread digests it. Both complete before the file gets its
/// final name, so their order does not matter.
fn write_mapped(
    shard: &mut TempFile,
    index: &ShardIndex,
    image: MappedImage<'_>,
    file_bytes: u64,
) -> Result<u64, StoreError> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let checking = scope.spawn(|| {
            for ((chunk, range), stated) in (0u32..).zip(index.chunking().ranges()).zip(&index.chunks) {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let found = image.digest(&range);
                if found != *stated {
                    stop.store(true, Ordering::Relaxed);
                    return Err(damaged(index, chunk, found));
                }
            }
            Ok(())
        });
        let mut at = 0;
        let mut written = Ok(());
        while at < file_bytes && written.is_ok() && !stop.load(Ordering::Relaxed) {
            let end = (at + STRETCH as u64).min(file_bytes);
            written = shard.write_mapped(image, at, end);
            at = end;
        }
        stop.fetch_or(written.is_err(), Ordering::Relaxed);
        checking
            .join()
            .expect("digesting does not panic: the image lies in its slot")?;
        written.map(|()| file_bytes)
    })
}

/// Writes the new chunks in sequence, each from a verified private copy.
fn write_packed(shard: &mut TempFile, index: &ShardIndex, image: &dyn ImageSource) -> Result<u64, StoreError> {
    let own = index.own();
    let chunking = index.chunking();
    let mut buffer = SectorBuffer::default();
    let buffer = buffer
        .take(BLOCK + index.chunk_bytes as usize + TENSOR_ALIGN as usize)
        .map_err(|error| shard.failed("find memory to write", error))?;
    // The buffer holds `filled` bytes of the file, from `start` on.
    let mut start = 0u64;
    let mut filled = 0usize;
    let mut new_bytes = 0u64;
    for (chunk, place) in (0u32..).zip(index.places()).filter(|(_, place)| place.file == own) {
        let at = (place.at - start) as usize;
        buffer[filled..at].fill(0);
        let part = &mut buffer[at..at + place.bytes as usize];
        let range = chunking.range(chunk).expect("places are made of the image's chunks");
        image
            .read_at(range.start, part)
            .map_err(|source| StoreError::ImageUnreadable {
                rank: index.rank,
                chunk,
                source,
            })?;
        let found = kernel::digest(part);
        if found != index.chunks[chunk as usize] {
            return Err(damaged(index, chunk, found));
        }
        filled = at + place.bytes as usize;
        new_bytes += u64::from(place.bytes);
        while filled >= BLOCK {
            shard.write_block(start, &buffer[..BLOCK], BLOCK)?;
            buffer.copy_within(BLOCK..filled, 0);
            (start, filled) = (start + BLOCK as u64, filled - BLOCK);
        }
    }
    // The buffer has space for a chunk after every block, so whole sectors fit.
    let room = filled
        .next_multiple_of(crate::store::direct::SECTOR as usize)
        .min(buffer.len());
    buffer[filled..room].fill(0);
    shard.write_block(start, &buffer[..room], filled)?;
    Ok(new_bytes)
}

pub(super) fn damaged(index: &ShardIndex, chunk: u32, found: crate::format::ChunkDigest) -> StoreError {
    StoreError::ImageDamaged {
        rank: index.rank,
        chunk,
        tensor: index.tensor_in(chunk).to_owned(),
        stated: index.chunks[chunk as usize],
        found,
    }
}

/// True if the file at `path` is exactly the file that `index` describes.
fn holds(path: &Path, index: &ShardIndex) -> Result<bool, StoreError> {
    let file = RangeReader::open(path)?;
    if file.bytes() != index.file_bytes() {
        return Ok(false);
    }
    let own = index.own();
    let mut buffer = SectorBuffer::default();
    let places: Vec<_> = (0u32..)
        .zip(index.places())
        .filter(|(_, place)| place.file == own)
        .collect();
    for run in runs::of(places) {
        let bytes = file
            .read(&run.range(file.bytes()), &mut buffer)
            .map_err(StoreError::io("read", path))?;
        if !run.damage(index, bytes).is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

impl ChunkRun {
    /// Returns the chunks of this run that do not match `index` or have non-zero padding, each with a description.
    /// `bytes` starts at the start of the run.
    pub(crate) fn damage(&self, index: &ShardIndex, bytes: &[u8]) -> Vec<(u32, String)> {
        let mut damage = Vec::new();
        for (chunk, place) in &self.chunks {
            let from = (place.at - self.at) as usize;
            let to = from + place.bytes as usize;
            let padding = to.next_multiple_of(TENSOR_ALIGN as usize).min(bytes.len());
            let stated = index.chunks[*chunk as usize];
            let found = kernel::digest(&bytes[from..to]);
            if found != stated {
                damage.push((*chunk, format!("damaged: digest is {found}, the index says {stated}")));
            } else if bytes[to..padding].iter().any(|byte| *byte != 0) {
                damage.push((*chunk, "damaged: bytes behind it are not zero".to_owned()));
            }
        }
        damage
    }
}
