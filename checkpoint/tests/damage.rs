//! RG-2: one flipped bit anywhere is refused with its location, or the exact bytes come from another source.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::path::Path;

use crate::common::{Job, SMALL, id, job};
use rankguard_checkpoint::arena::Arena;
use rankguard_checkpoint::format::{CheckpointId, Dtype, PlanError, TensorBox};
use rankguard_checkpoint::restore::{RestoreError, assemble};
use rankguard_checkpoint::source::{ArenaSource, ChunkError, ChunkId, ChunkSource, SourceTier};
use rankguard_checkpoint::store::VerifyDepth;
use rankguard_checkpoint::verify::verify;
use rankguard_checkpoint::{Checkpoint, Store};
use rankguard_model::Rank;

const SAVED: (u64, u64) = (30, 2);

fn saved(of: Job) -> (tempfile::TempDir, Store, Checkpoint) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    of.save(&store, id(SAVED.0, SAVED.1), None).unwrap();
    let checkpoint = store.load(&job(), id(SAVED.0, SAVED.1)).unwrap();
    (dir, store, checkpoint)
}

/// Both images, sealed in two arenas of one node.
fn sealed(of: Job, at: CheckpointId) -> Vec<Arena> {
    let seal = |rank| {
        let arena = Arena::create("test", 1, 4096).unwrap();
        let name = job();
        let tensors = of.tensors(rank, at.step.0);
        let borrowed: Vec<(TensorBox, &[u8])> = tensors
            .iter()
            .map(|(boxed, bytes)| (boxed.clone(), &bytes[..]))
            .collect();
        arena
            .fill(0, &of.image_of(&name, at, rank), &borrowed, &serde_json::Value::Null)
            .unwrap();
        arena
    };
    (0..of.world).map(seal).collect()
}

/// Source with scripted answers.
struct Told<F>(SourceTier, F);

impl<F: Sync + Fn(&ChunkId) -> Result<Option<Vec<u8>>, ChunkError>> ChunkSource for Told<F> {
    fn tier(&self) -> SourceTier {
        self.0
    }

    fn name(&self) -> String {
        format!("{} node-9", self.0)
    }

    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        (self.1)(id)
    }
}

fn with_bit_flipped(path: &Path, bit: usize, look: impl FnOnce()) {
    let whole = fs::read(path).unwrap();
    let mut damaged = whole.clone();
    damaged[bit / 8] ^= 1 << (bit % 8);
    fs::write(path, damaged).unwrap();
    look();
    fs::write(path, whole).unwrap();
}

#[test]
fn rg_2_every_flipped_bit_of_every_file_is_refused_with_its_place() {
    let (_dir, store, intact) = saved(SMALL);
    let arenas = sealed(SMALL, intact.id());
    let folder = store.dir(&job(), intact.id()).unwrap();
    let mut flips = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let bits = 0..fs::metadata(&path).unwrap().len() as usize * 8;
        // Every bit of an image; of a text, one bit of each byte, because every bit is tried in the format crate.
        for bit in bits.filter(|bit| name.ends_with(".shard") || bit % 8 == bit / 8 % 8) {
            flips += 1;
            with_bit_flipped(&path, bit, || {
                let place = format!("{name}, bit {bit}");
                let report = verify(&store, &job(), None).unwrap();
                assert_eq!(report.problems.len(), 1, "{place}: {:?}", report.problems);
                assert!(
                    report.problems[0].to_string().contains(&name),
                    "{place}: {}",
                    report.problems[0]
                );
                assert_eq!(
                    store.newest(&job(), VerifyDepth::Bytes).unwrap().checkpoint,
                    None,
                    "{place}"
                );
                let loaded = store.load(&job(), intact.id());
                if !name.ends_with(".shard") {
                    let error = loaded.expect_err(&place);
                    assert!(error.to_string().contains(&name), "{place}: {error}");
                    return;
                }
                let rank = Rank(name[5..10].parse().unwrap());
                let at = bit as u64 / 8;
                let loaded = loaded.unwrap();
                let chunking = loaded.indexes[rank.0 as usize].chunking();
                // The chunk that contains the byte, or the one before its padding.
                let chunk = (0u32..)
                    .zip(chunking.ranges())
                    .filter(|(_, range)| range.start <= at)
                    .last();
                let (chunk, range) = chunk.unwrap();
                assert_eq!(
                    (report.problems[0].rank, report.problems[0].chunk),
                    (Some(rank), Some(chunk)),
                    "{place}"
                );
                if range.contains(&at) {
                    every_byte_or_an_error(&loaded, &store, &arenas, rank, chunk, &place);
                } else {
                    let (bytes, report) = SMALL.load(&loaded, &[&store]).expect(&place);
                    assert!(bytes == SMALL.expected(SAVED.0) && report.repairs.is_empty(), "{place}");
                }
            });
        }
    }
    assert!(verify(&store, &job(), None).unwrap().is_intact());
    eprintln!("{flips} flipped bits");
}

/// If the damaged chunk is requested, disk alone gives an error that names it; with memory as a second source, exact
/// bytes.
fn every_byte_or_an_error(
    checkpoint: &Checkpoint,
    store: &Store,
    arenas: &[Arena],
    rank: Rank,
    chunk: u32,
    place: &str,
) {
    let index = &checkpoint.indexes[rank.0 as usize];
    let own: Vec<TensorBox> = index.tensors.iter().map(|entry| entry.boxed.clone()).collect();
    let expected: Vec<u8> = SMALL
        .tensors(rank.0, SAVED.0)
        .into_iter()
        .flat_map(|(_, bytes)| bytes)
        .collect();
    let mut out = vec![0; expected.len()];
    // The own index comes first, so that its copy of the replicated tensor is the requested one.
    let mut indexes = checkpoint.indexes.clone();
    indexes.rotate_left(rank.0 as usize);
    let mut load = |sources: &[&dyn ChunkSource]| {
        let report = assemble(&checkpoint.manifest, &indexes, &own, sources, &mut out);
        report.map(|report| (out.clone(), report))
    };
    let error = load(&[store]).expect_err(place);
    let RestoreError::NoGoodCopy {
        tensor,
        rank: at,
        chunk: nth,
        tries,
    } = &error
    else {
        panic!("{place}: {error}");
    };
    assert_eq!((*at, *nth, tries[0].tier), (rank, chunk, SourceTier::Disk), "{place}");
    assert_eq!(*tensor, index.tensor_in(chunk), "{place}");
    let (bytes, report) = load(&[store, &ArenaSource::new(arenas)]).expect(place);
    assert!(bytes == expected, "{place}: wrong bytes");
    assert_eq!(report.repairs.len(), 1, "{place}: {:?}", report.repairs);
    assert_eq!(report.bytes.arena + report.bytes.disk, expected.len() as u64, "{place}");
}

#[test]
fn the_error_reads_as_a_person_needs_it() {
    let (_dir, store, checkpoint) = saved(SMALL);
    let path = store.shard_path(&job(), checkpoint.id(), Rank(1)).unwrap();
    with_bit_flipped(&path, 0, || {
        let error = SMALL.load(&checkpoint, &[&store]).unwrap_err().to_string();
        assert!(
            error.starts_with("no good copy of tensor weight: rank 1, chunk 0: disk: damaged: digest is "),
            "{error}"
        );
        let report = verify(&store, &job(), None).unwrap();
        let problem = report.problems[0].to_string();
        assert!(problem.ends_with("(rank 1, chunk 0, tensor weight)"), "{problem}");
    });
}

#[test]
fn the_nearest_good_copy_is_taken_and_each_chunk_once() {
    let (_dir, store, checkpoint) = saved(SMALL);
    let arenas = sealed(SMALL, checkpoint.id());
    let near = ArenaSource::new(&arenas[..1]);
    let (bytes, report) = SMALL.load(&checkpoint, &[&near, &store]).unwrap();
    assert_eq!(bytes, SMALL.expected(SAVED.0));
    // Rank 0 supplies its rows and the bias, rank 1 only its rows.
    assert_eq!((report.bytes.arena, report.bytes.disk), (135 + 33, 135));
    assert_eq!((report.chunks, report.repairs.len()), (4 + 3, 0));
}

#[test]
fn rg_2_a_source_that_lies_fails_or_gives_too_little_is_passed_over() {
    let (_dir, store, checkpoint) = saved(SMALL);
    let lies = Told(SourceTier::Peer, |id: &ChunkId| Ok(Some(vec![0; id.bytes() as usize])));
    let fails = Told(SourceTier::Peer, |_: &ChunkId| Err("connection refused".into()));
    let short = Told(SourceTier::Peer, |_: &ChunkId| Ok(Some(vec![1])));
    let absent = Told(SourceTier::Peer, |_: &ChunkId| Ok(None));
    let (bytes, report) = SMALL
        .load(&checkpoint, &[&lies, &fails, &short, &absent, &store])
        .unwrap();
    assert_eq!(bytes, SMALL.expected(SAVED.0));
    assert_eq!(report.repairs.len() as u64, report.chunks);
    let said = &report.repairs[0];
    for part in [
        "peer node-9",
        "damaged",
        "connection refused",
        "gave 1 bytes",
        "taken from disk",
    ] {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
    let error = SMALL.load(&checkpoint, &[&fails]).unwrap_err().to_string();
    assert!(error.contains("peer (peer node-9): connection refused"), "{error}");
    let error = SMALL.load(&checkpoint, &[&absent]).unwrap_err().to_string();
    assert!(error.ends_with("no tier holds it"), "{error}");
}

#[test]
fn rg_2_an_arena_that_has_moved_on_is_not_believed() {
    let (_dir, store, checkpoint) = saved(SMALL);
    let arenas = sealed(SMALL, checkpoint.id());
    let memory = ArenaSource::new(&arenas);
    // After the source was built, the slots are reused for the next step.
    for (rank, arena) in (0..).zip(&arenas) {
        arena.release(0).unwrap();
        let name = job();
        let tensors = SMALL.tensors(rank, SAVED.0 + 1);
        let borrowed: Vec<(TensorBox, &[u8])> = tensors
            .iter()
            .map(|(boxed, bytes)| (boxed.clone(), &bytes[..]))
            .collect();
        let next = SMALL.image_of(&name, id(SAVED.0 + 1, SAVED.1), rank);
        arena.fill(0, &next, &borrowed, &serde_json::Value::Null).unwrap();
    }
    let (bytes, report) = SMALL.load(&checkpoint, &[&memory, &store]).unwrap();
    assert_eq!(bytes, SMALL.expected(SAVED.0));
    assert_eq!(report.bytes.arena, 0);
    assert!(!ArenaSource::new(&arenas).holds(&job(), checkpoint.id(), Rank(0)));
}

#[test]
fn rg_2_two_checkpoints_are_never_mixed() {
    let (_dir, store, first) = saved(SMALL);
    SMALL.save(&store, id(SAVED.0 + 1, SAVED.1), Some(first.id())).unwrap();
    let second = store.load(&job(), id(SAVED.0 + 1, SAVED.1)).unwrap();
    let mixed = Checkpoint {
        manifest: first.manifest.clone(),
        indexes: vec![first.indexes[0].clone(), second.indexes[1].clone()],
    };
    let error = SMALL.load(&mixed, &[&store]).unwrap_err();
    assert!(matches!(error, RestoreError::Foreign { rank: Rank(1), .. }), "{error}");
}

#[test]
fn a_missing_rank_or_tensor_is_named() {
    let (_dir, store, mut checkpoint) = saved(SMALL);
    checkpoint.indexes.pop();
    let error = SMALL.load(&checkpoint, &[&store]).unwrap_err();
    assert!(
        matches!(&error, RestoreError::Plan(PlanError::Hole { tensor, .. }) if tensor == "weight"),
        "{error}"
    );
    let wanted = [TensorBox::whole("momentum", Dtype::U8, vec![1])];
    let error = assemble(&checkpoint.manifest, &checkpoint.indexes, &wanted, &[&store], &mut [0]).unwrap_err();
    assert_eq!(error.to_string(), "tensor momentum is not in the checkpoint");
    let error = assemble(&checkpoint.manifest, &checkpoint.indexes, &[], &[&store], &mut [0]).unwrap_err();
    assert!(matches!(error, RestoreError::Destination { wanted: 0, capacity: 1 }));
}

#[test]
fn two_ranks_load_as_five_and_as_one() {
    let (_dir, store, checkpoint) = saved(SMALL);
    let five = Job { world: 5, ..SMALL };
    for rank in 0..5 {
        let wanted = five.boxes(rank);
        let expected: Vec<u8> = five
            .tensors(rank, SAVED.0)
            .into_iter()
            .flat_map(|(_, bytes)| bytes)
            .collect();
        let mut out = vec![0; expected.len()];
        assemble(&checkpoint.manifest, &checkpoint.indexes, &wanted, &[&store], &mut out).unwrap();
        assert_eq!(out, expected, "rank {rank}");
    }
    assert_eq!(SMALL.load(&checkpoint, &[&store]).unwrap().0, SMALL.expected(SAVED.0));
}
