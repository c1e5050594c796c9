//! Guarantees of a store without crashes.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Job, SMALL, files_below, id, job};
use rankguard_checkpoint::format::{MANIFEST_FILE, Manifest};
use rankguard_checkpoint::retention::{collect, remove_incomplete};
use rankguard_checkpoint::store::VerifyDepth;
use rankguard_checkpoint::verify::verify;
use rankguard_checkpoint::{Store, StoreError};
use rankguard_model::{JobId, Rank};

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("a/b/store")).unwrap();
    (dir, store)
}

#[test]
fn a_checkpoint_comes_back_with_its_state() {
    let (_dir, store) = store();
    assert_eq!(store.newest(&job(), VerifyDepth::Bytes).unwrap().checkpoint, None);
    let manifest = SMALL.save(&store, id(10, 1), None).unwrap();
    let checkpoint = store.newest(&job(), VerifyDepth::Bytes).unwrap().checkpoint.unwrap();
    assert_eq!(checkpoint.manifest, manifest);
    assert_eq!(checkpoint.indexes[1].state, serde_json::json!({"step": 10, "rank": 1}));
    assert_eq!(SMALL.load(&checkpoint, &[&store]).unwrap().0, SMALL.expected(10));
    assert_eq!(store.jobs().unwrap(), [job()]);
    let read_only = Store::at("/nonexistent/rankguard");
    assert!(read_only.jobs().unwrap().is_empty() && read_only.manifests(&job()).unwrap().manifests.is_empty());
}

#[test]
fn rg_1_nothing_is_overwritten() {
    let (_dir, store) = store();
    let first = SMALL.save(&store, id(10, 1), None).unwrap();
    let before: Vec<_> = files_below(store.root())
        .into_iter()
        .map(|path| (fs::read(&path).unwrap(), path))
        .collect();
    // The same content again is accepted, and changes nothing.
    assert_eq!(SMALL.write(&store, id(10, 1), None).unwrap(), first);
    // Other content under the same name is refused, for each kind of file.
    let (mut index, image) = SMALL.sealed(id(10, 1), 0);
    index.state = serde_json::json!("other");
    let error = store.write_shard(&index, &image.as_slice()).unwrap_err();
    assert!(
        matches!(&error, StoreError::Conflict { path } if path.ends_with("rank-00000.index")),
        "{error}"
    );
    let (mut index, image) = SMALL.sealed(id(11, 1), 0);
    index.step = id(10, 1).step;
    let error = store.write_shard(&index, &image.as_slice()).unwrap_err();
    assert!(
        matches!(&error, StoreError::Conflict { path } if path.ends_with("rank-00000.shard")),
        "{error}"
    );
    let other = Manifest {
        parent: Some((id(5, 1).step, id(5, 1).generation)),
        ..first
    };
    let error = store.commit(&other).unwrap_err();
    assert!(
        matches!(&error, StoreError::Conflict { path } if path.ends_with(MANIFEST_FILE)),
        "{error}"
    );
    let after: Vec<_> = files_below(store.root())
        .into_iter()
        .map(|path| (fs::read(&path).unwrap(), path))
        .collect();
    assert!(before == after, "a file changed, came or went");
}

#[test]
fn rg_3_a_stale_generation_cannot_commit_and_could_never_be_newest() {
    let (_dir, store) = store();
    SMALL.save(&store, id(10, 2), None).unwrap();
    let stale = SMALL.write(&store, id(20, 1), None).unwrap();
    let error = store.commit(&stale).unwrap_err();
    assert!(
        matches!(&error, StoreError::Fenced { newer, .. } if *newer == id(10, 2)),
        "{error}"
    );
    // Even if the stale commit had succeeded between check and rename.
    fs::write(store.manifest_path(&job(), id(20, 1)).unwrap(), stale.to_bytes()).unwrap();
    assert_eq!(
        store
            .newest(&job(), VerifyDepth::Bytes)
            .unwrap()
            .checkpoint
            .unwrap()
            .id(),
        id(10, 2)
    );
}

#[test]
fn rg_2_an_image_that_changed_after_its_seal_is_not_written() {
    let (_dir, store) = store();
    let (index, mut image) = SMALL.sealed(id(10, 1), 1);
    image[200] ^= 4;
    let error = store.write_shard(&index, &image.as_slice()).unwrap_err();
    let StoreError::ImageDamaged {
        rank, chunk, tensor, ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!((*rank, *chunk, tensor.as_str()), (Rank(1), 3, "bias"));
    assert_eq!(
        files_below(store.root()),
        Vec::<String>::new(),
        "something was left behind"
    );
    image.truncate(20);
    let error = store.write_shard(&index, &image.as_slice()).unwrap_err();
    assert!(matches!(error, StoreError::ImageUnreadable { chunk: 0, .. }), "{error}");
    assert_eq!(
        files_below(store.root()),
        Vec::<String>::new(),
        "something was left behind"
    );
}

#[test]
fn a_manifest_in_the_wrong_folder_is_a_stranger() {
    let (_dir, store) = store();
    SMALL.save(&store, id(10, 1), None).unwrap();
    let from = store.dir(&job(), id(10, 1)).unwrap();
    let to = store.dir(&job(), id(99, 1)).unwrap();
    fs::rename(from, to).unwrap();
    let newest = store.newest(&job(), VerifyDepth::Names).unwrap();
    assert_eq!(newest.checkpoint, None);
    assert!(
        newest.skipped[0]
            .what
            .contains("belongs to job demo, checkpoint 000000000010-g1"),
        "{}",
        newest.skipped[0]
    );
}

#[test]
fn rg_2_a_sound_index_that_the_manifest_does_not_name_is_refused() {
    let (_dir, store) = store();
    let manifest = SMALL.save(&store, id(10, 1), None).unwrap();
    let mut index = store.load(&job(), id(10, 1)).unwrap().indexes.remove(1);
    index.state = serde_json::json!("of another attempt");
    let path = store.index_path(&job(), id(10, 1), Rank(1)).unwrap();
    fs::write(&path, index.to_bytes()).unwrap();
    for error in [
        store.load(&job(), id(10, 1)).unwrap_err(),
        store.commit(&manifest).unwrap_err(),
    ] {
        assert!(
            matches!(&error, StoreError::Digest { path: named, .. } if *named == path),
            "{error}"
        );
    }
}

#[test]
fn a_job_name_cannot_lead_out_of_the_store() {
    let (_dir, store) = store();
    for name in ["..", "a/b", ""] {
        assert!(
            matches!(store.manifests(&JobId::from(name)), Err(StoreError::Name(_))),
            "{name:?}"
        );
    }
}

#[test]
fn what_is_no_regular_file_does_not_block_a_reader() {
    let (_dir, store) = store();
    SMALL.save(&store, id(10, 1), None).unwrap();
    let path = store.index_path(&job(), id(10, 1), Rank(0)).unwrap();
    fs::remove_file(&path).unwrap();
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let error = store.load(&job(), id(10, 1)).unwrap_err();
    assert!(matches!(error, StoreError::NotAFile { .. }), "{error}");
}

#[test]
fn retention_keeps_the_newest_that_load_and_what_is_pinned() {
    let (_dir, store) = store();
    for step in 1..=6 {
        SMALL.save(&store, id(step, 1), None).unwrap();
    }
    SMALL.write(&store, id(2, 9), None).unwrap();
    let torn = SMALL.write(&store, id(7, 1), None).unwrap();
    fs::remove_file(store.manifest_path(&job(), id(5, 1)).unwrap()).unwrap();
    let damaged = store.index_path(&job(), id(6, 1), Rank(0)).unwrap();
    fs::write(damaged, "not an index").unwrap();
    fs::write(store.dir(&job(), id(4, 1)).unwrap().join(".tmp-MANIFEST-1-1"), "left").unwrap();

    let collected = collect(&store, &job(), 2, &[id(1, 1)]).unwrap();
    // 6 is damaged and left for inspection, 5 and 7 are torn, 4 and 3 are retained, 2 is removed, 1 is pinned.
    assert_eq!(collected.checkpoints, [id(2, 1)]);
    assert_eq!(collected.temps, 1);
    assert_eq!(collected.problems.len(), 1, "{:?}", collected.problems);
    assert_eq!(collected.torn, [], "5, 7 and 2-g9 are newer than the newest that loads");
    assert_eq!(
        store.committed_ids(&job()).unwrap(),
        [id(1, 1), id(3, 1), id(4, 1), id(6, 1)]
    );

    // One commit later, everything that it overtook is removed, but not what a higher generation may still be writing.
    store.commit(&torn).unwrap();
    let collected = collect(&store, &job(), 0, &[]).unwrap();
    assert_eq!(collected.checkpoints, [id(1, 1), id(3, 1), id(4, 1), id(6, 1)]);
    assert_eq!(collected.torn, [id(5, 1)]);
    assert_eq!(store.folders_for_test(), ["000000000002-g9", "000000000007-g1"]);
}

#[test]
fn while_nothing_loads_nothing_is_removed() {
    let (_dir, store) = store();
    for step in 1..=3 {
        SMALL.save(&store, id(step, 1), None).unwrap();
        fs::write(store.manifest_path(&job(), id(step, 1)).unwrap(), "damaged").unwrap();
    }
    let collected = collect(&store, &job(), 1, &[]).unwrap();
    assert_eq!((collected.checkpoints.len(), collected.problems.len()), (0, 3));
    assert_eq!(store.committed_ids(&job()).unwrap().len(), 3);
}

#[test]
fn a_foreign_file_keeps_its_folder_and_is_not_removed() {
    let (_dir, store) = store();
    SMALL.save(&store, id(1, 1), None).unwrap();
    SMALL.save(&store, id(2, 1), None).unwrap();
    let notes = store.dir(&job(), id(1, 1)).unwrap().join("notes.txt");
    fs::write(&notes, "mine").unwrap();
    let collected = collect(&store, &job(), 1, &[]).unwrap();
    assert_eq!(collected.problems.len(), 1);
    assert_eq!(fs::read_to_string(notes).unwrap(), "mine");
    assert_eq!(store.committed_ids(&job()).unwrap(), [id(2, 1)]);
}

trait Folders {
    fn folders_for_test(&self) -> Vec<String>;
}

impl Folders for Store {
    fn folders_for_test(&self) -> Vec<String> {
        let entries = fs::read_dir(self.job_dir(&job()).unwrap()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

const FULL: &str = "RANKGUARD_TEST_FULL_STORE";

const LARGE: Job = Job {
    world: 2,
    rows: 3000,
    columns: 1000,
    chunk_bytes: 1 << 16,
};

/// Not a test of its own: saves a small checkpoint, then one that does not fit.
#[test]
fn full_child() {
    let Ok(root) = std::env::var(FULL) else { return };
    let store = Store::open(Path::new(&root).join("store")).unwrap();
    SMALL.save(&store, id(1, 1), None).unwrap();
    let before = files_below(store.root());
    let error = LARGE.write(&store, id(2, 1), None).unwrap_err();
    let StoreError::NoSpace { path, bytes, source } = &error else {
        panic!("{error:?}");
    };
    assert!(path.ends_with("rank-00000.shard"), "{error}");
    assert_eq!(*bytes, LARGE.sealed(id(2, 1), 0).0.image_bytes, "{error}");
    assert!(error.is_no_space() && !error.is_retryable());
    assert_eq!(files_below(store.root()), before, "half a shard is left");
    let checkpoint = store.newest(&job(), VerifyDepth::Bytes).unwrap().checkpoint.unwrap();
    assert_eq!(SMALL.load(&checkpoint, &[&store]).unwrap().0, SMALL.expected(1));
    eprintln!("full: {error}: {source}");
}

fn full_child_under(script: &str, dir: &Path) -> std::process::Output {
    Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .env(FULL, dir)
        .output()
        .unwrap()
}

const CHILD: &str = r#"exec "$1" store::full_child --exact --nocapture"#;

#[test]
fn rg_1_a_file_size_limit_ends_a_save_with_its_path_and_size() {
    let dir = tempfile::tempdir().unwrap();
    // The signal is ignored, so that the limit shows as an error; 1024 blocks are at most 1 MiB.
    let output = full_child_under(&format!("trap '' XFSZ; ulimit -f 1024; {CHILD}"), dir.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("full: no space for 1500065 bytes"),
        "{said}"
    );
}

#[test]
fn rg_1_a_full_disk_ends_a_save_with_its_path_and_size() {
    let dir: PathBuf = tempfile::tempdir().unwrap().keep();
    // In a mount namespace of its own, which ends with the child.
    let mount = r#"mount -t tmpfs -o size=1m tmpfs "$RANKGUARD_TEST_FULL_STORE""#;
    let script = format!(
        "unshare -m sh -c '{mount} || exit 77; {}' sh \"$1\"",
        CHILD.replace('\'', "")
    );
    let output = full_child_under(&script, &dir);
    let said = String::from_utf8_lossy(&output.stderr);
    fs::remove_dir_all(dir).unwrap();
    if said.contains("unshare failed") || output.status.code() == Some(77) || said.contains("not found") {
        // Written to the stream directly: the harness hides macro output of a passing test.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("SKIPPED: no small filesystem can be mounted here: {said}\n"),
        );
        return;
    }
    assert!(
        output.status.success() && said.contains("No space left on device"),
        "{said}"
    );
}

/// The disk failed when the first attempt read which chunks it could borrow; the second attempt knows them.
#[test]
fn rg_1_an_attempt_can_be_made_again_whatever_the_first_one_borrowed() {
    let (_dir, store) = store();
    SMALL.save(&store, id(10, 1), None).unwrap();
    let known = store.known_chunks(&job(), id(10, 1), Rank(0));
    let (index, image) = SMALL.sealed(id(20, 1), 0);
    let first = store.write_shard(&index, &image.as_slice()).unwrap();
    assert_eq!(
        store.write_new(&index, &image.as_slice(), &known).unwrap().seal,
        first.seal
    );
    // The attempt ended after the shard and before the index.
    fs::remove_file(store.index_path(&job(), id(20, 1), Rank(0)).unwrap()).unwrap();
    store.write_new(&index, &image.as_slice(), &known).unwrap();
    let again = store.write_shard(&index, &image.as_slice()).unwrap();
    assert_eq!(again.new_bytes, 0, "what is there is taken as it is");
}

/// RG-3: the store refuses a commit of a generation before the newest one that has committed, at any step.
#[test]
fn attempts_of_a_fenced_generation_are_removed_and_those_of_the_newest_stay() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    SMALL.save(&store, id(10, 1), None).unwrap();
    let fenced = SMALL.write(&store, id(40, 1), None).unwrap();
    SMALL.write(&store, id(50, 2), None).unwrap();
    SMALL.save(&store, id(20, 2), None).unwrap();
    assert!(matches!(store.commit(&fenced), Err(StoreError::Fenced { .. })));
    let collected = collect(&store, &job(), 2, &[]).unwrap();
    assert_eq!(collected.torn, [id(40, 1)]);
    assert!(store.dir(&job(), id(50, 2)).unwrap().is_dir());
}

/// RG-1: ranks of a generation that runs on write and commit checkpoints while an operator removes incomplete ones. A commit
/// that succeeds stays whole.
#[test]
fn a_removal_of_incomplete_checkpoints_takes_nothing_from_a_commit() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let committed = std::thread::scope(|scope| {
        let remover = scope.spawn(|| {
            let mut removed = 0;
            while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                let collected = remove_incomplete(&store, &job(), &|_| true);
                removed += collected.map_or(0, |collected| collected.torn.len());
            }
            removed
        });
        let mut committed = Vec::new();
        // Until both outcomes were seen: a commit before a removal, and a removal before a commit.
        let mut lost = 0;
        for step in 1..600 {
            match SMALL.save(&store, id(step, 1), None) {
                Ok(_) => committed.push(id(step, 1)),
                Err(_) => lost += 1,
            }
            if committed.len() > 40 && lost > 40 {
                break;
            }
        }
        is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        remover.join().unwrap();
        committed
    });
    remove_incomplete(&store, &job(), &|_| true).unwrap();
    assert_eq!(store.committed_ids(&job()).unwrap(), committed);
    let report = verify(&store, &job(), None).unwrap();
    assert_eq!((report.problems, report.torn), (Vec::new(), Vec::new()));
    let names = std::fs::read_dir(store.job_dir(&job()).unwrap()).unwrap();
    assert_eq!(names.count(), committed.len(), "nothing is left beside the checkpoints");
}
