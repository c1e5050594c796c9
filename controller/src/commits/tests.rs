//! Commits into stores on disk.

use rankguard_checkpoint::format::{Digest, Dtype, ManifestShard, TensorBox};
use rankguard_model::Rank;

use super::*;

mod slow;

fn manifest() -> Manifest {
    Manifest {
        job: JobId::from("digits"),
        step: Step(20),
        generation: Generation(2),
        run: None,
        world_size: 1,
        parent: None,
        ledger: None,
        shards: vec![ManifestShard {
            rank: Rank(0),
            index: Digest::of(b"an index that nobody wrote"),
            bytes: 8,
            schema: String::new(),
        }],
    }
}

#[tokio::test]
async fn rg_1_a_manifest_that_names_a_missing_shard_is_refused_with_the_file() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut commits = StoreTasks::default();
    commits.start(dir.path().display().to_string(), manifest(), 2, Vec::new());
    let Event::ManifestRefused { job, step, reason, .. } = commits.next().await else {
        panic!("committed")
    };
    assert_eq!((job, step), (JobId::from("digits"), Step(20)));
    assert!(reason.contains("rank-00000.index is missing"), "{reason}");
}

/// Three ranks hold the same box; one byte of the last rank's copy differs.
#[tokio::test]
async fn replicas_that_differ_are_named_with_the_commit_and_pinned_checkpoints_stay() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(dir.path()).expect("a store");
    let job = JobId::from("digits");
    let mut commits = StoreTasks::default();
    let manifest_of = |step: u64, wrong: u8| {
        let id = CheckpointId {
            step: Step(step),
            generation: Generation(1),
        };
        let seals: Vec<_> = (0..3_u32)
            .map(|rank| {
                let image = [if rank == 2 { wrong } else { 7 }; 64];
                let (tensors, _) = ShardIndex::lay_out([TensorBox::whole("decoder.weight", Dtype::U8, vec![64])]);
                let mut index = ShardIndex {
                    rank: Rank(rank),
                    world_size: 3,
                    image_bytes: 64,
                    tensors,
                    ..ShardIndex::new(&job, id)
                };
                index.digest_image(&image);
                store.write_shard(&index, &image.as_slice()).expect("room").seal
            })
            .collect();
        Manifest::from_seals(&job, id, None, &seals).expect("whole")
    };
    let first = manifest_of(10, 7);
    let pinned = vec![first.id()];
    commits.start(dir.path().display().to_string(), first, 1, Vec::new());
    let Event::ManifestCommitted { differing, .. } = commits.next().await else {
        panic!("refused")
    };
    assert_eq!(differing, []);
    commits.start(dir.path().display().to_string(), manifest_of(20, 8), 1, pinned.clone());
    let Event::ManifestCommitted { differing, .. } = commits.next().await else {
        panic!("refused")
    };
    assert_eq!(differing.len(), 1);
    assert_eq!(
        (differing[0].tensor.as_str(), differing[0].suspects()),
        ("decoder.weight", vec![Rank(2)])
    );
    assert!(
        store.load(&job, pinned[0]).is_ok(),
        "only the newest is kept, but this one is pinned"
    );
}

#[tokio::test]
async fn a_store_that_cannot_be_made_is_a_refusal_and_no_panic() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut commits = StoreTasks::default();
    commits.start(
        file.path().join("store").display().to_string(),
        manifest(),
        2,
        Vec::new(),
    );
    assert!(matches!(commits.next().await, Event::ManifestRefused { .. }));
}

/// A void attempt, and one of a generation that ended, are newer than every commit, and would stay for good.
#[tokio::test]
async fn attempts_that_are_never_committed_are_removed_and_others_stay() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let folder = |name: &str| dir.path().join("digits").join(name);
    let (ended, void, open) = ("000000000090-g1", "000000000080-g2", "000000000085-g2");
    for name in [ended, void, open] {
        std::fs::create_dir_all(folder(name)).expect("a folder");
        std::fs::write(folder(name).join("rank-00000.shard"), [7; 64]).expect("a shard");
    }
    let mut checkpoints = rankguard_core::JobCheckpoints::default();
    checkpoints.launched(Generation(2));
    checkpoints.failed(Generation(2), Step(80), "no space");
    let mut commits = StoreTasks::default();
    let store = dir.path().display().to_string();
    commits.remove_dead(store.clone(), JobId::from("digits"), checkpoints.dead_attempts());
    commits.remove_dead(store, JobId::from("digits"), checkpoints.dead_attempts());
    let removed = async {
        while folder(ended).exists() || folder(void).exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        event = commits.next() => panic!("a removal is no event: {event:?}"),
        result = timeout(Duration::from_secs(60), removed) => result.expect("they are removed"),
    }
    assert!(folder(open).join("rank-00000.shard").exists());
}
