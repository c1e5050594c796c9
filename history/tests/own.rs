//! A controller's own history through every command: a journal of the simulator with the truth in its script.
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use rankguard_core::{Event, StampedEvent};
use rankguard_journal::{JOURNAL_FILE, Journal, encode};
use rankguard_model::{Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, NodeId, Sequence};
use rankguard_sim::{FaultScript, SimulatedWorld};
use serde_json::Value;

/// A GPU off the bus, two nodes that are lost and come back, a killed rank.
const STORY: &str = include_str!("../../datasets/tests/four-failures.toml");

/// Writes the journal and returns the classes of its cases.
pub(super) fn journal(dir: &Path) -> Vec<String> {
    let script = FaultScript::parse(STORY).unwrap();
    let mut journal = Journal::open(&dir.join(JOURNAL_FILE), &script.policy).unwrap();
    let ended = SimulatedWorld::new(script).play();
    let mut events = ended.journal;
    // A line that no rule knows, during healthy operation.
    let quiet = events
        .iter()
        .position(|event| event.at.0 - events[0].at.0 > 20_000_000_000)
        .unwrap();
    let unknown = Evidence {
        id: EvidenceId {
            node: NodeId::from("node-3"),
            seq: Sequence(1_000_000),
        },
        at: events[quiet].at,
        source: EvidenceSource::KernelLog,
        entity: Entity::Node {
            node: NodeId::from("node-3"),
        },
        body: EvidenceBody::Line {
            text: "the frobnicator of bay 3 has lost its marbles".to_owned(),
            context: Vec::new(),
            repeats: 1,
        },
        marks: Vec::new(),
        synthetic: false,
    };
    let stamped = StampedEvent {
        at: events[quiet].at,
        event: Event::EvidenceArrived { evidence: unknown },
    };
    events.insert(quiet, stamped);
    let entries: Vec<Vec<u8>> = events.iter().map(|event| encode(event).unwrap()).collect();
    journal.append(&entries).unwrap();
    ended
        .state
        .cases()
        .values()
        .map(|case| case.verdict.class.to_string())
        .collect()
}

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

fn counts(replayed: &Value) -> Vec<(String, u64)> {
    let classes = replayed["classes"].as_array().unwrap().iter();
    classes
        .map(|line| {
            (
                line["class"].as_str().unwrap().to_owned(),
                line["cases"].as_u64().unwrap(),
            )
        })
        .collect()
}

#[test]
fn check_studies_and_simulations_run_on_a_journal() {
    let dir = tempfile::tempdir().unwrap();
    journal(dir.path());
    let path = dir.path().to_str().unwrap();
    let checked = json(&["dataset", "check", path, "--format", "json"]);
    assert_eq!(checked["source"], "rankguard-journal");
    assert_eq!(
        (&checked["tables"]["failures"], &checked["tables"]["nodes"]),
        (&4.into(), &6.into())
    );
    assert_eq!(checked["rows_lost"], 0);
    for study in ["mtbf", "mix", "availability"] {
        let ran = history(&["study", "run", study, "--data", path, "--format", "json"]);
        assert!(
            ran.status.success(),
            "{study}: {}",
            String::from_utf8_lossy(&ran.stderr)
        );
        let text = String::from_utf8_lossy(&ran.stdout);
        assert!(text.contains("gpu-fallen-off-bus") || study != "mix", "{text}");
    }
    let words = [
        "simulate",
        "--data",
        path,
        "--repair",
        "60",
        "--nodes",
        "2",
        "--spares",
        "1",
        "--replicates",
        "3",
    ];
    let ran = history(&words);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let out = dir.path().join("tables");
    assert!(
        history(&["dataset", "import", path, "--out", out.to_str().unwrap()])
            .status
            .success()
    );
    for table in [
        "jobs", "attempts", "nodes", "failures", "outages", "capacity", "samples", "events",
    ] {
        assert!(out.join(format!("table={table}/part-0.parquet")).is_file(), "{table}");
    }
    // The tables give the same answers as the journal.
    let back = json(&["dataset", "check", out.to_str().unwrap(), "--format", "json"]);
    assert_eq!(
        (&back["source"], &back["tables"]),
        (&"tables".into(), &checked["tables"])
    );
    assert_eq!(back["population"]["count"], checked["population"]["count"]);
    assert_eq!(back["window"], checked["window"]);
    for study in ["mtbf", "mix", "availability", "lemons", "jobs"] {
        let answer = |path| json(&["study", "run", study, "--data", path, "--format", "json"])["tables"].clone();
        assert_eq!(answer(out.to_str().unwrap()), answer(path), "{study}");
    }
}

#[test]
fn nodes_that_are_up_when_the_journal_ends_are_censored() {
    let dir = tempfile::tempdir().unwrap();
    journal(dir.path());
    let asked = json(&[
        "study",
        "run",
        "fits",
        "--data",
        dir.path().to_str().unwrap(),
        "--format",
        "json",
    ]);
    assert!(
        asked["definition"].as_str().unwrap().contains("right-censored"),
        "{asked}"
    );
    let tables = asked["tables"].as_array().unwrap();
    let title = |table: &Value| table["title"].as_str().unwrap().to_owned();
    let up = tables
        .iter()
        .map(title)
        .find(|title| title.starts_with("interval up, h"));
    assert!(up.as_ref().is_some_and(|title| title.ends_with("censored")), "{up:?}");
}

#[test]
fn the_published_figure_is_sharpened_by_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    journal(dir.path());
    let (path, file) = (dir.path().to_str().unwrap(), dir.path().join("record.toml"));
    let words = [
        "simulate",
        "calibrate",
        "--data",
        path,
        "--out",
        file.to_str().unwrap(),
        "--format",
        "json",
    ];
    let found = json(&words);
    let scope = |name: &str| {
        let all = found["scopes"].as_array().unwrap();
        all.iter().find(|belief| belief["of"] == name).unwrap().clone()
    };
    assert_eq!(
        (&scope("process")["failures"], &scope("node")["failures"]),
        (&1.into(), &3.into())
    );
    let node = scope("node");
    let number = |field: &str| node[field].as_f64().unwrap();
    // Gamma(2 * 321/419 + 3, 2 / rate + hours): the mean lies between the published rate and the record's own.
    let published = 419.0 / 2_654_208.0;
    let shape = 2.0 * 321.0 / 419.0 + 3.0;
    let hours = 2.0 / published + number("node_hours");
    assert!((number("mean") / (shape / hours) - 1.0).abs() < 1e-9);
    assert!(number("low") < number("mean") && number("mean") < number("high"));
    assert!(number("mean") > number("before"), "three failures in minutes");
    // Six nodes were observed for most of the story.
    assert!(number("node_hours") * 3_600.0 > 2.0 * 30.0 && number("node_hours") * 3_600.0 < 6.0 * 120.0);
    assert_eq!(found["classes"].as_array().unwrap().len(), 3);
    let config = fs::read_to_string(&file).unwrap();
    for line in [
        "prior = \"llama3-2024\"",
        "process_failures = 1",
        "node_failures = 3",
        "domain_failures = 0",
    ] {
        assert!(config.lines().any(|found| found == line), "{line} is not in\n{config}");
    }
}

#[test]
fn a_journal_is_replayed_as_it_was_and_other_rules_show_what_they_change() {
    let dir = tempfile::tempdir().unwrap();
    let mut lived = journal(dir.path());
    lived.sort();
    let path = dir.path().to_str().unwrap();
    let found = json(&["replay", "--journal", path, "--format", "json"]);
    let mut replayed: Vec<String> = counts(&found)
        .into_iter()
        .flat_map(|(class, count)| vec![class; usize::try_from(count).unwrap()])
        .collect();
    replayed.sort();
    assert_eq!(replayed, lived);
    assert_eq!(
        json(&["replay", path, "--format", "json"])["cases"],
        found["cases"],
        "recognised by itself"
    );
    // A line that no rule knew then: the result under the new rules.
    let rules = dir.path().join("rules.toml");
    let rule = "[[signature]]\nid = \"frob-lost\"\nclass = \"gpu-fallen-off-bus\"\nsources = [\"kernel-log\"]\npattern = \"frobnicator of bay \\\\d+ has lost\"\nliterals = [\"frobnicator of bay\"]\nrole = \"root\"\nconfidence = 0.9\nentity = \"node\"\nexample = \"the frobnicator of bay 3 has lost its marbles\"\n";
    fs::write(&rules, rule).unwrap();
    let against = json(&["replay", path, "--against", rules.to_str().unwrap(), "--format", "json"]);
    assert_eq!(
        counts(&against),
        counts(&found),
        "the first catalogue is the built-in one still"
    );
    let differences = against["differences"].as_array().unwrap();
    assert_eq!(differences.len(), 1, "{differences:?}");
    assert_eq!(
        (&differences[0]["before"], &differences[0]["after"]),
        (&"none".into(), &"gpu-fallen-off-bus".into())
    );
    let classes = against["classes"].as_array().unwrap();
    let lost = classes
        .iter()
        .find(|line| line["class"] == "gpu-fallen-off-bus")
        .unwrap();
    assert_eq!((&lost["cases"], &lost["against"]), (&1.into(), &2.into()), "{lost}");
}

#[test]
fn evidence_goes_out_of_a_journal_and_into_a_replay() {
    let dir = tempfile::tempdir().unwrap();
    journal(dir.path());
    let file = dir.path().join("evidence.jsonl");
    let words = [
        "dataset",
        "export",
        dir.path().to_str().unwrap(),
        "--evidence",
        "--out",
        file.to_str().unwrap(),
    ];
    let ran = history(&words);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let text = fs::read_to_string(&file).unwrap();
    let found = json(&["replay", file.to_str().unwrap(), "--format", "json"]);
    assert_eq!(found["lines"].as_u64(), Some(text.lines().count() as u64));
    assert!(
        counts(&found).iter().any(|(class, _)| class == "gpu-fallen-off-bus"),
        "{found}"
    );
    // Times at both limits of the range are valid.
    let line: Value = serde_json::from_str(text.lines().find(|line| line.contains("fallen off")).unwrap()).unwrap();
    let strange: String = [i64::MIN, 0, i64::MAX]
        .map(|at| {
            let mut line = line.clone();
            line["at"] = at.into();
            format!("{line}\n")
        })
        .concat();
    fs::write(&file, strange).unwrap();
    assert_eq!(
        json(&["replay", file.to_str().unwrap(), "--format", "json"])["lines"],
        3
    );
    // A torn last line is a problem, and the other lines count.
    fs::write(&file, &text[..text.trim_end().len() - 10]).unwrap();
    let torn = json(&["replay", file.to_str().unwrap(), "--format", "json"]);
    assert_eq!(counts(&torn), counts(&found));
    assert!(torn["problems"][0].as_str().unwrap().contains("not evidence"), "{torn}");
}

#[test]
fn a_running_controllers_journal_is_read_up_to_now_by_every_command() {
    let dir = tempfile::tempdir().unwrap();
    journal(dir.path());
    let path = dir.path().to_str().unwrap();
    let closed = json(&["replay", "--journal", path, "--format", "json"]);
    let script = FaultScript::parse(STORY).unwrap();
    let held = Journal::open(&dir.path().join(JOURNAL_FILE), &script.policy).unwrap();
    let found = json(&["replay", "--journal", path, "--format", "json"]);
    assert_eq!(counts(&found), counts(&closed));
    assert!(
        found["problems"].to_string().contains("its controller is running"),
        "{found}"
    );
    let mix = history(&["study", "run", "mix", "--data", path]);
    let told = String::from_utf8_lossy(&mix.stdout);
    assert!(mix.status.success() && told.contains("problem: in-use"), "{told}");
    let export = history(&["dataset", "export", path, "--table", "failures"]);
    assert!(export.status.success(), "{}", String::from_utf8_lossy(&export.stderr));
    assert_eq!(String::from_utf8_lossy(&export.stdout).lines().count(), 1 + 4);
    drop(held);
}

#[test]
fn packed_logs_are_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let log = "2025-03-01T10:00:01.000000+00:00 node-1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.\n";
    let packed = ruzstd::encoding::compress_to_vec(log.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
    fs::write(dir.path().join("node.log.zst"), packed).unwrap();
    let found = json(&["replay", dir.path().to_str().unwrap(), "--format", "json"]);
    assert_eq!(counts(&found), [("gpu-fallen-off-bus".to_owned(), 1)]);
}

#[test]
fn a_folder_of_logs_is_replayed_as_it_is_diagnosed() {
    let dir = tempfile::tempdir().unwrap();
    let node = dir.path().join("gpu-07");
    fs::create_dir(&node).unwrap();
    let kernel = "Nov 23 10:04:10 gpu-07 kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=4021, name=python, GPU has fallen off the bus.\n";
    fs::write(node.join("syslog"), kernel).unwrap();
    let trainer = "2026-11-23 10:03:50,100 INFO step 100 loss 2.1\n2026-11-23 10:04:12,100 ERROR CUDA out of memory\n";
    fs::write(dir.path().join("train.log"), trainer).unwrap();
    fs::write(dir.path().join("gpu-05-syslog"), kernel).unwrap();
    let path = dir.path().to_str().unwrap();
    let replayed = json(&["replay", path, "--format", "json"]);
    assert!(
        replayed["problems"].to_string().contains("skipped gpu-05-syslog"),
        "{replayed:#}"
    );
    assert_eq!(
        counts(&replayed),
        [("gpu-fallen-off-bus".to_owned(), 1)],
        "{replayed:#}"
    );
    // A job's log alone opens no case, and the output gives the reason.
    let alone = history(&["replay", dir.path().join("train.log").to_str().unwrap()]);
    let notes = String::from_utf8(alone.stderr).unwrap();
    assert!(
        notes.contains("open no case by themselves") && notes.contains("rankguard diagnose"),
        "{notes}"
    );
    // A kernel log beside it is named as well.
    let both = tempfile::tempdir().unwrap();
    let oom =
        "Nov 23 10:04:10 gpu-07 kernel: NVRM: Xid (PCI:0000:9b:00): 31, pid=4021, name=python, Ch 00000008, intr 0\n";
    fs::write(both.path().join("kern.log"), oom).unwrap();
    fs::write(both.path().join("train.log"), trainer).unwrap();
    let notes = String::from_utf8(history(&["replay", both.path().to_str().unwrap()]).stderr).unwrap();
    assert!(
        notes.contains("the evidence of the kernel log and of job logs opens no case"),
        "{notes}"
    );
    let fault =
        "Nov 23 10:04:10 gpu-07 kernel: NVRM: Xid (PCI:0000:9b:00): 31, pid=4021, name=python, Ch 00000008, intr 0\n";
    fs::write(dir.path().join("kern.log"), fault).unwrap();
    let alone = history(&["replay", dir.path().join("kern.log").to_str().unwrap()]);
    let notes = String::from_utf8(alone.stderr).unwrap();
    assert!(
        notes.contains("the evidence of the kernel log opens no case") && !notes.contains("job logs"),
        "{notes}"
    );
}
