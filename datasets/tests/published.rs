//! The real data sets, where they are at hand: rows, problems and populations against what their authors state.

#![allow(clippy::print_stderr, reason = "a test that cannot run says so loudly")]

use std::path::{Path, PathBuf};

use rankguard_datasets::{Dataset, Table, open};

/// The folder of a data set; where it is absent the test says so and ends.
fn folder(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/datasets")
        .join(name);
    if path.is_dir() {
        return Some(path);
    }
    eprintln!("SKIPPED: {} is absent, so its counts are not checked", path.display());
    None
}

fn dataset(name: &str, source: &str) -> Option<Dataset> {
    let dataset = open(&folder(name)?).expect("a published data set opens");
    assert_eq!(dataset.source, source);
    for file in dataset.files.iter().filter(|file| !file.role.is_empty()) {
        assert_eq!(file.sha256.len(), 64, "{}", file.path);
    }
    Some(dataset)
}

fn rows(dataset: &Dataset, table: Table) -> u64 {
    dataset.rows.get(&table).copied().unwrap_or(0)
}

/// How many rows of a table have this text.
fn with(dataset: &Dataset, table: Table, column: &str, wanted: &str) -> usize {
    let texts = dataset.strings(table, column).expect("a text column");
    texts.iter().flatten().filter(|text| *text == wanted).count()
}

#[test]
fn infinitehbd_pairs_every_fault_and_knows_that_there_were_400_servers() {
    let Some(data) = dataset("infinitehbd-gpu-faults", "infinitehbd") else {
        return;
    };
    assert_eq!(rows(&data, Table::Failures), 584);
    assert_eq!(data.problems.count("unpaired"), 0);
    assert_eq!(data.problems.rows_lost(), 0);
    for (class, count) in [("GPU", 158), ("Stress Test Failure", 97), ("NIC", 30), ("Fan", 33)] {
        assert_eq!(with(&data, Table::Failures, "class", class), count, "{class}");
    }
    let mut nodes = data.strings(Table::Failures, "node").expect("nodes");
    nodes.sort();
    nodes.dedup();
    assert_eq!(nodes.len(), 231, "servers that failed");
    assert_eq!(data.population.map(|all| all.count), Some(400), "servers in all");
    let (start, end) = data.window.expect("a window");
    assert_eq!(start, 0.0);
    assert!((end - 348.979_8 * 86_400.0).abs() < 10.0, "{end}");
    let repair = data.f64s(Table::Failures, "repair_s").expect("repair times");
    assert_eq!(repair.iter().flatten().filter(|seconds| **seconds == 0.0).count(), 14);
}

#[test]
fn titan_has_stays_events_and_gpus_and_durations_are_not_subtracted() {
    let Some(data) = dataset("titan-gpu-lifetimes", "titan") else {
        return;
    };
    assert_eq!(data.population.map(|all| all.count), Some(30_207));
    assert_eq!(rows(&data, Table::Nodes), 30_207);
    assert_eq!(rows(&data, Table::Outages), 37_343 - 1_158);
    assert_eq!(with(&data, Table::Failures, "class", "DBE"), 4_826);
    assert_eq!(with(&data, Table::Failures, "class", "OTB"), 1_541);
    assert_eq!(data.problems.rows_lost(), 0);
    let devices = data.strings(Table::Failures, "device").expect("serial numbers");
    assert!(
        devices.iter().flatten().all(|serial| serial.len() == 13),
        "a leading zero is lost"
    );
    let years: f64 = data
        .f64s(Table::Outages, "x_duration_s")
        .expect("durations")
        .iter()
        .flatten()
        .sum();
    assert_eq!((years / 86_400.0 / 365.25).round(), 100_820.0);
    let (start, end) = (data.f64s(Table::Outages, "start"), data.f64s(Table::Outages, "end"));
    let (start, end) = (start.expect("starts"), end.expect("ends"));
    let lasting = data.f64s(Table::Outages, "x_duration_s").expect("durations");
    let hour_off = start.iter().zip(&end).zip(&lasting).filter(|((start, end), lasting)| {
        let subtracted = start.zip(**end).map(|(start, end)| end - start);
        subtracted
            .zip(**lasting)
            .is_some_and(|(one, other)| (one - other).abs() == 3_600.0)
    });
    let share = hour_off.count() as f64 / start.len() as f64;
    assert!((0.40..0.50).contains(&share), "{share}");
}

#[test]
fn lanl_keeps_repeats_causes_and_down_times() {
    let Some(data) = dataset("lanl-node-failures", "lanl") else {
        return;
    };
    assert_eq!(rows(&data, Table::Failures), 23_739);
    assert_eq!(data.problems.rows_lost(), 0);
    assert_eq!(data.problems.count("duplicate"), 25);
    assert_eq!(data.problems.count("null"), 126, "failures without a node");
    for (class, count) in [
        ("Hardware", 14_341),
        ("Software", 5_361),
        ("Facilities", 362),
        ("Human Error", 149),
        ("Network", 421),
    ] {
        assert_eq!(with(&data, Table::Failures, "class", class), count, "{class}");
    }
    let classes = data.strings(Table::Failures, "class").expect("causes");
    assert_eq!(classes.iter().filter(|class| class.is_none()).count(), 453);
    assert_eq!(rows(&data, Table::Nodes), 23, "systems");
    let repair = data.f64s(Table::Failures, "repair_s").expect("down times");
    let longest = repair.iter().flatten().copied().fold(0.0, f64::max);
    assert_eq!(longest, 319_482.0 * 60.0);
    assert_eq!(repair.iter().flatten().filter(|seconds| **seconds == 0.0).count(), 187);
}
