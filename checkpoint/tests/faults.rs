//! A temporary disk failure must not cost a committed checkpoint.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::common::{SMALL, id, job};
use rankguard_checkpoint::Store;
use rankguard_checkpoint::retention::collect;
use rankguard_checkpoint::store::VerifyDepth;
use rankguard_checkpoint::store::disk::{self, CallFault, FaultSource, FileOperation};
use rustix::io::Errno;

/// Fails calls of one kind on files with a text in their path, below one folder: tests run in parallel.
struct Disk(Mutex<BTreeMap<PathBuf, (FileOperation, String, CallFault)>>);

static DISK: Disk = Disk(Mutex::new(BTreeMap::new()));

impl FaultSource for Disk {
    fn fault_for(&self, op: FileOperation, path: &Path, _: u64) -> Option<CallFault> {
        let plans = self.0.lock().unwrap();
        let (_, (of, text, strike)) = plans.iter().find(|(root, _)| path.starts_with(root))?;
        (op == *of && path.to_string_lossy().contains(text.as_str())).then_some(*strike)
    }
}

/// Runs `work` while calls of this kind on these files below `root` fail.
fn while_struck<T>(root: &Path, op: FileOperation, text: &str, strike: CallFault, work: impl FnOnce() -> T) -> T {
    disk::install(&DISK);
    DISK.0
        .lock()
        .unwrap()
        .insert(root.to_owned(), (op, text.to_owned(), strike));
    let done = work();
    DISK.0.lock().unwrap().remove(root);
    done
}

const EIO: CallFault = CallFault::Refuse(Errno::IO);

fn three_saves() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    SMALL.save(&store, id(10, 1), None).unwrap();
    SMALL.save(&store, id(20, 1), Some(id(10, 1))).unwrap();
    SMALL.save(&store, id(30, 1), Some(id(20, 1))).unwrap();
    (dir, store)
}

#[test]
fn rg_1_a_manifest_that_cannot_be_looked_at_for_a_moment_is_not_taken_for_a_torn_save() {
    let (dir, store) = three_saves();
    let place = id(20, 1).to_string();
    let collected = while_struck(dir.path(), FileOperation::Stat, &place, EIO, || {
        collect(&store, &job(), 3, &[])
    });
    assert!(collected.is_err(), "nobody can say what stays: {collected:?}");
    assert_eq!(store.committed_ids(&job()).unwrap(), [id(10, 1), id(20, 1), id(30, 1)]);
    // Nor is it skipped in a search for the newest.
    let place = id(30, 1).to_string();
    let newest = while_struck(dir.path(), FileOperation::Stat, &place, EIO, || {
        store.newest(&job(), VerifyDepth::Names)
    });
    assert!(newest.is_err(), "{newest:?}");
}

#[test]
fn rg_1_a_checkpoint_that_cannot_be_read_for_a_moment_keeps_what_it_has_borrowed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    SMALL.save(&store, id(10, 1), None).unwrap();
    // The same bytes again: the second has no chunk of its own.
    let seals: Vec<_> = (0..SMALL.world)
        .map(|rank| {
            let (mut index, image) = SMALL.sealed(id(10, 1), rank);
            index.step = id(20, 1).step;
            let known = store.known_chunks(&job(), id(10, 1), index.rank);
            store.write_new(&index, &image.as_slice(), &known).unwrap().seal
        })
        .collect();
    let manifest =
        rankguard_checkpoint::format::Manifest::from_seals(&job(), id(20, 1), Some(id(10, 1)), &seals).unwrap();
    store.commit(&manifest).unwrap();
    for op in [FileOperation::Read, FileOperation::Open, FileOperation::Stat] {
        let place = format!("{}/rank-00001.index", id(20, 1));
        // The index is readable when the checkpoint is judged, but no longer when its borrowed shards are listed.
        let _ = while_struck(dir.path(), op, &place, EIO, || store.remove(&job(), id(10, 1)));
        store.newest(&job(), VerifyDepth::Bytes).unwrap().checkpoint.unwrap();
    }
    let newest = store.newest(&job(), VerifyDepth::Bytes).unwrap();
    assert_eq!((newest.checkpoint.unwrap().id(), newest.skipped), (id(20, 1), vec![]));
}

#[test]
fn rg_1_a_sync_that_fails_is_no_commit_that_was_told_of() {
    let (dir, store) = three_saves();
    let manifest = SMALL.write(&store, id(40, 1), Some(id(30, 1))).unwrap();
    for op in [FileOperation::Sync, FileOperation::SyncDir] {
        let told = while_struck(dir.path(), op, "", EIO, || store.commit(&manifest));
        assert!(told.is_err(), "{op:?}: {told:?}");
    }
    store.commit(&manifest).unwrap();
    let newest = store.newest(&job(), VerifyDepth::Bytes).unwrap().checkpoint.unwrap();
    assert_eq!(newest.id(), id(40, 1));
}

#[test]
fn rg_1_writes_that_are_cut_short_are_gone_on_with() {
    let (dir, store) = three_saves();
    let saved = while_struck(dir.path(), FileOperation::Write, ".index", CallFault::Short(7), || {
        SMALL.save(&store, id(40, 1), Some(id(30, 1)))
    });
    saved.unwrap();
    let newest = store.newest(&job(), VerifyDepth::Bytes).unwrap().checkpoint.unwrap();
    assert_eq!(SMALL.load(&newest, &[&store]).unwrap().0, SMALL.expected(40));
}
