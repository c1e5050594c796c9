//! Writing the shard of a rank while its image passes through a window.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::arena::{ArenaError, StreamError, StreamedImage};
use crate::format::{ChunkDigest, shard_file};
use crate::image::MappedImage;
use crate::store::files::TempFile;
use crate::store::shard::{self, WriterRole, WrittenShard};
use crate::store::{Store, StoreError};

impl Store {
    /// Makes an image durable that passes through a window. The files are the same as those of [`Store::write_shard`].
    /// The rank supplies the digests last, so the written bytes are compared with them before the file gets its final
    /// name.
    ///
    /// Nothing is borrowed from other files: the digest of a chunk is known only after it was written.
    pub fn write_streamed(&self, image: &StreamedImage<'_>) -> Result<WrittenShard, StoreError> {
        let rank = image.index().rank;
        let dir = self.folder_for(image.index())?;
        shard::clear(&dir, rank)?;
        let mut shard = TempFile::start_direct(&dir, &shard_file(rank), image.total())?;
        let broken = |problem: StreamError| StoreError::ImageBroken { rank, problem };
        let mapped = image.mapped().map_err(|problem: ArenaError| broken(problem.into()))?;
        let found = pass(&mut shard, image, mapped)?;
        let index = image.sealed().map_err(broken)?;
        let differs = index
            .chunks
            .iter()
            .zip(&found)
            .position(|(stated, found)| stated != found);
        if let Some(chunk) = differs {
            return Err(shard::damaged(&index, chunk as u32, found[chunk]));
        }
        let seal = shard::put(&dir, shard, &index, WriterRole::Owner)?;
        let new_bytes = image.total();
        Ok(WrittenShard { seal, index, new_bytes })
    }
}

/// Progress of the writer and the digester of a window; space that both have passed is free.
#[derive(Default)]
struct DrainProgress {
    written: AtomicU64,
    digested: AtomicU64,
    stop: AtomicBool,
}

impl DrainProgress {
    /// Records the progress of one of the two; returns the length that both have passed.
    fn note(&self, own: &AtomicU64, to: u64) -> u64 {
        own.store(to, Ordering::SeqCst);
        // Sequential consistency: the later of the two sees both values.
        self.written
            .load(Ordering::SeqCst)
            .min(self.digested.load(Ordering::SeqCst))
    }
}

/// Writes the image while another thread digests it; returns the digests.
fn pass(
    shard: &mut TempFile,
    image: &StreamedImage<'_>,
    mapped: MappedImage<'_>,
) -> Result<Vec<ChunkDigest>, StoreError> {
    let taken = DrainProgress::default();
    let rank = image.index().rank;
    let total = image.total();
    let piece = image.piece();
    let stopped = || taken.stop.load(Ordering::Relaxed);
    // Waits for bytes up to `to`; false once the other thread has failed, because without the space that it would free
    // no more bytes arrive.
    let comes = |to: u64| {
        let there = image.wait_for(to, stopped);
        there
            .map(|()| !stopped())
            .map_err(|problem| StoreError::ImageBroken { rank, problem })
    };
    let digest = || {
        let mut found = Vec::with_capacity(image.index().chunks.len());
        let mut told = 0;
        for range in image.index().chunking().ranges() {
            if !comes(range.end)? {
                break;
            }
            found.push(mapped.digest(&range));
            if range.end - told >= piece || range.end == total {
                told = range.end;
                image.free(taken.note(&taken.digested, told));
            }
        }
        Ok(found)
    };
    let mut write = || {
        let mut at = 0;
        while at < total {
            let end = (at + piece).min(total);
            if !comes(end)? {
                break;
            }
            shard.write_mapped(mapped, at, end)?;
            image.free(taken.note(&taken.written, end));
            at = end;
        }
        Ok(())
    };
    // A failure of one thread stops the other.
    let failed = |failed: bool| taken.stop.fetch_or(failed, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let digesting = scope.spawn(|| {
            let found = digest();
            failed(found.is_err());
            found
        });
        let written: Result<(), StoreError> = write();
        failed(written.is_err());
        let found = digesting
            .join()
            .expect("digesting does not panic: the window lies in its slot");
        written.and(found)
    })
}
