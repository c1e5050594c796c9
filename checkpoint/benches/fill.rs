//! Cost of a save beside its lower bound: the fused copy beside a plain copy of the same bytes, a shard beside a plain
//! synced write, and the reshard planner at a few thousand shards.
//!
//! `cargo bench -p rankguard-checkpoint`; report the numbers with the name of the machine.

#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use rankguard_checkpoint::arena::{SaveRequest, SealedImage};
use rankguard_checkpoint::format::{CheckpointId, Dtype, ShardIndex, TensorBox, plan};
use rankguard_checkpoint::{Arena, Store};
use rankguard_model::{Generation, JobId, Rank, Step};
use serde_json::Value;

const BYTES: usize = 64 << 20;
const TENSORS: usize = 16;

fn fill(c: &mut Criterion) {
    let job = JobId::from("bench");
    let source = vec![0x5a_u8; BYTES];
    let size = BYTES / TENSORS;
    let boxed = |nth: usize| TensorBox::whole(format!("t{nth}"), Dtype::U8, vec![size as u64]);
    let tensors: Vec<(TensorBox, &[u8])> = source
        .chunks(size)
        .enumerate()
        .map(|(n, data)| (boxed(n), data))
        .collect();
    let of = SaveRequest::new(&job, Step(1), Generation(1), Rank(0), 1);
    let arena = Arena::create("bench", 1, BYTES as u64).expect("64 MiB of memory");

    let mut group = c.benchmark_group("arena");
    group
        .throughput(Throughput::Bytes(BYTES as u64))
        .sample_size(10)
        .measurement_time(Duration::from_secs(2));
    let mut plain = vec![1_u8; BYTES];
    group.bench_function("memcpy, one thread", |b| {
        b.iter(|| plain.copy_from_slice(black_box(&source)))
    });
    // Lower bound of the fill, with the same number of threads.
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(8));
    group.bench_function("memcpy, all threads", |b| {
        b.iter(|| copy_on(threads, black_box(&source), &mut plain))
    });
    group.bench_function("fill: copy and XXH3-128, all threads", |b| {
        b.iter(|| {
            arena.release(0).expect("slot 0");
            arena.fill(0, &of, &tensors, &Value::Null).expect("it fits")
        });
    });
    group.finish();

    let mut group = c.benchmark_group("disk");
    group
        .throughput(Throughput::Bytes(BYTES as u64))
        .sample_size(10)
        .measurement_time(Duration::from_secs(3));
    let dir = tempfile::tempdir().expect("a temporary directory");
    // Cleanup is outside the measured time of both.
    let raw = dir.path().join("raw");
    group.bench_function("write and sync", |b| {
        let write = |()| {
            let mut file = File::create_new(&raw).expect("writable");
            file.write_all(&source).expect("room");
            file.sync_all().expect("synced");
        };
        let clear = || drop(std::fs::remove_file(&raw));
        b.iter_batched(clear, write, BatchSize::PerIteration);
    });
    let store = Store::open(dir.path().join("store")).expect("writable");
    let mut step = 0;
    group.bench_function("write_shard: check, write past the cache, sync, index", |b| {
        let next = || {
            let id = |step| CheckpointId {
                step: Step(step),
                generation: Generation(1),
            };
            store.remove(&job, id(step)).expect("removable");
            step += 1;
            arena.release(0).expect("slot 0");
            let of = SaveRequest { step: Step(step), ..of };
            arena.fill(0, &of, &tensors, &Value::Null).expect("it fits");
            arena.sealed(0).expect("just sealed")
        };
        let write = |sealed: SealedImage<'_>| store.write_shard(sealed.index(), &sealed).expect("room");
        b.iter_batched(next, write, BatchSize::PerIteration);
    });
    group.finish();
}

/// Plain copy, divided into one part per thread.
fn copy_on(threads: usize, from: &[u8], to: &mut [u8]) {
    let share = from.len().div_ceil(threads);
    std::thread::scope(|scope| {
        for (from, to) in from.chunks(share).zip(to.chunks_mut(share)) {
            scope.spawn(move || to.copy_from_slice(from));
        }
    });
}

const ID: CheckpointId = CheckpointId {
    step: Step(1),
    generation: Generation(1),
};

fn part(tensor: u64, rank: u64, world: u64) -> TensorBox {
    const ROWS: u64 = 1536;
    let rows = ROWS * rank / world..ROWS * (rank + 1) / world;
    TensorBox::rows(format!("layers.{tensor}.weight"), Dtype::Bf16, vec![ROWS, 8], rows)
}

/// Boxes that every rank of `world` holds of `tensors` tensors.
fn shards(tensors: u64, world: u64) -> Vec<ShardIndex> {
    let shard = |rank: u64| {
        let (entries, end) = ShardIndex::lay_out((0..tensors).map(|tensor| part(tensor, rank, world)));
        ShardIndex {
            rank: Rank(rank as u32),
            world_size: world as u32,
            image_bytes: end.expect("small"),
            tensors: entries,
            ..ShardIndex::new(&JobId::from("bench"), ID)
        }
    };
    (0..world).map(shard).collect()
}

fn reshard(c: &mut Criterion) {
    let mut group = c.benchmark_group("plan");
    group.sample_size(10).measurement_time(Duration::from_secs(2));
    for (tensors, from, to) in [(1000, 64, 96), (1000, 96, 64), (10_000, 512, 768)] {
        let stored = shards(tensors, from);
        let wanted: Vec<TensorBox> = (0..tensors).map(|tensor| part(tensor, to / 2, to)).collect();
        group.throughput(Throughput::Elements(tensors * from));
        group.bench_function(
            format!("{tensors} tensors, {from} to {to} ranks, one rank's part"),
            |b| b.iter(|| plan(&wanted, &stored).expect("covered")),
        );
    }
    let stored = shards(1, 1024);
    let whole = TensorBox::whole("layers.0.weight", Dtype::Bf16, vec![1536, 8]);
    let wanted = [whole];
    group.bench_function("1 tensor of 1024 ranks, whole", |b| {
        b.iter(|| plan(&wanted, &stored).expect("covered"))
    });
    group.finish();
}

criterion_group!(benches, fill, reshard);
criterion_main!(benches);
