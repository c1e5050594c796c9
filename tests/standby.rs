//! Standby processes with real ranks: Python scripts of the standard library.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::cluster::{Cluster, LIMIT, text_of};
use crate::support::{rankguard, until};

/// Rank that records each process that imports its module, and each start, and waits.
const SCRIPT: &str = r#"
import marker, os, socket, struct, sys, time

def text(tag, value):
    return bytes([tag, len(value)]) + value.encode()

def number(tag, value):
    return bytes([tag, value])

# The first message of a rank to its agent, as soon as it runs.
hello = text(0x0A, os.environ["RANKGUARD_JOB"]) + number(0x10, int(os.environ["RANKGUARD_GENERATION"]))
hello += number(0x18, int(os.environ["RANK"])) + number(0x20, 1)
hello = bytes([0x0A, len(hello)]) + hello
agent = socket.socket(socket.AF_UNIX)
agent.connect(os.environ["RANKGUARD_SOCKET"])
agent.sendall(struct.pack("<I", len(hello)) + hello)
reply = agent.recv(5)
if reply[4] != 0x0A:
    sys.exit(f"the agent refuses the rank: {agent.recv(1000)}")
with open("starts", "a") as file:
    file.write(f"{os.getpid()} {os.environ['TORCHELASTIC_RESTART_COUNT']} {os.environ['RANK']} {sys.argv[1:]}\n")
time.sleep(600)
"#;

const MARKER: &str = "import os\nwith open('imports', 'a') as file:\n    file.write(f'{os.getpid()}\\n')\n";

/// Cluster with the script and its module in a folder.
fn cluster() -> Cluster {
    cluster_with(&[])
}

/// The same with these arguments of the agent.
fn cluster_with(words: &[&str]) -> Cluster {
    let cluster = Cluster::start(3, words);
    fs::set_permissions(cluster.dir.path(), fs::Permissions::from_mode(0o777)).expect("set");
    fs::write(cluster.dir.path().join("train.py"), SCRIPT).expect("written");
    fs::write(cluster.dir.path().join("marker.py"), MARKER).expect("written");
    cluster
}

fn submit(cluster: &Cluster, count: &str) {
    let job = [
        "run",
        "--detach",
        "--name",
        "held",
        "--ranks-per-node",
        "2",
        "--workdir",
        text_of(cluster.dir.path()),
        "--standby",
        count,
        "--standby-import",
        "marker",
        "--",
        "python3",
        "train.py",
        "--lr",
        "1",
    ];
    rankguard(&cluster.args(&job)).expect(0);
}

/// Process ids of the standby processes that wait.
fn waiting(cluster: &Cluster) -> BTreeSet<u64> {
    let view = cluster.view();
    let jobs = view["standbys"].as_array().cloned().unwrap_or_default();
    let numbers = jobs
        .iter()
        .flat_map(|job| job["waiting"].as_array().cloned().unwrap_or_default());
    numbers.filter_map(|pid| pid.as_u64()).collect()
}

fn wait_for(cluster: &Cluster, count: usize) -> BTreeSet<u64> {
    until("the standby processes to wait", LIMIT, || {
        let found = waiting(cluster);
        (found.len() == count).then_some(found)
    })
}

/// Process ids of the starts of a generation, counted from 0, by rank.
fn starts(cluster: &Cluster, generation: &str) -> Vec<u64> {
    let text = fs::read_to_string(cluster.dir.path().join("starts")).unwrap_or_default();
    let rows = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mut found: Vec<_> = rows
        .filter(|row| row[1] == generation && row[3..].join(" ") == "['--lr', '1']")
        .map(|row| (row[2].to_owned(), row[0].parse().expect("a number")))
        .collect();
    found.sort();
    found.into_iter().map(|(_, pid)| pid).collect()
}

fn wait_started(cluster: &Cluster, generation: &str) -> Vec<u64> {
    until("the ranks to start", LIMIT, || {
        let found = starts(cluster, generation);
        (found.len() == 2).then_some(found)
    })
}

fn imports(cluster: &Cluster) -> usize {
    let text = fs::read_to_string(cluster.dir.path().join("imports")).unwrap_or_default();
    text.lines().count()
}

fn signal(word: &str, pid: u64) {
    let sent = Command::new("kill").args([word, &pid.to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

fn lives(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

fn all_end(what: &str, pids: &BTreeSet<u64>) {
    until(what, LIMIT, || pids.iter().all(|pid| !lives(*pid)).then_some(()));
}

fn rank_view(cluster: &Cluster, pid: u64) -> Value {
    until("the agent to show the rank", LIMIT, || {
        let view = cluster.view();
        let ranks = view["ranks"].as_array().cloned().unwrap_or_default();
        ranks.into_iter().find(|rank| rank["pid"] == pid)
    })
}

#[test]
fn standby_processes_become_the_ranks_of_the_next_generation_and_are_replaced() {
    let cluster = cluster();
    submit(&cluster, "auto");
    let first = wait_started(&cluster, "0");
    assert_eq!(rank_view(&cluster, first[0])["from_standby"], Value::Null);
    let standbys = wait_for(&cluster, 2);
    assert_eq!(imports(&cluster), 4, "two ranks and two standby processes");
    let view = cluster.view();
    assert!(view["standbys"][0]["memory_bytes"].as_u64() > Some(1 << 20), "{view}");

    // One that ends is replaced.
    let gone = *standbys.first().expect("two");
    signal("-9", gone);
    let standbys = until("another standby process", LIMIT, || {
        let found = waiting(&cluster);
        (found.len() == 2 && !found.contains(&gone)).then_some(found)
    });
    assert_eq!(imports(&cluster), 5);

    signal("-9", first[0]);
    let second = wait_started(&cluster, "1");
    assert_eq!(second.iter().copied().collect::<BTreeSet<_>>(), standbys);
    assert_eq!(imports(&cluster), 5, "no rank has imported its modules again");
    assert_eq!(rank_view(&cluster, second[0])["from_standby"], true);

    let replaced = wait_for(&cluster, 2);
    assert!(replaced.is_disjoint(&standbys));
    assert!(second.iter().all(|pid| lives(*pid)));
    let text = rankguard(&["agent", "status", "--state-dir", text_of(&cluster.state())]).expect(0);
    assert!(text.stdout.contains("job held: 2 of 2 wait"), "{}", text.stdout);

    rankguard(&cluster.args(&["cancel", "held"])).expect(0);
    all_end("ranks and standby processes to end with the job", &replaced);
    assert_eq!(waiting(&cluster), BTreeSet::new());
}

#[test]
fn a_standby_process_that_does_not_answer_is_ended_and_its_rank_is_started() {
    let mut cluster = cluster();
    submit(&cluster, "1");
    let first = wait_started(&cluster, "0");
    let stopped = wait_for(&cluster, 1);
    signal("-STOP", *stopped.first().expect("one"));
    signal("-9", first[1]);
    let second = wait_started(&cluster, "1");
    assert!(second.iter().all(|pid| !stopped.contains(pid)));
    assert_eq!(rank_view(&cluster, second[0])["from_standby"], Value::Null);
    all_end("the stopped process to end", &stopped);

    // The agent takes its standby processes with it.
    let waiting = wait_for(&cluster, 1);
    drop(cluster.agent.take());
    all_end("standby processes to end with their agent", &waiting);
    assert_no_processes(cluster.dir.path());
}

/// No process works in the folder any more.
fn assert_no_processes(folder: &Path) {
    until("the processes of the folder to end", LIMIT, || {
        let processes = fs::read_dir("/proc").expect("there is /proc").flatten();
        let inside = processes.filter(|entry| {
            let numbered = entry.file_name().to_string_lossy().parse::<u64>();
            let place = fs::read_link(entry.path().join("cwd"));
            numbered.is_ok_and(lives) && place.is_ok_and(|place| place == folder)
        });
        (inside.count() == 0).then_some(())
    });
}

#[test]
fn standby_processes_have_the_user_and_the_rights_of_ranks() {
    let own = fs::metadata("/proc/self").expect("there is /proc").uid();
    if own != 0 {
        // Only root can start ranks as another user.
        return;
    }
    let cluster = cluster_with(&["--rank-user", "nobody"]);
    submit(&cluster, "auto");
    let first = wait_started(&cluster, "0");
    let standbys = wait_for(&cluster, 2);
    for pid in first.iter().chain(&standbys) {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        assert_eq!(value("CapEff:"), Some("0000000000000000"), "{status}");
        assert_eq!(value("NoNewPrivs:"), Some("1"), "{status}");
        let user = value("Uid:").and_then(|users| users.split_whitespace().next());
        assert_ne!(user, Some("0"), "{status}");
    }
    signal("-9", first[0]);
    let second = wait_started(&cluster, "1");
    assert_eq!(second.iter().copied().collect::<BTreeSet<_>>(), standbys);
    let output = fs::metadata(cluster.state().join("jobs/held/g2/rank-0.out")).expect("its output");
    assert_ne!(output.uid(), 0);
}

#[test]
fn standby_processes_end_with_a_job_that_is_done() {
    let cluster = cluster();
    let script = "import os, time\nwhile not os.path.exists('done'):\n    time.sleep(0.05)\n";
    fs::write(cluster.dir.path().join("train.py"), script).expect("written");
    submit(&cluster, "1");
    let waiting = wait_for(&cluster, 1);
    fs::write(cluster.dir.path().join("done"), "").expect("written");
    all_end("the standby process to end with the job", &waiting);
}

#[test]
fn a_command_without_standby_processes_is_refused_with_the_reason() {
    let cluster = Cluster::folder();
    let refused = |command: &[&str], reason: &str| {
        let words = [&["run", "--standby", "auto", "--"][..], command].concat();
        let ran = rankguard(&cluster.args(&words)).expect(64);
        ran.says(&[
            "cannot hold standby processes for this command",
            reason,
            "leave --standby out",
        ]);
    };
    refused(&["bash", "train.sh"], "`bash` is not a Python interpreter");
    refused(&["python3", "-c", "pass"], "its program is the text of the option -c");
    refused(&["python3", "-i", "x.py"], "the option -i is not supported");
}

#[test]
fn an_import_that_fails_is_shown_and_the_job_runs() {
    let cluster = cluster();
    let job = [
        "run",
        "--detach",
        "--name",
        "held",
        "--workdir",
        text_of(cluster.dir.path()),
        "--standby",
        "1",
        "--standby-import",
        "no_such_module",
        "--",
        "python3",
        "train.py",
    ];
    rankguard(&cluster.args(&job)).expect(0);
    let problem = until("the problem to be shown", LIMIT, || {
        let view = cluster.view();
        view["standbys"][0]["problem"].as_str().map(str::to_owned)
    });
    assert!(problem.contains("No module named 'no_such_module'"), "{problem}");
    assert_eq!(cluster.view()["ranks"].as_array().map(Vec::len), Some(1));
}
