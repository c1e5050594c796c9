//! RG-2: jobs of several ranks a node restore from an object store after the store on disk is lost. Pulls that run side by
//! side, and pulls that are killed, strike off no checkpoint that is intact.

#![allow(clippy::print_stdout, reason = "measured figures")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::nodes::{Cluster, LIMIT, folder_of, impatient, newest, path};
use crate::support::{command, finish, rankguard, until};

const SLOTS: u32 = 3;

/// Ranks of a cluster's job that run now.
fn ranks(cluster: &Cluster) -> Vec<i32> {
    let out = format!("--out={}", cluster.dir.path().join("out").display());
    let of_it = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        words.nth(1) == Some(b"demo-rank") && words.any(|word| word == out.as_bytes())
    };
    let all = fs::read_dir("/proc").expect("processes").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(of_it).collect()
}

fn kill_one_rank(cluster: &Cluster) {
    let pid = *ranks(cluster).first().expect("a rank runs");
    let pid = rustix::process::Pid::from_raw(pid).expect("no process has number 0");
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

/// The newest checkpoint, once it is in the object store.
fn newest_is_mirrored(cluster: &Cluster, generation: u64) -> Value {
    until("a mirrored checkpoint of this generation", LIMIT, || {
        let job = cluster.job();
        assert_ne!(job["state"], "stopped", "{job:#}");
        let view = newest(&job, |_| true)?;
        let of_it = view["generation"].as_u64() >= Some(generation) && !view["mirrored_at"].is_null();
        of_it.then(|| view.clone())
    })
}

/// Takes the job's folder out of the store at once, then removes it.
fn lose_store(cluster: &Cluster, store: &Path, round: u32) {
    let lost = cluster.dir.path().join(format!("lost-{round}"));
    fs::rename(store.join("train"), &lost).expect("the job has a folder");
    let _ = fs::remove_dir_all(&lost);
}

/// Kills the first agent that is found writing a file of a pull; whether one was found before the job ran again.
fn kill_puller(cluster: &mut Cluster, store: &Path, generation: u64) -> bool {
    let prefix = format!("{}/train/", path(store));
    let started = Instant::now();
    let pulls = |file: &str| file.starts_with(&prefix) && file.contains("/.tmp-");
    let mut looks = 0_u32;
    while started.elapsed() < LIMIT {
        if let Some(found) = cluster.agents.iter().position(|agent| agent.has_open(pulls)) {
            cluster.agents[found].kill();
            let node = format!("n{}", found + 1);
            let again = Cluster::agent_of(SLOTS, "test.toml", cluster.dir.path(), &cluster.address, &node);
            cluster.agents[found] = again;
            return true;
        }
        looks += 1;
        if looks.is_multiple_of(500) {
            let job = cluster.job();
            if job["generation"].as_u64() > Some(generation) && job["state"] == "running" {
                return false;
            }
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    false
}

/// No checkpoint was struck off, and no case blames one.
fn nothing_is_struck_off(cluster: &Cluster) {
    let cases = cluster.ask(&["cases", "--format", "json"]);
    let verdicts = cases
        .as_array()
        .into_iter()
        .flatten()
        .map(|case| &case["verdict"]["class"]);
    let verdicts: Vec<&Value> = verdicts.collect();
    assert!(
        !verdicts.iter().any(|class| **class == "checkpoint-corrupt"),
        "{verdicts:?}"
    );
    let log = fs::read_to_string(cluster.dir.path().join("controller.log")).expect("a log");
    let struck: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("struck off") || line.contains("cannot be read; step"))
        .collect();
    assert!(struck.is_empty(), "{struck:#?}");
}

fn goes_on(cluster: &Cluster, generation: u64, step: u64) -> u64 {
    let job = until("steps after the restored one", LIMIT, || {
        let job = cluster.job();
        assert_ne!(job["state"], "stopped", "{job:#}");
        let moved = job["state"] == "running" && job["generation"].as_u64()? > generation;
        (moved && job["step"].as_u64()? > step).then_some(job)
    });
    job["generation"].as_u64().expect("a generation")
}

/// Rounds of the test; RANKGUARD_MIRROR_ROUNDS=50 makes it the long one.
fn rounds() -> u32 {
    let asked = std::env::var("RANKGUARD_MIRROR_ROUNDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(2)
}

/// The store is lost, and one rank or the agent that pulls is killed: the job restores what the object store has.
#[test]
fn rg_2_a_lost_store_comes_back_from_the_mirror_for_several_ranks_a_node() {
    let mut cluster = Cluster::start_of(2, SLOTS, "");
    let mirror = cluster.folder("mirror");
    let url = format!("file://{}", mirror.display());
    // Every round is a failure of the same kind.
    let restarts = ["--max-restarts", "1000"];
    let words = ["--ranks-per-node", "3", "--keep", "3", "--checkpoint-mirror", &url];
    let words = [&words[..], &restarts].concat();
    let store = cluster.train_network("512,256", "2", "40", &words);
    let mut generation = 1;
    let mut met = 0;
    for round in 0..rounds() {
        let view = newest_is_mirrored(&cluster, generation);
        let step = view["step"].as_u64().expect("a step");
        lose_store(&cluster, &store, round);
        kill_one_rank(&cluster);
        // Every other round ends an agent in the middle of its pull as well.
        if round % 2 == 1 {
            met += u32::from(kill_puller(&mut cluster, &store, generation));
        }
        generation = goes_on(&cluster, generation, step);
        nothing_is_struck_off(&cluster);
        println!("round {round}: restored step {step}, now generation {generation}, pulls killed so far: {met}");
    }
    cluster.cancel();
    rankguard(&["checkpoint", "verify", "--dir", path(&mirror)]).expect(0);
    rankguard(&["checkpoint", "verify", "--dir", path(&store)]).expect(0);
}

/// Several `checkpoint pull` of one checkpoint into one store end well, and leave nothing behind.
#[test]
fn pulls_side_by_side_end_well_and_leave_nothing_behind() {
    let cluster = Cluster::start_of(1, SLOTS, "");
    let mirror = cluster.folder("mirror");
    let url = format!("file://{}", mirror.display());
    let words = ["--ranks-per-node", "3", "--checkpoint-mirror", &url];
    cluster.train_network("512,256", "1", "40", &words);
    let view = newest_is_mirrored(&cluster, 1);
    let step = view["step"].as_u64().expect("a step").to_string();
    cluster.cancel();
    for round in 0..3 {
        let to: PathBuf = cluster.dir.path().join(format!("to-{round}"));
        let words = [
            "checkpoint",
            "pull",
            "--from",
            &url,
            "--dir",
            path(&to),
            "--step",
            &step,
        ];
        let pulls: Vec<_> = (0..6).map(|_| command(&words).spawn().expect("it starts")).collect();
        for pull in pulls {
            finish(pull, LIMIT).expect(0);
        }
        rankguard(&["checkpoint", "verify", "--dir", path(&to)]).expect(0);
        let left = fs::read_dir(folder_of(&to, &view)).expect("the checkpoint").flatten();
        let left: Vec<_> = left
            .filter(|file| file.file_name().to_string_lossy().starts_with('.'))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// A store that is away, as one that is not mounted: the job waits, whatever number of restarts that takes, and goes on from the very
/// checkpoint when it is back.
#[test]
fn rg_2_a_job_waits_for_a_store_that_is_away_and_loses_no_checkpoint() {
    let cluster = Cluster::start_configured(1, SLOTS, &impatient(600_000));
    let store = cluster.train_network("64,32", "1", "40", &["--ranks-per-node", "3", "--keep", "2"]);
    until("two checkpoints", LIMIT, || {
        (cluster.job()["checkpoints"].as_array()?.len() >= 2).then_some(())
    });
    let away = store.with_extension("away");
    fs::rename(&store, &away).expect("the store is there");
    let before = until("the newest commit", LIMIT, || {
        newest(&cluster.job(), |_| true)?["step"].as_u64()
    });
    kill_one_rank(&cluster);
    // More restarts than a job is allowed.
    until("restarts that wait", LIMIT, || {
        let job = cluster.job();
        assert_ne!(job["state"], "stopped", "{job:#}");
        (job["generation"].as_u64()? > 6).then_some(())
    });
    let log = fs::read_to_string(cluster.dir.path().join("controller.log")).expect("a log");
    assert!(log.contains("the job waits for"), "{log}");
    nothing_is_struck_off(&cluster);
    let _ = fs::remove_dir_all(&store);
    fs::rename(&away, &store).expect("it is away");
    goes_on(&cluster, 1, before);
    nothing_is_struck_off(&cluster);
    cluster.cancel();
    rankguard(&["checkpoint", "verify", "--dir", path(&store)]).expect(0);
}

/// The newest checkpoint is gone from the store, and no tier has it: after the wait the job goes on from the one before.
#[test]
fn rg_2_a_checkpoint_that_stays_unreadable_is_passed_over_and_not_struck_off() {
    let cluster = Cluster::start_configured(1, SLOTS, &impatient(6_000));
    let store = cluster.train_network("64,32", "1", "40", &["--ranks-per-node", "3", "--keep", "3"]);
    until("checkpoints", LIMIT, || {
        (cluster.job()["checkpoints"].as_array()?.len() >= 2).then_some(())
    });
    // No rank is left to commit another one meanwhile.
    for pid in ranks(&cluster) {
        let pid = rustix::process::Pid::from_raw(pid).expect("no process has number 0");
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::STOP);
    }
    std::thread::sleep(Duration::from_secs(1));
    let view = newest(&cluster.job(), |_| true).cloned().expect("a checkpoint");
    let folder = folder_of(&store, &view);
    fs::rename(&folder, folder.with_extension("away")).expect("it is there");
    for pid in ranks(&cluster) {
        let pid = rustix::process::Pid::from_raw(pid).expect("no process has number 0");
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    let job = until("steps of a later generation", LIMIT, || {
        let job = cluster.job();
        assert_ne!(job["state"], "stopped", "{job:#}");
        let newer = newest(&job, |newer| newer["generation"].as_u64() > view["generation"].as_u64());
        newer.is_some().then_some(job.clone())
    });
    assert_eq!(job["state"], "running");
    nothing_is_struck_off(&cluster);
    let log = fs::read_to_string(cluster.dir.path().join("controller.log")).expect("a log");
    assert!(
        log.contains("is kept") && log.contains("the job goes on from step"),
        "{log}"
    );
    cluster.cancel();
}
