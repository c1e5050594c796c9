//! `rankguard checkpoint push|pull|parity` through the binary.

use std::fs;
use std::path::Path;

use rankguard_checkpoint::source::ChunkSource;
use rankguard_checkpoint::verify::verify;
use rankguard_checkpoint::{Store, restore};
use rankguard_checkpoint_format::{CheckpointId, Dtype, Manifest, ShardIndex, TensorBox};
use rankguard_checkpoint_tiers::parity::ParitySource;
use rankguard_model::{Generation, JobId, Rank, Step};
use serde_json::Value;

use crate::support::rankguard;

fn id(step: u64) -> CheckpointId {
    CheckpointId {
        step: Step(step),
        generation: Generation(1),
    }
}

fn weight(rank: u64) -> TensorBox {
    TensorBox::rows("weight", Dtype::U8, vec![96, 64], rank * 32..(rank + 1) * 32)
}

fn image(step: u64, rank: u32) -> Vec<u8> {
    (0..2048u64)
        .map(|at| (at ^ step ^ u64::from(rank) << 4) as u8)
        .collect()
}

/// A store with committed checkpoints of three ranks at these steps.
fn store(dir: &Path, steps: &[u64]) -> Store {
    let store = Store::open(dir).expect("a store");
    let job = JobId::from("demo");
    for step in steps {
        let mut seals = Vec::new();
        for rank in 0..3 {
            let (tensors, end) = ShardIndex::lay_out([weight(u64::from(rank))]);
            let mut index = ShardIndex {
                rank: Rank(rank),
                world_size: 3,
                chunk_bytes: 1024,
                image_bytes: end.expect("a small image"),
                tensors,
                ..ShardIndex::new(&job, id(*step))
            };
            let image = image(*step, rank);
            index.digest_image(&image);
            seals.push(store.write_shard(&index, &image.as_slice()).expect("written").seal);
        }
        let manifest = Manifest::from_seals(&job, id(*step), None, &seals).expect("a manifest");
        store.commit(&manifest).expect("committed");
    }
    store
}

#[test]
fn checkpoints_go_to_a_url_and_come_back() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let from = dir.path().join("from");
    let to = dir.path().join("to");
    store(&from, &[10, 20, 30]);
    let url = format!("file://{}", dir.path().join("mirror").display());
    let from = from.display().to_string();
    let to_text = to.display().to_string();
    let push = ["checkpoint", "push", "--dir", &from, "--to", &url, "--format", "json"];
    let pushed = rankguard(&[&push[..], &["--step", "10", "--cap", "500"]].concat()).expect(0);
    let pushed: Vec<Value> = serde_json::from_str(&pushed.stdout).expect("JSON");
    assert_eq!((pushed.len(), pushed[0]["already"].as_bool()), (1, Some(false)));
    let again = rankguard(&[&push[..], &["--keep", "2"]].concat()).expect(0);
    let all: Vec<Value> = serde_json::from_str(&again.stdout).expect("JSON");
    let already: Vec<_> = all.iter().map(|one| one["already"].as_bool()).collect();
    assert_eq!(already, [Some(true), Some(false), Some(false)]);
    again.says(&["removed checkpoint 000000000010-g1"]);

    let pull = ["checkpoint", "pull", "--from", &url, "--dir", &to_text];
    let pulled = rankguard(&pull).expect(0);
    assert!(
        pulled.stdout.contains("000000000030-g1"),
        "the newest by default:\n{}",
        pulled.stdout
    );
    rankguard(&[&pull[..], &["--step", "20"]].concat()).expect(0);
    let report = verify(&Store::at(&to), &JobId::from("demo"), None).expect("readable");
    assert!(report.is_intact() && report.checkpoints.len() == 2, "{report:?}");
    rankguard(&[&pull[..], &["--step", "10"]].concat())
        .expect(2)
        .says(&["no checkpoint of step 10", "hint: "]);

    let shard = Path::new(&from).join("demo/000000000020-g1/rank-00001.shard");
    let mut bytes = fs::read(&shard).expect("a shard");
    bytes[1500] ^= 1;
    fs::write(&shard, bytes).expect("written");
    let elsewhere = format!("file://{}", dir.path().join("elsewhere").display());
    rankguard(&["checkpoint", "push", "--dir", &from, "--to", &elsewhere, "--step", "20"])
        .expect(2)
        .says(&["rank-00001.shard is damaged at byte 1024", "repair it first"]);
}

#[test]
fn places_that_are_none_are_usage_errors_and_secrets_stay_secret() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    store(dir.path(), &[10]);
    let path = dir.path().display().to_string();
    let refused = rankguard(&["checkpoint", "push", "--dir", &path, "--to", "s3://key:hidden@bucket/x"]).expect(64);
    assert!(!refused.stderr.contains("hidden"), "{}", refused.stderr);
    refused.says(&["environment"]);
    rankguard(&["checkpoint", "push", "--dir", &path, "--to", "ftp://host/x"])
        .expect(64)
        .says(&["ftp://host/x"]);
    rankguard(&[
        "checkpoint",
        "push",
        "--dir",
        &path,
        "--to",
        "file:///x",
        "--step",
        "11",
    ])
    .expect(2)
    .says(&["no checkpoint of step 11"]);
    rankguard(&["checkpoint", "push", "--dir", &path, "--to", "file:///x", "--cap", "0"]).expect(64);
}

#[test]
fn shards_under_parity_come_back() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let store = store(&dir.path().join("store"), &[10, 20]);
    let path = store.root().display().to_string();
    let job = JobId::from("demo");
    let protect = [
        "checkpoint",
        "parity",
        "--dir",
        &path,
        "--group-size",
        "3",
        "--parity",
        "2",
        "--format",
        "json",
    ];
    let done = rankguard(&protect).expect(0);
    let done: Vec<Value> = serde_json::from_str(&done.stdout).expect("JSON");
    assert_eq!((done.len(), done[0]["parity_bytes"].as_u64()), (2, Some(4096)));
    assert_eq!(
        store.jobs().expect("listed"),
        std::slice::from_ref(&job),
        "parity is no job"
    );
    let checkpoint = store.load(&job, id(20)).expect("it loads");
    for rank in [0, 2] {
        fs::remove_file(store.shard_path(&job, id(20), Rank(rank)).expect("a path")).expect("removed");
    }
    let root = store.root().join(".parity");
    let (parity, problems) = ParitySource::open(&store, &checkpoint, &root).expect("there");
    assert!(problems.is_empty(), "{problems:?}");
    let sources: [&dyn ChunkSource; 2] = [&store, &parity];
    let wanted: Vec<TensorBox> = (0..3).map(weight).collect();
    let mut out = vec![0; 3 * 2048];
    let restored = restore::assemble(&checkpoint.manifest, &checkpoint.indexes, &wanted, &sources, &mut out);
    assert_eq!(restored.expect("two of five are lost").repairs.len(), 4);
    assert!(out == [image(20, 0), image(20, 1), image(20, 2)].concat());

    // The same damage, and an index that is lost, are repaired from parity alone.
    let index = store.index_path(&job, id(20), Rank(2)).expect("a path");
    let before = fs::read(&index).expect("it is there");
    fs::remove_file(&index).expect("removed");
    rankguard(&["checkpoint", "verify", "--dir", &path]).expect(1);
    let repair = ["checkpoint", "repair", "--dir", &path, "--format", "json"];
    let done = rankguard(&repair).expect(0);
    let done: Vec<Value> = serde_json::from_str(&done.stdout).expect("JSON");
    assert!(done.iter().all(|line| line["state"] == "repaired"), "{done:#?}");
    let from = done[0]["from"].as_str().unwrap_or_default();
    assert!(from.starts_with("parity in "), "{from}");
    assert_eq!(fs::read(&index).expect("it is back"), before);
    rankguard(&["checkpoint", "verify", "--dir", &path]).expect(0);
    // Flipped bits of one shard and the loss of two others are more than two parities restore.
    let shard = |rank| store.shard_path(&job, id(20), Rank(rank)).expect("a path");
    let flip = |rank| {
        let mut bytes = fs::read(shard(rank)).expect("it is there");
        bytes[100] ^= 16;
        fs::write(shard(rank), bytes).expect("written");
    };
    flip(1);
    let done = rankguard(&repair).expect(0);
    assert!(done.stdout.contains("parity in "), "{}", done.stdout);
    rankguard(&["checkpoint", "verify", "--dir", &path]).expect(0);
    for rank in [0, 2] {
        fs::remove_file(shard(rank)).expect("removed");
    }
    flip(1);
    let left = rankguard(&repair).expect(1);
    assert!(left.stdout.contains("damaged"), "{}", left.stdout);
    let elsewhere = dir.path().join("nowhere").display().to_string();
    rankguard(&["checkpoint", "repair", "--dir", &path, "--parity", &elsewhere])
        .expect(2)
        .says(&["checkpoint parity --to"]);

    store.remove(&job, id(10)).expect("removed");
    rankguard(&["checkpoint", "parity", "--dir", &path, "--step", "10"]).expect(2);
    rankguard(&[
        "checkpoint",
        "parity",
        "--dir",
        &path,
        "--step",
        "20",
        "--group-size",
        "2",
    ])
    .expect(2)
    .says(&["use another --to for groups of another size"]);
}
