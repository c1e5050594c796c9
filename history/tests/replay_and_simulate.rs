//! The commands as a user runs them: on small logs that are written here, and on published data if available.
#![allow(clippy::print_stderr, reason = "a test that skips says so")]

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn history(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rankguard-history"))
        .args(words)
        .output()
        .unwrap()
}

fn json(words: &[&str]) -> Value {
    let ran = history(words);
    let text = String::from_utf8_lossy(&ran.stderr);
    serde_json::from_slice(&ran.stdout).unwrap_or_else(|problem| panic!("{words:?}: {problem}: {text}"))
}

fn shared(name: &str) -> Option<String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared")
        .join(name);
    if path.exists() {
        return Some(path.display().to_string());
    }
    eprintln!("SKIPPED: {} is not there, so nothing was measured", path.display());
    None
}

const LOG: &str = "2025-03-01T10:00:00.000000+00:00 node-1 kernel: eth0: renamed from veth1
2025-03-01T10:00:01.000000+00:00 node-1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.
2025-03-01T10:00:02.000000+00:00 node-2 kernel: the frobnicator of bay 3 has lost its marbles
2025-03-01T10:30:00.000000+00:00 node-2 kernel: eth0: renamed from veth2
";

#[test]
fn labels_are_compared_and_delays_are_in_the_clock_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("node.log");
    let labels = folder.path().join("labels.csv");
    fs::write(&log, LOG).unwrap();
    fs::write(&labels, "line,label\n1,-\n2,gpu\n3,frob\n").unwrap();
    let log = log.to_str().unwrap();
    let labels = labels.to_str().unwrap();
    let found = json(&["replay", log, "--labels", labels, "--format", "json"]);
    let judged = &found["labelled_lines"];
    assert_eq!(
        (judged["true_positive"].as_u64(), judged["false_negative"].as_u64()),
        (Some(1), Some(1))
    );
    assert_eq!(
        (judged["false_positive"].as_u64(), judged["true_negative"].as_u64()),
        (Some(0), Some(2))
    );
    assert_eq!(found["cases"].as_array().unwrap().len(), 1);
    let delay = found["cases"][0]["delay_s"].as_f64().unwrap();
    assert!((0.5..=5.0).contains(&delay), "{delay}");
    assert_eq!(found["cases"][0]["first_s"].as_f64(), Some(1_740_823_201.0));
    // A label beyond the end is of another log.
    fs::write(labels, "11,gpu\n").unwrap();
    let ran = history(&["replay", log, "--labels", labels]);
    let text = String::from_utf8_lossy(&ran.stderr);
    assert!(
        text.contains("a label of line 11, but") && text.contains("has 4 lines"),
        "{text}"
    );
    let ran = history(&["replay", log, "--into", "foo"]);
    let text = String::from_utf8_lossy(&ran.stderr);
    assert!(text.contains("\"foo\" is not an address; expected host:port"), "{text}");
}

#[test]
fn another_catalogue_shows_what_it_would_have_changed() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("node.log");
    let rules = folder.path().join("rules.toml");
    fs::write(&log, LOG).unwrap();
    let rule = "[[signature]]\nid = \"frob-lost\"\nclass = \"gpu-fallen-off-bus\"\nsources = [\"kernel-log\"]\npattern = \"frobnicator of bay \\\\d+ has lost\"\nliterals = [\"frobnicator of bay\"]\nrole = \"root\"\nconfidence = 0.9\nentity = \"node\"\nexample = \"the frobnicator of bay 3 has lost its marbles\"\n";
    fs::write(&rules, rule).unwrap();
    let words = [
        "replay",
        log.to_str().unwrap(),
        "--against",
        rules.to_str().unwrap(),
        "--format",
        "json",
    ];
    let ran = history(&words);
    let text = String::from_utf8_lossy(&ran.stderr).into_owned();
    let found: Value = serde_json::from_slice(&ran.stdout).unwrap_or_else(|problem| panic!("{problem}: {text}"));
    let changed = found["differences"].as_array().unwrap();
    assert_eq!(changed.len(), 1, "{changed:?}");
    assert_eq!(
        (changed[0]["before"].as_str(), changed[0]["lines"].as_u64()),
        (Some("none"), Some(1))
    );
}

#[test]
fn case_files_show_what_another_catalogue_changes_and_which_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cases.jsonl");
    let rules = folder.path().join("rules.toml");
    let case = |id: &str, label: &str, line: &str| {
        format!(
            "{{\"id\":\"{id}\",\"label\":\"{label}\",\"sources\":[{{\"kind\":\"kmsg\",\"node\":\"n1\",\"lines\":[\"{line}\"]}}]}}\n"
        )
    };
    let text = case(
        "a",
        "gpu-fallen-off-bus",
        "the frobnicator of bay 3 has lost its marbles",
    ) + &case("b", "none", "eth0: renamed from veth1");
    fs::write(&file, text).unwrap();
    let rule = "[[signature]]\nid = \"frob-lost\"\nclass = \"gpu-fallen-off-bus\"\nsources = [\"kernel-log\"]\npattern = \"frobnicator of bay \\\\d+ has lost\"\nliterals = [\"frobnicator of bay\"]\nrole = \"root\"\nconfidence = 0.9\nentity = \"node\"\nexample = \"the frobnicator of bay 3 has lost its marbles\"\n";
    fs::write(&rules, rule).unwrap();
    let words = [
        "replay",
        file.to_str().unwrap(),
        "--against",
        rules.to_str().unwrap(),
        "--format",
        "json",
    ];
    let found = json(&words);
    let differences = found["differences"].as_array().unwrap();
    assert_eq!(differences.len(), 1, "{found}");
    assert_eq!(
        (&differences[0]["after"], &differences[0]["example"]),
        (&"gpu-fallen-off-bus".into(), &"a".into())
    );
    assert_eq!(
        (&found["named_right"], &found["against_named_right"]),
        (&0.5.into(), &1.0.into())
    );
    assert_eq!(
        (&found["labelled_cases"]["recall"], &found["against_cases"]["recall"]),
        (&0.0.into(), &1.0.into())
    );
}

/// As `rankguard classify` does: a file without cases is no success with zero cases.
#[test]
fn lines_that_are_no_cases_end_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cases.jsonl");
    let case =
        "{\"id\":\"a\",\"sources\":[{\"kind\":\"kmsg\",\"node\":\"n1\",\"lines\":[\"eth0: renamed from veth1\"]}]}\n";
    for (text, cases, what) in [
        ("nothing\n".to_owned(), 0, "cannot read any case"),
        (format!("{case}nothing\n"), 1, "cannot parse some lines as cases"),
    ] {
        fs::write(&file, text).unwrap();
        let ran = history(&["replay", file.to_str().unwrap(), "--format", "json"]);
        let told = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(2), "{told}");
        assert!(told.contains(what), "{told}");
        let found: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let classes = found["classes"].as_array().unwrap();
        assert_eq!(
            classes
                .iter()
                .map(|class| class["cases"].as_u64().unwrap())
                .sum::<u64>(),
            cases
        );
        assert!(found["problems"].to_string().contains("cases.jsonl:"), "{found}");
    }
}

/// A line of 64 MiB without an end, and bytes that are not text: problems, and the rest is read.
#[test]
fn long_lines_and_foreign_files_are_problems() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = LOG.to_owned();
    text.push_str(&"x".repeat(64 << 20));
    text.push('\n');
    fs::write(folder.path().join("long.log"), text).unwrap();
    fs::write(folder.path().join("other.log"), [0_u8, 1, 2, 0]).unwrap();
    let found = json(&["replay", folder.path().to_str().unwrap(), "--format", "json"]);
    let mut problems = String::new();
    for problem in found["problems"].as_array().unwrap() {
        let _ = writeln!(problems, "{problem}");
    }
    assert!(
        problems.contains("1 lines longer than 1 MiB") && problems.contains("not text"),
        "{problems}"
    );
    assert_eq!(
        (found["lines"].as_u64(), found["cases"].as_array().unwrap().len()),
        (Some(5), 1)
    );
}

#[test]
fn nothing_to_replay_and_wrong_words_say_what_to_do() {
    let ran = history(&["replay", "/nonexistent.log"]);
    assert_eq!(ran.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("hint:"));
    for words in [
        &["simulate"][..],
        &["simulate", "--synthetic", "8", "--policy", "best"],
        &["replay", "x", "--speed", "0"],
    ] {
        assert_eq!(history(words).status.code(), Some(64), "{words:?}");
    }
}

#[test]
fn a_made_up_cluster_is_simulated_the_same_way_twice_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("plot.svg");
    let words = [
        "simulate",
        "--synthetic",
        "1024",
        "--policy",
        "young,multi-level,oracle",
        "--replicates",
        "4",
        "--days",
        "10",
        "--elastic",
        "off,4",
        "--format",
        "json",
        "--plot",
        plot.to_str().unwrap(),
    ];
    let one = json(&words);
    let other = json(&words);
    assert_eq!(one, other);
    assert_eq!(one["scenarios"].as_array().unwrap().len(), 2);
    for scenario in one["scenarios"].as_array().unwrap() {
        let mean = |row: usize| scenario["comparison"]["rows"][row]["goodput"]["mean"].as_f64().unwrap();
        assert!(mean(0) < mean(1) && mean(1) < mean(2), "{scenario}");
    }
    let drawn = fs::read_to_string(plot).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>") && drawn.contains("multi-level"));
}

/// BLOOM-176B: about one GPU failure a week, a step of 105 s, 40 s for a checkpoint.
#[test]
fn bloom_is_a_case() {
    let rate = (1.0 / (48.0 * 168.0)).to_string();
    let words = [
        "simulate",
        "--synthetic",
        "384",
        "--case",
        "bloom",
        "--rate",
        &rate,
        "--days",
        "100",
        "--policy",
        "young,oracle",
        "--replicates",
        "10",
        "--format",
        "json",
    ];
    let found = json(&words);
    let comparison = &found["scenarios"][0]["comparison"];
    assert!(
        (comparison["mtbf_h"].as_f64().unwrap() / 168.0 - 1.0).abs() < 0.3,
        "{comparison}"
    );
    // sqrt(2 * 40 s * a week) is 6,956 s: 66 steps.
    let interval = comparison["rows"][0]["intervals_s"][0].as_f64().unwrap();
    assert!((interval / 6_956.0 - 1.0).abs() < 0.2, "{interval}");
}

#[test]
fn labelled_blue_gene_lines_are_found_as_well_as_was_measured() {
    let Some(path) = shared("datasets/loghub-2k/BGL/BGL_2k.log") else {
        return;
    };
    let found = json(&["replay", &path, "--format", "json"]);
    assert_eq!(found["lines"].as_u64(), Some(2_000));
    let judged = &found["labelled_lines"];
    let alerts = judged["true_positive"].as_u64().unwrap() + judged["false_negative"].as_u64().unwrap();
    assert_eq!(alerts, 143, "published with the sample");
    assert!(
        judged["recall"].as_f64().unwrap() > 0.58 && judged["precision"].as_f64().unwrap() > 0.44,
        "{judged}"
    );
}

#[test]
fn published_traces_are_simulated() {
    let Some(path) = shared("datasets/infinitehbd-gpu-faults") else {
        return;
    };
    let words = [
        "simulate",
        "--data",
        &path,
        "--policy",
        "young,oracle",
        "--replicates",
        "3",
        "--spares",
        "0,40",
        "--nodes",
        "360",
        "--format",
        "json",
    ];
    let found = json(&words);
    let waiting = |at: usize| {
        found["scenarios"][at]["comparison"]["rows"][0]["waste"]["waiting"]
            .as_f64()
            .unwrap()
    };
    assert!(
        waiting(0) > 0.5 && waiting(1) < waiting(0) / 2.0,
        "{} {}",
        waiting(0),
        waiting(1)
    );
    let Some(path) = shared("datasets/titan-gpu-lifetimes") else {
        return;
    };
    let ran = history(&["simulate", "--data", &path]);
    assert_eq!(
        ran.status.code(),
        Some(64),
        "Titan tells no repair times: they must be said"
    );
}
