//! Jobs that work are not ended, and void checkpoints are reported: with real processes.

use crate::support;
use std::fs;

use crate::support::nodes::{Cluster, LIMIT, path};
use crate::support::{finish, rankguard, until};

/// Deadlines that a job of half a minute exceeds several times.
const SETTINGS: &str = "\
[controller]
silence_limit_ms = 4_000
[controller.policy]
settle_ms = 300
first_step_ms = 6_000
stall_ms = 12_000
";

#[test]
fn a_job_that_prints_and_reports_no_steps_is_not_restarted() {
    let cluster = Cluster::start_configured(1, 1, SETTINGS);
    let store = cluster.folder("store");
    let words = ["run", "--detach", "--name", "stock", "--nodes", "1", "--controller"];
    let kept = ["--checkpoint-dir", path(&store), "--checkpoint-every", "10"];
    let script = "i=0; while [ $i -lt 60 ]; do echo epoch $i; sleep 0.5; i=$((i+1)); done";
    let program = ["--", "sh", "-c", script];
    rankguard(&[&words[..], &[&cluster.address], &kept, &program].concat()).expect(0);
    let seen = until("the job to work without steps", LIMIT, || {
        let job = cluster.job();
        (job["reason"] == "reports no steps").then_some(job)
    });
    assert!(seen["step"].is_null(), "{seen}");
    let ended = until("the job to end", LIMIT, || {
        let job = cluster.job();
        matches!(job["state"].as_str(), Some("finished" | "stopped")).then_some(job)
    });
    assert_eq!(ended["state"], "finished", "{ended}");
    assert_eq!(ended["generation"], 1, "{ended}");
    assert_eq!(cluster.ask(&["cases", "--format", "json"]), serde_json::json!([]));
}

#[test]
fn void_checkpoints_are_reported_by_run_and_status() {
    let cluster = Cluster::start_configured(1, 1, SETTINGS);
    let store = cluster.folder("store");
    let out = cluster.folder("out");
    let out = format!("--out={}", out.display());
    let words = ["run", "--name", "train", "--nodes", "1", "--controller"];
    let kept = ["--checkpoint-dir", path(&store), "--checkpoint-every", "5"];
    let program = ["--", env!("CARGO_BIN_EXE_rankguard"), "demo-rank", "--epochs=1000"];
    let network = ["--step-ms-min=40", "--hidden", "64,32", &out];
    let arguments = [&words[..], &[&cluster.address], &kept, &program, &network].concat();
    let run = support::command(&arguments).spawn().expect("the program starts");
    until("a commit", LIMIT, || {
        let job = cluster.job();
        (job["checkpoint_counts"]["committed"].as_u64()? > 0).then_some(())
    });
    // Nothing can be written there any more.
    fs::rename(store.join("train"), store.join("moved")).expect("moved");
    fs::write(store.join("train"), "a file").expect("written");
    let counts = until("void checkpoints", LIMIT, || {
        let counts = cluster.job()["checkpoint_counts"].clone();
        (counts["void"].as_u64()? > 1).then_some(counts)
    });
    assert!(!counts["reasons"].as_object().expect("reasons").is_empty(), "{counts}");
    cluster.cancel();
    let ran = finish(run, LIMIT);
    assert!(ran.stderr.contains("warning: the checkpoint of step"), "{}", ran.stderr);
}

#[test]
fn a_store_that_keeps_no_checkpoint_is_an_open_case_until_the_next_commit() {
    let cluster = Cluster::start_configured(1, 1, SETTINGS);
    let store = cluster.folder("store");
    let out = cluster.folder("out");
    let out = format!("--out={}", out.display());
    let words = ["run", "--detach", "--name", "train", "--nodes", "1", "--controller"];
    let kept = ["--checkpoint-dir", path(&store), "--checkpoint-every", "5"];
    let program = ["--", env!("CARGO_BIN_EXE_rankguard"), "demo-rank", "--epochs=1000"];
    let network = ["--step-ms-min=40", "--hidden", "64,32", &out];
    rankguard(&[&words[..], &[&cluster.address], &kept, &program, &network].concat()).expect(0);
    until("a commit", LIMIT, || {
        let job = cluster.job();
        (job["checkpoint_counts"]["committed"].as_u64()? > 0).then_some(())
    });
    let open = || cluster.ask(&["cases", "--open", "--format", "json"]);
    let case = || cluster.ask(&["cases", "--format", "json"])[0].clone();
    let fails = || {
        fs::rename(store.join("train"), store.join("moved")).expect("moved");
        fs::write(store.join("train"), "a file").expect("written");
        until("an open case", LIMIT, || {
            let case = open().as_array()?.first()?.clone();
            (case["state"] == "fault-present").then_some(case)
        })
    };
    let first = fails();
    assert!(first["closed_at"].is_null(), "{first:#}");
    let listed = rankguard(&["cases", "--open", "--controller", &cluster.address]).expect(0);
    assert!(listed.stdout.contains("fault present"), "{}", listed.stdout);
    listed.says(&["its fault is still present", "`rankguard cases close 1`"]);
    fs::remove_file(store.join("train")).expect("removed");
    fs::rename(store.join("moved"), store.join("train")).expect("moved back");
    let closed = until("the end of the case", LIMIT, || {
        let case = case();
        (case["state"] == "closed").then_some(case)
    });
    let outcome = closed["outcome"].as_str().unwrap_or_default();
    assert!(outcome.contains("was committed at"), "{outcome}");
    assert_eq!(open(), serde_json::json!([]));

    assert_eq!(fails()["id"], first["id"]);
    let closes = || rankguard(&["cases", "close", "1", "known", "--controller", &cluster.address]);
    closes().expect(0);
    assert_eq!(open(), serde_json::json!([]));
    let outcome = case()["outcome"].as_str().unwrap_or_default().to_owned();
    assert!(outcome.contains("closed the case: known at"), "{outcome}");
    closes().expect(2).says(&["case 1 is not in state `fault present`"]);
    cluster.cancel();
}
