//! Faults that a person lets happen to a running agent, through the programs that people start.

#![allow(clippy::print_stderr, reason = "a test that cannot run says so loudly")]

use crate::support;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::cluster::{Cluster, LIMIT, text_of};
use crate::support::{Ran, command, finish, rankguard, until};

const XID: &str = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=python, GPU has fallen off the bus.";

/// An agent into which faults are injected, and a controller where one is wanted.
struct Node(Cluster);

impl Node {
    fn alone(words: &[&str]) -> Self {
        Self(Cluster::agent_alone(words))
    }

    fn with_controller(words: &[&str]) -> Self {
        Self(Cluster::start(0, words))
    }

    fn state(&self) -> PathBuf {
        self.0.state()
    }

    fn view(&self) -> Value {
        self.0.view()
    }

    fn ask(&self, words: &[&str]) -> Value {
        self.0.ask(words)
    }

    fn inject(&self, words: &[&str]) -> Ran {
        rankguard(
            &[
                &["inject", "--state-dir", text_of(&self.state()), "--format", "json"],
                words,
            ]
            .concat(),
        )
    }

    /// Waits for a finding of the agent.
    fn finding(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        until(what, LIMIT, || {
            let view = self.view();
            view["findings"].as_array()?.iter().find(|finding| is(finding)).cloned()
        })
    }

    /// Starts a job of one rank that runs for ever, and waits for its process.
    fn job(&self) -> u32 {
        let address = self.0.address.clone();
        let script = "while :; do sleep 0.05; done";
        rankguard(&[
            "run",
            "--controller",
            &address,
            "--detach",
            "--name",
            "llm",
            "--",
            "sh",
            "-c",
            script,
        ])
        .expect(0);
        self.rank(0)
    }

    /// Waits for a process of the rank other than this.
    fn rank(&self, other: u32) -> u32 {
        until("the rank", LIMIT, || {
            let pid = self.view()["ranks"][0]["pid"].as_u64()?;
            u32::try_from(pid).ok().filter(|pid| *pid != other)
        })
    }
}

fn class(finding: &Value) -> &str {
    finding["marks"][0]["class"].as_str().unwrap_or_default()
}

/// The letter that the kernel gives the state of a process.
fn process_state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim().chars().next()
}

#[test]
fn an_agent_that_was_not_told_to_takes_no_faults_and_one_that_does_not_run_neither() {
    let mut node = Node::alone(&[]);
    assert!(!node.state().join("inject.sock").exists());
    node.inject(&["kernel-line", XID])
        .expect(2)
        .says(&["fault injection is disabled", "agent.injection = true"]);
    node.0.agent = None;
    node.inject(&["kernel-line", XID])
        .expect(2)
        .says(&["cannot reach the agent of this node"]);
    // One that is killed leaves its door behind; the next one does not open it.
    node.0.start_agent(&["--injection"]);
    node.inject(&["kernel-line", XID]).expect(0);
    node.0.agent = None;
    node.0.start_agent(&[]);
    node.inject(&["kernel-line", XID])
        .expect(2)
        .says(&["fault injection is disabled"]);
}

/// The word of the kernel counts: another user who can reach the file is not answered.
#[test]
fn another_user_is_not_heard() {
    let node = Node::alone(&["--injection"]);
    if !rustix_is_root() {
        eprintln!("SKIPPED: another user can only be taken by root");
        return;
    }
    for (path, mode) in [
        (node.0.dir.path().to_owned(), 0o755),
        (node.state(), 0o755),
        (node.state().join("inject.sock"), 0o666),
    ] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    }
    // The program itself may lie where nobody else can reach it.
    let program = node.0.dir.path().join("rankguard");
    // Copied by a process of its own: a process that another test starts at this moment would inherit the open file, and a
    // program that is open for writing cannot be started.
    let copied = std::process::Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_rankguard"))
        .arg(&program)
        .status();
    assert!(copied.is_ok_and(|status| status.success()), "the program is not copied");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("ours");
    let state = node.state();
    let words = ["inject", "--state-dir", text_of(&state), "kernel-line", XID];
    let mut asked = std::process::Command::new(&program);
    let as_another = command(&words);
    asked
        .args(as_another.get_args())
        .uid(65_534)
        .gid(65_534)
        .current_dir("/");
    asked
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let ran = finish(asked.spawn().expect("it starts"), LIMIT);
    ran.expect(2).says(&["did not say what became of it"]);
    assert_eq!(node.view()["newest_injections"], Value::Array(Vec::new()));
}

fn rustix_is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_kernel_line_is_synthetic_from_its_evidence_to_the_case_the_report_and_the_numbers() {
    let node = Node::with_controller(&["--injection", "--metrics-listen", "127.0.0.1:0"]);
    let done = node.inject(&["kernel-line", XID]).expect(0).stdout;
    let done: Value = serde_json::from_str(&done).expect("json");
    assert_eq!(
        (done["number"].as_u64(), done["kind"].as_str()),
        (Some(1), Some("kernel-line"))
    );
    let finding = node.finding("the finding", |it| class(it) == "gpu-fallen-off-bus");
    assert_eq!(finding["synthetic"], true, "{finding:#}");
    assert_eq!(finding["entity"]["device"]["address"], "0000:9b:00");

    let case = until("the case", LIMIT, || {
        let cases = node.ask(&["cases", "--format", "json"]);
        let mut cases = cases.as_array()?.clone().into_iter();
        cases.find(|case| case["verdict"]["class"] == "gpu-fallen-off-bus")
    });
    assert_eq!(case["findings"][0]["synthetic"], true, "{case:#}");
    let address = node.0.address.clone();
    let number = case["id"].to_string();
    let shown = rankguard(&["cases", "show", &number, "--controller", &address])
        .expect(0)
        .stdout;
    assert!(
        shown.contains("synthetic   yes") && shown.contains(" (synthetic)\n"),
        "{shown}"
    );
    rankguard(&["cases", "--controller", &address])
        .expect(0)
        .says(&[&format!("case {number} is synthetic")]);
    let state = node.state();
    rankguard(&["cases", "--local", "--state-dir", text_of(&state)])
        .expect(0)
        .says(&["is synthetic"]);
    let local = rankguard(&["cases", "show", "1", "--local", "--state-dir", text_of(&state)]).expect(0);
    assert!(local.stdout.starts_with("case 1: "), "{}", local.stdout);
    rankguard(&["cases", "show", "99", "--local", "--state-dir", text_of(&state)])
        .expect(2)
        .says(&["no case 99", "rankguard cases --local"]);
    let report = node.0.dir.path().join("report");
    rankguard(&["report", "--controller", &address, "--out", text_of(&report)]).expect(0);
    let page = fs::read_to_string(report.join("report.html")).expect("written");
    assert!(page.contains("<span class=\"badge\">synthetic</span>"));

    let numbers = numbers(&node);
    for wanted in [
        "rankguard_agent_findings_total{class=\"gpu-fallen-off-bus\",role=\"root\",kind=\"gpu\",entity=\"0000:9b:00\",synthetic=\"true\"} 1",
        "rankguard_agent_codes_total{family=\"xid\",code=\"79\",kind=\"gpu\",entity=\"0000:9b:00\",synthetic=\"true\"} 1",
        "rankguard_agent_injections_total{kind=\"kernel-line\"} 1",
    ] {
        assert!(
            numbers.lines().any(|line| line == wanted),
            "{wanted} is not in\n{numbers}"
        );
    }
}

/// The page that Prometheus reads.
fn numbers(node: &Node) -> String {
    let log = fs::read_to_string(node.0.dir.path().join("agent.log")).expect("it logs");
    let line = log.lines().find(|line| line.contains("metrics are served"));
    let address: String = line
        .and_then(|line| line.split("127.0.0.1:").nth(1))
        .map(|rest| rest.chars().take_while(char::is_ascii_digit).collect())
        .expect("it says where");
    let mut stream = TcpStream::connect(format!("127.0.0.1:{address}")).expect("it listens");
    stream
        .write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
        .expect("it reads");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("it answers");
    page
}

#[test]
fn a_rank_is_killed_and_its_case_is_synthetic() {
    let node = Node::with_controller(&["--injection"]);
    node.job();
    node.inject(&["rank-kill", "llm/7"])
        .expect(2)
        .says(&["rank 7 does not run here; ranks that do: llm/0"]);
    node.inject(&["rank-kill", "0", "--signal", "19"])
        .expect(2)
        .says(&["19 is no signal that ends a process"]);
    node.inject(&["rank-kill", "llm/0", "--signal", "11"]).expect(0);
    let exit = node.finding("the exit", |it| it["body"]["kind"] == "rank-exited");
    assert_eq!(exit["synthetic"], true, "{exit:#}");
    let case = until("the case", LIMIT, || {
        let cases = node.ask(&["cases", "--format", "json"]);
        // One that is still open has no findings yet.
        let mut cases = cases.as_array()?.iter();
        let concluded = |case: &&Value| case["job"] == "llm" && case["findings"][0].is_object();
        cases.find(concluded).cloned()
    });
    assert_eq!(case["findings"][0]["synthetic"], true, "{case:#}");
}

#[test]
fn a_rank_that_hangs_or_is_slow_goes_on_by_itself() {
    let mut node = Node::with_controller(&["--injection"]);
    let pid = node.job();
    let stopped = |what| until(what, LIMIT, || (process_state(pid)? == 'T').then_some(()));
    let runs = |what| until(what, LIMIT, || (process_state(pid)? != 'T').then_some(()));
    // Looked for from before: whoever asked may hear of it when it is over.
    std::thread::scope(|scope| {
        scope.spawn(|| stopped("the rank to be stopped"));
        node.inject(&["rank-hang", "0", "--for", "5s"]).expect(0);
    });
    runs("the rank to go on");
    node.inject(&["rank-slow", "0", "--stopped", "2", "--for", "2s"])
        .expect(2)
        .says(&["0.05 to 0.95"]);
    node.inject(&["rank-slow", "0", "--stopped", "0.9", "--for", "30m"])
        .expect(0);
    stopped("the rank to be slow");
    runs("the rank to move between");
    // A stopped rank does not keep its agent from ending in order.
    node.inject(&["rank-hang", "0", "--for", "30m"]).expect(0);
    let mut agent = node.0.agent.take().expect("it runs");
    assert_eq!(agent.terminate(LIMIT), Some(0));
    until("the rank to be gone", LIMIT, || {
        process_state(pid).is_none().then_some(())
    });
}

/// One RDMA device, as sysfs shows it.
fn adapter(root: &Path) {
    let port = root.join("class/infiniband/mlx5_0/ports/1");
    fs::create_dir_all(port.join("counters")).expect("made");
    fs::write(port.join("state"), "4: ACTIVE\n").expect("written");
    fs::write(port.join("counters/link_downed"), "3\n").expect("written");
}

#[test]
fn what_an_adapter_says_is_overlaid_for_a_while() {
    let sysfs = tempfile::tempdir().expect("a folder");
    adapter(sysfs.path());
    let node = Node::alone(&["--injection", "--sysfs-root", text_of(sysfs.path())]);
    until("the first look", LIMIT, || {
        let known = node.inject(&["nic", "mlx5_9", "nic.port_state", "1"]).expect(2).stderr;
        known.contains("known are: mlx5_0").then_some(())
    });
    node.inject(&["nic", "mlx5_0", "nic.port_stat", "1", "--port", "1"])
        .expect(2)
        .says(&["known metrics: nic.link_downed port 1, nic.port_state port 1"]);
    node.inject(&["nic", "mlx5_0", "nic.port_state", "1", "--port", "1", "--for", "1m"])
        .expect(0);
    let down = node.finding("the link to be down", |it| class(it) == "nic-link-down");
    assert_eq!(
        (down["synthetic"].as_bool(), down["body"]["value"].as_f64()),
        (Some(true), Some(1.0))
    );
    node.inject(&["nic", "mlx5_0", "nic.link_downed", "2", "--port", "1"])
        .expect(0);
    let flap = node.finding("the flap", |it| class(it) == "nic-link-flap");
    assert_eq!(
        (flap["synthetic"].as_bool(), flap["body"]["value"].as_f64()),
        (Some(true), Some(5.0))
    );
}

#[test]
fn lines_of_a_job_and_room_on_a_disk() {
    let node = Node::alone(&["--injection"]);
    node.inject(&[
        "log-line",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    ])
    .expect(0);
    let finding = node.finding("the finding", |it| it["source"] == "job-log");
    assert_eq!(finding["synthetic"], true, "{finding:#}");
    node.inject(&["log-line", "--rank", "3", "x"])
        .expect(2)
        .says(&["ranks that do: none"]);

    let disk = node.0.dir.path().join("disk");
    fs::create_dir(&disk).expect("made");
    let of_disk = text_of(&disk);
    node.inject(&["disk-full", of_disk, "--bytes", "18446744073709551615", "--for", "1s"])
        .expect(2)
        .says(&["bytes of room: fewer than"]);
    node.inject(&["disk-full", of_disk, "--bytes", "1048576", "--for", "100m"])
        .expect(64)
        .says(&["from 1ms to 60m"]);
    node.inject(&["disk-full", of_disk, "--bytes", "1048576", "--for", "500ms"])
        .expect(0);
    assert_eq!(fs::read_dir(&disk).expect("it is there").count(), 0);
    let view = node.view();
    assert_eq!(view["injections"]["disk-full"], 1, "{view:#}");
    assert!(
        view["evidence"]["agent"].as_u64() >= Some(2),
        "each is evidence itself: {view:#}"
    );
}

#[test]
fn made_up_gpus_fail_when_they_are_told_to_and_real_ones_never() {
    let node = Node::alone(&["--injection"]);
    node.inject(&["nvml", "error 1 15"])
        .expect(2)
        .says(&["this agent was not started with --simulate"]);
    drop(node);

    let dir = tempfile::tempdir().expect("a folder");
    let library = support::stand_in(dir.path());
    let scenario = dir.path().join("scenario.txt");
    fs::write(&scenario, "count 2\naddress 1 BB\ntemperature * 55\nslowdown * 87\n").expect("written");
    let words = [
        "--simulate",
        text_of(&scenario),
        "--nvml-library",
        text_of(&library),
        "--injection",
    ];
    let mut node = Node::alone(&words);
    node.inject(&["nvml", "temprature 0 95"])
        .expect(2)
        .says(&["`temprature` is not known as a fact"]);
    node.inject(&["nvml", "xid 0 79", "--for", "5s"])
        .expect(2)
        .says(&["an XID is a moment"]);
    node.inject(&["nvml", "error 1 15", "--for", "10s"]).expect(0);
    let lost = node.finding("the lost device", |it| class(it) == "gpu-fallen-off-bus");
    assert_eq!(
        (lost["synthetic"].as_bool(), &lost["entity"]["device"]["address"]),
        (Some(true), &"0000:bb:00".into())
    );
    until("the scenario to be as it was", LIMIT, || {
        let text = fs::read_to_string(&scenario).ok()?;
        (!text.contains("injected")).then_some(())
    });
    node.inject(&["nvml", "xid 0 48"]).expect(0);
    let event = node.finding("the event", |it| it["marks"][0]["fields"]["xid"] == "48");
    assert_eq!(event["synthetic"], true, "{event:#}");
    // What was given no end ends with the agent.
    node.inject(&["nvml", "temperature 0 95"]).expect(0);
    node.0.agent.take().expect("it runs").terminate(LIMIT);
    let text = fs::read_to_string(&scenario).expect("it is still there");
    assert!(!text.contains("injected"), "{text}");
}

/// RG-11: a typing error in a scenario would be a fault that never comes.
#[test]
fn a_scenario_that_means_nothing_is_refused_with_file_line_and_what_is_known() {
    let dir = tempfile::tempdir().expect("a folder");
    let scenario = dir.path().join("scenario.txt");
    fs::write(&scenario, "count 2\n\nhang temprature\n").expect("written");
    let wanted = format!(
        "the scenario {} means nothing at line 3: `temprature` is not known",
        text_of(&scenario)
    );
    rankguard(&["agent", "--simulate", text_of(&scenario)])
        .expect(2)
        .says(&[&wanted, "temperature"]);
}

/// RG-12: preflight makes no call of its own that could hang.
#[test]
fn preflight_names_the_call_in_which_a_driver_hangs_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("a folder");
    let library = support::stand_in(dir.path());
    let scenario = dir.path().join("scenario");
    let preflight = || {
        let words = [
            "preflight",
            "--nvml-library",
            text_of(&library),
            "--gpus",
            "2",
            "--deadline-s",
            "4",
        ];
        let ran = rankguard(&[&words[..], &["--format", "json"]].concat());
        let checks: Value = serde_json::from_str(&ran.stdout).expect("json");
        let of_gpus = checks.as_array().expect("a list").iter();
        let of_gpus = of_gpus.filter(|check| check["check"].as_str().is_some_and(|name| name.starts_with("gpu")));
        of_gpus.cloned().collect::<Vec<Value>>()
    };
    fs::write(&scenario, "count 2\ntemperature * 55\necc 1 3\nunrepaired * 0\n").expect("written");
    let checks = preflight();
    let told: Vec<_> = checks
        .iter()
        .map(|check| (check["subject"].as_str(), check["verdict"].as_str()))
        .collect();
    let wanted = [("all", "ok"), ("0000:00:00", "ok"), ("0000:01:00", "warn")];
    assert_eq!(
        told,
        wanted.map(|(subject, verdict)| (Some(subject), Some(verdict))),
        "{checks:#?}"
    );
    fs::write(&scenario, "count 2\ntemperature * 55\nhang temperature\n").expect("written");
    let checks = preflight();
    assert_eq!(checks.len(), 1, "{checks:#?}");
    assert_eq!(checks[0]["class"], "gpu-driver-fault");
    assert!(
        checks[0]["found"]
            .as_str()
            .is_some_and(|found| found.contains("read the temperature of device")),
        "{checks:#?}"
    );
    until("the process to be gone", LIMIT, || {
        let entries = fs::read_dir("/proc").expect("there is /proc").flatten();
        let mut lines = entries.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
        (!lines.any(|line| line.contains("gpu-calls") && line.contains(text_of(&library)))).then_some(())
    });
}
