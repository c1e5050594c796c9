//! Commits into stores on disk.

use std::collections::BTreeMap;
use std::path::Path;

use rankguard_checkpoint::format::{Digest, Dtype, ManifestShard, ShardIndex, TensorBox};
use rankguard_model::{
    CheckpointPolicy, CheckpointTiers, JobSpec, NodeRange, Rank, ResumePlace, ResumeSource, RetentionPolicy,
};

use super::*;
use crate::claims;

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

/// Writes the shards of three ranks that hold one tensor of four chunks, of which the bytes are given for each rank.
fn three_ranks(store: &Store, step: u64, parent: Option<CheckpointId>, images: &[[u8; 4]; 3]) -> Manifest {
    three_ranks_with(store, step, parent, images, serde_json::Value::Null)
}

/// The same, with a state of each rank.
fn three_ranks_with(
    store: &Store,
    step: u64,
    parent: Option<CheckpointId>,
    images: &[[u8; 4]; 3],
    state: serde_json::Value,
) -> Manifest {
    const CHUNK: u32 = 4096;
    let job = JobId::from("digits");
    let id = CheckpointId {
        step: Step(step),
        generation: Generation(1),
    };
    let bytes = u64::from(CHUNK) * 4;
    let seals: Vec<_> = images
        .iter()
        .enumerate()
        .map(|(rank, chunks)| {
            let image: Vec<u8> = chunks.iter().flat_map(|byte| vec![*byte; CHUNK as usize]).collect();
            let (tensors, _) = ShardIndex::lay_out([TensorBox::whole("decoder.weight", Dtype::U8, vec![bytes])]);
            let mut index = ShardIndex {
                rank: Rank(rank as u32),
                world_size: 3,
                chunk_bytes: CHUNK,
                image_bytes: bytes,
                tensors,
                state: state.clone(),
                ..ShardIndex::new(&job, id)
            };
            index.digest_image(&image);
            store.write_shard(&index, &image.as_slice()).expect("room").seal
        })
        .collect();
    Manifest::from_seals(&job, id, parent, &seals).expect("whole")
}

const EQUAL: [[u8; 4]; 3] = [[7, 7, 7, 7], [7, 7, 7, 7], [7, 7, 7, 7]];
const ONE_WRONG: [[u8; 4]; 3] = [[7, 7, 7, 7], [7, 7, 7, 7], [7, 7, 8, 7]];

/// RG-1: a checkpoint with a wrong result is none, for every reader of its store, and the older ones remain.
#[tokio::test]
async fn rg_1_replicas_that_were_equal_and_differ_are_not_committed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(dir.path()).expect("a store");
    let path = dir.path().display().to_string();
    let job = JobId::from("digits");
    let mut commits = StoreTasks::default();
    let first = three_ranks(&store, 10, None, &EQUAL);
    let id = first.id();
    commits.start(path.clone(), first, 1, Vec::new());
    assert!(
        matches!(commits.next().await, Event::ManifestCommitted { differing, per_rank, .. }
        if differing.is_empty() && per_rank.is_empty())
    );
    commits.start(
        path.clone(),
        three_ranks(&store, 20, Some(id), &ONE_WRONG),
        1,
        Vec::new(),
    );
    let Event::ManifestRefused { differing, reason, .. } = commits.next().await else {
        panic!("committed")
    };
    assert_eq!(
        (differing[0].tensor.as_str(), differing[0].suspects()),
        ("decoder.weight", vec![Rank(2)])
    );
    assert!(reason.contains("tensor decoder.weight of rank 2"), "{reason}");
    assert_eq!(
        store.committed_ids(&job).expect("a listing"),
        [id],
        "retention counts usable ones"
    );
    // The first checkpoint of a run is judged by the same rule.
    let other = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(other.path()).expect("a store");
    let path = other.path().display().to_string();
    commits.start(path, three_ranks(&store, 10, None, &ONE_WRONG), 1, Vec::new());
    assert!(matches!(commits.next().await, Event::ManifestRefused { .. }));
}

/// Each rank drew its own start: every checkpoint is usable by the same number of ranks, and none shows a wrong result.
#[tokio::test]
async fn tensors_with_other_values_on_each_rank_are_committed_and_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(dir.path()).expect("a store");
    let path = dir.path().display().to_string();
    let mut commits = StoreTasks::default();
    let mut parent = None;
    for step in [10, 20] {
        let low = step as u8;
        let images = [[low; 4], [low + 1; 4], [low + 2; 4]];
        let manifest = three_ranks(&store, step, parent, &images);
        parent = Some(manifest.id());
        commits.start(path.clone(), manifest, 2, Vec::new());
        let event = commits.next().await;
        assert!(
            matches!(&event, Event::ManifestCommitted { differing, per_rank, .. }
                if differing.is_empty() && *per_rank == ["decoder.weight"]),
            "{event:?}"
        );
    }
}

/// Ranks write into their state which tensors their restore takes from the first rank; another number of ranks refuses
/// the others.
#[tokio::test]
async fn tensors_that_only_as_many_ranks_restore_are_named() {
    let permitted =
        |names: &[&str]| serde_json::json!({"schema": "rankguard.python/1", "state": {}, "replicate": names});
    let own = [[1; 4], [2; 4], [3; 4]];
    let cases = [
        (own, permitted(&[]), vec!["decoder.weight"]),
        (own, permitted(&["encoder.weight"]), vec!["decoder.weight"]),
        (own, permitted(&["decoder.weight"]), vec![]),
        (own, permitted(&["*"]), vec![]),
        // Another writer, or an earlier version: unknown.
        (own, serde_json::Value::Null, vec![]),
        (EQUAL, permitted(&[]), vec![]),
    ];
    for (images, state, wanted) in cases {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let store = Store::open(dir.path()).expect("a store");
        let mut commits = StoreTasks::default();
        let manifest = three_ranks_with(&store, 10, None, &images, state.clone());
        commits.start(dir.path().display().to_string(), manifest, 2, Vec::new());
        let Event::ManifestCommitted { same_size, .. } = commits.next().await else {
            panic!("refused")
        };
        assert_eq!(same_size, wanted, "{state}");
        // A journal that lacks the commit, and a job that resumes from it, learn the same from the store.
        let listed = find(FolderListing {
            store: dir.path().display().to_string(),
            job: JobId::from("digits"),
            generation: Generation(2),
            of: Generation(1),
            after: None,
            now: Timestamp(0),
        });
        let Event::ShardsFound { same_size, .. } = listed.await else {
            panic!("not listed")
        };
        let found = same_size.into_iter().flat_map(|checkpoint| checkpoint.tensors);
        assert_eq!(found.collect::<Vec<_>>(), wanted, "{state}");
        let claimed = claims::claim_store(&resumed_from_digits(dir.path()), Generation(0)).await;
        assert_eq!(claimed.expect("a checkpoint").claim.same_size, wanted, "{state}");
    }
}

/// Specification of another job that starts from the newest checkpoint.
fn resumed_from_digits(store: &Path) -> JobSpec {
    JobSpec {
        id: JobId::from("fork"),
        command: vec!["train".to_owned()],
        env: BTreeMap::new(),
        workdir: None,
        nodes: NodeRange { min: 1, max: 3 },
        ranks_per_node: 1,
        checkpoint: Some(CheckpointPolicy {
            every_steps: 10,
            store: store.display().to_string(),
            keep: 1,
            retention: RetentionPolicy::default(),
            tiers: CheckpointTiers::default(),
        }),
        max_restarts: 0,
        user: None,
        resume_from: Some(ResumeSource {
            place: ResumePlace::Job(JobId::from("digits")),
            step: None,
        }),
        standby: None,
    }
}

#[tokio::test]
async fn pinned_checkpoints_stay() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(dir.path()).expect("a store");
    let path = dir.path().display().to_string();
    let mut commits = StoreTasks::default();
    let first = three_ranks(&store, 10, None, &EQUAL);
    let pinned = vec![first.id()];
    let second = three_ranks(&store, 20, Some(first.id()), &EQUAL);
    commits.start(path.clone(), first, 1, Vec::new());
    commits.next().await;
    commits.start(path, second, 1, pinned.clone());
    commits.next().await;
    assert!(
        store.load(&JobId::from("digits"), pinned[0]).is_ok(),
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
