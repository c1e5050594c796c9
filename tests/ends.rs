//! Ends of ranks with real processes: equal ends blame no rank, and a rank that was killed is no survivor.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rankguard_model::Timestamp;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::cluster::text_of;
use crate::support::nodes::{self, LIMIT};
use crate::support::{rankguard, until};

const SETTINGS: &str = "\
[controller]
silence_limit_ms = 4_000
[controller.policy]
gather_ms = 2_000
settle_ms = 1_000
";

/// Starts a job of two ranks on two nodes that write their process ids and wait; `then` ends rank 0 once the file `go`
/// exists.
fn pair(cluster: &nodes::Cluster, folder: &Path, then: &str) -> Vec<Pid> {
    let script = format!(
        "echo $$ > {0}/$RANK; while [ $RANK = 1 ] || [ ! -e {0}/go ]; do sleep 0.02; done; {then}",
        text_of(folder)
    );
    let words = ["run", "--controller", &cluster.address, "--detach", "--name", "pair"];
    let command = ["--nodes", "2", "--max-restarts", "0", "--", "sh", "-c", &script];
    rankguard(&[&words[..], &command].concat()).expect(0);
    let pid = |rank: &str| {
        until("the rank", LIMIT, || {
            let text = fs::read_to_string(folder.join(rank)).ok()?;
            Pid::from_raw(text.trim().parse().ok()?)
        })
    };
    vec![pid("0"), pid("1")]
}

/// Returns this many cases once all are closed.
fn cases(cluster: &nodes::Cluster, count: usize) -> Vec<Value> {
    until("the cases", LIMIT, || {
        let all = cluster.ask(&["cases", "--format", "json"]);
        let all = all.as_array()?.clone();
        let is_closed = |case: &Value| case["state"] == "closed";
        (all.len() == count && all.iter().all(is_closed)).then_some(all)
    })
}

fn reasons(case: &Value) -> String {
    let lines = case["reasoning"].as_array().into_iter().flatten();
    let lines: Vec<&str> = lines.filter_map(|line| line["text"].as_str()).collect();
    lines.join("\n")
}

#[test]
fn ranks_that_one_signal_ends_together_blame_none_of_them() {
    let cluster = nodes::Cluster::start_configured(2, 1, SETTINGS);
    let folder = cluster.folder("pair");
    for pid in pair(&cluster, &folder, "exit 0") {
        kill_process(pid, Signal::TERM).expect("it runs");
    }
    let all = cases(&cluster, 1);
    assert_eq!(all[0]["verdict"]["class"], "killed-by-signal", "{:#}", all[0]);
    assert!(all[0]["verdict"]["root_rank"].is_null(), "{:#}", all[0]);
    let text = reasons(&all[0]);
    assert!(text.contains("Ranks 0, 1 were ended by SIGTERM within"), "{text}");
    assert!(text.contains("The blame is on the job"), "{text}");
    assert!(!text.contains("survivors"), "{text}");
}

#[test]
fn a_rank_that_is_killed_beside_an_exception_has_a_case_of_its_own() {
    let cluster = nodes::Cluster::start_configured(2, 1, SETTINGS);
    let folder = cluster.folder("pair");
    let traceback = "printf '%s\\n' 'Traceback (most recent call last):' '  File \"/home/u/train.py\", line 41, in main' '    y = \
                     d[\"lr\"]' \"KeyError: 'lr'\" >&2; exit 1";
    let pids = pair(&cluster, &folder, traceback);
    fs::write(folder.join("go"), "").expect("written");
    kill_process(pids[1], Signal::KILL).expect("it runs");
    let all = cases(&cluster, 2);
    let of_class = |class: &str| {
        let mut found = all.iter().filter(|case| case["verdict"]["class"] == class);
        found.next().unwrap_or_else(|| panic!("a case of {class}: {all:#?}"))
    };
    let text = reasons(of_class("key-error"));
    let expected = "ended (signal 9 (exit code 137)), which is a failure of its own.";
    assert!(text.contains(expected), "{text}");
    let killed = of_class("killed-by-signal");
    assert_eq!(killed["verdict"]["root_rank"], 1, "{killed:#}");
}

/// What Python prints of a lost connection is no cause: the rank that was killed is.
#[test]
fn connections_that_a_killed_rank_severs_are_no_cause() {
    let cluster = nodes::Cluster::start_configured(2, 1, SETTINGS);
    let folder = cluster.folder("pair");
    let traceback = "printf '%s\\n' 'Traceback (most recent call last):' '  File \"/home/u/train.py\", line 41, in recv' '    d = \
                     s.recv(1)' 'ConnectionResetError: [Errno 104] Connection reset by peer' >&2; exit 1";
    let pids = pair(&cluster, &folder, traceback);
    kill_process(pids[1], Signal::KILL).expect("it runs");
    fs::write(folder.join("go"), "").expect("written");
    let all = cases(&cluster, 1);
    assert_eq!(all[0]["verdict"]["class"], "killed-by-signal", "{:#}", all[0]);
    assert_eq!(all[0]["verdict"]["root_rank"], 1, "{:#}", all[0]);
}

/// Returns the present time in the format of RFC 3339, with milliseconds.
fn now() -> String {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp(0).after(since_epoch.expect("after the epoch")).to_string()
}

/// Length of a time in that format up to the milliseconds.
const MILLIS: usize = "2026-12-01T00:58:59.418".len();

/// The supervisor notices the end at once, and the agent reads its report two seconds later.
#[test]
fn an_end_is_dated_when_the_supervisor_notices_it() {
    let cluster = nodes::Cluster::start_configured(2, 1, SETTINGS);
    let folder = cluster.folder("pair");
    let pids = pair(&cluster, &folder, "exit 0");
    for agent in &cluster.agents {
        agent.signal(Signal::STOP);
    }
    let killed_at = now();
    kill_process(pids[1], Signal::KILL).expect("it runs");
    std::thread::sleep(Duration::from_secs(2));
    let resumed_at = now();
    for agent in &cluster.agents {
        agent.signal(Signal::CONT);
    }
    let all = cases(&cluster, 1);
    assert_eq!(all[0]["verdict"]["root_rank"], 1, "{:#}", all[0]);
    let ended_at = all[0]["findings"][0]["at"].as_str().expect("a time");
    // Both have the same format up to the milliseconds.
    let is_between = killed_at[..MILLIS] <= ended_at[..MILLIS] && ended_at[..MILLIS] < resumed_at[..MILLIS];
    assert!(is_between, "{killed_at} {resumed_at} {:#}", all[0]);
}
