//! The main job, as a newcomer runs it: the whole story on real processes, and the same under random kills.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::guard::guarded;

/// A demo must have ended long before; a test that hangs says nothing.
const LIMIT: Duration = Duration::from_secs(240);

struct Demo {
    output: Output,
    out: tempfile::TempDir,
}

fn demo(extra: &[&str]) -> Demo {
    let out = tempfile::tempdir().expect("a temporary folder");
    let child = guarded(&mut Command::new(env!("CARGO_BIN_EXE_rankguard")))
        .args(["demo", "--format", "json", "--out"])
        .arg(out.path())
        .args(extra)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the demo starts");
    let output = child.wait_with_output().expect("the demo ends");
    Demo { output, out }
}

impl Demo {
    fn facts(&self) -> Value {
        let said = String::from_utf8_lossy(&self.output.stderr);
        assert!(self.output.status.success(), "{}\n{said}", self.output.status);
        serde_json::from_slice(&self.output.stdout).unwrap_or_else(|problem| panic!("{problem}\n{said}"))
    }
}

/// Processes whose command line names this folder or the demo's ranks of it.
fn left_behind(mark: &str) -> Vec<String> {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .flatten()
        .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(mark))
        .collect()
}

#[test]
fn the_demo_survives_its_failures_bit_identical_and_names_each_of_them() {
    let demo = demo(&[]);
    let facts = demo.facts();
    assert_eq!(facts["parameters_identical"], true, "{facts:#}");
    assert_eq!(facts["ledger_exact"], true, "{facts:#}");
    let cases = facts["cases"].as_array().expect("cases are a list");
    let classes: Vec<&str> = cases.iter().filter_map(|case| case["class"].as_str()).collect();
    assert_eq!(
        classes.len(),
        5,
        "one case a failure, and one for the bug that came back: {classes:?}"
    );
    assert_eq!(classes[0], "gpu-fallen-off-bus");
    assert_eq!(classes[2], "host-oom-kill");
    assert_eq!(classes[3..], ["tensor-shape-mismatch", "tensor-shape-mismatch"]);
    let blamed: Vec<&str> = cases.iter().filter_map(|case| case["blamed"].as_str()).collect();
    assert!(
        blamed[0].contains("node-2") && blamed[0].contains("gpu 0000:9b:00"),
        "{blamed:?}"
    );
    assert!(blamed[1].contains("node-1"), "{blamed:?}");
    assert!(blamed[2].contains("rank 3"), "{blamed:?}");
    for case in &cases[..3] {
        let taxonomies = case["taxonomies"].as_object().expect("taxonomies are a map");
        assert_eq!(taxonomies.len(), 5, "{case:#}");
        assert!(
            taxonomies
                .values()
                .all(|places| places.as_array().is_some_and(|list| !list.is_empty())),
            "{case:#}"
        );
        for delay in ["evidence_ms", "case_ms", "plan_ms", "first_step_ms"] {
            assert!(case["delays_ms"][delay].is_i64(), "{delay} of {case:#}");
        }
        assert!(
            case["plan"].is_string() && case["mitigation"]["advice"].is_string(),
            "{case:#}"
        );
    }
    let bug = facts["user_bug"].as_str().expect("the user is told");
    assert!(
        bug.contains("shapes cannot be multiplied") && bug.contains("not retried"),
        "{bug}"
    );
    assert!(
        facts["steps_lost"].is_u64() && facts["checkpoint_stall_ms"]["max"].is_f64(),
        "{facts:#}"
    );
    for name in ["report.html", "report.json"] {
        let length = std::fs::metadata(demo.out.path().join(name))
            .map(|meta| meta.len())
            .unwrap_or(0);
        assert!(length > 1_000, "{name} has {length} bytes");
    }
}

#[test]
fn random_kills_the_controller_included_lose_nothing() {
    for seed in ["1", "2"] {
        let facts = demo(&["--chaos", seed]).facts();
        assert_eq!(facts["parameters_identical"], true, "seed {seed}: {facts:#}");
        assert_eq!(facts["ledger_exact"], true, "seed {seed}: {facts:#}");
        assert!(
            facts["chaos"].as_array().is_some_and(|kills| kills.len() >= 4),
            "seed {seed}: {facts:#}"
        );
    }
}

/// Ctrl-C at several moments: nothing is left, neither process nor shared memory nor folder.
#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    for after_ms in [50, 700, 4_000, 9_000] {
        let out = tempfile::tempdir().expect("a temporary folder");
        let scratch = tempfile::tempdir().expect("a temporary folder");
        // A shell without job control lets its background commands ignore SIGINT, and programs inherit that.
        let mut child = guarded(&mut Command::new("env"))
            .args([
                "--default-signal=INT",
                env!("CARGO_BIN_EXE_rankguard"),
                "demo",
                "--quiet",
                "--out",
            ])
            .arg(out.path())
            .env("TMPDIR", scratch.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the demo starts");
        std::thread::sleep(Duration::from_millis(after_ms));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it still runs");
        let asked = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("it can be waited for") {
                break status;
            }
            assert!(asked.elapsed() < LIMIT, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(
            !status.success(),
            "after {after_ms} ms: an interrupted demo is not a success"
        );
        let mark = scratch.path().display().to_string();
        let mut left = left_behind(&mark);
        // The kernel ends what has lost its parent, when it comes to that.
        while !left.is_empty() && asked.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(20));
            left = left_behind(&mark);
        }
        assert_eq!(left, Vec::<String>::new(), "after {after_ms} ms");
        assert!(
            is_empty(scratch.path()),
            "after {after_ms} ms: {} is not empty",
            scratch.path().display()
        );
    }
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}
