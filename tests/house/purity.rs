//! Pure crates stay pure: the same bans in each, and no library with a clock or a socket.

use std::fs;
use std::process::Command;

use cargo_metadata::DependencyKind;

use crate::{metadata, root};

/// Crates that know no clock, no randomness, no files, no sockets and no async.
const PURE: [&str; 14] = [
    "model",
    "pickle",
    "analyzers/faults",
    "analyzers/flight",
    "analyzers/stragglers",
    "analyzers/templates",
    "analyzers/diagnosis",
    "analyzers/offline",
    "analyzers/policies",
    "analyzers/statistics",
    "checkpoint/format",
    "checkpoint/schedule",
    "controller/core",
    "integrations/nodes",
];

/// Libraries that would bring in what a pure crate must not know.
const IMPURE: [&str; 9] = [
    "tokio",
    "tonic",
    "rustix",
    "redb",
    "sysinfo",
    "nvml-wrapper",
    "rand",
    "tempfile",
    "tracing-subscriber",
];

/// What a pure crate may not call, and what to do instead.
const BANNED_METHODS: &[(&str, &str)] = &[
    ("std::env::args", "settings come in as values"),
    ("std::env::current_dir", "settings come in as values"),
    ("std::env::var", "settings come in as values"),
    ("std::env::var_os", "settings come in as values"),
    ("std::env::vars", "settings come in as values"),
    ("std::fs::copy", "the shell reads and writes files"),
    ("std::fs::create_dir", "the shell reads and writes files"),
    ("std::fs::create_dir_all", "the shell reads and writes files"),
    ("std::fs::metadata", "the shell reads and writes files"),
    ("std::fs::read", "the shell reads and writes files"),
    ("std::fs::read_dir", "the shell reads and writes files"),
    ("std::fs::read_to_string", "the shell reads and writes files"),
    ("std::fs::remove_dir_all", "the shell reads and writes files"),
    ("std::fs::remove_file", "the shell reads and writes files"),
    ("std::fs::rename", "the shell reads and writes files"),
    ("std::fs::write", "the shell reads and writes files"),
    ("std::io::stderr", "only the command line prints"),
    ("std::io::stdin", "input comes in as a value"),
    ("std::io::stdout", "only the command line prints"),
    ("std::process::abort", "return an error"),
    ("std::process::exit", "return an error"),
    ("std::process::id", "identity comes in as a value"),
    ("std::thread::sleep", "waiting belongs to the shell; ask for a timer"),
    ("std::thread::spawn", "threads belong to the shell"),
    ("std::time::Instant::now", "time comes in as a value"),
    ("std::time::SystemTime::now", "time comes in as a value"),
    ("jiff::Timestamp::now", "time comes in as a value"),
    ("jiff::Zoned::now", "time comes in as a value"),
    ("rand::random", "choices come in as values"),
    ("rand::rng", "choices come in as values"),
    ("tokio::spawn", "tasks belong to the shell"),
];

/// What a pure crate may not hold.
const BANNED_TYPES: &[(&str, &str)] = &[
    (
        "std::collections::HashMap",
        "its order differs from run to run; use BTreeMap",
    ),
    (
        "std::collections::HashSet",
        "its order differs from run to run; use BTreeSet",
    ),
    ("std::fs::File", "the shell reads and writes files"),
    ("std::fs::OpenOptions", "the shell reads and writes files"),
    ("std::net::TcpListener", "sockets belong to the shell"),
    ("std::net::TcpStream", "sockets belong to the shell"),
    ("std::net::UdpSocket", "sockets belong to the shell"),
    ("std::os::unix::net::UnixListener", "sockets belong to the shell"),
    ("std::os::unix::net::UnixStream", "sockets belong to the shell"),
    ("std::process::Command", "processes belong to the shell"),
    ("std::time::Instant", "moments are rankguard_model::Timestamp"),
    ("std::time::SystemTime", "moments are rankguard_model::Timestamp"),
];

/// The one text of which every pure crate's `clippy.toml` is a copy: the nearest file wins whole, so each must be whole.
fn purity() -> String {
    let list = |name: &str, entries: &[(&str, &str)]| {
        let mut text = format!("{name} = [\n");
        for (path, reason) in entries {
            // A library that the crate does not use cannot be resolved, and is no mistake.
            let foreign = if path.starts_with("std::") {
                ""
            } else {
                ", allow-invalid = true"
            };
            text.push_str(&format!(
                "    {{ path = \"{path}\", reason = \"{reason}\"{foreign} }},\n"
            ));
        }
        text.push_str("]\n");
        text
    };
    format!(
        "# This crate is pure: no clock, no randomness, no files, no sockets, no async.\n\
         # Generated from tests/house/purity.rs, the same for every pure crate; to write it anew: RANKGUARD_BLESS=1 cargo test --test house\n\
         {}{}",
        list("disallowed-methods", BANNED_METHODS),
        list("disallowed-types", BANNED_TYPES)
    )
}

#[test]
fn pure_crates_use_no_library_with_a_clock_or_a_socket_and_polars_is_in_the_tables_only() {
    let metadata = metadata();
    for package in metadata.workspace_packages() {
        let folder = package
            .manifest_path
            .parent()
            .expect("a manifest lies in a folder")
            .as_std_path();
        let is_pure = PURE.iter().any(|pure| root().join(pure) == folder);
        for dependency in package
            .dependencies
            .iter()
            .filter(|used| used.kind != DependencyKind::Development)
        {
            let name = dependency.name.as_str();
            // Most of a clean build, and what keeps a job alive does not wait for it (decision 8).
            let may = matches!(package.name.as_str(), "rankguard-datasets" | "rankguard-studies");
            assert!(may || !name.starts_with("polars"), "{} uses {name}", package.name);
            assert!(
                !is_pure || !IMPURE.contains(&name),
                "{} is pure and uses {name}",
                package.name
            );
        }
    }
    let pure = metadata.workspace_packages().into_iter().filter(|package| {
        let folder = package
            .manifest_path
            .parent()
            .map(|folder| folder.as_std_path().to_owned());
        PURE.iter().any(|pure| Some(root().join(pure)) == folder)
    });
    assert_eq!(
        pure.count(),
        PURE.len(),
        "every pure folder is a crate of the workspace"
    );
}

#[test]
fn pure_crates_carry_the_same_bans() {
    let wanted = purity();
    for folder in PURE {
        let path = root().join(folder).join("clippy.toml");
        if std::env::var_os("RANKGUARD_BLESS").is_some() {
            fs::write(&path, &wanted).expect("the file can be written");
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            found,
            wanted,
            "{} differs; RANKGUARD_BLESS=1 cargo test --test house writes it",
            path.display()
        );
    }
}

#[test]
fn a_planted_look_at_the_clock_is_refused() {
    let has_clippy = Command::new("cargo")
        .args(["clippy", "--version"])
        .output()
        .is_ok_and(|ran| ran.status.success());
    if !has_clippy {
        // Written to the stream itself: the harness hides what macros print when a test passes.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("SKIPPED: cargo clippy is absent, so nobody has seen that the bans of pure crates bite\n"),
        );
        return;
    }
    let innocent = "pub fn later(now: u64) -> u64 { now + 1 }\n";
    let clock = "pub fn late() -> std::time::SystemTime { std::time::SystemTime::now() }\n";
    let file = "pub fn peek() -> bool { std::fs::read(\"x\").is_ok() }\n";
    let (fine, said) = clippy(innocent);
    assert!(fine, "an innocent crate is refused:\n{said}");
    for (planted, wanted) in [(clock, "SystemTime::now"), (file, "std::fs::read")] {
        let (fine, said) = clippy(planted);
        assert!(
            !fine && said.contains(wanted) && said.contains("disallowed"),
            "{wanted} was let through:\n{said}"
        );
    }
}

/// Lints a crate of this one source file under the bans of pure crates.
fn clippy(source: &str) -> (bool, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("the file can be written");
    write(
        "Cargo.toml",
        "[package]\nname = \"planted\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n[workspace]\n",
    );
    write("lib.rs", source);
    write("clippy.toml", &purity());
    let ran = Command::new("cargo")
        .args(["clippy", "--offline", "--quiet", "--", "-D", "warnings"])
        .current_dir(folder.path())
        .env("CARGO_TARGET_DIR", folder.path().join("target"))
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo runs");
    (ran.status.success(), String::from_utf8_lossy(&ran.stderr).into_owned())
}
