//! A test process that is killed leaves no process: what it started carries a mark, and a guard ends what carries it.

#![allow(clippy::print_stderr, reason = "a test that cannot run says so loudly")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::cluster::{Cluster, LIMIT};
use crate::support::guard::{MARK, guarded};
use crate::support::{rankguard, until};

/// In the environment of this program where it plays a test that will be killed.
const PART: &str = "ORPHANS_PART";

/// Marks the processes of one round, whoever starts them.
const ROUND: &str = "ORPHANS_ROUND";

/// Processes that carry a variable.
fn carriers(name: &str, value: &str) -> Vec<String> {
    let wanted = format!("{name}={value}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("there is /proc").flatten() {
        let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environ.split(|byte| *byte == 0).any(|pair| pair == wanted.as_bytes()) {
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            found.push(format!("{}: {words}", entry.file_name().to_string_lossy()));
        }
    }
    found
}

/// Processes of the ranks, by the numbers they left, that still sleep: the environment of a rank may hold no mark.
fn sleepers(folder: &Path) -> Vec<String> {
    let left = fs::read_dir(folder).expect("a folder").flatten();
    let numbers = left.filter_map(|file| fs::read_to_string(file.path()).ok());
    numbers
        .filter(|number| {
            let words = fs::read(format!("/proc/{}/cmdline", number.trim()));
            words.is_ok_and(|words| words.starts_with(b"sleep\0"))
        })
        .collect()
}

/// Not a test by itself: a test with a controller, an agent and ranks that wait for ever.
#[test]
fn a_test_that_will_be_killed() {
    let Ok(folder) = std::env::var(PART) else { return };
    let cluster = Cluster::start(0, &[]);
    let script = format!("cd {folder}; setsid sleep 600 & echo $! > child.$RANK; echo $$ > rank.$RANK; exec sleep 600");
    let job = [
        "run",
        "--detach",
        "--name",
        "held",
        "--ranks-per-node",
        "2",
        "--",
        "sh",
        "-c",
        &script,
    ];
    rankguard(&cluster.args(&job)).expect(0);
    until("the ranks to run", LIMIT, || {
        (sleepers(Path::new(&folder)).len() == 4).then_some(())
    });
    fs::write(Path::new(&folder).join("ready"), "").expect("written");
    std::thread::sleep(Duration::from_secs(600));
}

fn start(round: &str, folder: &Path) -> Child {
    let mut test = Command::new(std::env::current_exe().expect("this program"));
    guarded(&mut test)
        .args(["orphans::a_test_that_will_be_killed", "--exact", "--nocapture"])
        .env(PART, folder)
        .env(ROUND, round)
        .env_remove(MARK)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    test.spawn().expect("it starts")
}

#[test]
fn a_killed_test_leaves_no_process() {
    let dir = tempfile::tempdir().expect("a folder");
    let round = format!("killed-{}", std::process::id());
    let mut test = start(&round, dir.path());
    let ready = dir.path().join("ready");
    until("the cluster to run", LIMIT * 2, || {
        let ended = test.try_wait().expect("it can be waited for");
        assert!(ended.is_none(), "the test ended: {ended:?}");
        ready.exists().then_some(())
    });
    let before = carriers(ROUND, &round);
    assert_eq!(sleepers(dir.path()).len(), 4);
    assert!(
        before.len() >= 3,
        "a test, a controller and an agent at least: {before:#?}"
    );
    test.kill().expect("it runs");
    test.wait().expect("it is waited for");
    until("all processes of the killed test to end", LIMIT, || {
        let ended = carriers(ROUND, &round).is_empty() && sleepers(dir.path()).is_empty();
        ended.then_some(())
    });
}

/// The demo ends with all its processes where it is killed itself.
#[test]
fn a_killed_demo_leaves_no_process() {
    let out = tempfile::tempdir().expect("a folder");
    let scratch = tempfile::tempdir().expect("a folder");
    let round = format!("demo-{}", std::process::id());
    let mut demo = Command::new(env!("CARGO_BIN_EXE_rankguard"));
    guarded(&mut demo)
        .args(["demo", "--out"])
        .arg(out.path())
        .env("TMPDIR", scratch.path())
        .env(ROUND, &round)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut demo = demo.spawn().expect("it starts");
    let lines = BufReader::new(demo.stdout.take().expect("it is piped")).lines();
    // It runs once it has something to report.
    let first = lines.map_while(Result::ok).next();
    assert!(first.is_some(), "the demo reported nothing");
    until("the demo's processes", LIMIT, || {
        (carriers(ROUND, &round).len() >= 4).then_some(())
    });
    demo.kill().expect("it runs");
    demo.wait().expect("it is waited for");
    until("all processes of the killed demo to end", LIMIT, || {
        let left = carriers(ROUND, &round);
        left.is_empty().then_some(())
    });
}
