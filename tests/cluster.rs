//! The pieces outside the demo: a controller, an agent and jobs of any program, as people start them.

use crate::support;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::support::cluster::{Cluster, LIMIT, text_of};
use crate::support::{command, finish, rankguard, until};

#[test]
fn any_program_runs_as_ranks_with_the_environment_of_torchrun() {
    let cluster = Cluster::start(1, &[]);
    let out = cluster.dir.path().join("out");
    fs::create_dir(&out).expect("made");
    let script = "env > $OUT/rank-$RANK.part && mv $OUT/rank-$RANK.part $OUT/rank-$RANK";
    let out_pair = format!("OUT={}", text_of(&out));
    let words = [
        "run",
        "--ranks-per-node",
        "2",
        "--name",
        "env",
        "--env",
        &out_pair,
        "--",
        "sh",
        "-c",
        script,
    ];
    let ran = rankguard(&cluster.args(&words)).expect(0).says(&["job env finished"]);
    assert_eq!(ran.stdout, "env\n");
    for rank in ["0", "1"] {
        let env = fs::read_to_string(out.join(format!("rank-{rank}"))).expect("every rank has run");
        for line in [
            &format!("RANK={rank}"),
            &format!("LOCAL_RANK={rank}"),
            "WORLD_SIZE=2",
            "LOCAL_WORLD_SIZE=2",
            "GROUP_RANK=0",
            "TORCHELASTIC_RUN_ID=env",
            "TORCHELASTIC_RESTART_COUNT=0",
        ] {
            assert!(env.lines().any(|found| found == line), "{line} is not in:\n{env}");
        }
        assert!(env.contains("MASTER_ADDR=") && env.contains("MASTER_PORT="), "{env}");
    }
    rankguard(&cluster.args(&["run", "--name", "env", "--", "true"])).expect(2);
}

#[test]
fn a_program_that_fails_ends_the_run_with_the_verdict_and_its_own_line() {
    let cluster = Cluster::start(1, &[]);
    let script = "echo 'Traceback (most recent call last):' >&2; echo '  File \"train.py\", line 3, in <module>' >&2; \
                  echo \"KeyError: 'lr'\" >&2; exit 1";
    let words = ["run", "--name", "bad", "--", "sh", "-c", script];
    rankguard(&cluster.args(&words))
        .expect(3)
        .says(&["job bad was stopped", "verdict: ", "KeyError: 'lr'"]);
    let cases = cluster.ask(&["cases", "--format", "json"]);
    assert!(cases.as_array().is_some_and(|cases| !cases.is_empty()));
    let since = cases[0]["first_at"].as_str().expect("a time as text");
    let is_rfc3339 = since.len() == "2026-11-27T22:37:46.152345678Z".len() && since.starts_with("20");
    assert!(is_rfc3339 && since.ends_with('Z'), "{since}");
    let csv = rankguard(&cluster.args(&["status", "nodes", "--format", "csv"])).expect(0);
    assert!(!csv.stdout.contains(",-"), "{}", csv.stdout);
    rankguard(&cluster.args(&["logs", "bad", "--rank", "9"]))
        .expect(64)
        .says(&["job bad has no rank 9 in generation", "ranks of generation"]);
    rankguard(&cluster.args(&["logs", "bad", "--generation", "99"]))
        .expect(64)
        .says(&["job bad has no generation 99; its newest is"]);
    let shown = rankguard(&["cases", "show", "1", "--controller", &cluster.address])
        .expect(0)
        .stdout;
    for part in [
        "case 1: ",
        "Reasoning",
        "says \"KeyError: 'lr'\" (train.py:3)",
        "Evidence, in causal order",
        "cleared in general by: ",
        "Published taxonomies",
    ] {
        assert!(shown.contains(part), "{part:?} is not in:\n{shown}");
    }
    rankguard(&["cases", "show", "999", "--controller", &cluster.address])
        .expect(2)
        .says(&["999"]);
    let report = cluster.dir.path().join("report");
    rankguard(&cluster.args(&["report", "--out", text_of(&report)])).expect(0);
    assert!(fs::read_to_string(report.join("report.html")).is_ok_and(|page| page.contains("KeyError")));
}

/// Two ranks that end alike, of which only their flight recorders tell which one the other waited for.
#[test]
fn a_hang_is_named_after_the_rank_that_the_flight_recorders_miss() {
    let cluster = Cluster::start(1, &[]);
    let script = r#"
        entry() {
            echo "{\"record_id\":$1,\"pg_id\":0,\"process_group\":[\"0\",\"default_pg\"],\"collective_seq_id\":$1,
                \"p2p_seq_id\":0,\"op_id\":$1,\"profiling_name\":\"nccl:all_reduce\",\"input_sizes\":[[8]],
                \"output_sizes\":[[8]],\"input_dtypes\":[\"Float\"],\"output_dtypes\":[\"Float\"],\"state\":\"$2\",
                \"is_p2p\":false,\"retired\":false}"
        }
        entries=$(entry 1 completed)
        [ $RANK = 1 ] || entries="$entries, $(entry 2 scheduled)"
        echo "{\"version\":\"2.9\",\"pg_config\":{\"0\":{\"desc\":\"default_pg\",\"ranks\":\"[0, 1]\"}},
            \"pg_status\":{},\"entries\":[$entries]}" > "$TORCH_NCCL_DEBUG_INFO_TEMP_FILE$RANK"
        echo "[rank$RANK]:[E ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank $RANK] Exception (either an error \
or timeout) detected by watchdog at work: 2, last enqueued NCCL work: 2, last completed NCCL work: 1." >&2
        kill -6 $$
    "#;
    let words = [
        "run",
        "--name",
        "hung",
        "--ranks-per-node",
        "2",
        "--max-restarts",
        "0",
        "--",
        "sh",
        "-c",
        script,
    ];
    rankguard(&cluster.args(&words)).expect(3);
    let cases = cluster.ask(&["cases", "--format", "json"]);
    assert_eq!(cases[0]["verdict"]["class"], "hang-stalled-ranks", "{cases:#}");
    assert_eq!(cases[0]["verdict"]["root_rank"], 1, "{cases:#}");
    let shown = rankguard(&["cases", "show", "1", "--controller", &cluster.address])
        .expect(0)
        .stdout;
    assert!(shown.contains("for rank 1, which never called it"), "{shown}");
}

#[test]
fn a_command_that_does_not_exist_is_told_and_not_retried_for_ever() {
    let cluster = Cluster::start(1, &[]);
    let words = ["run", "--name", "gone", "--", "/does/not/exist"];
    rankguard(&cluster.args(&words))
        .expect(3)
        .says(&["job gone was stopped", "/does/not/exist"]);
}

#[test]
fn a_job_that_asks_for_more_slots_than_there_are_hears_so_and_is_stopped() {
    let cluster = Cluster::start(1, &[]);
    let words = [
        "run",
        "--name",
        "big",
        "--nodes",
        "3",
        "--ranks-per-node",
        "64",
        "--",
        "true",
    ];
    let ran = rankguard(&cluster.args(&words)).expect(3);
    ran.says(&["at least 3 nodes with 64 slots each", "job big was stopped"]);
}

#[test]
fn ctrl_c_cancels_the_job_that_is_followed() {
    let cluster = Cluster::start(1, &[]);
    let words = ["run", "--name", "long", "--", "sleep", "1000"];
    let child = command(&cluster.args(&words)).spawn().expect("the program starts");
    until("the job to start", LIMIT, || {
        let jobs = cluster.ask(&["status", "jobs", "--history", "--format", "json"]);
        jobs[0]["spans"]
            .as_array()
            .is_some_and(|spans| !spans.is_empty())
            .then_some(())
    });
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it follows");
    finish(child, LIMIT).expect_cancelled();
    let jobs = cluster.ask(&["status", "jobs", "--history", "--format", "json"]);
    assert_eq!(jobs[0]["state"], "stopped", "{jobs:#}");
}

/// Starts a job whose rank ignores SIGTERM for some seconds, and follows it.
fn follow_slow_end(cluster: &Cluster, mark: &Path) -> std::process::Child {
    let script = format!(
        "trap '' TERM; : > {0}; i=0; while [ $i -lt 1200 ]; do sleep 0.1; i=$((i+1)); echo $i >> {0}; done",
        mark.display()
    );
    let words = ["run", "--name", "slow", "--", "sh", "-c", &script];
    let child = command(&cluster.args(&words)).spawn().expect("the program starts");
    until("the rank to run", LIMIT, || mark.exists().then_some(()));
    until("the job to be known as running", LIMIT, || {
        let jobs = cluster.ask(&["status", "jobs", "--format", "json"]);
        (jobs[0]["state"] == "running").then_some(())
    });
    child
}

fn interrupt(child: &std::process::Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it follows");
}

#[test]
fn ctrl_c_waits_until_ranks_that_end_slowly_are_gone() {
    let cluster = Cluster::start(1, &[]);
    let mark = cluster.dir.path().join("mark");
    let child = follow_slow_end(&cluster, &mark);
    interrupt(&child);
    let ran = finish(child, LIMIT);
    let size = fs::metadata(&mark).expect("the rank wrote it").len();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(
        fs::metadata(&mark).expect("the rank wrote it").len(),
        size,
        "a rank still runs: {}",
        ran.stderr
    );
    let ran = ran.says(&["all processes of job slow have ended"]);
    ran.expect_cancelled();
}

#[test]
fn a_second_ctrl_c_leaves_at_once_and_says_so() {
    let cluster = Cluster::start(1, &[]);
    let mark = cluster.dir.path().join("mark");
    let child = follow_slow_end(&cluster, &mark);
    interrupt(&child);
    until("the job to be stopped", LIMIT, || {
        let jobs = cluster.ask(&["status", "jobs", "--format", "json"]);
        (jobs[0]["state"] == "stopped").then_some(())
    });
    interrupt(&child);
    let interrupted = std::time::Instant::now();
    let ran = finish(child, LIMIT);
    assert!(interrupted.elapsed() < Duration::from_secs(2), "{}", ran.stderr);
    let hint = format!("`rankguard cancel --controller {} slow`", cluster.address);
    ran.expect(2).says(&["processes of job slow may still run", &hint]);
    rankguard(&cluster.args(&["cancel", "slow"]))
        .expect(0)
        .says(&["all processes of job slow have ended"]);
}

#[test]
fn a_detached_job_is_cancelled_by_name_and_nodes_are_cordoned_by_hand() {
    let cluster = Cluster::start(1, &[]);
    rankguard(&cluster.args(&["run", "--detach", "--name", "away", "--", "sleep", "1000"])).expect(0);
    rankguard(&["cancel", "away", "--controller", &cluster.address]).expect(0);
    until("the job to stop", LIMIT, || {
        let jobs = cluster.ask(&["status", "jobs", "--history", "--format", "json"]);
        (jobs[0]["state"] == "stopped").then_some(())
    });
    rankguard(&["cancel", "nobody", "--controller", &cluster.address])
        .expect(2)
        .says(&["nobody"]);
    rankguard(&[
        "node",
        "cordon",
        "n1",
        "--reason",
        "new fan",
        "--controller",
        &cluster.address,
    ])
    .expect(0);
    let nodes = cluster.ask(&["status", "nodes", "--format", "json"]);
    assert_eq!(
        (nodes[0]["state"].as_str(), nodes[0]["reason"].as_str()),
        (Some("cordoned"), Some("new fan"))
    );
    let again = [
        "node",
        "cordon",
        "n1",
        "--reason",
        "new GPU",
        "--controller",
        &cluster.address,
    ];
    rankguard(&again).expect(0);
    let nodes = cluster.ask(&["status", "nodes", "--format", "json"]);
    assert_eq!(nodes[0]["reason"], "new GPU; new fan", "{nodes:#}");
    rankguard(&["node", "uncordon", "n1", "--controller", &cluster.address]).expect(0);
    assert_eq!(
        cluster.ask(&["status", "nodes", "--format", "json"])[0]["state"],
        "healthy"
    );
    rankguard(&["node", "cordon", "nowhere", "--controller", &cluster.address])
        .expect(2)
        .says(&["nowhere"]);
}

#[test]
fn daemons_that_are_asked_to_end_do_so() {
    let mut cluster = Cluster::start(1, &[]);
    let mut agent = cluster.agent.take().expect("it was started");
    assert_eq!(agent.terminate(Duration::from_secs(20)), Some(0));
    assert_eq!(
        cluster
            .controller
            .as_mut()
            .expect("it runs")
            .terminate(Duration::from_secs(20)),
        Some(0)
    );
    rankguard(&cluster.args(&["status"]))
        .expect(69)
        .says(&["check that `rankguard controller` runs there"]);
}

#[test]
fn a_cancel_after_a_recovered_failure_is_reported_without_its_verdict() {
    let cluster = Cluster::start(1, &[]);
    let mark = cluster.dir.path().join("failed-once");
    let script = format!("test -e {0} && exec sleep 1000; : > {0}; kill -9 $$", mark.display());
    let words = ["run", "--name", "again", "--", "sh", "-c", &script];
    let child = command(&cluster.args(&words)).spawn().expect("the program starts");
    until("the second generation to start", LIMIT, || {
        let jobs = cluster.ask(&["status", "jobs", "--history", "--format", "json"]);
        let spans = jobs[0]["spans"].as_array()?;
        spans.iter().any(|span| span["generation"] == 2).then_some(())
    });
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it follows");
    let ran = finish(child, LIMIT);
    assert!(
        ran.stderr
            .contains("job again was stopped: cancelled by an operator's request"),
        "{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("verdict:"), "{}", ran.stderr);
    ran.expect_cancelled();
}

impl support::Ran {
    /// A job that was cancelled is one that did not finish.
    fn expect_cancelled(self) {
        assert_eq!(self.code, Some(4), "{}", self.stderr);
        assert!(self.stderr.contains("cancelling job"), "{}", self.stderr);
    }
}

/// The demo's rank as the job `train`, twice on the one node.
struct Training {
    store: PathBuf,
    every: String,
    out: String,
}

impl Training {
    /// Saves every so many steps, in folders of this cluster's.
    fn every(steps: u64, cluster: &Cluster) -> Self {
        let [store, out] = ["store", "out"].map(|name| cluster.dir.path().join(name));
        for folder in [&store, &out] {
            fs::create_dir(folder).expect("created");
        }
        Self {
            store,
            every: steps.to_string(),
            out: format!("--out={}", out.display()),
        }
    }

    /// The command that starts it, with further flags of the command and of the rank.
    fn words<'a>(&'a self, run: &[&'a str], rank: &[&'a str]) -> Vec<&'a str> {
        let job = ["--name", "train", "--nodes", "1:1", "--ranks-per-node", "2"];
        let store = [
            "--checkpoint-dir",
            text_of(&self.store),
            "--checkpoint-every",
            &self.every,
        ];
        let program = ["--", env!("CARGO_BIN_EXE_rankguard"), "demo-rank", &self.out];
        [&["run"], run, &job, &store, &program, rank].concat()
    }
}

/// Folders of checkpoints of later steps than this one.
fn folders_after(checkpoint: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(checkpoint.parent().expect("the job's folder")).expect("it is there");
    let all = all.flatten().map(|entry| entry.path());
    // The records of runs lie beside the folders.
    all.filter(|folder| folder.is_dir() && folder.as_path() > checkpoint)
        .collect()
}

/// RG-2: no tier has a good copy of the newest checkpoint, so the one before is loaded, and the case says what was wrong.
#[test]
fn a_checkpoint_with_a_flipped_bit_is_refused_and_the_one_before_is_loaded() {
    let mut cluster = Cluster::start(1, &[]);
    let training = Training::every(10, &cluster);
    let words = training.words(&[], &["--epochs=4", "--step-ms-min=50"]);
    let run = command(&cluster.args(&words)).spawn().expect("the program starts");
    let committed = || {
        let folders = fs::read_dir(training.store.join("train"))
            .ok()?
            .flatten()
            .map(|entry| entry.path());
        let mut whole: Vec<_> = folders.filter(|folder| folder.join("MANIFEST").exists()).collect();
        whole.sort();
        (whole.len() >= 2).then_some(whole)
    };
    until("two checkpoints", LIMIT, committed);
    // With its agent gone, no arena holds a copy any more: the next one is told to want none of what is left.
    cluster.agent = None;
    let mut config = fs::read_to_string(cluster.config()).expect("it was written");
    config.push_str("[agent.intervals]\narenas_kept_ms = 0\n");
    fs::write(cluster.config(), config).expect("written");
    let newest = until("the last commit", LIMIT, || {
        let newest = committed()?.pop()?;
        // What the agent had written and not told yet would be found before the next generation, and be the newest then.
        for left in folders_after(&newest) {
            fs::remove_dir_all(left).expect("removed");
        }
        (committed()?.pop()? == newest).then_some(newest)
    });
    let shard = newest.join("rank-00001.shard");
    let mut bytes = fs::read(&shard).expect("it can be read");
    bytes[7_000] ^= 4;
    fs::write(&shard, bytes).expect("it can be written");
    cluster.start_agent(&[]);
    finish(run, LIMIT).expect(0);
    let cases = cluster.ask(&["cases", "--format", "json"]);
    let corrupt = cases
        .as_array()
        .into_iter()
        .flatten()
        .find(|case| case["verdict"]["class"] == "checkpoint-corrupt");
    let corrupt = corrupt.unwrap_or_else(|| panic!("{cases:#}"));
    let told = corrupt["findings"].to_string();
    assert!(
        told.contains("rank 1") && told.contains("chunk 0") && told.contains("fc1"),
        "{told}"
    );
}

/// RG-5: ranks go on without the controller, what they save is on disk, and it is committed when the controller returns.
#[test]
fn what_was_saved_while_the_controller_was_away_is_committed_when_it_returns() {
    let mut cluster = Cluster::start(1, &[]);
    let training = Training::every(5, &cluster);
    let words = training.words(&["--detach"], &["--epochs=200", "--step-ms-min=50"]);
    rankguard(&cluster.args(&words)).expect(0);
    // Names of folders begin with the step, in as many digits each.
    let step = |name: &OsStr| name.to_str()?.split_once('-')?.0.parse::<u64>().ok();
    let folders = |file: &str| {
        let found = fs::read_dir(training.store.join("train"))
            .into_iter()
            .flatten()
            .flatten();
        let with = found.filter(|folder| folder.path().join(file).exists());
        with.map(|folder| folder.file_name()).max()
    };
    until("a checkpoint", LIMIT, || folders("MANIFEST"));
    cluster.controller = None;
    let last = folders("MANIFEST").expect("there was one");
    let saved = until("three more saves", LIMIT, || {
        let newest = folders("rank-00001.index").filter(|newest| *newest > last)?;
        (step(&newest)? >= step(&last)? + 15).then_some(newest)
    });
    assert_eq!(folders("MANIFEST"), Some(last), "nobody else commits");
    let address = cluster.address.clone();
    cluster.start_controller(&address);
    until("the saves to be committed", LIMIT, || {
        folders("MANIFEST").filter(|newest| *newest >= saved)
    });
    let listed = rankguard(&[
        "checkpoint",
        "ls",
        "--dir",
        text_of(&training.store),
        "--format",
        "json",
    ])
    .expect(0);
    let listed: Vec<Value> = serde_json::from_str(&listed.stdout).expect("a document");
    let committed = listed.iter().filter(|one| one["state"] == "committed");
    assert!(
        committed.filter_map(|one| one["step"].as_u64()).max() >= step(&saved),
        "{listed:#?}"
    );
    // It was the same generation all the while: nobody was restarted for it.
    assert!(folders("MANIFEST").is_some_and(|newest| newest.to_string_lossy().ends_with("-g1")));
    rankguard(&cluster.args(&["cancel", "train"]));
}

/// A store that nobody can write to would fail every save: the job is refused before it starts.
#[test]
fn a_job_whose_store_cannot_be_made_is_refused() {
    let cluster = Cluster::start(1, &[]);
    let file = cluster.dir.path().join("file");
    fs::write(&file, "not a folder").expect("written");
    let inside = file.join("store");
    let words = [
        "run",
        "--checkpoint-dir",
        text_of(&inside),
        "--checkpoint-every",
        "5",
        "--",
        "true",
    ];
    rankguard(&cluster.args(&words)).expect(2).says(&[text_of(&inside)]);
    let jobs = cluster.ask(&["status", "jobs", "--history", "--format", "json"]);
    assert_eq!(jobs.as_array().map(Vec::len), Some(0), "{jobs:#}");
}

/// The controller answered: the error names the store, the cause and the remedy, and not the controller's address.
#[test]
fn a_store_that_the_controller_cannot_read_is_named_with_the_cause() {
    let cluster = Cluster::start(1, &[]);
    let store = cluster.dir.path().join("store");
    fs::create_dir(&store).expect("made");
    fs::write(store.join("llm"), "not a folder").expect("written");
    let words = [
        "run",
        "--name",
        "llm",
        "--checkpoint-dir",
        text_of(&store),
        "--checkpoint-every",
        "5",
        "--",
        "true",
    ];
    let ran = rankguard(&cluster.args(&words)).expect(2);
    assert!(!ran.stderr.contains("cannot reach"), "{}", ran.stderr);
    ran.says(&[
        &format!("cannot use the checkpoint store {}", store.display()),
        "Not a directory",
        "hint: on the controller's machine, check that the store is mounted",
    ]);
}

/// A node that an operator takes out of use: what was trained since the last checkpoint is brought to safety at once, at
/// a step that both ranks agree on without waiting for each other.
#[test]
fn a_drain_makes_the_job_checkpoint_a_step_that_its_own_rule_does_not_name() {
    let cluster = Cluster::start(1, &[]);
    let training = Training::every(1_000_000, &cluster);
    let words = training.words(&["--detach"], &["--epochs=1000", "--step-ms-min=20"]);
    rankguard(&cluster.args(&words)).expect(0);
    until("the first steps", LIMIT, || {
        let jobs = cluster.ask(&["status", "jobs", "--history", "--format", "json"]);
        (jobs[0]["step"].as_u64()? >= 5).then_some(())
    });
    rankguard(&["node", "cordon", "n1", "--controller", &cluster.address]).expect(0);
    let step = until("the checkpoint", LIMIT, || {
        let listed = rankguard(&[
            "checkpoint",
            "ls",
            "--dir",
            text_of(&training.store),
            "--format",
            "json",
        ]);
        let listed: Value = serde_json::from_str(&listed.stdout).ok()?;
        listed[0]["step"].as_u64()
    });
    assert!((5..1_000_000).contains(&step), "{step}");
    rankguard(&["checkpoint", "verify", "--dir", text_of(&training.store)]).expect(0);
    rankguard(&["cancel", "train", "--controller", &cluster.address]).expect(0);
}

/// Processes whose command line names this file.
fn processes_with(file: &Path) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("there is /proc").flatten();
    // Helper processes of an agent are started as the running executable.
    let programs = [env!("CARGO_BIN_EXE_rankguard"), "/proc/self/exe"];
    entries
        .filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok())
        .filter(|line| programs.iter().any(|program| line.starts_with(program)) && line.contains(text_of(file)))
        .collect()
}

#[test]
fn made_up_gpus_fail_through_the_real_agent_and_are_never_taken_for_real_ones() {
    let mut cluster = Cluster::start(1, &[]);
    let library = support::stand_in(cluster.dir.path());
    let scenario = cluster.dir.path().join("scenario.txt");
    fs::write(
        &scenario,
        "count 8\naddress 4 9B\ntemperature * 55\nslowdown * 87\nat 1s error 4 15\n",
    )
    .expect("written");

    rankguard(&["agent", "--simulate", "/nowhere/scenario"])
        .expect(2)
        .says(&["/nowhere/scenario is not there"]);
    rankguard(&[
        "agent",
        "--simulate",
        text_of(&scenario),
        "--nvml-library",
        "/nowhere/lib.so",
    ])
    .expect(2)
    .says(&["cargo build -p rankguard-fake-nvml"]);

    cluster.agent = None;
    cluster.start_agent(&["--simulate", text_of(&scenario), "--nvml-library", text_of(&library)]);
    let case = until("the case", LIMIT, || {
        let cases = cluster.ask(&["cases", "--format", "json"]);
        let mut cases = cases.as_array()?.clone().into_iter();
        cases.find(|case| case["verdict"]["class"] == "gpu-fallen-off-bus")
    });
    let number = case["id"].to_string();
    let shown = rankguard(&["cases", "show", &number, "--controller", &cluster.address])
        .expect(0)
        .stdout;
    for part in ["gpu 0000:9b:00", "synthetic   yes", " (synthetic)\n"] {
        assert!(shown.contains(part), "{part:?} is not in:\n{shown}");
    }
    rankguard(&cluster.args(&["cases"])).expect(0).says(&["is synthetic"]);

    // The process that calls the library goes with its agent, even when that is killed.
    assert_eq!(processes_with(&library).len(), 2, "the agent and its calls");
    cluster.agent = None;
    until("the calls to end", LIMIT, || {
        processes_with(&library).is_empty().then_some(())
    });
}
