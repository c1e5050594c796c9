//! Jobs whose nodes come and go: statements of `status` and `cases` beside what the processes really did.

use crate::support;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use crate::support::nodes::{Cluster, LIMIT};
use crate::support::{rankguard, until};
use rustix::process::Signal;
use serde_json::Value;

/// Settings with short limits: an agent ends its ranks 4 s after its last contact with the controller.
const SHORT: &str = "\
[controller]
silence_limit_ms = 2_000
[controller.policy]
gather_ms = 200
settle_ms = 300
[agent]
lease_ms = 4_000
[agent.intervals]
heartbeat_ms = 200
controller_silence_ms = 1_500
reconnect_max_ms = 300
";

/// Settings in which silence alone makes no node lost during a test.
const PATIENT: &str =
    "[controller]\nsilence_limit_ms = 60_000\n[controller.policy]\ngather_ms = 200\nsettle_ms = 300\n";

/// Starts a job of which each rank adds a line to a file of its own five times a second. Returns the files' folder.
fn start_ticking(cluster: &Cluster, nodes: &str) -> PathBuf {
    let folder = cluster.folder("ticks");
    let script = format!(
        "while :; do echo tick; echo $$ >> {}/rank-$RANK; sleep 0.2; done",
        folder.display()
    );
    start(cluster, nodes, &script);
    until("the job to run", LIMIT, || {
        (cluster.job()["state"] == "running").then_some(())
    });
    folder
}

fn start(cluster: &Cluster, nodes: &str, script: &str) {
    let words = ["run", "--controller", &cluster.address, "--detach", "--name", "llm"];
    let program = ["--nodes", nodes, "--", "sh", "-c", script];
    rankguard(&[&words[..], &program].concat()).expect(0);
}

fn cases(cluster: &Cluster) -> Vec<Value> {
    cluster
        .ask(&["cases", "--format", "json"])
        .as_array()
        .cloned()
        .unwrap_or_default()
}

/// Returns the number of ranks that write lines at present.
fn ticking(folder: &PathBuf) -> usize {
    let sizes = || {
        let files = fs::read_dir(folder).expect("the folder").flatten();
        files
            .filter_map(|file| file.metadata().ok().map(|it| it.len()))
            .collect::<Vec<_>>()
    };
    let before = sizes();
    sleep(Duration::from_millis(800));
    let after = sizes();
    before
        .iter()
        .zip(&after)
        .filter(|(before, after)| after > before)
        .count()
}

fn await_second_generation(cluster: &Cluster, folder: &PathBuf) {
    until("the job to run with all its ranks again", LIMIT, || {
        let job = cluster.job();
        let runs = job["generation"].as_u64() > Some(1) && job["state"] == "running";
        (runs && ticking(folder) == 2).then_some(())
    });
    let told = cases(cluster);
    let went_on = |case: &&Value| {
        case["outcome"]
            .as_str()
            .is_some_and(|outcome| outcome.contains("went on"))
    };
    assert!(!told.iter().any(|case| went_on(&case)), "{told:#?}");
}

#[test]
fn a_job_whose_ranks_died_with_an_agent_is_started_again_when_the_agent_returns() {
    let mut cluster = Cluster::start_configured(2, 1, SHORT);
    let folder = start_ticking(&cluster, "2");
    cluster.agents[1].kill();
    until("the job to wait", LIMIT, || {
        (cluster.job()["state"] == "pending").then_some(())
    });
    let agent = Cluster::agent(cluster.dir.path(), &cluster.address, "n2");
    cluster.agents[1] = agent;
    await_second_generation(&cluster, &folder);
}

#[test]
fn a_job_whose_ranks_a_lease_has_ended_is_started_again_when_the_agent_goes_on() {
    let cluster = Cluster::start_configured(2, 1, SHORT);
    let folder = start_ticking(&cluster, "2");
    cluster.agents[1].signal(Signal::STOP);
    until("the rank to be ended by its supervisor", LIMIT, || {
        (ticking(&folder) == 1 && cluster.job()["state"] == "pending").then_some(())
    });
    cluster.agents[1].signal(Signal::CONT);
    await_second_generation(&cluster, &folder);
    assert_eq!(cases(&cluster).len(), 1, "{:#?}", cases(&cluster));
}

#[test]
fn an_agent_that_is_stopped_in_order_is_maintenance_and_its_job_moves_at_once() {
    let mut cluster = Cluster::start_configured(2, 1, PATIENT);
    start_ticking(&cluster, "1");
    let node = cluster.job()["placements"][0]["node"]
        .as_str()
        .expect("a node")
        .to_owned();
    let place = usize::from(node == "n2");
    cluster.agents[place].terminate(LIMIT);
    let moved = until("the job to move", Duration::from_secs(30), || {
        let job = cluster.job();
        (job["generation"] == 2 && job["state"] == "running").then_some(job)
    });
    assert_eq!(moved["unconfirmed"].as_array().map(Vec::len), Some(0), "{moved:#}");
    let told = cases(&cluster);
    assert_eq!(told.len(), 1, "{told:#?}");
    assert_eq!(told[0]["verdict"]["class"], "maintenance", "{:#}", told[0]);
}

/// The page that Prometheus reads from the controller.
fn metrics(cluster: &Cluster) -> String {
    let address = fs::read_to_string(cluster.dir.path().join("controller/metrics.addr")).expect("its address");
    let mut stream = TcpStream::connect(address.trim()).expect("it listens");
    stream
        .write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
        .expect("it reads");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("it answers");
    page
}

#[test]
fn rg_5_ranks_of_a_lost_journal_run_on_until_an_operator_cancels_them() {
    let settings = PATIENT.replacen("[controller]\n", "[controller]\nmetrics_listen = '127.0.0.1:0'\n", 1);
    let mut cluster = Cluster::start_configured(2, 1, &settings);
    let folder = start_ticking(&cluster, "2");
    cluster.controller.kill();
    let state = cluster.dir.path().join("controller");
    fs::remove_dir_all(&state).expect("removed");
    cluster.controller = Cluster::controller(cluster.dir.path(), &cluster.address);
    let job = until("the ranks to be shown", LIMIT, || {
        let ran = rankguard(&["status", "jobs", "--controller", &cluster.address, "--format", "json"]);
        let jobs: Value = serde_json::from_str(&ran.stdout).ok()?;
        let job = jobs[0].clone();
        (job["placements"].as_array().map(Vec::len) == Some(2)).then_some(job)
    });
    let reason = job["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("no record of the job"), "{job:#}");
    assert_eq!(
        (&job["spec"]["id"], &job["generation"]),
        (&Value::from("llm"), &Value::from(1))
    );
    sleep(Duration::from_secs(3));
    assert_eq!(ticking(&folder), 2, "its ranks run on");
    // The name is that of running ranks.
    let words = [
        "run",
        "--controller",
        &cluster.address,
        "--detach",
        "--name",
        "llm",
        "--",
        "true",
    ];
    let refused = rankguard(&words);
    assert_ne!(refused.code, Some(0));
    refused.says(&[
        "rankguard cancel llm",
        "if it has a checkpoint store, `--resume-from llm`",
    ]);
    let cancelled = rankguard(&["cancel", "llm", "--controller", &cluster.address]);
    cancelled.says(&["stopping job llm; its committed checkpoints are kept, if it has a checkpoint store"]);
    until("the ranks to end", LIMIT, || (ticking(&folder) == 0).then_some(()));
    until("the nodes to be free", LIMIT, || {
        let nodes = cluster.ask(&["status", "nodes", "--format", "json"]);
        let free = |node: &Value| node["state"] == "healthy" && node["reason"].is_null();
        nodes.as_array()?.iter().all(free).then_some(())
    });
    // The metrics count the job as `status --all` lists it.
    until("the metrics of the ended job", LIMIT, || {
        let page = metrics(&cluster);
        let lines: Vec<&str> = page.lines().collect();
        let has = |line: &str| lines.contains(&line);
        let is_stopped = has("rankguard_controller_jobs_by_state{state=\"stopped\"} 1");
        (is_stopped && has("rankguard_controller_jobs 1")).then_some(())
    });
    // Their output is still on the nodes, of which the controller has no record either.
    let output = rankguard(&["logs", "llm", "--tail", "1", "--controller", &cluster.address]).expect(0);
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert!(
        lines.contains(&"[rank 0] tick") && lines.contains(&"[rank 1] tick"),
        "{lines:?}"
    );
    let log = fs::read_to_string(cluster.dir.path().join("controller.log")).expect("its log");
    let ended = |node: &str| format!("node {node} ended 1 processes of job llm below generation 2");
    assert!(
        log.contains(&ended("n1")) || log.contains("ended") && log.contains("job llm"),
        "{log}"
    );
}

/// A job without a checkpoint store has nothing to keep and nothing to resume from.
#[test]
fn a_job_without_a_store_is_offered_no_checkpoints() {
    let cluster = Cluster::start_configured(1, 1, PATIENT);
    start_ticking(&cluster, "1");
    let refused = rankguard(&["run", "--controller", &cluster.address, "--name", "llm", "--", "true"]);
    assert!(!refused.stderr.contains("--resume-from"), "{}", refused.stderr);
    let refused = refused.says(&["job name llm is already used", "that job has no checkpoint store"]);
    assert_ne!(refused.code, Some(0));
    let cancelled = rankguard(&["cancel", "llm", "--controller", &cluster.address]).expect(0);
    assert!(!cancelled.stderr.contains("checkpoint"), "{}", cancelled.stderr);
}

#[test]
fn a_program_that_fails_is_not_counted_against_its_node() {
    let cluster = Cluster::start_configured(1, 1, PATIENT);
    let script = "printf 'Traceback (most recent call last):\\n  File \"a.py\", line 1, in <module>\\nKeyError: 1\\n' >&2; \
                  exit 1";
    start(&cluster, "1", script);
    until("the job to stop", LIMIT, || {
        let jobs = cluster.ask(&["status", "jobs", "--history", "--format", "json"]);
        (jobs[0]["state"] == "stopped").then_some(())
    });
    let words = [
        "node",
        "show",
        "n1",
        "--controller",
        &cluster.address,
        "--format",
        "json",
    ];
    let shown: Value = serde_json::from_str(&rankguard(&words).expect(0).stdout).expect("JSON");
    let told = shown["cases"].as_array().expect("cases");
    assert!(!told.is_empty());
    assert!(told.iter().all(|case| case["is_blamed"] == false), "{shown:#}");
    // The reason to stop names the case that stopped it.
    let jobs = cluster.ask(&["status", "jobs", "--history", "--format", "json"]);
    let reason = jobs[0]["reason"].as_str().unwrap_or_default();
    let last = told.last().expect("a case")["case"].as_u64().expect("a number");
    assert!(reason.ends_with(&format!("(case {last})")), "{reason}");
}

#[test]
fn a_lost_node_whose_rank_has_completed_costs_the_job_nothing() {
    let mut cluster = Cluster::start_configured(2, 1, SHORT);
    let folder = cluster.folder("ticks");
    let script = format!(
        "if [ $RANK = 1 ]; then echo done > {0}/done; exit 0; fi; while :; do echo tick; echo $$ >> {0}/rank-0; sleep 0.2; done",
        folder.display()
    );
    start(&cluster, "2", &script);
    until("rank 1 to complete", LIMIT, || {
        folder.join("done").exists().then_some(())
    });
    until("the job to run", LIMIT, || {
        (cluster.job()["state"] == "running").then_some(())
    });
    sleep(Duration::from_secs(1));
    let job = cluster.job();
    let places = job["placements"].as_array().expect("places");
    let node = places.iter().find(|place| place["rank"] == 1).expect("rank 1")["node"].clone();
    let place = usize::from(node == "n2");
    cluster.agents[place].kill();
    until("the node to be lost", LIMIT, || {
        let nodes = cluster.ask(&["status", "nodes", "--format", "json"]);
        (nodes[place]["state"] == "lost").then_some(())
    });
    sleep(Duration::from_secs(3));
    let job = cluster.job();
    assert_eq!(
        (&job["state"], &job["generation"]),
        (&Value::from("running"), &Value::from(1)),
        "{job:#}"
    );
    assert_eq!(cases(&cluster), Vec::<Value>::new());
}

/// Waits until the rank of a job without activity has started.
fn await_quiet_start(cluster: &Cluster) {
    until("the start", LIMIT, || {
        let reason = cluster.job()["reason"].as_str()?.to_owned();
        reason.contains("its ranks have started").then_some(())
    });
}

#[test]
fn run_follows_a_job_of_which_a_new_controller_has_no_record() {
    let mut cluster = Cluster::start_configured(1, 1, PATIENT);
    let words = ["run", "--controller", &cluster.address, "--name", "llm"];
    let words = [&words[..], &["--", "sleep", "15"]].concat();
    let run = support::command(&words).spawn().expect("the program starts");
    await_quiet_start(&cluster);
    cluster.controller.kill();
    fs::remove_dir_all(cluster.dir.path().join("controller")).expect("removed");
    cluster.controller = Cluster::controller(cluster.dir.path(), &cluster.address);
    let ran = support::finish(run, Duration::from_secs(60)).expect(0);
    let line = "this controller has no record of the job";
    assert!(ran.stderr.contains(line), "{}", ran.stderr);
    assert!(!ran.stderr.contains("error:"), "{}", ran.stderr);
}

#[test]
fn node_show_lists_the_running_job_once() {
    let cluster = Cluster::start_configured(1, 1, PATIENT);
    start(&cluster, "1", "sleep 60");
    let show = |part: &str| {
        let shown = rankguard(&["node", "show", "n1", "--controller", &cluster.address]).expect(0);
        let line = shown.stdout.lines().find(|line| line.contains(part));
        line.map(|line| line.split_whitespace().last().unwrap_or_default().to_owned())
    };
    await_quiet_start(&cluster);
    assert_eq!(show("  job ").as_deref(), Some("llm"));
    assert_eq!(show("earlier jobs").as_deref(), Some("-"));
    rankguard(&["cancel", "llm", "--controller", &cluster.address]).expect(0);
    assert_eq!(show("earlier jobs").as_deref(), Some("llm"));
}

#[test]
fn the_output_of_a_job_of_a_lost_journal_is_read_without_a_node_on_which_it_never_ran() {
    let settings = "[controller]\nsilence_limit_ms = 5_000\n[controller.policy]\ngather_ms = 200\nsettle_ms = 300\n";
    let mut cluster = Cluster::start_configured(2, 1, settings);
    let folder = start_ticking(&cluster, "1");
    let node = cluster.job()["placements"][0]["node"].clone();
    cluster.controller.kill();
    fs::remove_dir_all(cluster.dir.path().join("controller")).expect("removed");
    cluster.controller = Cluster::controller(cluster.dir.path(), &cluster.address);
    until("the rank to be shown", LIMIT, || {
        let ran = rankguard(&["status", "jobs", "--controller", &cluster.address, "--format", "json"]);
        let jobs: Value = serde_json::from_str(&ran.stdout).ok()?;
        (jobs[0]["placements"].as_array().map(Vec::len) == Some(1)).then_some(())
    });
    cluster.joined(2);
    rankguard(&["cancel", "llm", "--controller", &cluster.address]);
    until("the rank to end", LIMIT, || (ticking(&folder) == 0).then_some(()));
    let other = usize::from(node == "n1");
    cluster.agents[other].kill();
    until("the other node to be lost", LIMIT, || {
        let nodes = cluster.ask(&["status", "nodes", "--format", "json"]);
        (nodes[other]["state"] == "lost").then_some(())
    });
    let output = rankguard(&["logs", "llm", "--tail", "1", "--controller", &cluster.address])
        .expect(0)
        .says(&["the controller does not know whether job llm ran there"]);
    assert!(output.stdout.contains("tick"), "{}", output.stdout);
}
