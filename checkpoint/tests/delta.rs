//! Chunks that are already on disk are not written again, and are retained as long as a checkpoint needs them.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fs;

use crate::common::{SMALL, files_below, id, job};
use rankguard_checkpoint::format::{CheckpointId, Dtype, KnownChunks, Manifest, ShardIndex, TensorBox};
use rankguard_checkpoint::restore::{RankRestore, assemble, assemble_many};
use rankguard_checkpoint::retention::{CollectedFolder, FolderOutcome, collect};
use rankguard_checkpoint::store::VerifyDepth;
use rankguard_checkpoint::verify::verify;
use rankguard_checkpoint::{Store, StoreError};
use rankguard_model::Rank;

/// Image of a rank: a frozen tensor, one that changes with every step, and a counter.
fn image(step: u64, rank: u32) -> (ShardIndex, Vec<u8>) {
    let boxes = [
        TensorBox::rows(
            "frozen",
            Dtype::U8,
            vec![1000],
            u64::from(rank) * 500..u64::from(rank) * 500 + 500,
        ),
        TensorBox::rows(
            "trained",
            Dtype::U8,
            vec![400],
            u64::from(rank) * 200..u64::from(rank) * 200 + 200,
        ),
        TensorBox::whole("step", Dtype::U64, vec![]),
    ];
    let (tensors, end) = ShardIndex::lay_out(boxes);
    let mut image = vec![0; end.unwrap() as usize];
    for (nth, byte) in image[..500].iter_mut().enumerate() {
        *byte = (nth as u64 * 7 + nth as u64 / 64 * 13 + u64::from(rank)) as u8;
    }
    for (nth, byte) in image[512..712].iter_mut().enumerate() {
        *byte = (nth as u64 * step + 3) as u8;
    }
    image[768..][..8].copy_from_slice(&step.to_le_bytes());
    let mut index = ShardIndex {
        rank: Rank(rank),
        world_size: 2,
        chunk_bytes: 64,
        image_bytes: end.unwrap(),
        tensors,
        ..ShardIndex::new(&job(), id(step, 1))
    };
    index.digest_image(&image);
    (index, image)
}

/// Saves a step on top of `parent`; returns the number of new bytes.
fn save(store: &Store, step: u64, parent: Option<u64>) -> u64 {
    let mut seals = Vec::new();
    let mut new_bytes = 0;
    for rank in 0..2 {
        let (index, image) = image(step, rank);
        let known = parent.map_or_else(KnownChunks::default, |parent| {
            store.known_chunks(&job(), id(parent, 1), Rank(rank))
        });
        let written = store.write_new(&index, &image.as_slice(), &known).unwrap();
        new_bytes += written.new_bytes;
        seals.push(written.seal);
    }
    let manifest = Manifest::from_seals(&job(), id(step, 1), parent.map(|parent| id(parent, 1)), &seals).unwrap();
    store.commit(&manifest).unwrap();
    new_bytes
}

fn loads(store: &Store, step: u64) {
    let checkpoint = store.load(&job(), id(step, 1)).unwrap();
    for rank in 0..2 {
        let (index, image) = image(step, rank);
        let wanted: Vec<TensorBox> = index.tensors.iter().map(|entry| entry.boxed.clone()).collect();
        let expected: Vec<u8> = index
            .tensors
            .iter()
            .flat_map(|entry| image[entry.at as usize..][..entry.boxed.bytes().unwrap() as usize].to_vec())
            .collect();
        let mut out = vec![0; expected.len()];
        assemble(&checkpoint.manifest, &checkpoint.indexes, &wanted, &[store], &mut out).unwrap();
        assert!(out == expected, "step {step}, rank {rank}: wrong bytes");
    }
}

fn saved(deltas: u64) -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    save(&store, 1, None);
    for step in 2..=deltas {
        save(&store, step, Some(step - 1));
    }
    (dir, store)
}

#[test]
fn a_delta_holds_only_what_changed_and_loads_whole() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(save(&store, 1, None), 2 * 708);
    assert_eq!(save(&store, 2, Some(1)), 2 * 208);
    assert_eq!(save(&store, 3, Some(2)), 2 * 208);
    (1..=3).for_each(|step| loads(&store, step));
    let third = store.load(&job(), id(3, 1)).unwrap();
    let frozen: Vec<CheckpointId> = third.indexes[0]
        .places()
        .iter()
        .take(8)
        .map(|place| place.file.id())
        .collect();
    assert_eq!(
        frozen,
        [id(1, 1); 8],
        "what a delta borrows lies in the first file, however many deltas lie between"
    );
    assert!(verify(&store, &job(), None).unwrap().is_intact());
}

#[test]
fn rg_1_a_removed_checkpoint_leaves_what_later_ones_borrow_and_no_more() {
    let (_dir, store) = saved(3);
    store.remove(&job(), id(1, 1)).unwrap();
    assert_eq!(store.committed_ids(&job()).unwrap(), [id(2, 1), id(3, 1)]);
    let listing = store.manifests(&job()).unwrap();
    assert!(
        listing.torn.is_empty() && listing.problems.is_empty(),
        "a lent folder is neither torn nor damaged"
    );
    [2, 3].into_iter().for_each(|step| loads(&store, step));
    let left = files_below(&store.dir(&job(), id(1, 1)).unwrap());
    let names: Vec<&str> = left.iter().map(|path| path.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["LENT", "rank-00000.shard", "rank-00001.shard"]);
    // As soon as no checkpoint borrows any more, it is removed.
    save(&store, 4, None);
    let collected = collect(&store, &job(), 1, &[]).unwrap();
    assert_eq!(collected.problems, []);
    assert_eq!(store.committed_ids(&job()).unwrap(), [id(4, 1)]);
    assert!(!store.dir(&job(), id(1, 1)).unwrap().exists());
    loads(&store, 4);
}

#[test]
fn retention_keeps_files_that_a_kept_checkpoint_names() {
    let (_dir, store) = saved(5);
    let collected = collect(&store, &job(), 2, &[]).unwrap();
    assert_eq!(collected.checkpoints, [id(1, 1), id(2, 1), id(3, 1)]);
    assert_eq!((collected.torn, collected.problems), (vec![], vec![]));
    [4, 5].into_iter().for_each(|step| loads(&store, step));
    assert!(store.dir(&job(), id(1, 1)).unwrap().exists());
    assert!(
        !store.dir(&job(), id(2, 1)).unwrap().exists(),
        "nobody borrows from the second"
    );
    // Again: nothing is left to do, and the folder with borrowed shards is not reported as torn.
    let again = collect(&store, &job(), 2, &[]).unwrap();
    let left = CollectedFolder {
        outcome: FolderOutcome::Lends,
        freed_bytes: 0,
    };
    assert_eq!(again.folders, [(id(1, 1), left)].into());
    assert_eq!((again.checkpoints, again.torn, again.problems), Default::default());
}

#[test]
fn rg_1_a_checkpoint_whose_origin_is_gone_or_short_is_not_committed_and_does_not_load() {
    let (_dir, store) = saved(1);
    let mut seals = Vec::new();
    for rank in 0..2 {
        let (index, image) = image(2, rank);
        let known = store.known_chunks(&job(), id(1, 1), Rank(rank));
        seals.push(store.write_new(&index, &image.as_slice(), &known).unwrap().seal);
    }
    let manifest = Manifest::from_seals(&job(), id(2, 1), Some(id(1, 1)), &seals).unwrap();
    let origin = store.shard_path(&job(), id(1, 1), Rank(1)).unwrap();
    let whole = fs::read(&origin).unwrap();
    for damage in [Some(100), None] {
        match damage {
            Some(length) => fs::write(&origin, &whole[..length]).unwrap(),
            None => fs::remove_file(&origin).unwrap(),
        }
        let error = store.commit(&manifest).unwrap_err();
        assert!(
            matches!(&error, StoreError::Origin { origin: named, .. } if *named == origin),
            "{error}"
        );
    }
    fs::write(&origin, &whole).unwrap();
    store.commit(&manifest).unwrap();
    loads(&store, 2);
    fs::remove_file(&origin).unwrap();
    assert!(store.load(&job(), id(2, 1)).is_err());
}

#[test]
fn rg_2_damage_in_an_origin_is_named_in_every_checkpoint_that_borrows_it() {
    let (_dir, store) = saved(2);
    let origin = store.shard_path(&job(), id(1, 1), Rank(0)).unwrap();
    let mut bytes = fs::read(&origin).unwrap();
    bytes[70] ^= 1;
    fs::write(&origin, bytes).unwrap();
    let report = verify(&store, &job(), None).unwrap();
    let hit: Vec<_> = report
        .problems
        .iter()
        .map(|it| (it.checkpoint.unwrap(), it.rank, it.chunk))
        .collect();
    assert_eq!(
        hit,
        [(id(1, 1), Some(Rank(0)), Some(1)), (id(2, 1), Some(Rank(0)), Some(1))]
    );
    assert!(
        report
            .problems
            .iter()
            .all(|it| it.file == origin && it.tensors == ["frozen"])
    );
    assert_eq!(store.newest(&job(), VerifyDepth::Bytes).unwrap().checkpoint, None);
}

#[test]
fn several_ranks_read_what_they_share_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    SMALL.save(&store, id(10, 1), None).unwrap();
    let checkpoint = store.load(&job(), id(10, 1)).unwrap();
    let wanted = SMALL.everything();
    let mut outs = [vec![0; 303], vec![0; 303], vec![0; 303]];
    let mut memory: Vec<&mut [u8]> = outs.iter_mut().map(Vec::as_mut_slice).collect();
    let mut requests: Vec<RankRestore<'_>> = memory
        .iter_mut()
        .map(|out| RankRestore {
            wanted: &wanted,
            out,
            reader: None,
        })
        .collect();
    let report = assemble_many(&checkpoint.manifest, &checkpoint.indexes, &mut requests, &[&store]).unwrap();
    assert_eq!((report.chunks, report.read), (7, 303));
    assert_eq!(report.bytes.disk, 3 * 303);
    assert!(outs.iter().all(|out| *out == SMALL.expected(10)));
}
