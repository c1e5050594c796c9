//! RG-1: for a crash at any moment of a save, the checkpoint before it loads and the torn one is refused.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use crate::guard;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{self, Dice, Job, SMALL, id, job};
use rankguard_checkpoint::format::{CheckpointId, MANIFEST_FILE, Manifest};
use rankguard_checkpoint::retention::collect;
use rankguard_checkpoint::store::{CommitResult, VerifyDepth};
use rankguard_checkpoint::verify::verify;
use rankguard_checkpoint::{Store, StoreError};

/// Store with a committed checkpoint, and the files of a second one in the write order of a save.
struct Save {
    store: Store,
    _dir: tempfile::TempDir,
    folder: PathBuf,
    manifest: Manifest,
    files: Vec<(String, Vec<u8>)>,
}

const FIRST: (u64, u64) = (10, 1);
const SECOND: (u64, u64) = (20, 1);

impl Save {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store")).unwrap();
        let first = id(FIRST.0, FIRST.1);
        let second = id(SECOND.0, SECOND.1);
        SMALL.save(&store, first, None).unwrap();
        let manifest = SMALL.save(&store, second, Some(first)).unwrap();
        let folder = store.dir(&job(), second).unwrap();
        let names = [
            "rank-00000.shard",
            "rank-00000.index",
            "rank-00001.shard",
            "rank-00001.index",
            MANIFEST_FILE,
        ];
        let files = names.map(|name| (name.to_owned(), fs::read(folder.join(name)).unwrap()));
        Self {
            store,
            _dir: dir,
            folder,
            manifest,
            files: files.to_vec(),
        }
    }

    /// Sets the folder of the second checkpoint to the state that `files` describes.
    fn stage<'a>(&self, files: impl IntoIterator<Item = (String, &'a [u8])>) {
        for entry in fs::read_dir(&self.folder).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        for (name, bytes) in files {
            fs::write(self.folder.join(name), bytes).unwrap();
        }
    }

    fn whole(&self) -> impl Iterator<Item = (String, &[u8])> {
        self.files.iter().map(|(name, bytes)| (name.clone(), &bytes[..]))
    }

    /// Checks that the newest checkpoint is the first, with exactly the saved content, and that the second cannot be
    /// loaded.
    fn first_stands(&self, state: &str) {
        let newest = self.store.newest(&job(), VerifyDepth::Bytes).unwrap();
        let checkpoint = newest.checkpoint.unwrap_or_else(|| panic!("{state}: nothing loads"));
        assert_eq!(
            checkpoint.id(),
            id(FIRST.0, FIRST.1),
            "{state}: the torn checkpoint was taken"
        );
        let (bytes, report) = SMALL.load(&checkpoint, &[&self.store]).unwrap();
        assert!(
            bytes == SMALL.expected(FIRST.0) && report.repairs.is_empty(),
            "{state}: wrong bytes"
        );
        assert!(
            self.store.load(&job(), id(SECOND.0, SECOND.1)).is_err(),
            "{state}: the torn checkpoint loads"
        );
    }

    /// Checks that saving again completes the checkpoint, as after no crash.
    fn save_again(&self, state: &str) {
        let manifest = SMALL.write(&self.store, id(SECOND.0, SECOND.1), Some(id(FIRST.0, FIRST.1)));
        assert_eq!(
            manifest.unwrap_or_else(|error| panic!("{state}: {error}")),
            self.manifest,
            "{state}"
        );
        self.store
            .commit(&self.manifest)
            .unwrap_or_else(|error| panic!("{state}: {error}"));
        let newest = self
            .store
            .newest(&job(), VerifyDepth::Bytes)
            .unwrap()
            .checkpoint
            .unwrap();
        assert_eq!(newest.id(), id(SECOND.0, SECOND.1), "{state}");
        assert_eq!(
            SMALL.load(&newest, &[&self.store]).unwrap().0,
            SMALL.expected(SECOND.0),
            "{state}"
        );
        assert!(
            fs::read_dir(&self.folder)
                .unwrap()
                .all(|entry| !is_temp(&entry.unwrap().path())),
            "{state}: leavings"
        );
    }
}

fn is_temp(path: &Path) -> bool {
    path.file_name().unwrap().to_string_lossy().starts_with(".tmp-rank")
}

#[test]
fn rg_1_a_save_that_ends_at_any_byte_of_any_file_leaves_the_checkpoint_before_it() {
    let save = Save::new();
    let mut states = 0;
    for (nth, (name, bytes)) in save.files.iter().enumerate() {
        for length in 0..=bytes.len() {
            // Files before this one are complete; this one has `length` bytes under its temporary name.
            let temp = (format!(".tmp-{name}-4711-3"), &bytes[..length]);
            save.stage(save.whole().take(nth).chain([temp]));
            let state = format!("{name} cut at byte {length}");
            save.first_stands(&state);
            states += 1;
            // Completing the save syncs a dozen files, so it is not tried at every byte.
            if [0, bytes.len() / 2, bytes.len()].contains(&length) {
                save.save_again(&state);
            }
        }
    }
    eprintln!("{states} states of a torn save");
}

#[test]
fn rg_1_a_filesystem_that_tears_renamed_files_cannot_pass_them_off_as_a_checkpoint() {
    let save = Save::new();
    let mut states = 0;
    for (torn, bytes) in &save.files {
        for length in 0..bytes.len() {
            // Every file has its final name, including the manifest, but one is too short.
            let cut = |(name, whole): (String, _)| {
                if name == *torn {
                    (name, &bytes[..length])
                } else {
                    (name, whole)
                }
            };
            save.stage(save.whole().map(cut));
            let state = format!("{torn} is {length} bytes long");
            save.first_stands(&state);
            let report = verify(&save.store, &job(), None).unwrap();
            let named = report
                .problems
                .iter()
                .any(|problem| problem.to_string().contains(torn.as_str()));
            assert!(named, "{state}: verify says {:?}", report.problems);
            if torn != MANIFEST_FILE {
                fs::remove_file(save.folder.join(MANIFEST_FILE)).unwrap();
                assert!(save.store.commit(&save.manifest).is_err(), "{state}: was committed");
            }
            states += 1;
        }
        save.stage(save.whole().filter(|(name, _)| name != torn));
        save.first_stands(&format!("{torn} is missing"));
    }
    eprintln!("{states} states of a torn filesystem");
}

#[test]
fn rg_1_a_commit_needs_every_file_that_it_names() {
    let save = Save::new();
    for missing in [
        "rank-00000.shard",
        "rank-00000.index",
        "rank-00001.shard",
        "rank-00001.index",
    ] {
        save.stage(
            save.whole()
                .filter(|(name, _)| name != missing && name != MANIFEST_FILE),
        );
        match save.store.commit(&save.manifest) {
            Err(StoreError::Missing { path }) => assert!(path.ends_with(missing), "{}", path.display()),
            other => panic!("without {missing}: {other:?}"),
        }
        assert!(!save.folder.join(MANIFEST_FILE).exists());
    }
    save.stage(save.whole().filter(|(name, _)| name != MANIFEST_FILE));
    assert_eq!(save.store.commit(&save.manifest).unwrap(), CommitResult::Committed);
    assert_eq!(save.store.commit(&save.manifest).unwrap(), CommitResult::AlreadyThere);
}

#[test]
fn rg_1_a_removal_that_ends_anywhere_leaves_no_half_checkpoint() {
    let save = Save::new();
    // In the order of removal: the manifest, then the rest in any order.
    for kept in 0..save.files.len() {
        save.stage(save.whole().take(kept));
        save.first_stands(&format!("{kept} files left"));
        save.store.remove(&job(), id(SECOND.0, SECOND.1)).unwrap();
        assert!(!save.folder.exists());
        fs::create_dir(&save.folder).unwrap();
    }
}

#[test]
fn rg_1_a_removal_takes_the_manifest_before_anything_else() {
    let save = Save::new();
    // A directory in place of a file cannot be removed like a file: the removal stops there.
    let stuck = save.folder.join("rank-00000.index");
    fs::remove_file(&stuck).unwrap();
    fs::create_dir(&stuck).unwrap();
    let error = save.store.remove(&job(), id(SECOND.0, SECOND.1)).unwrap_err();
    assert_eq!(error.path(), Some(stuck.as_path()), "{error}");
    assert!(
        !save.folder.join(MANIFEST_FILE).exists(),
        "a checkpoint with missing parts is still called one"
    );
    assert!(save.folder.join("rank-00001.shard").exists());
    save.first_stands("removal stopped");
}

const SAVER: &str = "RANKGUARD_TEST_SAVER";

/// Set if it saves through a window.
const STREAMS: &str = "RANKGUARD_TEST_SAVER_STREAMS";

const CHILD: Job = Job {
    world: 2,
    rows: 400,
    columns: 500,
    chunk_bytes: 1 << 14,
};

/// Each image is three windows long.
const STREAMING: Job = Job { rows: 3200, ..CHILD };

/// Not a test of its own: the process that the next test kills. Saves until it dies, and prints what it has committed.
#[test]
fn saver_child() {
    let Ok(root) = std::env::var(SAVER) else { return };
    let store = Store::open(root).unwrap();
    let mut newest = store
        .newest(&job(), VerifyDepth::Names)
        .unwrap()
        .checkpoint
        .map(|checkpoint| checkpoint.id());
    let generation = newest.map_or(1, |newest: CheckpointId| newest.generation.0 + 1);
    let first = newest.map_or(1, |newest| newest.step.0 + 1);
    for step in first.. {
        let this = id(step, generation);
        match std::env::var_os(STREAMS) {
            Some(_) => drop(store.commit(&STREAMING.stream(&store, this, newest).unwrap()).unwrap()),
            None => drop(CHILD.save(&store, this, newest).unwrap()),
        }
        eprintln!("committed {this}");
        newest = Some(this);
        let collected = collect(&store, &job(), 2, &[]).unwrap();
        assert!(collected.problems.is_empty(), "{:?}", collected.problems);
    }
}

#[test]
fn rg_1_a_saver_killed_at_any_moment_leaves_the_newest_committed_checkpoint() {
    kill_savers(&CHILD, 20, &[]);
}

#[test]
fn rg_1_so_does_one_whose_images_pass_through_windows() {
    kill_savers(&STREAMING, 12, &[(STREAMS, "yes")]);
}

fn kill_savers(saved: &Job, kills: usize, told: &[(&str, &str)]) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let mut dice = Dice(3);
    let mut torn = 0;
    let mut commits = 0;
    let mut before: Option<CheckpointId> = None;
    for kill in 0..kills {
        let mut child = guard::guarded(&mut Command::new(std::env::current_exe().unwrap()))
            .args(["crash::saver_child", "--exact", "--quiet", "--nocapture"])
            .env(SAVER, dir.path())
            .envs(told.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let reader = std::thread::spawn(move || {
            let said = lines
                .map_while(Result::ok)
                .filter_map(|line| line.strip_prefix("committed ")?.parse().ok());
            said.collect::<Vec<CheckpointId>>()
        });
        // Not before the first save, then at any moment of the following saves.
        let deadline = Instant::now() + Duration::from_secs(30);
        while store.committed_ids(&job()).unwrap().last().copied() <= before {
            assert!(Instant::now() < deadline, "kill {kill}: the child commits nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(dice.roll(30_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let said = reader.join().unwrap();
        commits += said.len();

        let newest = store.newest(&job(), VerifyDepth::Bytes).unwrap();
        assert_eq!(newest.skipped, [], "kill {kill}: a committed checkpoint is damaged");
        let checkpoint = newest
            .checkpoint
            .unwrap_or_else(|| panic!("kill {kill}: nothing loads"));
        assert!(
            Some(checkpoint.id()) >= said.last().copied(),
            "kill {kill}: a committed checkpoint is lost"
        );
        let (bytes, _) = saved.load(&checkpoint, &[&store]).unwrap();
        assert!(
            bytes == saved.expected(checkpoint.id().step.0),
            "kill {kill}: wrong bytes"
        );
        let report = verify(&store, &job(), None).unwrap();
        assert_eq!(report.problems, [], "kill {kill}: an older checkpoint is damaged");
        torn += store.manifests(&job()).unwrap().torn.len();
        before = Some(checkpoint.id());
    }
    // Files that killed processes left are removed as soon as a newer checkpoint is committed.
    let last = before.unwrap();
    saved
        .save(&store, id(last.step.0 + 1, last.generation.0 + 1), before)
        .unwrap();
    collect(&store, &job(), 1, &[]).unwrap();
    assert_eq!(
        common::files_below(&store.job_dir(&job()).unwrap()).len(),
        5,
        "only one checkpoint is left"
    );
    eprintln!("{kills} kills over {commits} commits; {torn} torn folders were seen");
}
