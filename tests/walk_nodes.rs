//! Faults of one node, handled errors and idle ranks: statements of the program beside what the processes did.

use crate::support;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::cluster::{self, LIMIT, text_of};
use crate::support::{Daemon, command, nodes, rankguard, until};

/// Settings of clusters with several nodes.
const SETTINGS: &str = "\
[controller]
silence_limit_ms = 4_000
[controller.policy]
gather_ms = 500
settle_ms = 300
";

fn list(cluster: &nodes::Cluster, words: &[&str]) -> Vec<Value> {
    let all = cluster.ask(&[words, &["--format", "json"]].concat());
    all.as_array().cloned().unwrap_or_default()
}

fn run(cluster: &nodes::Cluster, words: &[&str]) -> support::Ran {
    rankguard(&[&["run", "--controller", &cluster.address], words].concat())
}

#[test]
fn a_node_that_cannot_start_ranks_is_blamed_and_others_run_the_job() {
    let cluster = nodes::Cluster::start_configured(3, 1, SETTINGS);
    // The agent of n1 cannot write the output of ranks.
    let jobs = cluster.dir.path().join("n1").join("jobs");
    let _ = fs::remove_dir_all(&jobs);
    fs::write(&jobs, "no folder").expect("written");
    for (name, wanted) in [("one", "1"), ("two", "2"), ("range", "1:2")] {
        let ran = run(&cluster, &["--name", name, "--nodes", wanted, "--", "true"]);
        let ran = ran.expect(0);
        assert!(!ran.stderr.contains("lies in the program"), "{}", ran.stderr);
    }
    let cases = list(&cluster, &["cases"]);
    assert_eq!(cases.len(), 3, "{cases:#?}");
    for case in &cases {
        assert_eq!(case["verdict"]["blamed"]["node"], "n1", "{case:#}");
    }
}

/// Starts the agent of a node in a mount namespace where a folder is empty.
fn agent_without(cluster: &nodes::Cluster, node: &str, mount: &Path) -> Child {
    let state = cluster.dir.path().join(node);
    let words = ["agent", "--node", node, "--slots", "1", "--kernel-log", "off"];
    let place = ["--controller", &cluster.address, "--state-dir", text_of(&state)];
    let plain = command(&[&words[..], &place].concat());
    let script = format!("mount -t tmpfs none {} && exec \"$0\" \"$@\"", mount.display());
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", &script])
        .arg(plain.get_program())
        .args(plain.get_args());
    let log = fs::File::create(cluster.dir.path().join(format!("{node}.log"))).expect("a log");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().expect("unshare starts")
}

fn may_mount(mount: &Path) -> bool {
    let script = format!("mount -t tmpfs none {}", mount.display());
    let tried = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

#[test]
#[allow(clippy::print_stderr, reason = "a test that was not run is reported")]
fn a_mount_that_one_node_lacks_is_a_fault_of_that_node() {
    let cluster = nodes::Cluster::start_configured(2, 1, SETTINGS);
    let mount = cluster.folder("mnt");
    let work = mount.join("work");
    fs::create_dir_all(&work).expect("made");
    if !may_mount(&mount) {
        return eprintln!("SKIPPED: mount namespaces need root and `unshare`");
    }
    let mut agent = agent_without(&cluster, "n0", &mount);
    cluster.joined(3);
    // The node is first by name, so it is chosen for each of the jobs.
    for (name, wanted) in [("one", "1"), ("two", "2"), ("range", "1:3")] {
        let words = [
            "--name",
            name,
            "--nodes",
            wanted,
            "--workdir",
            text_of(&work),
            "--",
            "true",
        ];
        run(&cluster, &words).expect(0);
    }
    let cases = list(&cluster, &["cases"]);
    let _ = agent.kill();
    let _ = agent.wait();
    assert_eq!(cases.len(), 3, "{cases:#?}");
    for case in &cases {
        assert_eq!(case["verdict"]["blamed"]["node"], "n0", "{case:#}");
        assert_eq!(case["verdict"]["class"], "filesystem-mount-missing", "{case:#}");
    }
    // What is missing everywhere is a mistake of the job.
    let absent = mount.join("absent");
    let ran = run(
        &cluster,
        &[
            "--name",
            "absent",
            "--nodes",
            "2",
            "--workdir",
            text_of(&absent),
            "--",
            "true",
        ],
    );
    ran.expect(3)
        .says(&["its ranks start on none of the 2 nodes that were tried"]);
}

/// Process of the only rank.
fn rank_process(cluster: &cluster::Cluster) -> Pid {
    until("the rank to run", LIMIT, || {
        let pid = cluster.view()["ranks"][0]["pid"].as_u64()?;
        Pid::from_raw(i32::try_from(pid).ok()?)
    })
}

#[test]
fn a_rank_that_went_on_after_a_handled_traceback_was_killed() {
    let cluster = cluster::Cluster::start(0, &[]);
    let script = "printf 'Traceback (most recent call last):\\n  File \"x.py\", line 1, in <module>\\nKeyError: %s\\n' \
                  \"'loss'\" >&2; i=0; while [ $i -lt 600 ]; do echo step $i; sleep 0.1; i=$((i+1)); done";
    let words = [
        "run",
        "--detach",
        "--name",
        "hd",
        "--max-restarts",
        "1",
        "--",
        "sh",
        "-c",
        script,
    ];
    rankguard(&cluster.args(&words)).expect(0);
    let pid = rank_process(&cluster);
    // It goes on for longer than the end of a failed program takes.
    std::thread::sleep(Duration::from_secs(5));
    kill_process(pid, Signal::KILL).expect("it runs");
    let case = until("the case to be concluded", LIMIT, || {
        let case = cluster.ask(&["cases", "--format", "json"])[0].clone();
        (case["verdict"]["class"].is_string() && case["state"] != "open").then_some(case)
    });
    assert_eq!(case["verdict"]["class"], "killed-by-signal", "{case:#}");
    rankguard(&cluster.args(&["cancel", "hd"]));
}

#[test]
fn stopped_ranks_of_a_job_without_steps_are_reported() {
    let settings = "[controller.policy]\ngather_ms = 200\nsettle_ms = 300\nstall_ms = 3_000\n";
    let cluster = nodes::Cluster::start_configured(1, 1, settings);
    let script = "while :; do echo tick; sleep 0.2; done";
    run(&cluster, &["--detach", "--name", "still", "--", "sh", "-c", script]).expect(0);
    let state = cluster.dir.path().join("n1");
    let pid = until("the rank to run", LIMIT, || {
        let words = ["agent", "status", "--state-dir", text_of(&state), "--format", "json"];
        let view: Value = serde_json::from_str(&rankguard(&words).stdout).ok()?;
        Pid::from_raw(i32::try_from(view["ranks"][0]["pid"].as_u64()?).ok()?)
    });
    until("a sign of life", LIMIT, || {
        (cluster.job()["reason"] == "reports no steps").then_some(())
    });
    kill_process(pid, Signal::STOP).expect("it runs");
    // Agents report ranks as idle a minute after the last sign of life.
    let limit = Duration::from_secs(150);
    until("the status to show it", limit, || {
        let reason = cluster.job()["reason"].as_str()?.to_owned();
        reason
            .contains("no output or use of a processor has been seen since")
            .then_some(())
    });
    let reason = cluster.job()["reason"].clone();
    assert!(
        reason
            .as_str()
            .is_some_and(|reason| reason.contains("rank 0 is stopped by a signal (state T)")),
        "{reason}"
    );
    let case = until("a case", LIMIT, || {
        list(&cluster, &["cases", "--open"]).first().cloned()
    });
    assert_eq!(case["job"], "still", "{case:#}");
    let shown = until("a verdict", LIMIT, || {
        let case = list(&cluster, &["cases", "--open"]).first().cloned()?;
        (case["state"] == "fault-present").then_some(case)
    });
    assert_eq!(shown["verdict"]["class"], "hang-no-error", "{shown:#}");
    assert_eq!(cluster.job()["generation"], 1, "{shown:#}");
    kill_process(pid, Signal::CONT).expect("it is there");
    until("the case to be closed", limit, || {
        list(&cluster, &["cases", "--open"]).is_empty().then_some(())
    });
    let closed = list(&cluster, &["cases"])[0]["outcome"].to_string();
    let outcome = "nothing was restarted, because the job has no checkpoints; its ranks worked again at";
    assert!(closed.contains(outcome), "{closed}");
    rankguard(&["cancel", "still", "--controller", &cluster.address]);
}

#[test]
fn the_output_of_generations_is_separated() {
    let cluster = cluster::Cluster::start(1, &[]);
    let script = "echo generation $RANKGUARD_GENERATION begins; sleep 1; echo 'ValueError: last words' >&2; exit 3";
    let ran = rankguard(&cluster.args(&["run", "--name", "twice", "--output", "--", "sh", "-c", script]));
    let line = "output of generation 2 follows";
    let ran = ran.expect(3).says(&[line]);
    assert_eq!(ran.stderr.matches(line).count(), 1, "{}", ran.stderr);
    for wanted in ["[rank 0] generation 1 begins", "[rank 0] generation 2 begins"] {
        assert!(ran.stdout.contains(wanted), "{wanted:?} is not in:\n{}", ran.stdout);
    }
    let words = ran.stdout.matches("last words").count();
    assert_eq!(words, 2, "the end of the first generation is missing:\n{}", ran.stdout);
}

#[test]
fn variables_of_the_agent_cannot_be_set() {
    let ran = rankguard(&["run", "--env", "RANK=5", "--env", "RANKGUARD_JOB=x", "--", "true"]);
    ran.expect(64).says(&[
        "cannot set RANK, RANKGUARD_JOB with --env",
        "reserved names: GROUP_RANK,",
        "WORLD_SIZE",
        "TORCHELASTIC_RUN_ID",
    ]);
}

#[test]
fn the_remark_about_a_second_agent_ends_soon_after_that_agent() {
    let cluster = cluster::Cluster::start(0, &[]);
    let state = cluster.dir.path().join("other");
    let log = cluster.dir.path().join("other.log");
    let words = ["agent", "--node", "n1", "--slots", "2", "--kernel-log", "off"];
    let place = ["--controller", &cluster.address, "--state-dir", text_of(&state)];
    let other = Daemon::start(&[&words[..], &place].concat(), &log);
    let reason = || {
        let node = cluster.ask(&["status", "nodes", "--format", "json"])[0].clone();
        node["reason"].as_str().unwrap_or_default().to_owned()
    };
    until("the second agent to be refused", LIMIT, || {
        reason().contains("is refused, last at").then_some(())
    });
    // It is refused again and again, and the remark stays.
    std::thread::sleep(Duration::from_secs(6));
    assert!(reason().contains("is refused, last at"));
    drop(other);
    let ended = Instant::now();
    until("the remark to end", LIMIT, || reason().is_empty().then_some(()));
    assert!(ended.elapsed() < Duration::from_secs(20), "{:?}", ended.elapsed());
}

#[test]
fn a_drain_keeps_the_reason_of_a_cordon_and_a_removed_node_is_unknown() {
    let mut cluster = nodes::Cluster::start_configured(2, 1, SETTINGS);
    let address = cluster.address.clone();
    let node = |words: &[&str]| rankguard(&[&["node"], words, &["--controller", &address]].concat());
    node(&["cordon", "n2", "--reason", "bad fan, ticket 7"]).expect(0);
    node(&["drain", "n2"]).expect(0);
    let shown = node(&["show", "n2"]).expect(0).stdout;
    for part in ["bad fan, ticket 7", "drained by hand"] {
        assert!(shown.contains(part), "{part:?} is not in:\n{shown}");
    }
    drop(cluster.agents.pop());
    until("the node to be lost", LIMIT, || {
        let nodes = list(&cluster, &["status", "nodes"]);
        nodes.iter().any(|node| node["state"] == "lost").then_some(())
    });
    node(&["forget", "n2"]).expect(0);
    node(&["cordon", "n2"]).expect(2).says(&["there is no node n2"]);
}

#[test]
fn a_faulty_node_beyond_the_cordon_limit_is_shown_as_faulty() {
    let settings = format!("{SETTINGS}[agent]\ninjection = true\n");
    let cluster = nodes::Cluster::start_configured(2, 1, &settings);
    let xid = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=python, GPU has fallen off the bus.";
    for (node, cases) in [("n1", 1), ("n2", 2)] {
        let state = cluster.dir.path().join(node);
        rankguard(&["inject", "--state-dir", text_of(&state), "kernel-line", xid]).expect(0);
        until("the verdict", LIMIT, || {
            let all = list(&cluster, &["cases"]);
            let is_concluded = all.len() == cases && all.iter().all(|case| case["outcome"].is_string());
            is_concluded.then_some(())
        });
    }
    let ask = |words: &[&str]| rankguard(&[&words[..1], &["--controller", &cluster.address], &words[1..]].concat());
    let status = ask(&["status"]).expect(0).says(&["open: case 2;"]);
    let line = status
        .stdout
        .lines()
        .find(|line| line.starts_with("n2"))
        .expect("its row");
    for part in [
        "in use although faulty",
        "case 2: gpu-fallen-off-bus",
        "1 node is cordoned and 1 may be",
    ] {
        assert!(line.contains(part), "{part:?} is not in: {line}");
    }
    let open = ask(&["cases", "--open"])
        .expect(0)
        .says(&["case 2 awaits an operator: node n2 is in use although faulty"]);
    assert!(open.stdout.contains("gpu-fallen-off-bus"), "{}", open.stdout);
    assert!(open.stdout.contains("awaits decision"), "{}", open.stdout);
    let shown = rankguard(&["cases", "show", "2", "--controller", &cluster.address]).expect(0);
    assert!(shown.stdout.contains("awaits decision"), "{}", shown.stdout);
    let show = |node: &str| {
        rankguard(&["node", "show", node, "--controller", &cluster.address])
            .expect(0)
            .stdout
    };
    let shown = show("n2");
    assert!(shown.starts_with("node n2: in use although faulty\n"), "{shown}");
    assert!(shown.contains("case 2: gpu-fallen-off-bus"), "{shown}");
    // One state in every listing.
    assert!(shown.contains("awaits decision"), "{shown}");
    assert!(!shown.contains("closed"), "{shown}");
    let case = list(&cluster, &["cases", "--open"]).remove(0);
    assert_eq!(case["state"], "awaits-decision", "{case:#}");
    let words = [
        "node",
        "show",
        "n2",
        "--controller",
        &cluster.address,
        "--format",
        "json",
    ];
    let of_node: Value = serde_json::from_str(&rankguard(&words).expect(0).stdout).expect("JSON");
    assert_eq!(of_node["cases"][0]["state"], "awaits-decision", "{of_node:#}");
    rankguard(&["node", "uncordon", "n2", "--controller", &cluster.address]).expect(0);
    assert!(show("n2").starts_with("node n2: healthy\n"));
    assert_eq!(list(&cluster, &["cases", "--open"]).len(), 0);
    let all = list(&cluster, &["cases"]);
    let case = all.iter().find(|case| case["id"] == 2).expect("the case");
    let outcome = case["outcome"].as_str().expect("it has one");
    assert!(
        outcome.contains("; an operator accepted node n2 for use at "),
        "{outcome}"
    );
}

#[test]
fn a_start_that_failed_is_a_case_of_its_node() {
    let cluster = nodes::Cluster::start_configured(1, 1, SETTINGS);
    run(&cluster, &["--name", "absent", "--", "no-such-program"]).expect(3);
    assert_eq!(list(&cluster, &["cases", "--node", "n1"]).len(), 1);
    let shown = rankguard(&["node", "show", "n1", "--controller", &cluster.address])
        .expect(0)
        .stdout;
    assert!(shown.contains("invalid-job-spec"), "{shown}");
}

#[test]
fn a_corrected_case_is_found_by_its_corrected_class() {
    let cluster = cluster::Cluster::start(0, &[]);
    let fails = "echo 'ValueError: bad shape' >&2; exit 3";
    rankguard(&cluster.args(&["run", "--name", "a", "--", "sh", "-c", fails])).expect(3);
    rankguard(&cluster.args(&["cases", "--class", "clock-skew"]))
        .expect(0)
        .says(&["no cases"]);
    rankguard(&["cases", "correct", "1", "clock-skew", "--controller", &cluster.address]).expect(0);
    let listed = rankguard(&cluster.args(&["cases", "--class", "clock-skew"]))
        .expect(0)
        .stdout;
    assert!(listed.contains("corrected: clock-skew"), "{listed}");
}

#[test]
fn ranks_that_a_fence_ends_are_no_consequences_of_a_lost_node() {
    let mut cluster = nodes::Cluster::start_configured(3, 1, SETTINGS);
    let script = "while :; do echo tick; sleep 0.2; done";
    let words = ["--detach", "--name", "pair", "--nodes", "2", "--", "sh", "-c", script];
    run(&cluster, &words).expect(0);
    let nodes_of = |job: &Value| -> Vec<String> {
        let places = job["placements"].as_array().cloned().unwrap_or_default();
        let nodes = places.iter().filter_map(|place| place["node"].as_str());
        nodes.map(str::to_owned).collect()
    };
    let before = until("the job to run", LIMIT, || {
        let job = cluster.job();
        (job["state"] == "running" && nodes_of(&job).len() == 2).then(|| nodes_of(&job))
    });
    let [lost, survivor] = &before[..] else {
        panic!("{before:?}")
    };
    let place: usize = lost.trim_start_matches('n').parse().expect("a number");
    cluster.agents[place - 1].kill();
    until("the next generation", LIMIT, || {
        let job = cluster.job();
        (job["state"] == "running" && job["generation"] == 2).then_some(())
    });
    // The exit of the fenced rank is reported before the fence, and the next generation runs.
    let cases = list(&cluster, &["cases"]);
    let case = cases
        .iter()
        .find(|case| case["verdict"]["blamed"]["node"] == lost.as_str());
    let case = case.unwrap_or_else(|| panic!("{cases:#?}"));
    let findings = case["findings"].as_array().cloned().unwrap_or_default();
    let is_of_survivor =
        |finding: &&Value| finding["entity"]["node"] == survivor.as_str() && finding["role"] != "noise";
    assert_eq!(findings.iter().find(is_of_survivor), None, "{case:#}");
    rankguard(&["cancel", "pair", "--controller", &cluster.address]);
}

/// Starts a controller, and an agent that follows a file as its kernel log. Evidence from around the end of a job is
/// reported for 3 s.
fn start_with_kernel_log(lines: &str) -> (nodes::Cluster, Daemon, std::path::PathBuf) {
    let settings = "[controller.policy]\ngather_ms = 200\nsettle_ms = 3_000\n";
    let mut cluster = nodes::Cluster::start_configured(0, 1, settings);
    cluster.is_forged = true;
    let kernel_log = cluster.dir.path().join("kernel.log");
    fs::write(&kernel_log, lines).expect("written");
    let state = cluster.dir.path().join("n1");
    let words = [
        "agent",
        "--node",
        "n1",
        "--slots",
        "1",
        "--kernel-log",
        text_of(&kernel_log),
    ];
    let place = ["--controller", &cluster.address, "--state-dir", text_of(&state)];
    let agent = Daemon::start(&[&words[..], &place].concat(), &cluster.dir.path().join("n1.log"));
    cluster.joined(1);
    (cluster, agent, kernel_log)
}

fn append(path: &Path, line: &str) {
    use std::io::Write;

    let mut file = fs::File::options().append(true).open(path).expect("opens");
    writeln!(file, "{line}").expect("written");
}

/// Returns the kernel's line about a lost GPU.
fn lost_gpu(bus: &str) -> String {
    format!("NVRM: Xid (PCI:0000:{bus}:00): 79, pid=77, name=x, GPU has fallen off the bus.")
}

#[test]
fn a_gpu_that_is_lost_just_after_a_job_takes_its_node_out_of_use_until_an_operator_returns_it() {
    let (cluster, _agent, kernel_log) = start_with_kernel_log("");
    run(&cluster, &["--name", "one", "--", "true"]).expect(0);
    append(&kernel_log, &lost_gpu("9b"));
    let node = || list(&cluster, &["status", "nodes"])[0].clone();
    until("the node to be out of use", LIMIT, || {
        (node()["state"] == "cordoned").then_some(())
    });
    let case = until("the outcome", LIMIT, || {
        let case = list(&cluster, &["cases"]).first()?.clone();
        case["outcome"].is_string().then_some(case)
    });
    assert_eq!(case["verdict"]["class"], "gpu-fallen-off-bus", "{case:#}");
    assert!(case["job"].is_null(), "{case:#}");
    assert_eq!(case["outcome"], "node n1 was taken out of use");
    rankguard(&["node", "uncordon", "n1", "--controller", &cluster.address]).expect(0);
    let shown = rankguard(&["cases", "show", "1", "--controller", &cluster.address]);
    let shown = shown.expect(0).stdout;
    for wanted in [
        "node n1 was taken out of use; an operator returned it to use at 20",
        "an operator returned node n1 to use",
    ] {
        assert!(shown.contains(wanted), "{wanted:?} is not in:\n{shown}");
    }
}

#[test]
fn a_fault_that_an_operator_cleared_is_not_reported_again_by_an_agent_with_an_empty_state_directory() {
    let (cluster, agent, kernel_log) = start_with_kernel_log("");
    let uptime = fs::read_to_string("/proc/uptime").expect("readable");
    let uptime = uptime.split_whitespace().next().expect("two numbers");
    // The kernel prints microseconds, and the file has hundredths of seconds.
    append(&kernel_log, &format!("[{uptime}0000] {}", lost_gpu("9b")));
    let node = || list(&cluster, &["status", "nodes"])[0].clone();
    until("the node to be out of use", LIMIT, || {
        (node()["state"] == "cordoned").then_some(())
    });
    rankguard(&["node", "uncordon", "n1", "--controller", &cluster.address]).expect(0);
    drop(agent);
    let state = cluster.dir.path().join("empty");
    let log = text_of(&kernel_log);
    let words = ["agent", "--node", "n1", "--slots", "1", "--kernel-log", log];
    let place = ["--controller", &cluster.address, "--state-dir", text_of(&state)];
    let _agent = Daemon::start(&[&words[..], &place].concat(), &cluster.dir.path().join("again.log"));
    until("the old line to be read again", LIMIT, || {
        let ran = rankguard(&["agent", "status", "--state-dir", text_of(&state), "--format", "json"]);
        ran.stdout.contains("0000:9b:00").then_some(())
    });
    // A later fault is answered, so everything before it has been.
    append(&kernel_log, &lost_gpu("bb"));
    let later = until("the case of the later fault", LIMIT, || {
        let cases = list(&cluster, &["cases"]);
        let is_later = |case: &&Value| case["verdict"]["blamed"].to_string().contains("0000:bb:00");
        cases.iter().find(is_later).cloned()
    });
    assert_eq!(later["findings"].as_array().map(Vec::len), Some(1), "{later:#}");
    assert_eq!(list(&cluster, &["cases"]).len(), 2);
}

#[test]
fn a_fault_of_an_earlier_boot_is_over() {
    let line = format!("2020-01-01T03:00:00.000000+00:00 n1 kernel: {}\n", lost_gpu("9b"));
    let (cluster, _agent, kernel_log) = start_with_kernel_log(&line);
    let state = cluster.dir.path().join("n1");
    until("the old line to be read", LIMIT, || {
        let ran = rankguard(&["agent", "status", "--state-dir", text_of(&state), "--format", "json"]);
        ran.stdout.contains("0000:9b:00").then_some(())
    });
    append(&kernel_log, &lost_gpu("bb"));
    let case = until("a case", LIMIT, || {
        let case = list(&cluster, &["cases"]).first()?.clone();
        (case["verdict"]["class"] == "gpu-fallen-off-bus").then_some(case)
    });
    assert!(case["verdict"]["blamed"].to_string().contains("0000:bb:00"), "{case:#}");
    assert_eq!(list(&cluster, &["cases"]).len(), 1);
}

#[test]
fn an_exception_of_a_process_outside_the_job_does_not_explain_the_end_of_a_rank() {
    let (cluster, _agent, kernel_log) = start_with_kernel_log("");
    let state = cluster.dir.path().join("n1");
    let go = cluster.dir.path().join("go");
    let script = format!("until [ -e {} ]; do sleep 0.1; done; exit 3", go.display());
    let words = [
        "--detach",
        "--name",
        "left",
        "--max-restarts",
        "0",
        "--",
        "sh",
        "-c",
        &script,
    ];
    run(&cluster, &words).expect(0);
    let status = || rankguard(&["agent", "status", "--state-dir", text_of(&state), "--format", "json"]);
    until("the rank to run", LIMIT, || {
        let view: Value = serde_json::from_str(&status().stdout).ok()?;
        view["ranks"][0]["pid"].as_u64()
    });
    // This test runs outside the job.
    let pid = std::process::id();
    let text = "name=blender, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS";
    append(
        &kernel_log,
        &format!("NVRM: Xid (PCI:0000:3b:00): 31, pid={pid}, {text}"),
    );
    until("the line to be read", LIMIT, || {
        status().stdout.contains("blender").then_some(())
    });
    fs::write(&go, "").expect("written");
    let case = until("a verdict", LIMIT, || {
        let case = list(&cluster, &["cases"]).first()?.clone();
        case["outcome"].is_string().then_some(case)
    });
    let is_first = fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == "pid:[4026531836]");
    let expected = if is_first {
        "rank-exit-unknown"
    } else {
        "gpu-engine-exception"
    };
    assert_eq!(case["verdict"]["class"], expected, "{case:#}");
}

/// Returns the process of the rank that runs on a node.
fn process_of_rank_on(cluster: &nodes::Cluster, node: &str) -> Pid {
    let state = cluster.dir.path().join(node);
    until("the rank", LIMIT, || {
        let ran = rankguard(&["agent", "status", "--state-dir", text_of(&state), "--format", "json"]);
        let view: Value = serde_json::from_str(&ran.stdout).ok()?;
        Pid::from_raw(i32::try_from(view["ranks"][0]["pid"].as_u64()?).ok()?)
    })
}

#[test]
fn a_rank_that_is_killed_beside_a_drill_on_another_node_is_a_case_of_its_own() {
    let settings = format!("{SETTINGS}[agent]\ninjection = true\n");
    let cluster = nodes::Cluster::start_configured(2, 1, &settings);
    let xid = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=python, GPU has fallen off the bus.";
    let words = ["--name", "pair", "--nodes", "2", "--detach", "--", "sleep", "60"];
    run(&cluster, &words).expect(0);
    let state = cluster.dir.path().join("n2");
    process_of_rank_on(&cluster, "n2");
    let pid = process_of_rank_on(&cluster, "n1");
    rankguard(&["inject", "--state-dir", text_of(&state), "kernel-line", xid]).expect(0);
    kill_process(pid, Signal::KILL).expect("it runs");
    let real = until("the case of the rank", LIMIT, || {
        let all = list(&cluster, &["cases", "--no-drills"]);
        all.into_iter()
            .find(|case| case["verdict"]["class"] == "killed-by-signal")
    });
    assert_eq!(real["verdict"]["blamed"]["node"], "n1", "{real:#}");
    assert_eq!(real["job"], "pair", "{real:#}");
    // The line of the drill may wait for repeats while the job starts again.
    let all = until("the verdict about the drill", LIMIT, || {
        let all = list(&cluster, &["cases"]);
        let is_settled = all.len() > 1 && all.iter().all(|case| case["verdict"]["class"] != "unknown");
        is_settled.then_some(all)
    });
    assert_eq!(all.len(), 2, "{all:#?}");
    let drill = all.iter().find(|case| case["id"] != real["id"]);
    let drill = drill.expect("the drill has a case");
    assert_eq!(drill["verdict"]["class"], "gpu-fallen-off-bus", "{drill:#}");
    assert_eq!(drill["verdict"]["blamed"]["node"], "n2", "{drill:#}");
    assert_eq!(drill["findings"][0]["synthetic"], true, "{drill:#}");
    // The cordon by a drill is marked wherever it is shown.
    for words in [&["status"][..], &["node", "show", "n2"]] {
        let words = [words, &["--controller", &cluster.address]].concat();
        let shown = rankguard(&words).expect(0).stdout;
        assert!(shown.contains("gpu 0000:9b:00 (synthetic)"), "{shown}");
    }
    rankguard(&["cancel", "pair", "--controller", &cluster.address]);
}
