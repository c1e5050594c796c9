//! Stores with hanging calls: effects of threads that exceeded their deadline, and concurrent work.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, Once, OnceLock};
use std::time::Instant;

use rankguard_checkpoint::format::{Dtype, TensorBox};
use rankguard_checkpoint::store::disk::{self, CallFault, FaultSource, FileOperation};
use rankguard_model::Rank;
use tempfile::TempDir;

use rankguard_core::CheckFinding;

use super::*;

/// Time limit of every wait in these tests.
const LIMIT: Duration = Duration::from_secs(60);

/// Gate that blocks calls of one kind below one folder until it is opened.
#[derive(Debug)]
struct Gate {
    folder: PathBuf,
    op: FileOperation,
    /// Part of the path of the blocked calls.
    part: &'static str,
    is_open: bool,
    waiting: usize,
}

#[derive(Debug, Default)]
struct Gates {
    all: Mutex<Vec<Gate>>,
    changed: Condvar,
}

fn gates() -> &'static Gates {
    static GATES: OnceLock<Gates> = OnceLock::new();
    static INSTALLED: Once = Once::new();
    let gates = GATES.get_or_init(Gates::default);
    INSTALLED.call_once(|| disk::install(gates));
    gates
}

impl FaultSource for Gates {
    fn fault_for(&self, op: FileOperation, path: &Path, _bytes: u64) -> Option<CallFault> {
        let mut all = self.all.lock().unwrap();
        let hangs = |gate: &Gate| {
            let is_of_it = gate.op == op && path.starts_with(&gate.folder);
            is_of_it && path.to_string_lossy().contains(gate.part)
        };
        let place = all.iter().position(hangs)?;
        all[place].waiting += 1;
        self.changed.notify_all();
        while !all[place].is_open {
            all = self.changed.wait(all).unwrap();
        }
        all[place].waiting -= 1;
        None
    }
}

/// Blocks matching calls until it is dropped.
struct Hang(PathBuf);

impl Hang {
    fn new(folder: &Path, op: FileOperation, part: &'static str) -> Self {
        gates().all.lock().unwrap().push(Gate {
            folder: folder.to_owned(),
            op,
            part,
            is_open: false,
            waiting: 0,
        });
        Self(folder.to_owned())
    }

    /// Waits until a call is blocked.
    fn met(&self) {
        let until = Instant::now() + LIMIT;
        let is_waiting = |gate: &Gate| gate.folder == self.0 && gate.waiting > 0;
        let mut all = gates().all.lock().unwrap();
        while !all.iter().any(is_waiting) {
            assert!(Instant::now() < until, "no call hangs");
            all = gates().changed.wait_timeout(all, Duration::from_millis(50)).unwrap().0;
        }
    }
}

impl Drop for Hang {
    fn drop(&mut self) {
        let mut all = gates().all.lock().unwrap();
        for gate in all.iter_mut().filter(|gate| gate.folder == self.0) {
            gate.is_open = true;
        }
        gates().changed.notify_all();
    }
}

fn job() -> JobId {
    JobId::from("train")
}

fn id(step: u64) -> CheckpointId {
    CheckpointId {
        step: Step(step),
        generation: Generation(1),
    }
}

/// Creates a store with shards of these steps.
fn store_with(steps: &[u64]) -> (TempDir, Store, Vec<Manifest>) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store")).unwrap();
    let manifests = steps.iter().map(|step| {
        let (tensors, _) = ShardIndex::lay_out([TensorBox::whole("w", Dtype::U8, vec![64])]);
        let mut index = ShardIndex {
            image_bytes: 64,
            tensors,
            ..ShardIndex::new(&job(), id(*step))
        };
        let image = [*step as u8; 64];
        index.digest_image(&image);
        let seal = store.write_shard(&index, &image.as_slice()).unwrap().seal;
        Manifest::from_seals(&job(), id(*step), None, &[seal]).unwrap()
    });
    let manifests = manifests.collect();
    (dir, store, manifests)
}

fn committed(event: &Event) -> Option<u64> {
    match event {
        Event::ManifestCommitted { step, .. } => Some(step.0),
        _ => None,
    }
}

async fn until(what: &str, mut look: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !look() {
        assert!(Instant::now() < end, "waited for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn steps(store: &Store) -> Vec<u64> {
    let ids = store.committed_ids(&job()).unwrap();
    ids.iter().map(|id| id.step.0).collect()
}

/// A removal hangs; the next commit keeps the checkpoint that the earlier collection would have removed.
#[tokio::test(flavor = "multi_thread")]
async fn rg_2_no_collection_with_older_rules_runs_beside_a_newer_commit() {
    let (_dir, store, mut manifests) = store_with(&[10, 20, 30, 40, 50]);
    let fifty = manifests.pop().unwrap();
    let forty = manifests.pop().unwrap();
    for manifest in &manifests {
        store.commit(manifest).unwrap();
    }
    let path = store.root().display().to_string();
    let hang = Hang::new(store.root(), FileOperation::Remove, "000000000010-g1");
    let mut commits = StoreTasks::default();
    commits.start(path.clone(), forty, 1, Vec::new());
    assert_eq!(committed(&commits.next().await), Some(40));
    hang.met();
    // The rules of this commit keep step 20; those of the one before did not.
    commits.start(path, fifty, 1, vec![id(20)]);
    let early = tokio::time::timeout(Duration::from_millis(300), commits.next()).await;
    assert!(early.is_err(), "a collection of the commit before is under way");
    assert_eq!(steps(&store), [10, 20, 30, 40]);
    drop(hang);
    assert_eq!(committed(&commits.next().await), Some(50));
    until("the collection of the newer commit", || steps(&store) == [20, 50]).await;
}

/// A commit hangs in the store: it is refused, and changes nothing when the store responds again.
#[tokio::test(flavor = "multi_thread")]
async fn rg_1_a_commit_that_was_given_up_writes_no_manifest_and_removes_nothing() {
    let (_dir, store, mut manifests) = store_with(&[10, 20, 30]);
    let thirty = manifests.pop().unwrap();
    let twenty = manifests.pop().unwrap();
    store.commit(&manifests[0]).unwrap();
    let path = store.root().display().to_string();
    let hang = Hang::new(store.root(), FileOperation::SyncDir, "store/train");
    let mut commits = StoreTasks::default();
    commits.start_within(path.clone(), twenty, 1, Vec::new(), Duration::from_millis(100));
    let Event::ManifestRefused { step, reason, .. } = commits.next().await else {
        panic!("committed")
    };
    assert_eq!(step, Step(20));
    assert!(reason.contains("has not answered"), "{reason}");
    commits.start_within(path.clone(), thirty.clone(), 1, Vec::new(), Duration::from_millis(100));
    let Event::ManifestRefused { reason, .. } = commits.next().await else {
        panic!("it ran beside a thread that had not ended")
    };
    assert!(reason.contains("other work"), "{reason}");
    drop(hang);
    commits.start(path, thirty, 1, vec![id(10)]);
    assert_eq!(committed(&commits.next().await), Some(30));
    assert_eq!(steps(&store), [10, 30], "20 was given up, and 10 is kept");
}

/// While a damage report is checked, nothing older is removed: the job may have to return to it.
#[tokio::test(flavor = "multi_thread")]
async fn rg_2_a_check_ends_the_collection_and_tells_damage_from_a_nodes_own_trouble() {
    let (_dir, store, mut manifests) = store_with(&[10, 20, 30]);
    let thirty = manifests.pop().unwrap();
    for manifest in &manifests {
        store.commit(manifest).unwrap();
    }
    let path = store.root().display().to_string();
    let hang = Hang::new(store.root(), FileOperation::Remove, "000000000010-g1");
    let mut commits = StoreTasks::default();
    commits.start(path.clone(), thirty, 1, Vec::new());
    assert_eq!(committed(&commits.next().await), Some(30));
    hang.met();
    let chunk = Some(ChunkName {
        rank: Rank(0),
        chunk: 0,
    });
    let found = async |commits: &mut StoreTasks| {
        commits.check(path.clone(), job(), id(30), chunk);
        match commits.next().await {
            Event::CheckpointChecked { finding, .. } => finding,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(found(&mut commits).await, CheckFinding::Intact);
    drop(hang);
    let turn = commits.turns.of(&path);
    drop(turn.wait().await);
    assert!(steps(&store).contains(&20), "20 is what a restore would go back to");

    let shard = store.shard_path(&job(), id(30), Rank(0)).unwrap();
    let mut bytes = fs::read(&shard).unwrap();
    bytes[7] ^= 1;
    fs::write(&shard, &bytes).unwrap();
    let CheckFinding::Damaged { what } = found(&mut commits).await else {
        panic!("a flipped bit is damage")
    };
    assert!(what.contains("rank 0, chunk 0, tensor w: digest is"), "{what}");
    fs::remove_file(&shard).unwrap();
    let lost = found(&mut commits).await;
    assert!(
        matches!(&lost, CheckFinding::Damaged { what } if what.contains("is missing")),
        "{lost:?}"
    );
    // The store directory is absent; an unmounted store looks alike.
    fs::rename(store.root(), store.root().with_extension("away")).unwrap();
    let away = found(&mut commits).await;
    assert!(matches!(&away, CheckFinding::Unavailable { .. }), "{away:?}");
}
