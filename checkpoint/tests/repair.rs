//! RG-2: a damaged copy is repaired from another tier if one exists, and a good byte is never rewritten.

use std::fs;

use crate::common::{SMALL, files_below, id, job};
use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::MANIFEST_FILE;
use rankguard_checkpoint::repair::{HealingStore, MirrorSource, repair};
use rankguard_checkpoint::verify::verify;
use rankguard_model::{Rank, Step};

/// Two stores with the same two checkpoints.
fn twins() -> (tempfile::TempDir, Store, Store) {
    let dir = tempfile::tempdir().unwrap();
    let stores = ["store", "mirror"].map(|name| {
        let store = Store::open(dir.path().join(name)).unwrap();
        SMALL.save(&store, id(10, 1), None).unwrap();
        SMALL.save(&store, id(20, 1), Some(id(10, 1))).unwrap();
        store
    });
    let [store, mirror] = stores;
    (dir, store, mirror)
}

fn same(store: &Store, mirror: &Store) -> bool {
    let content = |store: &Store| -> Vec<(String, Vec<u8>)> {
        let root = store.root().display().to_string();
        let files = files_below(store.root()).into_iter();
        files
            .map(|file| (file.strip_prefix(&root).unwrap().to_owned(), fs::read(&file).unwrap()))
            .collect()
    };
    content(store) == content(mirror)
}

#[test]
fn rg_2_a_damaged_chunk_is_written_again_and_nothing_else_is() {
    let (_dir, store, mirror) = twins();
    let path = store.shard_path(&job(), id(20, 1), Rank(1)).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[1] ^= 4;
    fs::write(&path, &bytes).unwrap();
    let done = repair(&store, &[&mirror as &dyn MirrorSource], &job(), None).unwrap();
    let [mended] = done.mended.as_slice() else {
        panic!("{done:?}")
    };
    assert_eq!(
        (mended.file.as_path(), mended.rank, mended.chunk),
        (path.as_path(), Some(Rank(1)), Some(0))
    );
    assert!(done.left.is_empty() && same(&store, &mirror), "{done:?}");
    assert_eq!(
        repair(&store, &[&mirror as &dyn MirrorSource], &job(), None)
            .unwrap()
            .mended,
        []
    );
}

#[test]
fn rg_2_a_mirror_that_is_damaged_in_the_same_place_repairs_nothing() {
    let (_dir, store, mirror) = twins();
    for (of, bit) in [(&store, 4), (&mirror, 8)] {
        let path = of.shard_path(&job(), id(20, 1), Rank(0)).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes[0] ^= bit;
        fs::write(&path, &bytes).unwrap();
    }
    let before = verify(&store, &job(), None).unwrap();
    let done = repair(&store, &[&mirror as &dyn MirrorSource], &job(), None).unwrap();
    assert_eq!((done.mended.len(), done.left.len()), (0, 1), "{done:?}");
    assert_eq!(verify(&store, &job(), None).unwrap(), before);
}

#[test]
fn rg_1_what_was_removed_comes_back_only_when_its_step_is_asked_for() {
    let (_dir, store, mirror) = twins();
    store.remove(&job(), id(10, 1)).unwrap();
    let mirrors = [&mirror as &dyn MirrorSource];
    assert_eq!(repair(&store, &mirrors, &job(), None).unwrap().mended, []);
    assert_eq!(store.committed_ids(&job()).unwrap(), [id(20, 1)]);
    let done = repair(&store, &mirrors, &job(), Some(Step(10))).unwrap();
    assert!(done.left.is_empty() && same(&store, &mirror), "{done:?}");
}

#[test]
fn rg_1_the_manifest_comes_back_only_when_everything_it_names_is_whole() {
    let (_dir, store, mirror) = twins();
    fs::remove_file(store.manifest_path(&job(), id(20, 1)).unwrap()).unwrap();
    for of in [&store, &mirror] {
        fs::remove_file(of.shard_path(&job(), id(20, 1), Rank(1)).unwrap()).unwrap();
    }
    let done = repair(&store, &[&mirror as &dyn MirrorSource], &job(), None).unwrap();
    assert!(!done.left.is_empty(), "{done:?}");
    assert!(!store.dir(&job(), id(20, 1)).unwrap().join(MANIFEST_FILE).exists());
}

#[test]
fn rg_2_a_restore_heals_in_passing_where_it_may() {
    let (_dir, store, mirror) = twins();
    let path = store.shard_path(&job(), id(20, 1), Rank(0)).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[3] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let checkpoint = store.load(&job(), id(20, 1)).unwrap();
    let (got, report) = SMALL.load(&checkpoint, &[&store, &mirror]).unwrap();
    assert!(
        got == SMALL.expected(20) && !same(&store, &mirror),
        "without leave nothing is written"
    );
    assert!(!report.repairs[0].contains("written back"), "{:?}", report.repairs);
    let (got, report) = SMALL.load(&checkpoint, &[&HealingStore(&store), &mirror]).unwrap();
    assert!(got == SMALL.expected(20) && same(&store, &mirror));
    assert!(
        report.repairs[0].ends_with("written back to disk"),
        "{:?}",
        report.repairs
    );
}
