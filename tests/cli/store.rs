//! What people ask of a store of checkpoints.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rankguard_checkpoint::Store;
use rankguard_checkpoint_format::{AttemptRecord, CheckpointId, Dtype, Manifest, ShardIndex, TensorBox};
use rankguard_model::{Generation, JobId, Rank, RunId, RunStart, Step, Timestamp};
use serde_json::Value;

use crate::support::{command, finish, rankguard};

/// A store with two checkpoints of two ranks, and a third that was never committed.
fn store(dir: &Path) -> Store {
    let store = Store::open(dir).expect("a store");
    for step in [10, 20, 30] {
        let id = CheckpointId {
            step: Step(step),
            generation: Generation(1),
        };
        let seals: Vec<_> = (0..2).map(|rank| shard(&store, id, rank)).collect();
        if step < 30 {
            let manifest = Manifest::from_seals(&JobId::from("demo"), id, None, &seals).expect("a manifest");
            store.commit(&manifest).expect("committed");
        }
    }
    store
}

fn shard(store: &Store, id: CheckpointId, rank: u32) -> rankguard_model::ShardSeal {
    let boxes = [
        TensorBox::rows(
            "weight",
            Dtype::U8,
            vec![64, 64],
            u64::from(rank) * 32..u64::from(rank + 1) * 32,
        ),
        TensorBox::whole("bias", Dtype::U8, vec![100]),
    ];
    let (tensors, end) = ShardIndex::lay_out(boxes);
    let bytes = end.expect("a small image");
    let image: Vec<u8> = (0..bytes).map(|at| (at ^ id.step.0) as u8).collect();
    let mut index = ShardIndex {
        rank: Rank(rank),
        world_size: 2,
        chunk_bytes: 1024,
        image_bytes: bytes,
        tensors,
        ..ShardIndex::new(&JobId::from("demo"), id)
    };
    index.digest_image(&image);
    store.write_shard(&index, &image.as_slice()).expect("written").seal
}

#[test]
fn a_store_lists_what_is_committed_and_what_is_torn() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    store(dir.path());
    let path = dir.path().display().to_string();
    let listed = rankguard(&["checkpoint", "ls", "--dir", &path, "--format", "json"]).expect(0);
    let listed: Vec<Value> = serde_json::from_str(&listed.stdout).expect("JSON");
    let states: Vec<_> = listed
        .iter()
        .map(|line| (line["step"].as_u64(), line["state"].as_str()))
        .collect();
    let wanted = [
        (Some(10), Some("committed")),
        (Some(20), Some("committed")),
        (Some(30), Some("torn")),
    ];
    assert_eq!(states, wanted);
    let folder = dir.path().join("demo").join("000000000010-g1");
    let files = fs::read_dir(&folder).expect("the folder of step 10");
    let sizes = files.map(|file| file.and_then(|file| file.metadata()).expect("a file").len());
    let files: u64 = sizes.sum();
    assert!(files > 2 * (32 * 64 + 100), "images, indexes and manifest: {files}");
    assert_eq!(listed[0]["bytes"], files);
    let csv = rankguard(&["checkpoint", "ls", "--dir", &path, "--format", "csv"])
        .expect(0)
        .stdout;
    assert_eq!(csv.lines().count(), 4, "{csv}");
    let job = dir.path().join("demo").display().to_string();
    rankguard(&["checkpoint", "ls", "--dir", &job])
        .expect(64)
        .says(&["is the folder of a job", "--job demo"]);
    rankguard(&["checkpoint", "verify", "--dir", &path])
        .expect(0)
        .says(&["2 intact, 0 problems"]);
    let torn = rankguard(&["checkpoint", "explain", "30", "--dir", &path]).expect(1);
    assert!(
        torn.stdout.contains("cannot be used") && torn.stdout.contains("no manifest"),
        "{}",
        torn.stdout
    );
}

/// The run of [`rolled_back`].
const RUN: &str = "0123456789abcdef0123456789abcdef";

/// A store whose run was rolled back from step 20 to step 10 by an attempt of generation 4.
fn rolled_back(dir: &Path) {
    let store = Store::open(dir).expect("a store");
    let (job, run) = (JobId::from("demo"), RunId::from(RUN));
    let first = CheckpointId {
        step: Step(10),
        generation: Generation(2),
    };
    let second = CheckpointId {
        step: Step(20),
        ..first
    };
    let attempt = |first: u64, start| AttemptRecord {
        run: run.clone(),
        job: job.clone(),
        first: Generation(first),
        claim: RunId::from("f".repeat(32)),
        start,
        created: Timestamp(1),
    };
    let start = RunStart {
        job: job.clone(),
        store: None,
        run: Some(run.clone()),
        step: first.step,
        generation: first.generation,
    };
    for id in [first, second] {
        let seals: Vec<_> = (0..2).map(|rank| shard(&store, id, rank)).collect();
        let mut manifest = Manifest::from_seals(&job, id, None, &seals).expect("a manifest");
        manifest.run = Some(run.clone());
        store.commit(&manifest).expect("committed");
    }
    for record in [attempt(1, None), attempt(4, Some(start))] {
        assert!(store.put_attempt(&record).expect("written"));
    }
}

#[test]
fn show_gives_run_attempt_and_state_as_ls_does() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    rolled_back(dir.path());
    let path = dir.path().display().to_string();
    let listed = rankguard(&["checkpoint", "ls", "--dir", &path, "--format", "json"]).expect(0);
    let listed: Vec<Value> = serde_json::from_str(&listed.stdout).expect("JSON");
    for (step, state, superseded_by) in [("10", "committed", None), ("20", "superseded", Some(4))] {
        let words = ["checkpoint", "show", step, "--dir", &path];
        let shown = rankguard(&[&words[..], &["--format", "json"]].concat()).expect(0);
        let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
        let of_step = |folder: &&Value| folder["step"].as_u64() == step.parse().ok();
        let of_ls = listed.iter().find(of_step).expect("ls has it");
        assert_eq!((&shown["run"], &shown["state"]), (&of_ls["run"], &of_ls["state"]));
        assert_eq!((&shown["run"], &shown["state"]), (&RUN.into(), &state.into()));
        assert_eq!(shown["attempt"], 1, "generation 2 is of the first attempt");
        assert_eq!(shown["superseded_by"].as_u64(), superseded_by);
        let line = format!("run {RUN}, attempt that began at generation 1; {state}");
        rankguard(&words).expect(0).says(&[&line]);
        let explained = rankguard(&["checkpoint", "explain", step, "--dir", &path]).expect(0);
        let is_named = explained
            .stdout
            .contains("it is superseded by the attempt that began at generation 4");
        assert_eq!(is_named, superseded_by.is_some(), "{}", explained.stdout);
        assert!(of_ls["bytes"].as_u64() > Some(0), "the size of the files: {of_ls}");
    }
    // A folder from before runs.
    let old = tempfile::tempdir().expect("a temporary folder");
    store(old.path());
    let path = old.path().display().to_string();
    rankguard(&["checkpoint", "show", "10", "--dir", &path])
        .expect(0)
        .says(&["no run; committed"]);
}

/// RG-2: whoever looks hears where the damage is.
#[test]
fn one_flipped_bit_is_found_and_its_place_is_named() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let store = store(dir.path());
    let id = CheckpointId {
        step: Step(20),
        generation: Generation(1),
    };
    let image = store.shard_path(&JobId::from("demo"), id, Rank(1)).expect("a path");
    let mut bytes = fs::read(&image).expect("read");
    bytes[1500] ^= 0x10;
    fs::write(&image, bytes).expect("written");
    let path = dir.path().display().to_string();

    let found = rankguard(&["checkpoint", "verify", "--dir", &path, "--format", "json"]).expect(1);
    let found: Vec<Value> = serde_json::from_str(&found.stdout).expect("JSON");
    let damage = found
        .iter()
        .find(|line| line["state"] == "damage")
        .expect("the damage is told");
    assert_eq!(damage["file"].as_str(), image.to_str());
    assert_eq!((damage["rank"].as_u64(), damage["chunk"].as_u64()), (Some(1), Some(1)));
    assert_eq!(damage["tensors"], serde_json::json!(["weight"]));

    rankguard(&["checkpoint", "verify", "--dir", &path, "--step", "10"]).expect(0);
    let why = rankguard(&["checkpoint", "explain", "20", "--dir", &path])
        .expect(1)
        .stdout;
    assert!(
        why.contains("cannot be used") && why.contains("rank 1, chunk 1, tensor weight"),
        "{why}"
    );
    assert!(!why.contains("checkpoint repair"), "{why}");
    fs::create_dir_all(dir.path().join(".parity/demo/000000000020-g1")).expect("made");
    let why = rankguard(&["checkpoint", "explain", "20", "--dir", &path])
        .expect(1)
        .stdout;
    let repair = format!("it has parity: `rankguard checkpoint repair --step 20 --job demo --dir {path}` rebuilds");
    assert!(why.contains(&repair), "{why}");
    let why = rankguard(&["checkpoint", "explain", "10", "--dir", &path])
        .expect(0)
        .stdout;
    assert!(why.contains("can be used"), "{why}");
}

/// Every reason that `checkpoint explain` gives, from a store with that fault.
#[test]
fn explain_gives_the_reason_why_a_checkpoint_can_or_cannot_be_used() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let store = store(dir.path());
    let path = dir.path().display().to_string();
    let folder = |step: u64| dir.path().join("demo").join(format!("{step:012}-g1"));
    let explain = |step: &str, code: i32| rankguard(&["checkpoint", "explain", step, "--dir", &path]).expect(code);
    let says = |ran: crate::support::Ran, parts: &[&str]| {
        for part in parts {
            assert!(ran.stdout.contains(part), "{part:?} is not in:\n{}", ran.stdout);
        }
    };
    says(
        explain("20", 0),
        &["can be used", "its manifest lists every shard (2 shards)"],
    );
    says(
        explain("30", 1),
        &[
            "cannot be used",
            "it was not committed (a save ended early, or is still being written), or its manifest was removed or lost",
            "2 shards and 2 indexes in",
            "if the job has ended, `rankguard checkpoint gc --torn --dry-run --job=demo --dir ",
            "` lists it, with all that the same command without --dry-run removes",
        ],
    );
    // Of one rank only, with singular nouns.
    for name in ["rank-00001.shard", "rank-00001.index"] {
        fs::remove_file(folder(30).join(name)).expect("removed");
    }
    says(explain("30", 1), &["1 shard and 1 index in"]);
    fs::remove_file(folder(10).join("MANIFEST")).expect("it is committed");
    let ran = explain("10", 1);
    assert!(!ran.stdout.contains("never committed"), "{}", ran.stdout);
    says(
        ran,
        &[
            "its manifest was removed or lost",
            "a newer checkpoint is committed, so the next collection may remove this folder",
        ],
    );
    let shard = folder(20).join("rank-00001.shard");
    let bytes = fs::read(&shard).expect("a shard");
    fs::write(&shard, &bytes[..100]).expect("cut off");
    says(explain("20", 1), &["cannot be used", "rank-00001.shard"]);
    fs::remove_file(&shard).expect("removed");
    says(explain("20", 1), &["cannot be used", "rank-00001.shard"]);
    fs::write(&shard, bytes).expect("written");
    fs::write(folder(20).join("rank-00000.index"), "x").expect("written");
    says(explain("20", 1), &["cannot be used", "rank-00000.index"]);
    explain("77", 2).says(&["no checkpoint of step 77"]);
    drop(store);
}

/// Wrong bytes are seen only by reading: a collection must not leave them as the only checkpoint.
#[test]
fn gc_reads_what_it_retains_before_it_removes_anything() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    store(dir.path());
    let path = dir.path().display().to_string();
    let gc = ["checkpoint", "gc", "--dir", &path, "--keep", "1"];
    let dry = [&gc[..], &["--dry-run"]].concat();
    rankguard(&dry).expect(0).says(&[
        "1 of 3 would be removed",
        "every byte of the newest checkpoint to retain was read and is as committed",
    ]);
    let shard = dir.path().join("demo/000000000020-g1/rank-00001.shard");
    let mut bytes = fs::read(&shard).expect("a shard");
    bytes[1500] ^= 1;
    fs::write(&shard, bytes).expect("written");
    let ran = rankguard(&gc).expect(1).says(&["removed 0 of ", "rank 1, chunk 1"]);
    for reason in [
        "one of the newest that are intact",
        "one of the newest, damaged and left for inspection",
    ] {
        assert!(ran.stdout.contains(reason), "{reason:?} is not in:\n{}", ran.stdout);
    }
    rankguard(&["checkpoint", "verify", "--dir", &path, "--step", "10"])
        .expect(0)
        .says(&["1 intact, 0 problems"]);
}

/// A mistyped prefix of an object store looks like one that nobody wrote to.
#[test]
fn where_no_checkpoint_lies_nothing_was_verified() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().display().to_string();
    for place in [format!("file://{path}/nowhere"), path] {
        rankguard(&["checkpoint", "verify", "--dir", &place])
            .expect(1)
            .says(&["no checkpoints to verify"]);
    }
}

#[test]
fn a_store_that_cannot_be_read_is_a_failure_with_its_name() {
    rankguard(&["checkpoint", "ls", "--dir", "/does/not/exist"])
        .expect(2)
        .says(&["/does/not/exist"]);
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let path = file.path().display().to_string();
    rankguard(&["checkpoint", "verify", "--dir", &path])
        .expect(2)
        .says(&[&path]);
    let dir = tempfile::tempdir().expect("a temporary folder");
    store(dir.path());
    let path = dir.path().display().to_string();
    rankguard(&["checkpoint", "ls", "--dir", &path, "--job", "other"])
        .expect(2)
        .says(&["jobs in the store: demo"]);
    rankguard(&["checkpoint", "explain", "11", "--dir", &path])
        .expect(2)
        .says(&["no checkpoint of step 11"]);
}

/// RG-2: scrub names what is damaged, repair takes a good copy from another store, and then there is nothing to name.
#[test]
fn a_damaged_store_is_scrubbed_and_repaired_from_another() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a temporary folder"));
    let [damaged, whole] = &dirs;
    let paths = dirs.each_ref().map(|dir| dir.path().display().to_string());
    let [path, other] = [paths[0].as_str(), paths[1].as_str()];
    store(whole.path());
    let id = CheckpointId {
        step: Step(20),
        generation: Generation(1),
    };
    let image = store(damaged.path())
        .shard_path(&JobId::from("demo"), id, Rank(1))
        .expect("a path");
    let mut bytes = fs::read(&image).expect("read");
    bytes[1500] ^= 0x10;
    fs::write(&image, bytes).expect("written");

    let scrub = ["checkpoint", "scrub", "--dir", path, "--rate", "0"];
    rankguard(&scrub).expect(1).says(&["1 intact, 1 problem", "repair"]);
    let repair = [
        "checkpoint",
        "repair",
        "--dir",
        path,
        "--from",
        other,
        "--format",
        "json",
    ];
    let ran = rankguard(&repair).expect(0);
    let done: Vec<Value> = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(done.len(), 1, "{}", ran.stdout);
    assert_eq!(
        (done[0]["state"].as_str(), done[0]["rank"].as_u64()),
        (Some("repaired"), Some(1))
    );
    assert_eq!(done[0]["file"].as_str(), image.to_str());
    rankguard(&scrub).expect(0).says(&["2 intact, 0 problems"]);

    let alone = ["checkpoint", "repair", "--dir", path, "--from", "/does/not/exist"];
    rankguard(&alone).expect(2).says(&["/does/not/exist"]);
}

/// RG-1, RG-2: both matrices, every kind of damage, every phase of a save and every fault of a disk, whole and through windows.
#[test]
fn torture_of_ten_cases_each_finds_nothing_silent_lost_or_wrong() {
    let args = ["checkpoint", "torture", "--cases", "10", "--format", "json"];
    let ran = finish(
        command(&args).spawn().expect("the program starts"),
        Duration::from_secs(600),
    )
    .expect(0);
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let corruption = &report["corruption"];
    let crash = &report["crash"];
    let count = |of: &Value, field: &str| of[field].as_u64();
    for row in corruption["rows"].as_array().expect("rows") {
        let counts = ["cases", "refused", "repaired", "silent"].map(|field| count(row, field));
        assert_eq!(counts, [Some(10), Some(10), Some(10), Some(0)], "{row}");
    }
    assert_eq!(
        (count(corruption, "cases"), count(corruption, "silent")),
        (Some(100), Some(0))
    );
    let disturbed = crash["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|row| count(row, "in_phase"));
    assert!(
        disturbed.clone().count() == 24 && disturbed.sum::<u64>() >= 24,
        "{crash}"
    );
    for field in ["lost_commits", "wrong_bytes", "stuck"] {
        assert_eq!(count(crash, field), Some(0), "{crash}");
    }
    assert!(
        count(crash, "intervals_lost_max") <= Some(1) && count(crash, "cases") >= Some(40),
        "{crash}"
    );
}

/// Runs the `rankguard` command that a message quotes in backquotes.
fn run_hint(message: &str) -> crate::support::Ran {
    let quoted = message
        .split('`')
        .nth(1)
        .unwrap_or_else(|| panic!("no command in {message}"));
    let words: Vec<&str> = quoted.split_whitespace().collect();
    assert_eq!(words[0], "rankguard", "{message}");
    rankguard(&words[1..])
}

#[test]
fn a_missing_step_is_named_alone_and_hints_are_commands() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let store = store(dir.path());
    let path = dir.path().display().to_string();
    let missing = rankguard(&["checkpoint", "diff", "10", "999", "--dir", &path])
        .expect(2)
        .says(&["no committed checkpoint of step 999 in"]);
    assert!(!missing.stderr.contains("step 10"), "{}", missing.stderr);
    run_hint(&missing.stderr).expect(0);
    rankguard(&["checkpoint", "diff", "998", "999", "--dir", &path])
        .expect(2)
        .says(&["no committed checkpoint of step 998 or 999 in"]);
    let id = CheckpointId {
        step: Step(10),
        generation: Generation(1),
    };
    let folder = store.dir(&JobId::from("demo"), id).expect("a folder");
    let shards = fs::read_dir(&folder).expect("a folder").flatten();
    for file in shards.filter(|file| file.file_name() != "manifest.json") {
        fs::write(file.path(), b"damaged").expect("written");
    }
    let damaged = rankguard(&["checkpoint", "show", "10", "--dir", &path]).expect(2);
    let explained = run_hint(&damaged.stderr).expect(1);
    assert!(explained.stdout.contains("cannot be used"), "{}", explained.stdout);
}
