//! What a package installs beside the program is true of this program: units, the sample of a configuration, pages.

#![allow(
    clippy::print_stderr,
    reason = "a part that cannot be had is said where people see it"
)]

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::cluster::LIMIT;
use crate::support::{Daemon, rankguard, stand_in, until};

fn packaging() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging"))
}

fn units() -> Vec<(PathBuf, String)> {
    let found = std::fs::read_dir(packaging().join("systemd")).expect("there are units");
    let paths = found.map(|entry| entry.expect("a name").path());
    paths
        .filter(|path| path.extension().is_some_and(|it| it == "service"))
        .map(|path| (path.clone(), std::fs::read_to_string(&path).expect("text")))
        .collect()
}

/// The words after the program in a unit's `ExecStart`.
fn words(unit: &str) -> Vec<&str> {
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart="));
    let mut words = line.expect("a unit starts something").split_whitespace();
    assert_eq!(words.next(), Some("/usr/bin/rankguard"));
    words.collect()
}

#[test]
fn the_sample_of_a_configuration_has_no_mistake() {
    let sample = packaging().join("rankguard.toml");
    let sample = sample.to_str().expect("a path of this repository");
    rankguard(&["--config", sample, "config", "check"]).expect(0);
}

#[test]
fn units_start_commands_that_there_are() {
    let units = units();
    assert_eq!(units.len(), 3, "controller, agent and the comparison with Slurm");
    for (path, unit) in &units {
        let words = words(unit);
        // Help is printed before a configuration is read, but not before words are understood.
        let ran = rankguard(&[words.as_slice(), &["--help"]].concat()).expect(0);
        for flag in words.iter().filter(|word| word.starts_with("--")) {
            assert!(ran.stdout.contains(flag), "{}: {flag} is no flag", path.display());
        }
    }
}

#[test]
fn an_agent_has_longer_to_stop_than_its_last_checkpoint_takes() {
    let settings = rankguard(&["config", "show", "--format", "json"]).expect(0);
    let settings: serde_json::Value = serde_json::from_str(&settings.stdout).expect("json");
    let ms = |name: &str| -> u64 {
        let rows = settings.as_array().expect("rows");
        let row = rows.iter().find(|row| row["setting"] == name).expect(name);
        row["value"]
            .to_string()
            .trim_matches('"')
            .parse()
            .expect("milliseconds")
    };
    let needed: u64 = ["last_checkpoint_ms", "shutdown_grace_ms", "kill_ms"]
        .iter()
        .map(|name| ms(&format!("agent.intervals.{name}")))
        .sum();
    let (_, agent) = units()
        .into_iter()
        .find(|(path, _)| path.ends_with("rankguard-agent.service"))
        .expect("a unit of the agent");
    let given = agent.lines().find_map(|line| line.strip_prefix("TimeoutStopSec="));
    let given: u64 = given.expect("a limit").parse().expect("seconds");
    assert!(given * 1000 > needed, "{given} s for {needed} ms");
}

/// Device and inode of the program of a process.
fn program_of(process: u32) -> Option<(u64, u64)> {
    let file = std::fs::metadata(format!("/proc/{process}/exe")).ok()?;
    Some((file.dev(), file.ino()))
}

/// Helper of an agent that runs this command, of the agent's own program.
fn helper(agent: u32, command: &str) -> Option<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{agent}/task")).ok()?.flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children = children.collect::<Vec<_>>().join(" ");
    let mut children = children.split_whitespace().filter_map(|child| child.parse().ok());
    children.find(|child| {
        let words = std::fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
        words.split('\0').any(|word| word == command) && program_of(*child) == program_of(agent)
    })
}

/// A package replaces the file of the program and leaves the agent running.
#[test]
fn an_agent_starts_helpers_of_its_own_version_after_an_upgrade() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("rankguard");
    std::fs::copy(env!("CARGO_BIN_EXE_rankguard"), &program).expect("copied");
    let library = stand_in(folder.path());
    let scenario = folder.path().join("scenario");
    std::fs::write(&scenario, "count 2\ntemperature * 55\n").expect("written");
    let (state, log) = (folder.path().join("state"), folder.path().join("agent.log"));
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let (state, library, scenario) = (text(&state), text(&library), text(&scenario));
    let words = [
        "agent",
        "--node=n1",
        "--controller=127.0.0.1:1",
        "--kernel-log=/dev/null",
        "--state-dir",
        &state,
        "--simulate",
        &scenario,
        "--nvml-library",
        &library,
    ];
    let agent = Daemon::start_at(&program, &words, &log);
    let first = until("the helper", LIMIT, || helper(agent.id(), "gpu-calls"));
    let newer = folder.path().join("newer");
    std::fs::copy("/bin/false", &newer).expect("copied");
    std::fs::rename(&newer, &program).expect("replaced");
    let first_pid = Pid::from_raw(i32::try_from(first).expect("a process id")).expect("not zero");
    kill_process(first_pid, Signal::KILL).expect("it runs");
    until("another helper of the same version", LIMIT, || {
        helper(agent.id(), "gpu-calls").filter(|helper| *helper != first)
    });
}

#[test]
fn systemd_accepts_the_units() {
    let folder = tempfile::tempdir().expect("a folder");
    for (path, unit) in units() {
        // The program is not installed here, and its user is not made: the rest of the unit is what is looked at.
        let unit = unit
            .replace("/usr/bin/rankguard", "/bin/true")
            .replace("User=rankguard\n", "");
        let copy = folder.path().join(path.file_name().expect("a name"));
        std::fs::write(&copy, unit).expect("written");
        let ran = Command::new("systemd-analyze")
            .arg("verify")
            .arg("--man=no")
            .arg(&copy)
            .output();
        let Ok(ran) = ran else {
            eprintln!("SKIPPED: no systemd-analyze here, so the units were not verified");
            return;
        };
        let said = String::from_utf8_lossy(&ran.stderr);
        let name = copy.file_name().expect("a name").to_string_lossy().into_owned();
        let about_it: Vec<&str> = said.lines().filter(|line| line.contains(&name)).collect();
        assert!(about_it.is_empty(), "{about_it:#?}");
    }
}

#[test]
fn completions_and_pages_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = rankguard(&["shell", "completions", shell]).expect(0);
        for word in ["diagnose", "checkpoint", "--flight-recorder"] {
            let word = if shell == "fish" {
                word.trim_start_matches("--")
            } else {
                word
            };
            assert!(script.stdout.contains(word), "{word} is not completed in {shell}");
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("man1");
    rankguard(&["shell", "man", "--out", folder.to_str().expect("a path")]).expect(0);
    for page in ["rankguard.1", "rankguard-agent.1", "rankguard-checkpoint-verify.1"] {
        let page = std::fs::read_to_string(folder.join(page)).expect(page);
        assert!(page.contains(".TH"), "{page}");
    }
}

/// A look at a board's event log that holds these lines.
fn bmc_events(folder: &std::path::Path, log: &str) -> (Option<i32>, String) {
    let tool = folder.join("ipmitool");
    std::fs::write(folder.join("log"), log).expect("written");
    let ran = Command::new(packaging().join("checks/bmc-events"))
        .arg(folder.join("seen"))
        .env("BMC_EVENTS_IPMITOOL", tool)
        .output();
    let ran = ran.expect("the check runs");
    (ran.status.code(), String::from_utf8_lossy(&ran.stdout).into_owned())
}

#[test]
fn what_a_board_writes_into_its_event_log_is_told_once() {
    const OLD: &str = "   1 | 11/20/2026 | 10:21:13 | Memory DIMM_A1 | Uncorrectable ECC | Asserted\n";
    const CORRECTED: &str = "  1a | 11/20/2026 | 10:21:13 | Memory DIMM_A1 | Correctable ECC | Asserted\n";
    const SUPPLY: &str = "  1b | 11/20/2026 | 10:21:14 | Power Supply PS1 | Failure detected | Asserted\n";
    const OVER: &str = "  1c | 11/20/2026 | 10:21:15 | Power Supply PS1 | Failure detected | Deasserted\n";
    let folder = tempfile::tempdir().expect("a folder");
    let (ended, told) = bmc_events(folder.path(), OLD);
    assert_eq!(ended, Some(3), "no such tool: {told}");
    let tool = folder.path().join("ipmitool");
    std::fs::write(&tool, format!("#!/bin/sh\ncat {}/log\n", folder.path().display())).expect("written");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("it may be run");
    let looks = [
        (OLD.to_owned(), 0, "nothing new"),
        ([OLD, CORRECTED].concat(), 1, "Correctable ECC"),
        (
            [OLD, CORRECTED, SUPPLY].concat(),
            2,
            "Power Supply PS1 | Failure detected",
        ),
        ([OLD, CORRECTED, SUPPLY, OVER].concat(), 0, "nothing new"),
        // It was cleared: numbers begin again.
        (OLD.to_owned(), 2, "Uncorrectable ECC"),
        ("binary \u{fffd} garbage\n".to_owned(), 0, "nothing new"),
    ];
    for (log, code, says) in looks {
        let (ended, told) = bmc_events(folder.path(), &log);
        assert_eq!(ended, Some(code), "{log}: {told}");
        assert!(told.contains(says), "{log}: {told}");
    }
}

/// The container file copies files that exist, builds with the compiler of the workspace, and runs as a number that is not root.
#[test]
fn the_container_file_is_true_of_this_repository() {
    let root = packaging().join("..");
    let text = std::fs::read_to_string(packaging().join("Containerfile")).expect("the container file");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let of = |word: &str| -> Vec<&str> { lines.iter().filter_map(|line| line.strip_prefix(word)).collect() };
    let mut copied = 0;
    for copy in of("COPY ").into_iter().filter(|copy| !copy.starts_with("--from=")) {
        let words: Vec<&str> = copy.split_whitespace().collect();
        for source in &words[..words.len() - 1] {
            assert!(root.join(source).exists(), "{source} is not in the repository");
            copied += 1;
        }
    }
    assert!(copied > 1, "{copied}");
    let toolchain = std::fs::read_to_string(root.join("rust-toolchain.toml")).expect("the toolchain");
    let channel = toolchain.lines().find_map(|line| line.strip_prefix("channel = "));
    let channel = channel.expect("a channel").trim_matches('"');
    assert!(
        text.contains(&format!("/rust:{channel}-")),
        "it builds with another compiler than {channel}"
    );
    let user = of("USER ").pop().expect("a user");
    let (uid, _) = user.split_once(':').expect("a user and a group");
    let uid: u32 = uid.parse().expect("a number, which Kubernetes can check");
    assert!(
        uid > 0 && text.contains(&format!("--uid {uid} ")),
        "{user} is not created"
    );
    let entry = of("ENTRYPOINT ").pop().expect("an entry point");
    let program = entry.trim_matches(|c| "[\"]".contains(c));
    assert!(text.contains(&format!(" {program}\n")), "{program} is not copied");
}
