//! The house checks itself: arrows between crates go down, pure crates stay pure, every crate is on the map.

#![allow(clippy::print_stderr, reason = "a test that cannot run says so loudly")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// The order of the house: an arrow may point only to a lower rank. Crates of one rank do not know each other.
const RANKS: [(&str, u32); 32] = [
    ("rankguard-model", 0),
    ("rankguard-files", 0),
    ("rankguard-fake-nvml", 0),
    ("rankguard-pickle", 0),
    ("rankguard-faults", 1),
    ("rankguard-flight", 1),
    ("rankguard-identity", 1),
    ("rankguard-stragglers", 1),
    ("rankguard-templates", 1),
    ("rankguard-checkpoint-format", 1),
    ("rankguard-checkpoint-schedule", 1),
    ("rankguard-policies", 2),
    ("rankguard-console", 2),
    ("rankguard-statistics", 2),
    ("rankguard-checkpoint", 2),
    ("rankguard-checkpoint-exchange", 3),
    ("rankguard-proto", 2),
    ("rankguard-checkpoint-tiers", 3),
    ("rankguard-diagnosis", 3),
    ("rankguard-rank", 3),
    ("rankguard-offline", 4),
    ("rankguard-trainer", 4),
    ("rankguard-python", 4),
    ("rankguard-agent", 4),
    ("rankguard-core", 4),
    ("rankguard-journal", 5),
    ("rankguard-controller", 6),
    ("rankguard-datasets", 6),
    ("rankguard-studies", 7),
    ("rankguard-sim", 7),
    ("rankguard", 8),
    ("rankguard-history", 8),
];

/// Crates that know no clock, no randomness, no files, no sockets and no async.
const PURE: [&str; 13] = [
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
         # Generated from tests/house.rs, the same for every pure crate; to write it anew: RANKGUARD_BLESS=1 cargo test --test house\n\
         {}{}",
        list("disallowed-methods", BANNED_METHODS),
        list("disallowed-types", BANNED_TYPES)
    )
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the command line lies in the workspace")
        .to_owned()
}

fn metadata() -> Metadata {
    let mut command = MetadataCommand::new();
    command
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .other_options(["--offline".to_owned()]);
    command.exec().expect("cargo describes its workspace")
}

/// The crate's own dependencies of this workspace. What only tests need may point anywhere but in a circle, which cargo
/// itself refuses.
fn arrows(package: &Package) -> impl Iterator<Item = &str> {
    let ours = |name: &&str| name.starts_with("rankguard");
    let kept = package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind != DependencyKind::Development);
    kept.map(|dependency| dependency.name.as_str()).filter(ours)
}

/// Every arrow that does not go down, as sentences.
fn upward(ranks: &BTreeMap<&str, u32>, arrows: &[(&str, &str)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (from, to) in arrows {
        match (ranks.get(from), ranks.get(to)) {
            (Some(high), Some(low)) if high > low => {}
            (Some(_), Some(_)) => wrong.push(format!("{from} -> {to} does not go down")),
            _ => wrong.push(format!("{from} -> {to}: one of them has no place in the order")),
        }
    }
    wrong
}

#[test]
fn arrows_between_crates_go_down_only() {
    let metadata = metadata();
    let ranks = BTreeMap::from(RANKS);
    let mut found = Vec::new();
    for package in metadata.workspace_packages() {
        assert!(
            ranks.contains_key(package.name.as_str()),
            "{} has no place in the order",
            package.name
        );
        found.extend(arrows(package).map(|to| (package.name.as_str(), to)));
    }
    assert!(found.len() > 20, "cargo told of {} arrows only", found.len());
    assert_eq!(upward(&ranks, &found), Vec::<String>::new());
}

#[test]
fn an_upward_a_level_and_an_unknown_arrow_are_seen() {
    let ranks = BTreeMap::from(RANKS);
    let planted = [
        ("rankguard-model", "rankguard-faults"),
        ("rankguard-agent", "rankguard-trainer"),
        ("rankguard-agent", "rankguard-nobody"),
        ("rankguard-controller", "rankguard-core"),
    ];
    assert_eq!(upward(&ranks, &planted).len(), 3);
}

#[test]
fn agent_and_controller_never_import_each_other_and_only_sim_journal_and_controller_import_the_brain() {
    let metadata = metadata();
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        for to in arrows(package) {
            let pair = (name, to);
            assert_ne!(pair, ("rankguard-agent", "rankguard-controller"));
            assert_ne!(pair, ("rankguard-controller", "rankguard-agent"));
            // The journal asks it what a recorded history means, and decides nothing.
            let may = matches!(name, "rankguard-sim" | "rankguard-journal" | "rankguard-controller");
            assert!(to != "rankguard-core" || may, "{name} imports the brain");
        }
    }
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

#[test]
fn every_crate_has_a_doc_and_is_on_the_map() {
    let metadata = metadata();
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("there is a map");
    let readme = fs::read_to_string(root().join("README.md")).expect("there is a README");
    assert!(
        readme.contains("ARCHITECTURE.md"),
        "the README does not lead to the map"
    );
    for package in metadata.workspace_packages() {
        assert!(
            map.contains(&format!("`{}`", package.name)),
            "{} is not in ARCHITECTURE.md",
            package.name
        );
        let target = package.targets.first().expect("a crate has a target");
        let source = fs::read_to_string(&target.src_path).expect("its source can be read");
        let doc = source.lines().take_while(|line| line.starts_with("//!")).count();
        assert!(doc >= 2, "{} has a crate doc of {doc} lines", target.src_path);
        assert!(
            package.description.as_deref().is_some_and(|text| !text.is_empty()),
            "{} has no description",
            package.name
        );
    }
}

/// A cache that a tool leaves beside the sources was once committed (48 files,
/// 50 MB): `.gitignore` did not name it.
#[test]
fn no_cache_of_a_tool_is_in_the_repository() {
    let Some(paths) = tracked_paths() else { return };
    let caches: Vec<&String> = paths.iter().filter(|path| is_cache(path)).collect();
    assert!(
        caches.is_empty(),
        "remove with `git rm -r --cached`, add to .gitignore: {caches:?}"
    );
}

/// Returns the paths that git tracks; none, with a loud line, where the sources are no git checkout.
fn tracked_paths() -> Option<Vec<String>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root())
        .output()
        .expect("git runs");
    if !listed.status.success() {
        eprintln!("SKIPPED: the sources are no git checkout");
        return None;
    }
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    Some(names.split('\0').map(str::to_owned).collect())
}

/// True for a path inside a folder that a build or a checker writes.
fn is_cache(path: &str) -> bool {
    path.split('/').rev().skip(1).any(|folder| {
        folder == "target" || folder == "__pycache__" || (folder.starts_with('.') && folder.ends_with("_cache"))
    })
}

#[test]
fn caches_are_recognized_by_their_folder() {
    assert!(is_cache("python/.mypy_cache/3.12/cache.0.db"));
    assert!(is_cache("python/rankguard/__pycache__/torch.pyc"));
    assert!(!is_cache("python/rankguard/torch.py"));
    assert!(!is_cache("checkpoint/src/target"));
}

/// A module lies in `name.rs`, its children in `name/`. Modules that test targets share are excepted: `tests/name.rs`
/// would be a target of its own.
#[test]
fn modules_are_named_files() {
    let Some(paths) = tracked_paths() else { return };
    let unnamed: Vec<&String> = paths.iter().filter(|path| is_unnamed_module(path)).collect();
    assert!(unnamed.is_empty(), "rename to `<folder>.rs`: {unnamed:?}");
}

fn is_unnamed_module(path: &str) -> bool {
    let mut segments = path.rsplit('/');
    segments.next() == Some("mod.rs") && !segments.any(|folder| folder == "tests")
}

#[test]
fn modules_without_a_name_are_recognized() {
    assert!(is_unnamed_module("agent/src/collectors/mod.rs"));
    assert!(!is_unnamed_module("agent/tests/support/mod.rs"));
    assert!(!is_unnamed_module("agent/src/collectors.rs"));
}
