//! Triage over public logs from `shared/`, which is not part of the repository; without them the tests report it and
//! pass.
#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use rankguard_faults::{Catalogue, CodeKind, LogObservation, SignatureMatcher, StreamContext, Triage, decode};
use rankguard_model::{EvidenceSource, Rank, Role, Timestamp};
use serde_json::Value;

fn shared(path: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared")
        .join(path);
    if path.exists() {
        return Some(path);
    }
    // Written to the stream itself: the harness hides macro output of a passing test.
    let _ = std::io::Write::write_fmt(
        &mut std::io::stderr(),
        format_args!("SKIPPED: {} is not there\n", path.display()),
    );
    None
}

fn triage<'a>(source: EvidenceSource, rank: Option<u32>, lines: impl Iterator<Item = &'a str>) -> Vec<LogObservation> {
    let mut triage = Triage::new(
        SignatureMatcher::builtin(),
        StreamContext {
            rank: rank.map(Rank),
            ..StreamContext::new(source)
        },
    );
    let mut out = Vec::new();
    for line in lines {
        out.extend(triage.push(line, Timestamp(0)));
    }
    out.extend(triage.flush());
    out
}

#[test]
fn node_logs_of_another_project_are_named() {
    let Some(folder) = shared("datasets/gpud-node-logs") else {
        return;
    };
    let expected: [(&str, EvidenceSource, &[&str]); 7] = [
        (
            "dmesg-with-xid-119.log",
            EvidenceSource::KernelLog,
            &["gpu-gsp-timeout"],
        ),
        (
            "dmesg-memory-xid13.iso.log",
            EvidenceSource::KernelLog,
            &["gpu-engine-exception", "host-oom-kill"],
        ),
        ("dmesg-nccl-segfault.iso.log", EvidenceSource::KernelLog, &["segfault"]),
        ("dmesg-os.iso.log", EvidenceSource::KernelLog, &["too-many-open-files"]),
        ("kmsg.1.log", EvidenceSource::KernelLog, &[]),
        ("fabricmanager.log", EvidenceSource::Gpu, &[]),
        (
            "pstore-kernel-panic/dmesg.txt",
            EvidenceSource::KernelLog,
            &["kernel-crash"],
        ),
    ];
    for (name, source, wanted) in expected {
        let bytes = std::fs::read(folder.join(name)).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let seen = triage(source, None, text.lines());
        let mut counts: BTreeMap<(String, String), u32> = BTreeMap::new();
        for observation in &seen {
            let best = &observation.marks[0];
            *counts
                .entry((best.class.to_string(), format!("{:?}", best.role)))
                .or_default() += observation.repeats;
        }
        eprintln!(
            "{name}: {} lines, {} observations, {counts:?}",
            text.lines().count(),
            seen.len()
        );
        for class in wanted {
            assert!(counts.keys().any(|(seen, _)| seen == class), "{name}: no {class}");
        }
    }
}

fn source_of(kind: &str) -> EvidenceSource {
    match kind {
        "kmsg" => EvidenceSource::KernelLog,
        "scheduler" => EvidenceSource::Scheduler,
        "launcher" => EvidenceSource::Launcher,
        "agent-event" => EvidenceSource::Agent,
        _ => EvidenceSource::JobLog,
    }
}

#[derive(Default)]
struct Score {
    cases: u32,
    among: u32,
    among_crosswalk: u32,
    best: u32,
    none: u32,
    none_quiet: u32,
    missed: BTreeMap<String, u32>,
}

/// Returns the mark with the highest confidence that is not noise; roots before cascades.
fn best_of(seen: &[LogObservation]) -> Option<String> {
    let rank = |role: Role| match role {
        Role::Root => 2,
        Role::Confirmation => 1,
        Role::Cascade => 0,
        Role::Noise => -1,
    };
    let marks = seen.iter().flat_map(|o| &o.marks).filter(|m| m.role != Role::Noise);
    let best = marks.max_by(|a, b| {
        (rank(a.role), a.confidence)
            .partial_cmp(&(rank(b.role), b.confidence))
            .unwrap()
    });
    best.map(|mark| mark.class.to_string())
}

#[test]
fn labelled_logs_show_their_class_among_the_marks() {
    let Some(path) = shared("failure-logs/dev.jsonl") else {
        return;
    };
    let catalogue = Catalogue::builtin();
    let coarse = |id: &str| {
        catalogue
            .root_of(&id.into())
            .map(|class| class.id.clone())
            .unwrap_or_else(|| id.into())
    };
    let mut score = Score::default();
    for case in std::fs::read_to_string(path).unwrap().lines() {
        let case: Value = serde_json::from_str(case).unwrap();
        let mut seen = Vec::new();
        for stream in case["sources"].as_array().unwrap() {
            let lines = stream["lines"].as_array().unwrap().iter().filter_map(Value::as_str);
            let rank = stream["rank"].as_u64().and_then(|rank| u32::try_from(rank).ok());
            seen.extend(triage(
                source_of(stream["kind"].as_str().unwrap_or_default()),
                rank,
                lines,
            ));
        }
        let label = case["label"].as_str().unwrap();
        if label == "none" {
            score.none += 1;
            let failing = seen
                .iter()
                .flat_map(|o| &o.marks)
                .filter(|m| m.role == Role::Root && m.confidence >= 0.5)
                .count();
            score.none_quiet += u32::from(failing == 0);
            continue;
        }
        score.cases += 1;
        let classes: Vec<&str> = seen.iter().flat_map(|o| &o.marks).map(|m| m.class.as_str()).collect();
        let among = classes.contains(&label);
        score.among += u32::from(among);
        score.among_crosswalk += u32::from(among || classes.iter().any(|class| coarse(class) == coarse(label)));
        score.best += u32::from(best_of(&seen).as_deref() == Some(label));
        if !among {
            *score.missed.entry(label.to_owned()).or_default() += 1;
        }
    }
    let share = |part: u32| f64::from(part) / f64::from(score.cases);
    eprintln!(
        "{} failures: class among marks {:.3}, its crosswalk class {:.3}, most sure mark {:.3}; {} of {} harmless cases without a root",
        score.cases,
        share(score.among),
        share(score.among_crosswalk),
        share(score.best),
        score.none_quiet,
        score.none
    );
    eprintln!("missed: {:?}", score.missed);
    // Measured 0.73 and 13 of 18; the floor is a little below, so that one changed case is not a failure.
    assert!(
        share(score.among) >= 0.68,
        "the class is among the marks of too few cases"
    );
    assert!(score.none_quiet >= 11, "too many harmless cases show a root");
}

/// Returns number and message of a line of the GPU driver or of the switch driver.
fn driver_message(line: &str) -> Option<(CodeKind, u32, &str)> {
    let at = line.find("Xid (")?;
    let kind = if line[..at].ends_with('S') {
        CodeKind::Sxid
    } else {
        CodeKind::Xid
    };
    let (_, message) = line[at..].split_once("): ")?;
    let end = message.bytes().position(|byte| !byte.is_ascii_digit())?;
    Some((kind, message[..end].parse().ok()?, message))
}

#[test]
fn messages_of_drivers_in_foreign_logs_are_decoded() {
    let Some(folder) = shared("datasets/gpud-node-logs") else {
        return;
    };
    let catalogue = Catalogue::builtin();
    let mut messages = 0;
    let mut decoded_words = 0;
    for name in ["dmesg-with-xid-119.log", "dmesg-memory-xid13.iso.log"] {
        let bytes = std::fs::read(folder.join(name)).unwrap();
        for line in String::from_utf8_lossy(&bytes).lines() {
            let Some((kind, number, text)) = driver_message(line) else {
                continue;
            };
            let codes = match kind {
                CodeKind::Xid => catalogue.xids(),
                CodeKind::Sxid => catalogue.sxids(),
            };
            let decoded = decode(codes, kind, number, text, None);
            messages += 1;
            decoded_words += u32::from(!decoded.fields.is_empty());
            assert!(!decoded.class.as_str().starts_with("unknown"), "{line}");
            if number == 119 {
                assert!(decoded.fields.contains_key("function_name"), "{line}");
                assert_eq!(decoded.fields["timeout_s"], "6");
            }
        }
    }
    let _ = std::io::Write::write_fmt(
        &mut std::io::stderr(),
        format_args!("{messages} driver messages, {decoded_words} with decoded words\n"),
    );
    assert_eq!(messages, 22);
    assert!(decoded_words >= 20, "{decoded_words}");
}
