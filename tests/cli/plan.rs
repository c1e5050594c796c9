//! What people ask of the planner of intervals.

use std::fs;

use serde_json::Value;

use crate::support::rankguard;

/// 128 nodes, three tiers.
const PLAN: [&str; 14] = [
    "checkpoint",
    "plan",
    "--nodes",
    "128",
    "--state-gib",
    "1920",
    "--step-s",
    "4",
    "--tier",
    "arena:0.2:0.2:process",
    "--tier",
    "peer:0.3:8:node",
    "--tier",
    "disk:0.4:90:all",
];

#[test]
fn a_plan_tells_intervals_their_reasons_and_what_else_could_be_done() {
    let with = |more: &[&str]| rankguard(&[&PLAN, more].concat());
    let text = with(&["--memory-gib", "1024", "--copies", "1", "--repair-h", "48"])
        .expect(0)
        .stdout;
    for part in [
        "128 nodes with 15.0 GiB of state each",
        "arxiv.org/abs/2407.21783",
        "90 % interval",
        "Tier disk survives 100.0 % of the failures",
        "predicted ETTR 0.9",
        "Young, disk only",
        "fixed 30 min, disk only",
        "Memory: 61.000 GiB of 1008.000 GiB",
        "Probability that peers hold everything",
        "spares suffice",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let json = with(&["--format", "json", "--mttf", "7.9", "--budget", "0.5"])
        .expect(0)
        .stdout;
    let plan: Value = serde_json::from_str(&json).expect("JSON");
    assert!(
        plan["plan"]["blocking"].as_f64().is_some_and(|share| share <= 0.005),
        "{json}"
    );
    assert!((plan["failures"]["mttf_h"].as_f64().unwrap_or_default() - 7.9).abs() < 1e-9);
    let ettr = |at: &Value| at["ettr"].as_f64().unwrap_or_default();
    let others = plan["plan"]["alternatives"].as_array().expect("a list");
    assert_eq!(others.len(), 4);
    assert!(others.iter().all(|other| ettr(other) < ettr(&plan["plan"])), "{json}");
    assert_eq!(with(&["--format", "csv"]).expect(0).stdout.lines().count(), 4);
}

/// Whole images of 15 GiB in two slots, or 512 MiB of windows; a write of 90 s, less one window.
#[test]
fn windows_stand_beside_whole_images_with_what_each_costs_and_which_to_take() {
    let with = |more: &[&str], code| {
        let asked = [&PLAN[..], &["--window", "64", "--ranks", "8"], more].concat();
        rankguard(&asked).expect(code).stdout
    };
    let text = with(&["--memory-gib", "1024"], 0);
    for part in [
        "Windows of 64 MiB for each of 8 ranks (`run --checkpoint-window 64`): a save blocks for 87.00 s instead of 400 ms",
        "the 90.00 s of the write, minus one window",
        "memory per node: 1.500 GiB, with whole images 31.000 GiB",
        "recommendation: whole images; they fit",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let small = with(&["--memory-gib", "32"], 0);
    for part in [
        "Does not fit: checkpointing needs 31.000 GiB",
        "recommendation: windows; whole images do not fit",
    ] {
        assert!(small.contains(part), "{part:?} is not in:\n{small}");
    }
    assert!(with(&["--memory-gib", "17"], 1).contains("neither fits"));
    let json = with(&["--write-gib-s", "1.5", "--copy-gib-s", "6", "--format", "json"], 0);
    let plan: Value = serde_json::from_str(&json).expect("JSON");
    let figure = |field: &str| plan["windows"][field].as_f64().expect("a number");
    assert!(
        (figure("blocking_s") - 10.0 * (1.0 - 0.5 / 15.0)).abs() < 1e-9,
        "{json}"
    );
    assert_eq!(figure("whole_blocking_s"), 2.5);
    assert!(figure("ettr") < figure("whole_ettr"), "{json}");
    let alone = rankguard(&[&PLAN[..], &["--ranks", "8"]].concat()).expect(64);
    assert!(alone.stderr.contains("--window"), "{}", alone.stderr);
}

#[test]
fn a_record_of_failures_sharpens_the_plan() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("failures.toml").display().to_string();
    let with = |text: &str| {
        fs::write(&path, text).expect("written");
        rankguard(&[&PLAN[..], &["--failures", &path, "--format", "json"]].concat())
    };
    let mttf = |text: &str| {
        let plan: Value = serde_json::from_str(&with(text).expect(0).stdout).expect("JSON");
        plan["failures"]["mttf_h"].as_f64().expect("a number")
    };
    let quiet = mttf("node_hours = 1e6\n[failures]\nnode = 1\n");
    let stormy = mttf("node_hours = 1e4\n[failures]\nnode = 40\nprocess = 60\n");
    assert!(quiet > 20.0 * stormy, "{quiet} {stormy}");
    with("node_hours = 1\n[failures]\nplanet = 1\n")
        .expect(64)
        .says(&["failures.toml", "planet"]);
    with("node_hours = -1\n[failures]\n")
        .expect(64)
        .says(&["node_hours is -1"]);
}

#[test]
fn a_plan_that_cannot_be_made_names_the_figure() {
    let with = |more: &[&str]| rankguard(&[&PLAN, more].concat());
    with(&["--memory-gib", "40"]).expect(1);
    let text = with(&["--memory-gib", "40"]).expect(1).stdout;
    assert!(
        text.contains("Does not fit: checkpointing needs 31.000 GiB a node")
            && text.contains("1 slot a rank would fit"),
        "{text}"
    );
    with(&["--prior", "hearsay"])
        .expect(64)
        .says(&["hearsay", "llama3-2024"]);
    with(&["--budget", "0"]).expect(64).says(&["0 is not above 0"]);
    with(&["--failures", "/nowhere.toml"])
        .expect(2)
        .says(&["/nowhere.toml", "node_hours"]);
    with(&["--mttf", "5", "--failures", "x"]).expect(64);
    let few = ["checkpoint", "plan", "--nodes", "4", "--state-gib", "10"];
    rankguard(&few).expect(64).says(&["--tier"]);
    let unordered = [
        "--tier",
        "near:1:2:0.9",
        "--tier",
        "far:1:2:0.5",
        "--tier",
        "store:1:2:all",
    ];
    rankguard(&[&few[..], &unordered].concat())
        .expect(64)
        .says(&["order them by what they survive"]);
    rankguard(&[&few[..], &["--tier", "disk:1:2:0.9"]].concat())
        .expect(64)
        .says(&["the last tier must cover 1"]);
    rankguard(&[&few[..], &["--tier", "disk:5:2:all"]].concat())
        .expect(64)
        .says(&["below its blocking time"]);
    rankguard(&[&few[..], &["--tier", "disk:5"]].concat())
        .expect(64)
        .says(&["NAME:BLOCKING_S"]);
}

#[test]
fn a_plan_for_one_node_has_a_singular_noun() {
    let one: Vec<&str> = PLAN
        .iter()
        .map(|word| if *word == "128" { "1" } else { word })
        .collect();
    let text = rankguard(&one).expect(0).stdout;
    assert!(text.contains("1 node with ") && !text.contains("1 nodes"), "{text}");
}

#[test]
fn an_interval_that_the_tier_cannot_take_is_no_optimum() {
    let slow = ["--nodes", "8", "--state-gib", "100", "--tier", "disk:600:4000:all"];
    let plan = |more: &[&str]| {
        rankguard(&[&["checkpoint", "plan"], &slow[..], more].concat())
            .expect(0)
            .stdout
    };
    // The optimum is 9.7 minutes, and an image takes 66.7 minutes.
    let text = plan(&["--mttf", "0.2"]);
    for part in [
        "The intervals are the shortest that the tiers can take, longer than optimal",
        "fixed 30 min raised to the shortest possible, disk only",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    assert!(!text.contains("The optimum is within all limits"), "{text}");
    let json: Value = serde_json::from_str(&plan(&["--mttf", "0.2", "--format", "json"])).expect("JSON");
    assert_eq!(json["plan"]["bound"], "latency");
    let rare = plan(&["--mttf", "2000", "--format", "json"]);
    assert!(
        rare.contains("\"bound\": \"max\"") || rare.contains("\"bound\": \"optimum\""),
        "{rare}"
    );
}
