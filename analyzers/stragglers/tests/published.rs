//! The published traces: every figure of their authors, and the causes they name.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use rankguard_stragglers::{CauseKind, PartEffect, SlownessReport, TimingFile, analyse, read_meta, read_timings};
use serde_json::Value;

/// Authors' figures are sums of 32-bit floats in another order.
const FLOAT32: f64 = 1e-7;

/// A job's report with the folder of its data; `None`, with a printed note, if the data is not
/// available.
fn job(name: &str) -> Option<(SlownessReport, PathBuf)> {
    let folder =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/datasets/bytedance-straggler-traces");
    let Ok(bytes) = std::fs::read(folder.join(format!("trace-{name}.parquet"))) else {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: no {}; the published traces were not checked",
            folder.display()
        );
        return None;
    };
    let meta = std::fs::read_to_string(folder.join(format!("meta-{name}.yaml"))).unwrap();
    let (meta, problems) = read_meta("meta", &meta);
    assert_eq!(problems.count, 0, "{problems:?}");
    let (timings, problems) = read_timings(name, &bytes);
    let report = analyse(name, &timings, Some(&meta), problems);
    assert_eq!(report.problems, Vec::<String>::new());
    Some((report, folder))
}

fn read(folder: &std::path::Path, name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join(name)).unwrap()).unwrap()
}

/// Largest relative difference of two lists, in order of the numbers that name their entries.
fn apart(theirs: &Value, ours: &[f64]) -> f64 {
    let theirs: BTreeMap<i64, f64> = theirs
        .as_object()
        .unwrap()
        .iter()
        .map(|(key, value)| (key.parse().unwrap(), value.as_f64().unwrap()))
        .collect();
    assert_eq!(theirs.len(), ours.len());
    theirs
        .values()
        .zip(ours)
        .map(|(a, b)| ((a - b) / a).abs())
        .fold(0.0, f64::max)
}

fn check(name: &str) -> Option<SlownessReport> {
    let (report, folder) = job(name)?;
    let what_if = report.what_if.as_ref().unwrap();
    let result = read(&folder, &format!("result-{name}.json"));
    let mut differences: Vec<(String, f64)> = Vec::new();
    let mut field = |name: &str, difference: f64| differences.push((name.to_owned(), difference));
    let one = |theirs: &Value, ours: f64| ((theirs.as_f64().unwrap() - ours) / ours).abs();
    field("step_t_base", apart(&result["step_t_base"], &what_if.observed));
    field("step_t_nodelay", apart(&result["step_t_nodelay"], &what_if.simulated));
    field("step_t_noblk", apart(&result["step_t_noblk"], &what_if.ideal));
    field("blocking_slowdown", one(&result["blocking_slowdown"], what_if.slowdown));
    field(
        "launch_slowdown",
        one(&result["launch_slowdown"], what_if.launch_slowdown),
    );
    let dp_ranks: Vec<f64> = what_if.by_dp_rank.values().copied().collect();
    let stages: Vec<f64> = what_if.by_stage.values().copied().collect();
    field(
        "blocking_decompose_by_dp_rank",
        apart(&result["blocking_decompose_by_dp_rank"], &dp_ranks),
    );
    field(
        "blocking_decompose_by_stage",
        apart(&result["blocking_decompose_by_stage"], &stages),
    );
    let kinds = result["blocking_decompose_by_optype"].as_object().unwrap();
    assert!(kinds.keys().eq(what_if.by_optype.keys()), "{kinds:?}");
    let kinds = kinds.iter().map(|(kind, theirs)| one(theirs, what_if.by_optype[kind]));
    field("blocking_decompose_by_optype", kinds.fold(0.0, f64::max));
    for (file, effect) in [("mw", what_if.slow_workers), ("ms", what_if.last_stage)] {
        let theirs = read(&folder, &format!("{file}-{name}.json"));
        let PartEffect { t_rem, t_add, share } = effect;
        for (key, ours) in [("trem", t_rem), ("tadd", t_add), ("rem", share.unwrap())] {
            // A share near 0 is a difference of near figures: compare it with the whole.
            let scale = if key == "rem" { 1.0 } else { ours };
            field(
                &format!("{file}.{key}"),
                ((theirs[key].as_f64().unwrap() - ours) / scale).abs(),
            );
        }
    }
    let wrong: Vec<_> = differences
        .iter()
        .filter(|(_, difference)| *difference > FLOAT32)
        .collect();
    assert!(wrong.is_empty(), "{name}: {wrong:?}");
    for (field, difference) in &differences {
        println!("{name} {field}: largest relative difference {difference:.1e}");
    }
    println!("{}", report.lines().join("\n"));
    Some(report)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 5e-5 * b
}

#[test]
fn job_ar_has_one_slow_worker() {
    let Some(report) = check("AR") else { return };
    assert_eq!((report.steps, report.workers), (44, 16));
    assert_eq!(report.cause, CauseKind::SlowWorker);
    let place = report.place.clone().unwrap();
    assert_eq!((place.dp_rank, place.stage, place.rank), (Some(0), Some(0), Some(0)));
    assert!(
        close(report.step_time_s.observed.unwrap(), 46.6492),
        "{:?}",
        report.step_time_s
    );
    assert!(close(report.slowdown.unwrap(), 1.9730), "{:?}", report.slowdown);
    assert!(close(report.what_if.unwrap().slow_workers.share.unwrap(), 1.0017));
    assert!(report.causes[0].why.contains("2.35"), "{}", report.causes[0].why);
    assert!(report.confidence > 0.9);
}

#[test]
fn job_st_has_a_large_last_stage() {
    let Some(report) = check("ST") else { return };
    assert_eq!((report.steps, report.workers), (32, 8));
    assert_eq!(report.cause, CauseKind::SlowStage);
    let place = report.place.clone().unwrap();
    assert_eq!((place.dp_rank, place.stage), (None, Some(3)));
    assert!(
        close(report.step_time_s.observed.unwrap(), 2.21445),
        "{:?}",
        report.step_time_s
    );
    assert!(close(report.slowdown.unwrap(), 1.1787), "{:?}", report.slowdown);
    assert!(close(report.what_if.unwrap().last_stage.share.unwrap(), 1.2194));
}

#[test]
fn a_published_trace_as_csv_or_json_lines_gives_the_same_report() {
    let Some((report, folder)) = job("ST") else { return };
    let bytes = std::fs::read(folder.join("trace-ST.parquet")).unwrap();
    let (TimingFile::Operations(rows), _) = read_timings("ST", &bytes) else {
        panic!("not operations")
    };
    let mut csv = String::from("dp_rank,stage,rank,step,optype,start_ts,duration,seq_id,mc,mb_id,gmc\n");
    let mut json = String::new();
    let number = |value: Option<i64>| value.unwrap_or(-1);
    for row in &rows {
        let rank = number(row.rank);
        let seq = number(row.seq);
        let chunk = number(row.chunk);
        let microbatch = number(row.microbatch);
        let global = number(row.global_chunk);
        csv.push_str(&format!(
            "{},{},{rank},{},{},{},{},{seq},{chunk},{microbatch},{global}\n",
            row.dp_rank,
            row.stage,
            row.step,
            row.kind.name(),
            row.start,
            row.duration
        ));
        json.push_str(&format!(
            "{}\n",
            serde_json::json!({
                "dp_rank": row.dp_rank, "stage": row.stage, "rank": rank, "step": row.step, "optype": row.kind.name(),
                "start_ts": row.start, "duration": row.duration, "seq_id": seq, "mc": chunk, "mb_id": microbatch, "gmc": global,
            })
        ));
    }
    for text in [csv, json] {
        let (timings, problems) = read_timings("ST", text.as_bytes());
        assert_eq!(problems.count, 0, "{problems:?}");
        let other = analyse("ST", &timings, None, problems);
        assert_eq!((other.cause, &other.place), (report.cause, &report.place));
        // Sums of start and duration are no longer rounded to 32 bits.
        let a = other.slowdown.unwrap();
        let b = report.slowdown.unwrap();
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
}
