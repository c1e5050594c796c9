//! What people may do wrong, and what they are told: never a hang, never a panic, an exit code of the four, a hint.

mod plan;
mod store;

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::{NOBODY, command, finish, rankguard};

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
        .says(&["the minimum 3 is above the maximum 2"]);
    rankguard(&["run", "--ranks-per-node", "0", "--", "true"]).expect(64);
    rankguard(&["run", "--checkpoint-dir", "/x", "--", "true"])
        .expect(64)
        .says(&["--checkpoint-every"]);
    rankguard(&["run", "--env", "NOVALUE", "--", "true"])
        .expect(64)
        .says(&["expected KEY=VALUE"]);
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
fn all_mistakes_of_a_configuration_are_reported_at_once() {
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
        format!("{path}:6: controller.listen: \"here\" is invalid"),
        "environment RANKGUARD_LOG_FORMAT: log.format: \"xml\" is invalid".to_owned(),
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
        .says(&[&path, "cannot read the file"]);
    rankguard(&["--config", "/does/not/exist", "status"])
        .expect(64)
        .says(&["/does/not/exist"]);
}

#[test]
fn a_controller_that_is_not_there_is_named() {
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
        let args = [head, &["--controller", NOBODY], tail].concat();
        rankguard(&args)
            .expect(69)
            .says(&[NOBODY, "check that `rankguard controller` runs there"]);
    }
}

#[test]
fn something_that_listens_but_never_answers_is_not_waited_for_for_ever() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("its address").to_string();
    rankguard(&["status", "--controller", &address])
        .expect(69)
        .says(&[&format!("waiting for the controller at {address}")]);
}

/// Pages and tables fit a terminal of 80 columns, and a pipe gets whole lines.
#[test]
fn output_is_wrapped_to_the_terminal_only() {
    let commands: [&[&str]; 5] = [
        &["explain", "XID", "79"],
        &["config", "show"],
        &["preflight", "--path", "/no/such/path/at/all/on/this/machine"],
        &["taxonomy", "show", "hu-nsdi2024"],
        &["taxonomy", "crosswalk", "--class", "gpu-fallen-off-bus"],
    ];
    for words in commands {
        let piped = rankguard(words);
        let longest = piped.stdout.lines().map(|line| line.chars().count()).max();
        assert!(longest > Some(80), "{words:?}: {longest:?}");
        let line = [&[env!("CARGO_BIN_EXE_rankguard")], words].concat().join(" ");
        let mut command = Command::new("script");
        command
            .args(["-qc", &format!("stty cols 80; {line}"), "/dev/null"])
            .env_remove("COLUMNS")
            .stdin(Stdio::null());
        let shown = command.output().expect("script of util-linux");
        let text = String::from_utf8_lossy(&shown.stdout);
        assert!(text.lines().count() > 1, "{words:?}: {text}");
        for line in text.lines() {
            let line = line.trim_end_matches('\r');
            // Errors and notes go to the same terminal and are not wrapped.
            let is_note = line.starts_with("error: ") || line.starts_with("hint: ");
            assert!(is_note || line.chars().count() <= 80, "{words:?}: {line:?}");
        }
    }
}

/// Finding 9 of the first operator: one mistake hid the others, and addresses that no process accepts were fine.
#[test]
fn config_check_names_mistakes_of_form_and_of_the_deployment_together() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let text = "[agent]\nnode = \"a b/c\"\nslots = -5\ncontroller = \"10.0.0.1:7700\"\n\
                [controller]\nlisten = \"127.0.0.1:7799\"\nmetrics_listen = \"127.0.0.1:7799\"\n";
    fs::write(file.path(), text).expect("written");
    let path = file.path().display().to_string();
    let checked = rankguard(&["--config", &path, "config", "check"]).expect(1);
    for (line, part) in [
        (2, "agent.node: \"a b/c\" is not a node name"),
        (3, "agent.slots: -5 is invalid; expected an integer from 1 to 4096"),
        (4, "agent.controller: 10.0.0.1:7700 is not a loopback address"),
        (
            7,
            "controller.metrics_listen: 127.0.0.1:7799 is already used by controller.listen",
        ),
    ] {
        let expect = format!("{path}:{line}: {part}");
        assert!(
            checked.stdout.contains(&expect),
            "{expect:?} is not in:\n{}",
            checked.stdout
        );
    }
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
fn explain_states_what_a_line_and_a_code_mean() {
    // A line that denies a failure is no failure.
    for line in [
        "0 CUDA out of memory errors in the last hour",
        "no CUDA out of memory so far",
    ] {
        rankguard(&["explain", line]).expect(2);
    }
    // The definition of the class covers other codes.
    let retired = rankguard(&["explain", "XID", "160"]).expect(0).stdout;
    assert!(
        retired.contains("a memory channel was retired.") && !retired.contains("memory row is marked"),
        "{retired}"
    );
    let stalled = rankguard(&["explain", "SXid", "12028"]).expect(0).stdout;
    assert!(
        !stalled.contains("nothing by itself") && !stalled.contains("replace-node:"),
        "{stalled}"
    );
    let killed = rankguard(&["explain", "srun: error: c7: task 3: Killed"])
        .expect(0)
        .stdout;
    assert!(killed.contains("the line names no reason"), "{killed}");
    for (line, class) in [
        (
            "CUDA error: an illegal instruction was encountered",
            "cuda-launch-failure",
        ),
        (
            "CUDA error: uncorrectable ECC error encountered",
            "gpu-ecc-uncorrectable",
        ),
        ("pdsh@head: c7: ssh exited with exit code 3", "launcher-child-failed"),
        ("pdsh@head: c7: ssh exited with exit code 255", "ssh-failure"),
        ("ValueError: bad batch 81", "python-value-error"),
        (
            "LustreError: 167-0: This client was evicted by home-OST0004; in progress operations will fail",
            "filesystem-hang",
        ),
    ] {
        let pages = rankguard(&["explain", line, "--format", "jsonl"]).expect(0).stdout;
        let classes: Vec<String> = pages
            .lines()
            .filter_map(|page| serde_json::from_str::<Value>(page).ok())
            .map(|page| page["class"].as_str().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(classes.first().map(String::as_str), Some(class), "{line}: {classes:?}");
        let is_contradicted = |other: &String| {
            ["cuda-illegal-memory-access", "resource-contention", "config-error"].contains(&other.as_str())
        };
        assert!(!classes.iter().any(is_contradicted), "{line}: {classes:?}");
    }
}

#[test]
fn an_unknown_kind_of_log_is_refused_with_the_known_ones() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("cases.jsonl");
    fs::write(
        &file,
        "{\"id\": \"a\", \"sources\": [{\"kind\": \"pear\", \"lines\": [\"step 1\"]}]}\n",
    )
    .expect("written");
    let path = file.display().to_string();
    rankguard(&["classify", &path])
        .expect(2)
        .says(&["unknown variant `pear`", "rank-stderr", "kmsg", "agent-event"]);
    let help = rankguard(&["classify", "--help"]).expect(0).stdout;
    assert!(help.contains("rank-stderr") && help.contains("kmsg"), "{help}");
}

#[test]
fn classify_states_which_of_its_two_classes_the_reasoning_speaks_of() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("cases.jsonl");
    let case = |id: &str, line: &str| format!("{{\"id\": \"{id}\", \"sources\": [{{\"lines\": [\"{line}\"]}}]}}\n");
    let write = case(
        "write",
        "RuntimeError: [enforce fail at inline_container.cc:424] . PytorchStreamWriter failed writing file data/37: file write failed",
    );
    let full = case("full", "OSError: [Errno 28] No space left on device");
    fs::write(&file, format!("{write}{full}")).expect("written");
    let stdout = rankguard(&["classify", &file.display().to_string()]).expect(0).stdout;
    let verdicts: Vec<serde_json::Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("a verdict"))
        .collect();
    let of_classes = |verdict: &serde_json::Value| verdict["reasoning"].to_string().contains("(`leaf`)");
    assert_eq!(
        (&verdicts[0]["class"], &verdicts[0]["leaf"]),
        (&"disk-full".into(), &"checkpoint-write-failure".into())
    );
    assert!(of_classes(&verdicts[0]), "{stdout}");
    assert_eq!(
        (&verdicts[1]["class"], &verdicts[1]["leaf"]),
        (&"disk-full".into(), &serde_json::Value::Null)
    );
    assert!(!of_classes(&verdicts[1]), "{stdout}");
    let help = rankguard(&["classify", "--help"]).expect(0).stdout;
    assert!(help.contains("`leaf` is the class of"), "{help}");
}

#[test]
fn diagnose_compares_and_corrects_with_what_it_was_given() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for (node, rank, line) in [
        (
            "a1",
            0,
            "2026-03-04 10:00:07 RuntimeError: NCCL error: remote process exited or there was a network error",
        ),
        ("a2", 8, "2026-03-04 10:00:09 KeyError: 'acc'"),
    ] {
        fs::create_dir(dir.path().join(node)).expect("a folder");
        fs::write(dir.path().join(format!("{node}/rank{rank}.log")), format!("{line}\n")).expect("written");
    }
    let path = dir.path().display().to_string();
    let ran = rankguard(&["diagnose", "--clock-offset", "a2=5", &path]).expect(1);
    assert!(!ran.stderr.contains("is not used"), "{}", ran.stderr);
    let ran = rankguard(&["diagnose", "--clock-offset", "b2=5", &path]).expect(1);
    assert!(ran.stderr.contains("node b2 is not used"), "{}", ran.stderr);
    let ran = rankguard(&["diagnose", "--healthy", "/no/such/run", &path]).expect(1);
    assert!(
        ran.stdout.contains("Nothing was compared") && !ran.stdout.contains("No line differs"),
        "{}",
        ran.stdout
    );
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

#[test]
fn a_named_log_that_cannot_be_read_leaves_no_verdict() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let good = dir.path().join("good.log");
    fs::write(&good, "2026-03-04 10:00:07 step 1 done\n").expect("written");
    let good = good.display().to_string();
    rankguard(&["diagnose", &good]).expect(0);
    let ran = rankguard(&["diagnose", &good, "/does/not/exist"]).expect(2);
    assert!(ran.stdout.contains("nothing could be read of 1 path"), "{}", ran.stdout);
    ran.says(&["skipped: /does/not/exist", "nothing could be read of 1 of 2 paths"]);
    rankguard(&["diagnose", &good, "--clock-offset", "nonode=3"])
        .expect(0)
        .says(&["node nonode is not used"]);
}
