//! Real data sets, if they are available: rows, problems and populations against those stated by their authors.

use rankguard_datasets::{TableKind, open};

use crate::common::{dataset, folder, rows, with};

#[test]
fn infinitehbd_pairs_every_fault_and_knows_that_there_were_400_servers() {
    let Some(data) = dataset("infinitehbd-gpu-faults", "infinitehbd") else {
        return;
    };
    assert_eq!(rows(&data, TableKind::Failures), 584);
    assert_eq!(data.problems.count("unpaired"), 0);
    assert_eq!(data.problems.rows_lost(), 0);
    for (class, count) in [("GPU", 158), ("Stress Test Failure", 97), ("NIC", 30), ("Fan", 33)] {
        assert_eq!(with(&data, TableKind::Failures, "class", class), count, "{class}");
    }
    let mut nodes = data.strings(TableKind::Failures, "node").expect("nodes");
    nodes.sort();
    nodes.dedup();
    assert_eq!(nodes.len(), 231, "servers that failed");
    assert_eq!(data.population.map(|all| all.count), Some(400), "servers in all");
    let (start, end) = data.window.expect("a window");
    assert_eq!(start, 0.0);
    assert!((end - 348.979_8 * 86_400.0).abs() < 10.0, "{end}");
    let repair = data.f64s(TableKind::Failures, "repair_s").expect("repair times");
    assert_eq!(repair.iter().flatten().filter(|seconds| **seconds == 0.0).count(), 14);
}

#[test]
fn titan_has_stays_events_and_gpus_and_durations_are_not_subtracted() {
    let Some(data) = dataset("titan-gpu-lifetimes", "titan") else {
        return;
    };
    assert_eq!(data.population.map(|all| all.count), Some(30_207));
    assert_eq!(rows(&data, TableKind::Nodes), 30_207);
    assert_eq!(rows(&data, TableKind::Outages), 37_343 - 1_158);
    assert_eq!(with(&data, TableKind::Failures, "class", "DBE"), 4_826);
    assert_eq!(with(&data, TableKind::Failures, "class", "OTB"), 1_541);
    assert_eq!(data.problems.rows_lost(), 0);
    let devices = data.strings(TableKind::Failures, "device").expect("serial numbers");
    assert!(
        devices.iter().flatten().all(|serial| serial.len() == 13),
        "a leading zero is lost"
    );
    let years: f64 = data
        .f64s(TableKind::Outages, "x_duration_s")
        .expect("durations")
        .iter()
        .flatten()
        .sum();
    assert_eq!((years / 86_400.0 / 365.25).round(), 100_820.0);
    let start = data.f64s(TableKind::Outages, "start");
    let end = data.f64s(TableKind::Outages, "end");
    let start = start.expect("starts");
    let end = end.expect("ends");
    let lasting = data.f64s(TableKind::Outages, "x_duration_s").expect("durations");
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
    assert_eq!(rows(&data, TableKind::Failures), 23_739);
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
        assert_eq!(with(&data, TableKind::Failures, "class", class), count, "{class}");
    }
    let classes = data.strings(TableKind::Failures, "class").expect("causes");
    assert_eq!(classes.iter().filter(|class| class.is_none()).count(), 453);
    assert_eq!(rows(&data, TableKind::Nodes), 23, "systems");
    let repair = data.f64s(TableKind::Failures, "repair_s").expect("down times");
    let longest = repair.iter().flatten().copied().fold(0.0, f64::max);
    assert_eq!(longest, 319_482.0 * 60.0);
    assert_eq!(repair.iter().flatten().filter(|seconds| **seconds == 0.0).count(), 187);
}

#[test]
fn grid5000_has_every_interval_of_every_node() {
    let Some(data) = dataset("grid5000-availability-fta", "grid5000") else {
        return;
    };
    assert_eq!(rows(&data, TableKind::Outages), 588_463);
    assert_eq!(data.population.map(|all| all.count), Some(1_288));
    assert_eq!(data.problems.rows_lost(), 0);
    let start = data.f64s(TableKind::Outages, "start");
    let end = data.f64s(TableKind::Outages, "end");
    let start = start.expect("starts");
    let end = end.expect("ends");
    let states = data.strings(TableKind::Outages, "state").expect("states");
    let mut hours = [(0.0, 0_u32), (0.0, 0)];
    for ((start, end), state) in start.iter().zip(&end).zip(&states) {
        let lasting = start
            .zip(*end)
            .map(|(start, end)| (end - start) / 3600.0)
            .expect("both ends are known");
        let of = &mut hours[usize::from(state.as_deref() == Some("up"))];
        *of = (of.0 + lasting, of.1 + 1);
    }
    // The mean intervals that the data gives, zero lengths counted in: up 32.406 h, down 7.414 h.
    let mean = |of: (f64, u32)| (of.0 / f64::from(of.1) * 1000.0).round();
    assert_eq!((mean(hours[1]), mean(hours[0])), (32_406.0, 7_414.0));
}

#[test]
fn blue_gene_has_four_views_and_the_alerts_that_were_counted() {
    let Some(data) = dataset("bgl-ras-failures", "bgl") else {
        return;
    };
    for (file, count) in [
        ("Best.all-fail.log.gz", 63_951),
        ("Best.full-loc.log.gz", 61_944),
        ("Best.1st-loc.log.gz", 27_370),
        ("Best.any-loc.log.gz", 1_435),
    ] {
        assert_eq!(with(&data, TableKind::Events, "x_file", file), count, "{file}");
    }
    let messages = data.strings(TableKind::Events, "message").expect("messages");
    let files = data.strings(TableKind::Events, "x_file").expect("files");
    let all = messages
        .iter()
        .zip(&files)
        .filter(|(_, file)| file.as_deref() == Some("Best.all-fail.log.gz"));
    let panics = all.filter(|(message, _)| message.as_deref().is_some_and(|text| text.starts_with("rts panic!")));
    assert_eq!(panics.count(), 3_983);
    assert_eq!(data.problems.rows_lost(), 0);
}

#[test]
fn drives_and_disks_keep_their_place_and_their_instants() {
    if let Some(data) = dataset("alibaba-ssd-failures", "alibaba-ssd") {
        assert_eq!(rows(&data, TableKind::Failures), 18_387);
        assert_eq!(data.population, None, "only drives that failed are in the file");
        let mut devices = data.strings(TableKind::Failures, "device").expect("devices");
        devices.sort();
        devices.dedup();
        assert_eq!(devices.len(), 18_387, "a disk is told by model and number");
    }
    if let Some(data) = dataset("ornl-alpine-disk-failures", "alpine") {
        assert_eq!(rows(&data, TableKind::Failures), 3_766);
        assert_eq!(
            data.problems.count("order"),
            0,
            "instants are in order, whatever the offsets"
        );
        let times = data.f64s(TableKind::Failures, "time").expect("times");
        let gaps = times
            .windows(2)
            .filter_map(|two| two[0].zip(two[1]))
            .map(|(one, next)| next - one);
        let gaps: Vec<f64> = gaps.collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert_eq!(
            (mean * 1000.0).round(),
            41_585_003.0,
            "the published mean, 41,585.003 s"
        );
        assert_eq!(gaps.iter().filter(|gap| **gap < 1.0).count(), 36);
    }
}

#[test]
fn pods_jobs_and_steps_have_the_states_that_were_counted() {
    if let Some(data) = dataset("alibaba-gpu-v2023-openb", "openb") {
        assert_eq!(rows(&data, TableKind::Jobs), 8_152);
        assert_eq!(data.population.map(|all| all.count), Some(1_523));
        for (state, count) in [
            ("Running", 5_193),
            ("Failed", 1_870),
            ("Pending", 897),
            ("Succeeded", 192),
        ] {
            assert_eq!(with(&data, TableKind::Jobs, "state_raw", state), count, "{state}");
        }
        let starts = data.f64s(TableKind::Jobs, "start").expect("starts");
        assert_eq!(starts.iter().filter(|start| start.is_none()).count(), 897);
        let gpus = data
            .f64s(TableKind::Nodes, "gpus")
            .expect("GPUs")
            .iter()
            .flatten()
            .sum::<f64>();
        assert_eq!(gpus, 6_212.0);
    }
    if let Some(data) = dataset("nrel-eagle-jobs-sample", "nrel-eagle") {
        assert_eq!(with(&data, TableKind::Jobs, "state", "completed"), 985);
        assert_eq!(with(&data, TableKind::Jobs, "state", "timeout"), 15);
        assert_eq!(data.problems.count("reused-id"), 451);
    }
    if let Some(data) = dataset(
        "meta-gcm-samples/slurm/sample-sacct-output-midnight-edge-case.txt",
        "slurm",
    ) {
        assert_eq!(
            (rows(&data, TableKind::Jobs), rows(&data, TableKind::Attempts)),
            (1_186 - 880, 880)
        );
    }
}

#[test]
fn broken_accounting_is_joined_as_its_authors_expect() {
    let Some(folder) = folder("meta-gcm-samples") else {
        return;
    };
    for (name, count) in [("one-multiline", 4), ("multiple-multiline", 6), ("fake-line-break", 4)] {
        let read = |end: &str| {
            let data = open(&folder.join(format!("slurm/sample-sacct-{name}{end}.txt"))).expect("a sacct file");
            let rows = rows(&data, TableKind::Jobs) + rows(&data, TableKind::Attempts);
            (
                rows,
                data.problems.rows_lost(),
                data.strings(TableKind::Jobs, "job").expect("ids"),
            )
        };
        let broken = read("");
        let expected = read("-expected");
        assert_eq!(broken, expected, "{name}");
        assert_eq!(broken.0, count, "{name}");
    }
    let data = open(&folder.join("slurm/sample-sacct-output-with-invalid-lines.txt"));
    assert_eq!(data.expect("a sacct file").problems.rows_lost(), 1);
}

#[test]
fn spot_traces_have_their_ticks_drops_and_nodes() {
    if let Some(data) = dataset("skypilot-spot-traces", "skypilot") {
        assert_eq!(data.files.iter().filter(|file| !file.role.is_empty()).count(), 30);
        let zones = data.strings(TableKind::Capacity, "zone").expect("zones");
        let counts = data.f64s(TableKind::Capacity, "available").expect("counts");
        let of = |wanted: &str| -> Vec<f64> {
            let rows = zones
                .iter()
                .zip(&counts)
                .filter(|(zone, _)| zone.as_deref().is_some_and(|zone| zone.ends_with(wanted)));
            rows.filter_map(|(_, count)| *count).collect()
        };
        let sixteen = of("availability/16-node/aws-08-27-2023/us-east-2b_v100_1");
        assert_eq!(sixteen.len(), 3_247);
        let drops: Vec<f64> = sixteen
            .windows(2)
            .map(|two| two[0] - two[1])
            .filter(|lost| *lost > 0.0)
            .collect();
        assert_eq!((drops.len(), drops.iter().sum::<f64>()), (136, 910.0));
        assert_eq!(of("1-node/aws-02-15-2023/us-west-2b_v100_1").len(), 20_158);
    }
    if let Some(data) = dataset("bamboo-spot-traces", "bamboo") {
        assert_eq!(rows(&data, TableKind::Capacity), 344 + 153 + 268 + 1_477);
        assert_eq!(with(&data, TableKind::Capacity, "x_event", "add"), 177 + 79);
        assert_eq!(with(&data, TableKind::Capacity, "x_event", "remove"), 167 + 74);
        assert_eq!(data.problems.count("unpaired"), 0);
        assert_eq!(
            data.window, None,
            "milliseconds from a start and days of a calendar have no common window"
        );
    }
}
