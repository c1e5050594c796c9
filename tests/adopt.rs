//! A node is gone before anybody heard of what it had sealed: the checkpoint is committed before the others start anew.

#![allow(clippy::print_stderr, reason = "a test that cannot run says so loudly")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::nodes::{Cluster, LIMIT, newest, path};
use crate::support::{Daemon, rankguard, until};

/// Steps after the last commit that all ranks have sealed, at least, when the node goes.
const FURTHER: u64 = 60;

fn folder(store: &Path, step: u64) -> PathBuf {
    store.join("train").join(format!("{step:012}-g1"))
}

/// Folders without a manifest.
fn uncommitted(store: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(store.join("train")).expect("the job's folder").flatten();
    let folders = folders.map(|folder| folder.path());
    folders.filter(|folder| !folder.join("MANIFEST").exists()).collect()
}

/// Nobody is there to commit what the ranks seal, and then the last node goes, too. Gives the store and a step that all ranks
/// have sealed.
fn lose_a_node_untold(cluster: &mut Cluster, nodes: usize, words: &[&str]) -> (PathBuf, u64) {
    let store = cluster.train(&format!("1:{nodes}"), "20", words);
    let before = until("a commit", LIMIT, || newest(&cluster.job(), |_| true)?["step"].as_u64());
    cluster.controller.kill();
    let step = before / 20 * 20 + FURTHER;
    // One more, so that copies of this one are certainly made.
    until("shards that nobody commits", LIMIT, || {
        let there = |rank: usize| folder(&store, step + 20).join(format!("rank-{rank:05}.index")).exists();
        (0..nodes).all(there).then_some(())
    });
    drop(cluster.agents.pop());
    (store, step)
}

/// The controller comes back, misses the node, and the others go on from that step or a later one.
fn goes_on_from(cluster: &mut Cluster, store: &Path, step: u64) {
    cluster.controller = Cluster::controller(cluster.dir.path(), &cluster.address);
    went_on_from(cluster, store, step);
}

fn went_on_from(cluster: &mut Cluster, store: &Path, step: u64) {
    let job = until("steps of those that are left", LIMIT, || {
        let words = ["status", "--controller", &cluster.address, "jobs", "--format", "json"];
        let jobs: serde_json::Value = serde_json::from_str(&rankguard(&words).stdout).ok()?;
        let job = jobs.get(0)?.clone();
        let running = job["state"] == "running" && job["generation"].as_u64()? > 1;
        running.then_some(job)
    });
    let of_the_first = |view: &serde_json::Value| view["generation"] == 1;
    let adopted = newest(&job, of_the_first).and_then(|view| view["step"].as_u64());
    assert!(adopted >= Some(step), "{adopted:?} instead of {step}: {job:#}");
    assert!(job["step"].as_u64() >= adopted);
    cluster.cancel();
    rankguard(&["checkpoint", "verify", "--dir", path(store)]).expect(0);
}

#[test]
fn shards_of_a_lost_node_are_found_in_the_store() {
    let mut cluster = Cluster::start(2);
    let (store, step) = lose_a_node_untold(&mut cluster, 2, &[]);
    goes_on_from(&mut cluster, &store, step);
}

/// Even its shards are gone: another node writes them out of its copies, or out of a sum and what is left of its lane.
#[test]
fn shards_of_a_lost_node_are_written_by_others_out_of_copies_and_of_parity() {
    for (nodes, words) in [(2, ["--checkpoint-copies", "1"]), (3, ["--checkpoint-parity", "2+1"])] {
        let mut cluster = Cluster::start(nodes);
        let (store, step) = lose_a_node_untold(&mut cluster, nodes, &words);
        lose_shards_of(nodes - 1, &store);
        goes_on_from(&mut cluster, &store, step);
    }
}

/// Nothing of this rank is left on disk but what is committed.
fn lose_shards_of(rank: usize, store: &Path) {
    for folder in uncommitted(store) {
        for ending in ["shard", "index"] {
            let _ = fs::remove_file(folder.join(format!("rank-{rank:05}.{ending}")));
        }
    }
}

/// Whoever writes the shards of the lost node dies over it, its file half written: another that has the same copy ends the work;
/// where the image was in nobody else's reach the job goes on from what was committed. Nothing half done is ever committed.
#[test]
fn a_node_that_dies_over_the_shards_of_another_leaves_the_work_to_the_others() {
    for (words, all_is_left) in [
        (["--checkpoint-copies", "2"], true),
        (["--checkpoint-parity", "2+1"], false),
    ] {
        let mut cluster = Cluster::start(3);
        let (store, step) = lose_a_node_untold(&mut cluster, 3, &words);
        lose_shards_of(2, &store);
        cluster.controller = Cluster::controller(cluster.dir.path(), &cluster.address);
        if !lose_who_writes(&mut cluster, 2, &store, step) {
            eprintln!("{words:?}: NOT TRIED, the work was over before anybody was met at it");
        }
        went_on_from(&mut cluster, &store, if all_is_left { step } else { 20 });
    }
}

/// Ends the agent that is found with a shard of this rank open; says whether one was before the step was committed.
fn lose_who_writes(cluster: &mut Cluster, rank: usize, store: &Path, step: u64) -> bool {
    let shard = format!("rank-{rank:05}.shard");
    let started = Instant::now();
    while !folder(store, step).join("MANIFEST").exists() {
        let at_it = |agent: &Daemon| agent.has_open(|path| path.contains(&shard));
        if let Some(found) = cluster.agents.iter().position(at_it) {
            drop(cluster.agents.remove(found));
            return true;
        }
        assert!(started.elapsed() < LIMIT, "nobody writes {shard}");
        std::thread::sleep(Duration::from_micros(300));
    }
    false
}

/// What was left is damaged: it is not committed, whoever finds it, and the job goes on from what was.
#[test]
fn damaged_leftovers_are_not_adopted() {
    let mut cluster = Cluster::start(2);
    let (store, _) = lose_a_node_untold(&mut cluster, 2, &[]);
    let committed = fs::read_dir(store.join("train")).expect("the job's folder").flatten();
    let committed = committed
        .filter(|folder| folder.path().join("MANIFEST").exists())
        .count();
    for folder in uncommitted(&store) {
        let index = folder.join("rank-00001.index");
        if let Ok(mut bytes) = fs::read(&index) {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&index, bytes).expect("written");
        }
    }
    assert!(committed > 0);
    goes_on_from(&mut cluster, &store, 20);
}
