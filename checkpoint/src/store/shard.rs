//! Writing one rank's shard.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rankguard_model::{Rank, ShardSeal};

use crate::arena::kernel;
use crate::format::{Digest, Known, MANIFEST_FILE, MAX_INDEX_BYTES, ShardIndex, TENSOR_ALIGN, index_file, shard_file};
use crate::image::{ImageSource, MappedImage};
use crate::store::direct::{Aligned, BLOCK, STRETCH};
use crate::store::files::{self, Put, Temp};
use crate::store::reader::Reader;
use crate::store::runs::{self, Run};
use crate::store::{Store, StoreError};

/// A shard that is durable.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// What the manifest needs to know of it.
    pub seal: ShardSeal,
    /// Its index, as it stands on disk.
    pub index: ShardIndex,
    /// Bytes of the image that were written; the rest lies in other files already.
    pub new_bytes: u64,
}

/// Who writes a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writer {
    /// The agent of its rank: nobody else does, unless that agent is believed to be gone.
    Owner,
    /// Another one, in its place.
    Another,
}

impl Store {
    /// Makes a sealed image durable, all of it: checks every chunk against the rank's digest and writes it, then the index.
    /// When this returns, both files are whole, synced and under their names. May be repeated: a shard that is there with
    /// the same content is fine, with other content it is an error, unless nothing names it yet: then an attempt before
    /// this one left it.
    ///
    /// The caller has made sure that the generation may still act (RG-3).
    pub fn write_shard(&self, index: &ShardIndex, image: &dyn ImageSource) -> Result<Written, StoreError> {
        self.write_new(index, image, &Known::default())
    }

    /// The same, but chunks that are `known` to lie in other files of this job's store are not written again.
    pub fn write_new(&self, index: &ShardIndex, image: &dyn ImageSource, known: &Known) -> Result<Written, StoreError> {
        self.write_as(index, image, known, Writer::Owner)
    }

    /// Makes the image of a rank durable whose own agent may be gone, or may only be silent: it may be at the same work, as
    /// may another that has a copy of the image. Takes nothing away that it has not put there itself, so that whoever comes
    /// first is right, and the others find the same or give up.
    pub fn adopt_shard(&self, index: &ShardIndex, image: &dyn ImageSource) -> Result<Written, StoreError> {
        self.write_as(index, image, &Known::default(), Writer::Another)
    }

    fn write_as(
        &self,
        index: &ShardIndex,
        image: &dyn ImageSource,
        known: &Known,
        writer: Writer,
    ) -> Result<Written, StoreError> {
        let dir = self.folder_for(index)?;
        if let Some(written) = earlier(&dir, index)? {
            return Ok(written);
        }
        let index = index.borrowing(known);
        if writer == Writer::Owner {
            clear(&dir, index.rank)?;
        }

        let file_bytes = index.file_bytes();
        let mut shard = Temp::start_direct(&dir, &shard_file(index.rank), file_bytes)?;
        let new_bytes = match image.mapped().filter(|_| index.borrowed.is_empty()) {
            Some(mapped) => write_mapped(&mut shard, &index, mapped, file_bytes)?,
            None => write_packed(&mut shard, &index, image)?,
        };
        let seal = put(&dir, shard, &index, writer)?;
        Ok(Written { seal, index, new_bytes })
    }

    /// The folder of an image, which is made.
    pub(super) fn folder_for(&self, index: &ShardIndex) -> Result<PathBuf, StoreError> {
        let rank = index.rank;
        index.check().map_err(|problem| StoreError::Image { rank, problem })?;
        files::ensure_dir(&self.job_dir(&index.job)?)?;
        let dir = self.dir(&index.job, index.id())?;
        files::ensure_dir(&dir)?;
        Ok(dir)
    }
}

/// Removes what a dead writer of this shard has left.
pub(super) fn clear(dir: &Path, rank: Rank) -> Result<(), StoreError> {
    files::clear_temps(dir, Some(&shard_file(rank)))?;
    files::clear_temps(dir, Some(&index_file(rank)))?;
    Ok(())
}

/// Gives a shard that is written its name, and then its index.
pub(super) fn put(dir: &Path, shard: Temp, index: &ShardIndex, writer: Writer) -> Result<ShardSeal, StoreError> {
    let (shard_name, index_name) = (shard_file(index.rank), index_file(index.rank));
    shard.cut()?;
    // A folder that cannot be listed says nothing of what is absent.
    let there = files::names(dir)?.unwrap_or_default();
    let has = |name: &str| there.iter().any(|other| other == name);
    if writer == Writer::Owner && has(&shard_name) && !has(&index_name) && !has(MANIFEST_FILE) {
        // An attempt that ended between shard and index may have known of other files to borrow from. What is not there
        // is not removed: somebody who adopts this image may put it there at any moment.
        files::remove_file(&dir.join(&shard_name))?;
    }
    if shard.put()? == Put::AlreadyThere && !holds(&dir.join(&shard_name), index)? {
        return Err(StoreError::Conflict {
            path: dir.join(shard_name),
        });
    }
    let bytes = index.to_bytes();
    if files::put_bytes(dir, &index_name, &bytes)? == Put::AlreadyThere {
        let path = dir.join(index_name);
        if files::read(&path, bytes.len())? != bytes {
            return Err(StoreError::Conflict { path });
        }
    }
    Ok(seal(index, &bytes))
}

/// What the manifest needs to know of an index that stands on disk as `bytes`.
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

/// The shard as an earlier attempt at the same image wrote it, whatever that borrowed.
fn earlier(dir: &Path, index: &ShardIndex) -> Result<Option<Written>, StoreError> {
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
    Ok(Some(Written {
        seal: seal(&there, &bytes),
        index: there,
        new_bytes: 0,
    }))
}

/// Writes an image from where it lies, while another thread digests it. Both must be done before the file gets its name,
/// so their order does not matter.
fn write_mapped(
    shard: &mut Temp,
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

/// Writes the chunks that are new one after the other, each from a private copy that was checked.
fn write_packed(shard: &mut Temp, index: &ShardIndex, image: &dyn ImageSource) -> Result<u64, StoreError> {
    let (own, chunking) = (index.own(), index.chunking());
    let mut buffer = Aligned::default();
    let buffer = buffer
        .take(BLOCK + index.chunk_bytes as usize + TENSOR_ALIGN as usize)
        .map_err(|error| shard.failed("find memory to write", error))?;
    // The file from `start` on is in the buffer, `filled` bytes of it.
    let (mut start, mut filled, mut new_bytes) = (0u64, 0usize, 0u64);
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
    // Room for whole sectors: there is a chunk's worth behind every block.
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

/// Whether the file at `path` is exactly the file that `index` describes.
fn holds(path: &Path, index: &ShardIndex) -> Result<bool, StoreError> {
    let file = Reader::open(path)?;
    if file.bytes() != index.file_bytes() {
        return Ok(false);
    }
    let (own, mut buffer) = (index.own(), Aligned::default());
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

impl Run {
    /// Chunks of it whose bytes in `bytes`, which begin where the run does, are not those of `index`, or are followed by
    /// something where nothing belongs; with what is wrong.
    pub(crate) fn damage(&self, index: &ShardIndex, bytes: &[u8]) -> Vec<(u32, String)> {
        let mut damage = Vec::new();
        for (chunk, place) in &self.chunks {
            let from = (place.at - self.at) as usize;
            let to = from + place.bytes as usize;
            let padding = to.next_multiple_of(TENSOR_ALIGN as usize).min(bytes.len());
            let (stated, found) = (index.chunks[*chunk as usize], kernel::digest(&bytes[from..to]));
            if found != stated {
                damage.push((*chunk, format!("damaged: digest is {found}, the index says {stated}")));
            } else if bytes[to..padding].iter().any(|byte| *byte != 0) {
                damage.push((*chunk, "damaged: bytes behind it are not zero".to_owned()));
            }
        }
        damage
    }
}
