//! Time breakdown of a load from disk:
//! `cargo run --release -p rankguard-checkpoint --example load -- DIR [MIB] [ROUNDS]`.
//!
//! Two shards of a checkpoint are read with direct I/O in five ways that alternate in every round: plain reads at the
//! limit of the machine; the reads of a load, with the result discarded; the same with digests; a whole load into
//! memory that was touched before, as that of a trainer; and a whole load into fresh memory. Prints medians and the
//! full spread.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "an example that cannot go on ends, and what it found is for people"
)]

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::{CheckpointId, ChunkDigest, Dtype, Manifest, ShardIndex, TensorBox};
use rankguard_checkpoint::restore::assemble;
use rankguard_checkpoint::source::{ChunkBytes, ChunkId, ChunkSource};
use rankguard_model::{Generation, JobId, Rank, Step};
use rustix::fs::OFlags;

const BLOCK: usize = 1 << 20;
const CHUNK: usize = 256 << 10;
const TENSOR: usize = 8 << 20;
/// Number of threads of a load.
const READERS: usize = 6;
const ID: CheckpointId = CheckpointId {
    step: Step(1),
    generation: Generation(1),
};

fn main() {
    let mut words = std::env::args().skip(1);
    let dir = PathBuf::from(words.next().unwrap_or_else(|| ".".to_owned()));
    let mut number = |usual: usize| words.next().map_or(usual, |word| word.parse().unwrap());
    let tensors = number(1024).div_ceil(8);
    let rounds = number(5);
    let dir = tempfile::tempdir_in(dir).unwrap();
    let store = Store::open(dir.path()).unwrap();
    let job = JobId::from("load");
    let boxes = |rank: u32| -> Vec<TensorBox> {
        let tensor = |nth| TensorBox::whole(format!("{rank}.{nth}"), Dtype::U8, vec![TENSOR as u64]);
        (0..tensors).map(tensor).collect()
    };
    let image: Vec<u8> = (0..tensors * TENSOR).map(|at| (at >> 7) as u8 ^ at as u8).collect();
    let seal = |rank| {
        let mut index = ShardIndex {
            rank: Rank(rank),
            world_size: 2,
            chunk_bytes: CHUNK as u32,
            image_bytes: image.len() as u64,
            tensors: ShardIndex::lay_out(boxes(rank)).0,
            ..ShardIndex::new(&job, ID)
        };
        index.digest_image(&image);
        store.write_shard(&index, &image.as_slice()).unwrap().seal
    };
    let seals = [0, 1].map(seal);
    store
        .commit(&Manifest::from_seals(&job, ID, None, &seals).unwrap())
        .unwrap();
    let wanted: Vec<TensorBox> = (0..2).flat_map(boxes).collect();
    let paths = [0, 1].map(|rank| store.shard_path(&job, ID, Rank(rank)).unwrap());
    let mut out = [image.clone(), image].concat();
    let mut times: [Vec<f64>; 6] = Default::default();
    for _ in 0..rounds {
        let mut nth = 0;
        let mut timed = |work: &mut dyn FnMut()| {
            let start = Instant::now();
            work();
            times[nth].push(start.elapsed().as_secs_f64());
            nth += 1;
        };
        timed(&mut || plain(&paths, &mut out));
        timed(&mut || drop(store.load(&job, ID).unwrap()));
        let checkpoint = store.load(&job, ID).unwrap();
        timed(&mut || chunks(&store, &checkpoint.indexes, false));
        timed(&mut || chunks(&store, &checkpoint.indexes, true));
        let whole = |out: &mut [u8]| {
            assemble(&checkpoint.manifest, &checkpoint.indexes, &wanted, &[&store], out).unwrap();
        };
        timed(&mut || whole(&mut out));
        let length = out.len();
        timed(&mut || whole(&mut vec![0; length]));
    }
    let names = [
        "plain",
        "manifest and indexes",
        "chunks",
        "chunks and digests",
        "whole, touched memory",
        "whole, fresh memory",
    ];
    for (name, mut times) in names.into_iter().zip(times) {
        times.sort_by(f64::total_cmp);
        let least = times[0];
        let median = times[times.len() / 2];
        let most = times[times.len() - 1];
        println!("{name:<22} {median:.3} s ({least:.3} to {most:.3})");
    }
}

/// One thread per file, into memory that was touched before.
fn plain(paths: &[PathBuf], out: &mut [u8]) {
    let read = |path: &Path, out: &mut [u8]| {
        let mut options = OpenOptions::new();
        let file: File = options
            .read(true)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(path)
            .unwrap();
        let skipped = out.as_ptr().align_offset(4096);
        for (nth, block) in out[skipped..].chunks_exact_mut(BLOCK).enumerate() {
            file.read_exact_at(block, (nth * BLOCK) as u64).unwrap();
        }
    };
    let half = out.len() / paths.len();
    std::thread::scope(|scope| {
        for (path, out) in paths.iter().zip(out.chunks_mut(half)) {
            scope.spawn(move || read(path, out));
        }
    });
}

/// Reads as in a load, in runs of 4 MiB.
fn chunks(store: &Store, indexes: &[ShardIndex], digest: bool) {
    let ids = |index: &ShardIndex| -> Vec<ChunkId> {
        let id = |((chunk, place), range): ((u32, _), Range<u64>)| ChunkId {
            job: index.job.clone(),
            checkpoint: ID,
            rank: index.rank,
            chunk,
            at: range.start,
            place,
            digest: index.chunks[chunk as usize],
        };
        let chunking = index.chunking();
        let places = (0u32..).zip(index.places()).zip(chunking.ranges());
        places.map(id).collect()
    };
    let ids: Vec<ChunkId> = indexes.iter().flat_map(ids).collect();
    let queue = Mutex::new(ids.chunks(4 * BLOCK / CHUNK));
    let work = || {
        let next = || queue.lock().unwrap().next();
        while let Some(run) = next() {
            let run: Vec<&ChunkId> = run.iter().collect();
            store.chunks(&run, &mut |nth, answer| {
                if let Some(ChunkBytes::Private(bytes)) = answer.unwrap()
                    && digest
                {
                    assert_eq!(ChunkDigest::of(bytes), run[nth].digest);
                }
            });
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(work);
        }
    });
}
