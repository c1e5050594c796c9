//! Writing one rank's shard while its image passes through a window.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::arena::{ArenaError, StreamError, StreamedImage};
use crate::format::{ChunkDigest, shard_file};
use crate::image::MappedImage;
use crate::store::files::Temp;
use crate::store::shard::{self, Writer, Written};
use crate::store::{Store, StoreError};

impl Store {
    /// Makes an image durable that passes through a window, as [`Store::write_shard`] does one that stands in its slot: the
    /// files are the same. Digests come last, so what was written is compared with them before it gets its name.
    ///
    /// Nothing is borrowed from other files: what a chunk is, is known when it has been written.
    pub fn write_streamed(&self, image: &StreamedImage<'_>) -> Result<Written, StoreError> {
        let rank = image.index().rank;
        let dir = self.folder_for(image.index())?;
        shard::clear(&dir, rank)?;
        let mut shard = Temp::start_direct(&dir, &shard_file(rank), image.total())?;
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
        let seal = shard::put(&dir, shard, &index, Writer::Owner)?;
        let new_bytes = image.total();
        Ok(Written { seal, index, new_bytes })
    }
}

/// How far the two are that take an image out of its window; what both are done with is free.
#[derive(Default)]
struct Taken {
    written: AtomicU64,
    digested: AtomicU64,
    stop: AtomicBool,
}

impl Taken {
    /// One of the two is so far; gives what is free by that.
    fn note(&self, own: &AtomicU64, to: u64) -> u64 {
        own.store(to, Ordering::SeqCst);
        // Whoever of the two comes last sees both.
        self.written
            .load(Ordering::SeqCst)
            .min(self.digested.load(Ordering::SeqCst))
    }
}

/// Writes what comes, while another thread digests it; gives the digests.
fn pass(shard: &mut Temp, image: &StreamedImage<'_>, mapped: MappedImage<'_>) -> Result<Vec<ChunkDigest>, StoreError> {
    let taken = Taken::default();
    let (rank, total, piece) = (image.index().rank, image.total(), image.piece());
    let stopped = || taken.stop.load(Ordering::Relaxed);
    // Whether it is there, and still wanted: while one of the two waits for more the other may fail, and without what that
    // one would have freed no more comes.
    let comes = |to: u64| {
        let there = image.wait_for(to, stopped);
        there
            .map(|()| !stopped())
            .map_err(|problem| StoreError::ImageBroken { rank, problem })
    };
    let digest = || {
        let (mut found, mut told) = (Vec::with_capacity(image.index().chunks.len()), 0);
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
    // Whoever fails ends the other, too.
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
