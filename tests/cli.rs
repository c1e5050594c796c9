//! What people may do wrong, and what they are told: never a hang, never a panic, an exit code of the four, a hint.

mod support;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rankguard_checkpoint::Store;
use rankguard_checkpoint_format::{CheckpointId, Dtype, Manifest, ShardIndex, TensorBox};
use rankguard_model::{Generation, JobId, Rank, Step};
use serde_json::Value;

use support::{command, finish, rankguard};

#[test]
fn words_that_are_no_command_are_a_usage_error() {
    let ran = rankguard(&["frobnicate"])
        .expect(64)
        .says(&["unrecognized subcommand 'frobnicate'"]);
    assert_eq!(ran.stdout, "", "an error is no data");
    rankguard(&[]).expect(64);
    rankguard(&["status", "--format", "xml"]).expect(64).says(&["xml"]);
    rankguard(&["cases", "show"]).expect(64).says(&["<CASE>"]);
    rankguard(&["run", "--nodes", "3:2", "--", "true"])
        .expect(64)
        .says(&["at least 3 and at most 2 cannot both be"]);
    rankguard(&["run", "--ranks-per-node", "0", "--", "true"]).expect(64);
    rankguard(&["run", "--checkpoint-dir", "/x", "--", "true"])
        .expect(64)
        .says(&["--checkpoint-every"]);
    rankguard(&["run", "--env", "NOVALUE", "--", "true"])
        .expect(64)
        .says(&["want KEY=VALUE"]);
    rankguard(&["run", "--name", "../up", "--controller", "127.0.0.1:1", "--", "true"])
        .expect(64)
        .says(&["../up"]);
    rankguard(&["status", "--controller", "nowhere"])
        .expect(64)
        .says(&["\"nowhere\"", "host:port"]);
}

#[test]
fn help_and_version_are_data() {
    let help = rankguard(&["--help"]).expect(0);
    for word in [
        "demo",
        "controller",
        "agent",
        "run",
        "status",
        "cases",
        "checkpoint",
        "diagnose",
        "Exit codes",
    ] {
        assert!(help.stdout.contains(word), "{word} is not in:\n{}", help.stdout);
    }
    assert!(!help.stdout.contains("demo-rank"), "the demo's rank is not for people");
    assert!(rankguard(&["--version"]).expect(0).stdout.starts_with("rankguard "));
}

#[test]
fn all_mistakes_of_a_configuration_are_told_at_once() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(
        file.path(),
        "[agent]\nslotz = 1\nhost = 7\n\n[controller]\nlisten = \"here\"\n",
    )
    .expect("written");
    let path = file.path().display().to_string();
    let mistakes = [
        format!("{path}:2: unknown setting agent.slotz; did you mean agent.slots?"),
        format!("{path}:3: "),
        format!("{path}:6: \"here\" is refused"),
        "environment RANKGUARD_LOG_FORMAT: log.format: \"xml\" is refused".to_owned(),
    ];
    let run = |args: &[&str]| {
        let mut command = command(args);
        command
            .env("RANKGUARD_LOG_FORMAT", "xml")
            .env("RANKGUARD_CONFIG", &path);
        finish(command.spawn().expect("the program starts"), Duration::from_secs(30))
    };
    let checked = run(&["config", "check"]).expect(1);
    let refused = run(&["agent", "--slots", "none"])
        .expect(64)
        .says(&["5 mistakes", "--slots: agent.slots: \"none\""]);
    for mistake in &mistakes {
        assert!(
            checked.stdout.contains(mistake),
            "{mistake:?} is not in:\n{}",
            checked.stdout
        );
        assert!(
            refused.stderr.contains(mistake),
            "{mistake:?} is not in:\n{}",
            refused.stderr
        );
    }
}

#[test]
fn the_configuration_is_shown_with_where_each_value_comes_from() {
    let mut command = command(&["config", "show", "--format", "json"]);
    command.env("RANKGUARD_AGENT_SLOTS", "8");
    let shown = finish(command.spawn().expect("the program starts"), Duration::from_secs(30)).expect(0);
    let shown: Vec<Value> = serde_json::from_str(&shown.stdout).expect("JSON");
    let of = |setting: &str| {
        shown
            .iter()
            .find(|line| line["setting"] == setting)
            .expect("the setting is listed")
    };
    assert_eq!(of("agent.slots")["value"], 8);
    assert_eq!(of("agent.slots")["from"], "environment RANKGUARD_AGENT_SLOTS");
    assert_eq!(of("controller.listen")["from"], "default");
    rankguard(&["config", "check"]).expect(0);
}

#[test]
fn a_file_that_is_no_text_is_a_mistake_of_the_configuration() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), [0xff, 0xfe, 0, 1]).expect("written");
    let path = file.path().display().to_string();
    rankguard(&["--config", &path, "status"])
        .expect(64)
        .says(&[&path, "cannot be read"]);
    rankguard(&["--config", "/does/not/exist", "status"])
        .expect(64)
        .says(&["/does/not/exist"]);
}

#[test]
fn a_controller_that_is_not_there_is_named_within_seconds() {
    let free = TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("its address")
        .to_string();
    for args in [
        &["status"][..],
        &["cases"],
        &["cancel", "x"],
        &["run", "--", "true"],
        &["node", "cordon", "n"],
    ] {
        let (head, tail) = args.split_at(1);
        let (head, tail) = if head == ["node"] {
            (&args[..2], &args[2..])
        } else {
            (head, tail)
        };
        let args = [head, &["--controller", &free], tail].concat();
        let ran = rankguard(&args)
            .expect(2)
            .says(&[&free, "is \"rankguard controller\" running there?"]);
        assert!(ran.took < Duration::from_secs(8), "{args:?} took {:?}", ran.took);
    }
}

#[test]
fn something_that_listens_but_never_answers_is_not_waited_for_for_ever() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("its address").to_string();
    let ran = rankguard(&["status", "--controller", &address])
        .expect(2)
        .says(&[&address]);
    assert!(ran.took < Duration::from_secs(25), "it took {:?}", ran.took);
}

#[test]
fn a_port_in_use_is_said_to_be_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let dir = tempfile::tempdir().expect("a temporary folder");
    let state = dir.path().display().to_string();
    rankguard(&["controller", "--listen", &address, "--state-dir", &state])
        .expect(2)
        .says(&["port in use", &address]);
    rankguard(&["controller", "--listen", "0.0.0.0:0", "--state-dir", &state])
        .expect(2)
        .says(&["loopback"]);
}

#[test]
fn a_state_directory_that_cannot_be_made_is_named() {
    for daemon in ["controller", "agent"] {
        rankguard(&[daemon, "--state-dir", "/dev/null/x"])
            .expect(2)
            .says(&["/dev/null/x"]);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = command(&["config", "show", "--format", "jsonl"]);
    let child = command.stdout(writer).spawn().expect("the program starts");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(0) && said.is_empty(),
        "{}: {said}",
        output.status
    );
}

#[test]
fn a_full_disk_behind_standard_output_is_a_failure() {
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else {
        return;
    };
    let mut command = command(&["config", "show"]);
    let child = command
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(
        output.status.code(),
        Some(2),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn what_is_known_is_explained_and_what_is_not_is_said_to_be_unknown() {
    let text = rankguard(&["explain", "XID", "79"]).expect(0).stdout;
    assert!(
        text.starts_with("XID 79\n") && text.contains("gpu-fallen-off-bus") && text.contains("cleared by"),
        "{text}"
    );
    let json = rankguard(&["explain", "gpu-fallen-off-bus", "--format", "json"])
        .expect(0)
        .stdout;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert!(
        json[0]["taxonomies"].as_array().is_some_and(|places| places.len() >= 5),
        "{json:#}"
    );
    rankguard(&["explain", "colourless green ideas"]).expect(2);
}

#[test]
fn diagnose_says_what_it_cannot_read_and_never_panics() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    fs::write(
        dir.path().join("noise.log"),
        (0..=255u8).cycle().take(70_000).collect::<Vec<u8>>(),
    )
    .expect("written");
    fs::write(dir.path().join("broken.gz"), b"\x1f\x8bnot really").expect("written");
    let path = dir.path().display().to_string();
    let ran = rankguard(&["diagnose", &path]);
    assert!(
        ran.code.is_some_and(|code| code <= 2) && !ran.stderr.contains("panicked"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("broken.gz"), "{}", ran.stderr);
    rankguard(&["diagnose", "/does/not/exist"])
        .expect(2)
        .says(&["/does/not/exist"]);
    rankguard(&["diagnose", "--format", "csv", &path]).expect(64);
}

/// A store with two checkpoints of two ranks, and a third that was never committed.
fn store(dir: &Path) -> Store {
    let store = Store::open(dir).expect("a store");
    for step in [10, 20, 30] {
        let id = CheckpointId {
            step: Step(step),
            generation: Generation(1),
        };
        let seals: Vec<_> = (0..2).map(|rank| shard(&store, id, rank)).collect();
        if step < 30 {
            let manifest = Manifest::from_seals(&JobId::from("demo"), id, None, &seals).expect("a manifest");
            store.commit(&manifest).expect("committed");
        }
    }
    store
}

fn shard(store: &Store, id: CheckpointId, rank: u32) -> rankguard_model::ShardSeal {
    let boxes = [
        TensorBox::rows(
            "weight",
            Dtype::U8,
            vec![64, 64],
            u64::from(rank) * 32..u64::from(rank + 1) * 32,
        ),
        TensorBox::whole("bias", Dtype::U8, vec![100]),
    ];
    let (tensors, end) = ShardIndex::lay_out(boxes);
    let bytes = end.expect("a small image");
    let image: Vec<u8> = (0..bytes).map(|at| (at ^ id.step.0) as u8).collect();
    let mut index = ShardIndex {
        rank: Rank(rank),
        world_size: 2,
        chunk_bytes: 1024,
        image_bytes: bytes,
        tensors,
        ..ShardIndex::new(&JobId::from("demo"), id)
    };
    index.digest_image(&image);
    store.write_shard(&index, &image.as_slice()).expect("written").seal
}

#[test]
fn a_store_lists_what_is_committed_and_what_is_torn() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    store(dir.path());
    let path = dir.path().display().to_string();
    let listed = rankguard(&["checkpoint", "ls", "--dir", &path, "--format", "json"]).expect(0);
    let listed: Vec<Value> = serde_json::from_str(&listed.stdout).expect("JSON");
    let states: Vec<_> = listed
        .iter()
        .map(|line| (line["step"].as_u64(), line["state"].as_str()))
        .collect();
    let wanted = [
        (Some(10), Some("committed")),
        (Some(20), Some("committed")),
        (Some(30), Some("torn")),
    ];
    assert_eq!(states, wanted);
    assert_eq!(listed[0]["bytes"], 2 * (32 * 64 + 100));
    let csv = rankguard(&["checkpoint", "ls", "--dir", &path, "--format", "csv"])
        .expect(0)
        .stdout;
    assert_eq!(csv.lines().count(), 4, "{csv}");
    rankguard(&["checkpoint", "verify", "--dir", &path])
        .expect(0)
        .says(&["2 intact, 0 problems"]);
    let torn = rankguard(&["checkpoint", "explain", "30", "--dir", &path]).expect(1);
    assert!(
        torn.stdout.contains("cannot be used") && torn.stdout.contains("no manifest"),
        "{}",
        torn.stdout
    );
}

/// RG-2: whoever looks hears where the damage is.
#[test]
fn one_flipped_bit_is_found_and_its_place_is_named() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let store = store(dir.path());
    let id = CheckpointId {
        step: Step(20),
        generation: Generation(1),
    };
    let image = store.shard_path(&JobId::from("demo"), id, Rank(1)).expect("a path");
    let mut bytes = fs::read(&image).expect("read");
    bytes[1500] ^= 0x10;
    fs::write(&image, bytes).expect("written");
    let path = dir.path().display().to_string();

    let found = rankguard(&["checkpoint", "verify", "--dir", &path, "--format", "json"]).expect(1);
    let found: Vec<Value> = serde_json::from_str(&found.stdout).expect("JSON");
    let damage = found
        .iter()
        .find(|line| line["state"] == "damage")
        .expect("the damage is told");
    assert_eq!(damage["file"].as_str(), image.to_str());
    assert_eq!((damage["rank"].as_u64(), damage["chunk"].as_u64()), (Some(1), Some(1)));
    assert_eq!(damage["tensors"], serde_json::json!(["weight"]));

    rankguard(&["checkpoint", "verify", "--dir", &path, "--step", "10"]).expect(0);
    let why = rankguard(&["checkpoint", "explain", "20", "--dir", &path])
        .expect(1)
        .stdout;
    assert!(
        why.contains("cannot be used") && why.contains("rank 1, chunk 1, tensor weight"),
        "{why}"
    );
    let why = rankguard(&["checkpoint", "explain", "10", "--dir", &path])
        .expect(0)
        .stdout;
    assert!(why.contains("can be used"), "{why}");
}

#[test]
fn a_store_that_cannot_be_read_is_a_failure_with_its_name() {
    rankguard(&["checkpoint", "ls", "--dir", "/does/not/exist"])
        .expect(2)
        .says(&["/does/not/exist"]);
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let path = file.path().display().to_string();
    rankguard(&["checkpoint", "verify", "--dir", &path])
        .expect(2)
        .says(&[&path]);
    let dir = tempfile::tempdir().expect("a temporary folder");
    store(dir.path());
    let path = dir.path().display().to_string();
    rankguard(&["checkpoint", "ls", "--dir", &path, "--job", "other"])
        .expect(2)
        .says(&["it has: demo"]);
    rankguard(&["checkpoint", "explain", "11", "--dir", &path])
        .expect(2)
        .says(&["no checkpoint of step 11"]);
}

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
        "90 % belief",
        "Tier disk survives 100.0 % of the failures",
        "predicted ETTR 0.9",
        "Young, disk only",
        "fixed 30 min, disk only",
        "Memory: 61.000 GiB of 1008.000 GiB",
        "Peers still hold everything",
        "spares are enough",
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
    let (quiet, stormy) = (
        mttf("node_hours = 1e6\n[failures]\nnode = 1\n"),
        mttf("node_hours = 1e4\n[failures]\nnode = 40\nprocess = 60\n"),
    );
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
        text.contains("Refused: checkpointing needs 31.000 GiB a node") && text.contains("1 slot a rank would fit"),
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
        .says(&["no use before it is complete"]);
    rankguard(&[&few[..], &["--tier", "disk:5"]].concat())
        .expect(64)
        .says(&["NAME:BLOCKING_S"]);
}

/// RG-2: scrub names what is damaged, repair takes a good copy from another store, and then there is nothing to name.
#[test]
fn a_damaged_store_is_scrubbed_and_repaired_from_another() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a temporary folder"));
    let [damaged, whole] = &dirs;
    let paths = dirs.each_ref().map(|dir| dir.path().display().to_string());
    let [path, other] = [paths[0].as_str(), paths[1].as_str()];
    store(whole.path());
    let id = CheckpointId {
        step: Step(20),
        generation: Generation(1),
    };
    let image = store(damaged.path())
        .shard_path(&JobId::from("demo"), id, Rank(1))
        .expect("a path");
    let mut bytes = fs::read(&image).expect("read");
    bytes[1500] ^= 0x10;
    fs::write(&image, bytes).expect("written");

    let scrub = ["checkpoint", "scrub", "--dir", path, "--rate", "0"];
    rankguard(&scrub).expect(1).says(&["1 intact, 1 problems", "repair"]);
    let repair = [
        "checkpoint",
        "repair",
        "--dir",
        path,
        "--from",
        other,
        "--format",
        "json",
    ];
    let ran = rankguard(&repair).expect(0);
    let done: Vec<Value> = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(done.len(), 1, "{}", ran.stdout);
    assert_eq!(
        (done[0]["state"].as_str(), done[0]["rank"].as_u64()),
        (Some("repaired"), Some(1))
    );
    assert_eq!(done[0]["file"].as_str(), image.to_str());
    rankguard(&scrub).expect(0).says(&["2 intact, 0 problems"]);

    let alone = ["checkpoint", "repair", "--dir", path, "--from", "/does/not/exist"];
    rankguard(&alone).expect(2).says(&["/does/not/exist"]);
}

/// RG-1, RG-2: both matrices, every kind of damage, every phase of a save and every fault of a disk.
#[test]
fn torture_of_ten_cases_each_finds_nothing_silent_lost_or_wrong() {
    let args = ["checkpoint", "torture", "--cases", "10", "--format", "json"];
    let ran = finish(
        command(&args).spawn().expect("the program starts"),
        Duration::from_secs(600),
    )
    .expect(0);
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let (corruption, crash) = (&report["corruption"], &report["crash"]);
    let count = |of: &Value, field: &str| of[field].as_u64();
    for row in corruption["rows"].as_array().expect("rows") {
        let counts = ["cases", "refused", "repaired", "silent"].map(|field| count(row, field));
        assert_eq!(counts, [Some(10), Some(10), Some(10), Some(0)], "{row}");
    }
    assert_eq!(
        (count(corruption, "cases"), count(corruption, "silent")),
        (Some(100), Some(0))
    );
    let disturbed = crash["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|row| count(row, "in_phase"));
    assert!(
        disturbed.clone().count() == 12 && disturbed.sum::<u64>() >= 12,
        "{crash}"
    );
    for field in ["lost_commits", "wrong_bytes", "stuck"] {
        assert_eq!(count(crash, field), Some(0), "{crash}");
    }
    assert!(
        count(crash, "intervals_lost_max") <= Some(1) && count(crash, "cases") >= Some(20),
        "{crash}"
    );
}
