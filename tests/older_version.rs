//! State that an earlier version wrote is used on: the journal of its controller, the spool of its agent, its checkpoints and its
//! configuration. `fixtures/2026-11-23` was written by the program of that day with real processes:
//!
//! - `bug`: a job whose ranks exit with code 3;
//! - `train`: a job with checkpoints; one of its ranks was killed, and it was cancelled between two checkpoints;
//! - XID 79 on the idle node `n1`;
//! - `long`: a job on `n2` that ran when the controller and then both agents were killed;
//! - a FileNotFoundError in a job log of `n1` while no controller ran.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::cluster::{Cluster, LIMIT, text_of};
use crate::support::{command, copy_folder, finish, rankguard, until};
use rankguard_controller::journal;
use serde_json::Value;

/// Arguments of the training of `train`, except for the output directory.
const TRAINING: [&str; 3] = ["demo-rank", "--epochs=6", "--hidden=16"];
const PARAMETERS_FILE: &str = "parameters.bin";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/2026-11-23")
}

/// Starts a controller on the old journal.
fn restored() -> Cluster {
    let mut cluster = Cluster::folder();
    for part in ["controller", "agent", "store"] {
        copy_folder(&fixtures().join(part), &cluster.dir.path().join(part));
    }
    fs::copy(fixtures().join("test.toml"), cluster.config()).expect("copied");
    cluster.start_controller("127.0.0.1:0");
    cluster
}

fn job(cluster: &Cluster, name: &str) -> Value {
    let jobs = cluster.ask(&["status", "jobs", "--all", "--format", "json"]);
    let mut jobs = jobs.as_array().into_iter().flatten();
    jobs.find(|job| job["spec"]["id"] == name).cloned().unwrap_or_default()
}

#[test]
fn the_journal_of_an_older_controller_and_the_spool_of_its_agent_are_continued() {
    let mut cluster = restored();
    for name in ["bug", "train"] {
        assert_eq!(job(&cluster, name)["state"], "stopped", "{name}");
    }
    assert_ne!(job(&cluster, "long"), Value::Null);
    let cases = cluster.ask(&["cases", "--format", "json"]);
    // Newest first. That version revised the last case of `bug` by the lost GPU.
    let class_of = |name: &str| {
        let mut cases = cases.as_array().into_iter().flatten().rev();
        let case = cases.find(|case| case["job"] == name);
        case.map(|case| case["verdict"]["class"].clone()).unwrap_or_default()
    };
    assert_eq!(class_of("bug"), "rank-exit-unknown");
    assert_eq!(class_of("train"), "killed-by-signal");

    cluster.start_agent(&["--job-log", text_of(&cluster.dir.path().join("job.out"))]);
    let state = cluster.dir.path().join("controller");
    until("the evidence of the old spool", LIMIT, || {
        let mut is_delivered = false;
        let read = journal::evidence(&state, |one| {
            is_delivered |= one.is_ok_and(|one| format!("{:?}", one.body).contains("/data/late"));
            true
        });
        read.ok().filter(|_| is_delivered).map(drop)
    });
    let nodes = cluster.ask(&["status", "nodes", "--format", "json"]);
    let mut nodes = nodes.as_array().into_iter().flatten();
    let n1 = nodes.find(|node| node["node"] == "n1").expect("the node");
    assert_eq!(n1["state"], "cordoned", "its GPU was lost");
}

#[test]
fn a_job_continues_from_the_checkpoints_of_an_older_version_to_the_last_bit() {
    let mut cluster = restored();
    cluster.start_agent(&[]);
    let store = cluster.dir.path().join("store");
    let verified = rankguard(&["checkpoint", "verify", "--dir", text_of(&store)]).expect(0);
    let newest = rankguard(&["checkpoint", "ls", "--dir", text_of(&store), "--format", "json"]).expect(0);
    let newest: Value = serde_json::from_str(&newest.stdout).expect("JSON");
    let steps: Vec<u64> = newest
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["step"].as_u64())
        .collect();
    let newest = steps.iter().max().expect("checkpoints").to_string();
    assert!(verified.stdout.contains(&newest), "{}", verified.stdout);

    rankguard(&["node", "uncordon", "n1", "--controller", &cluster.address]).expect(0);
    let out = cluster.dir.path().join("out");
    let out_argument = format!("--out={}", text_of(&out));
    let submission = [
        "run",
        "--name",
        "train",
        "--controller",
        &cluster.address,
        "--nodes",
        "1",
        "--ranks-per-node",
        "2",
        "--checkpoint-dir",
        text_of(&store),
        "--checkpoint-every",
        "10",
        "--resume-from",
        "train",
        "--",
        env!("CARGO_BIN_EXE_rankguard"),
    ];
    let words = [&submission[..], &TRAINING, &[&out_argument]].concat();
    let ran = finish(command(&words).spawn().expect("the program starts"), LIMIT).expect(0);
    ran.says(&[&format!("resumes from train step {newest}")]);
    let resumed = fs::read(out.join(PARAMETERS_FILE)).expect("parameters");

    let undisturbed = cluster.dir.path().join("undisturbed");
    let out_argument = format!("--out={}", text_of(&undisturbed));
    rankguard(&[&TRAINING[..], &[&out_argument]].concat()).expect(0);
    assert!(resumed == fs::read(undisturbed.join(PARAMETERS_FILE)).expect("parameters"));
}

#[test]
fn the_configuration_of_an_older_version_is_accepted() {
    for name in ["rankguard.toml", "all-settings.toml"] {
        let file = fixtures().join(name);
        let checked = rankguard(&["--config", text_of(&file), "config", "show"]).expect(0);
        assert!(
            checked.stdout.contains("controller.policy.settle_ms"),
            "{}",
            checked.stdout
        );
    }
}
