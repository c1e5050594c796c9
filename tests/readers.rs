//! Files that others wrote, through the real program: special files, bombs, slow lines and hostile names (RG-11).

#![allow(clippy::print_stderr, reason = "a test that cannot run says so loudly")]

use crate::support;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Ran, command, finish, rankguard};

/// No command of these tests may take longer, on a machine that does much else.
const LIMIT: Duration = Duration::from_secs(120);

const XID: &str = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, GPU has fallen off the bus.\n";

/// What a terminal must never get, as a name: a line end, a colour, a C1 control and a change of direction.
const HOSTILE: &str = "a\nerror: forged \u{1b}[31m\u{9b}2J\u{202e}gol";

/// How the same is shown.
const VISIBLE: &str = "a\\nerror: forged \\u{1b}[31m\\u{9b}2J\\u{202e}gol";

fn path(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}

fn make_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.expect("mkfifo runs").success());
}

#[test]
fn special_files_are_named_and_never_read_rg_11() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    fs::write(at("node.log"), XID).expect("written");
    make_pipe(&at("pipe.log"));
    let _socket = UnixListener::bind(at("socket.log")).expect("bound");
    symlink("/dev/zero", at("zero.log")).expect("linked");
    symlink("/proc/kmsg", at("kmsg.log")).expect("linked");
    symlink(dir.path(), at("loop")).expect("linked");
    symlink(at("gone"), at("dangling.log")).expect("linked");
    let sparse = fs::File::create(at("sparse.log")).expect("made");
    sparse.set_len(1 << 40).expect("a hole");
    let ran = finish(
        command(&["diagnose", path(dir.path())]).spawn().expect("it starts"),
        LIMIT,
    )
    .expect(1);
    assert!(ran.stdout.contains("gpu-fallen-off-bus"), "{}", ran.stdout);
    for (name, reason) in [
        ("pipe.log", "a pipe"),
        ("socket.log", "a socket"),
        ("zero.log", "a device"),
        ("kmsg.log", "a file of the kernel"),
        ("loop", "a linked or too deep folder"),
        ("dangling.log", "No such file"),
        ("sparse.log", "not text"),
    ] {
        let named = |line: &str| line.starts_with("skipped: ") && line.contains(&format!("{name}: {reason}"));
        assert!(ran.stderr.lines().any(named), "{name} is not named in:\n{}", ran.stderr);
    }
    // Named alone, each is an error.
    for name in ["socket.log", "zero.log", "kmsg.log"] {
        let ran = finish(
            command(&["diagnose", path(&at(name))]).spawn().expect("it starts"),
            LIMIT,
        );
        ran.expect(2).says(&[name]);
    }
}

#[test]
fn a_named_pipe_is_read_until_its_writer_falls_silent_rg_9() {
    let dir = tempfile::tempdir().expect("a folder");
    let pipe = dir.path().join("pipe");
    make_pipe(&pipe);
    // Open at both ends, so that the pipe never ends.
    let mut held = fs::OpenOptions::new().read(true).write(true).open(&pipe).expect("open");
    held.write_all(XID.as_bytes()).expect("written");
    let words = ["diagnose", "--time-limit", "1", path(&pipe)];
    let ran = finish(command(&words).spawn().expect("it starts"), LIMIT).expect(1);
    assert!(ran.stdout.contains("gpu-fallen-off-bus"), "{}", ran.stdout);
    ran.says(&["wrote nothing for 1 s", "--time-limit"]);
}

#[test]
fn standard_input_is_a_log_where_it_is_named() {
    let mut child = command(&["diagnose", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(XID.as_bytes()).expect("written");
    drop(input);
    let ran = finish(child, LIMIT).expect(1);
    assert!(ran.stdout.contains("gpu-fallen-off-bus"), "{}", ran.stdout);
}

/// A megabyte of gzip that holds half a gigabyte of text.
#[test]
fn a_packed_bomb_ends_at_its_ratio_rg_11() {
    let dir = tempfile::tempdir().expect("a folder");
    let bomb = dir.path().join("rank-0.err.gz");
    let file = fs::File::create(&bomb).expect("made");
    let mut gzip = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    gzip.write_all(XID.as_bytes()).expect("packed");
    let block = vec![b'x'; 1 << 20];
    (0..600).for_each(|_| gzip.write_all(&block).expect("packed"));
    gzip.finish().expect("packed");
    let words = ["diagnose", "--time-limit", "100", path(&bomb)];
    let ran = finish(command(&words).spawn().expect("it starts"), LIMIT).expect(1);
    ran.says(&["rank-0.err.gz: read up to line", "times its size on disk", "unpack it"]);
    // A limit that a person gave replaces the ratio, and is named where it is reached.
    let words = ["diagnose", "--read-limit", "1MiB", path(&bomb)];
    finish(command(&words).spawn().expect("it starts"), LIMIT)
        .expect(1)
        .says(&["the limit of 1048576 bytes", "--read-limit"]);
    // Options of other input are refused.
    for option in ["--world", "--meta"] {
        rankguard(&["diagnose", option, "4", path(&bomb)])
            .expect(64)
            .says(&[option]);
    }
    rankguard(&["diagnose", "--read-limit", "much", path(&bomb)])
        .expect(64)
        .says(&["500MiB"]);
}

/// Long lines in which parts of many signatures stand, with a letter beyond ASCII: a MiB of them took 11 s of work, and takes 1 s.
#[test]
fn slow_lines_are_bounded_rg_11() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = dir.path().join("rank-0.err");
    let parts = [
        "error",
        "CUDA",
        "NCCL",
        "failed",
        "timeout",
        "out of memory",
        "RuntimeError:",
        "connection",
        "refused",
        "Xid",
        "rank",
        "watchdog",
        "killed",
        "exit code",
        "signal",
        "No space left",
        "checkpoint",
        "Traceback",
        "permission",
        "denied",
        "not found",
        "mlx5_0",
        "link",
        "down",
        "ECC",
        "uncorrectable",
        "page",
        "fault",
        "\u{2014}",
    ];
    let mut dice = 7_u64;
    let mut text = String::new();
    while text.len() < 2 << 20 {
        let end = text.len() + 16_000;
        while text.len() < end {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            text.push_str(parts[(dice >> 33) as usize % parts.len()]);
            text.push(' ');
        }
        text.push('\n');
    }
    fs::write(&log, &text).expect("written");
    let words = ["diagnose", path(&log)];
    // The limit of the file is processor time; beside other tests it takes several times as long.
    let ran = finish(command(&words).spawn().expect("it starts"), LIMIT * 3);
    assert!(matches!(ran.code, Some(0 | 1)), "{}", ran.stderr);
    assert!(!ran.stderr.contains("limit of"), "{}", ran.stderr);
}

#[test]
fn torn_packed_and_binary_files_are_problems() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    let pack = |text: &[u8]| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text).expect("packed");
        gzip.finish().expect("packed")
    };
    let packed = pack(XID.repeat(500).as_bytes());
    fs::write(at("torn.gz"), &packed[..packed.len() / 2]).expect("written");
    fs::write(at("twice.gz"), pack(&packed)).expect("written");
    fs::write(at("nul.log"), [0; 4096]).expect("written");
    fs::write(at("latin.log"), [&b"\xff\xfe\xe9 "[..], XID.as_bytes()].concat()).expect("written");
    let ran = rankguard(&["diagnose", path(dir.path())]).expect(1);
    assert!(ran.stdout.contains("gpu-fallen-off-bus"), "{}", ran.stdout);
    ran.says(&[
        "torn.gz: read up to line",
        "twice.gz: compressed twice",
        "nul.log: not text",
    ]);
}

/// Characters that act on a terminal, or forge a line of their own.
fn assert_harmless(what: &str, text: &str) {
    let acts = |c: char| rankguard_model::is_hidden(c) && c != '\n' && c != '\t';
    assert!(!text.chars().any(acts), "{what} acts on the terminal: {text:?}");
    assert!(
        !text.lines().any(|line| line.starts_with("error: forged")),
        "{what} is forged: {text}"
    );
}

/// The same command on a terminal: its output as the terminal gets it.
fn on_terminal(words: &[&str]) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_rankguard");
    let quoted = |word: &str| format!("'{}'", word.replace('\'', "'\\''"));
    let line: Vec<String> = std::iter::once(program)
        .chain(words.iter().copied())
        .map(quoted)
        .collect();
    let mut script = Command::new("script");
    support::guard::guarded(&mut script)
        .args(["-qefc", &line.join(" "), "/dev/null"])
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let ran = finish(script.spawn().ok()?, LIMIT);
    // The terminal ends lines with a carriage return.
    Some(ran.stdout.replace("\r\n", "\n"))
}

fn check(words: &[&str], shown: bool) -> Ran {
    let ran = finish(command(words).spawn().expect("it starts"), LIMIT);
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    let what = words.join(" ");
    assert_harmless(&what, &ran.stdout);
    assert_harmless(&what, &ran.stderr);
    if shown {
        let both = format!("{}{}", ran.stdout, ran.stderr);
        assert!(both.contains(VISIBLE), "{what} does not show the name:\n{both}");
    }
    match on_terminal(words) {
        Some(text) => assert_harmless(&format!("{what} on a terminal"), &text),
        None => eprintln!("SKIPPED: `script` is not installed, so {what} is not tried on a terminal"),
    }
    ran
}

#[test]
fn hostile_names_do_not_act_on_the_terminal_rg_11() {
    let dir = tempfile::tempdir().expect("a folder");
    let logs = dir.path().join("logs");
    fs::create_dir(&logs).expect("made");
    let log = logs.join(HOSTILE);
    fs::write(&log, format!("{}\u{1b}[2J {XID}", "x".repeat(4))).expect("written");
    let packed = logs.join(format!("{HOSTILE}.gz"));
    fs::write(&packed, [0x1f, 0x8b, 9, 9]).expect("written");
    fs::write(logs.join(OsStr::from_bytes(b"\xff\x1b.log")), XID).expect("written");
    let logs = path(&logs);
    let log = path(&log);
    check(&["diagnose", logs], true).expect(1);
    check(&["diagnose", path(&packed)], true).expect(2);
    check(&["diagnose", "--flight-recorder", logs], true).expect(2);
    check(&["diagnose", "--timings", log], true).expect(2);
    check(&["diagnose", "--catalogue", log, logs], false).expect(64);
    check(&["classify", log], true).expect(2);
    check(&["explain", log], false);
    check(&["config", "check", "--config", log], false).expect(1);
    for words in [
        &["checkpoint", "ls"][..],
        &["checkpoint", "verify"],
        &["checkpoint", "show"],
        &["checkpoint", "gc"],
    ] {
        check(&[words, &["--dir", log]].concat(), false);
    }
    check(&["cases", "--local", "--state-dir", logs], false);
    check(&["agent", "status", "--state-dir", log], false);
    check(&["status", "--controller", HOSTILE], true).expect(64);
    check(&[HOSTILE], false).expect(64);
}

#[test]
fn machines_get_hostile_names_as_they_are() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join(HOSTILE), XID).expect("written");
    let ran = rankguard(&["diagnose", "--format", "json", path(dir.path())]).expect(1);
    assert_harmless("JSON", &ran.stdout);
    let cases: serde_json::Value = serde_json::from_str(&ran.stdout).expect("a document");
    let file = cases["cases"][0]["key_lines"][0]["file"].as_str().expect("a file");
    assert!(file.ends_with(HOSTILE), "{file:?}");
}
