//! What people may do wrong, and what they are told: never a hang, never a panic, an exit code of the four, a hint.

mod plan;
mod store;
#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use support::{NOBODY, command, finish, rankguard};

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
            .says(&[NOBODY, "is \"rankguard controller\" running there?"]);
    }
}

#[test]
fn something_that_listens_but_never_answers_is_not_waited_for_for_ever() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("its address").to_string();
    rankguard(&["status", "--controller", &address])
        .expect(69)
        .says(&[&address]);
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
