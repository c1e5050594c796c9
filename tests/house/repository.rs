//! Files of the repository: no caches of tools, modules in files of their own name, no file of tests that is not built.

use std::collections::BTreeSet;
use std::process::Command;
use std::{fs, iter};

use crate::{metadata, root};

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

/// Most crates name one program of tests themselves (`autotests = false`), so that Cargo no longer builds each file of `tests`, and a
/// file that no program names would never run.
#[test]
fn every_file_of_tests_is_part_of_a_program() {
    let mut built = BTreeSet::new();
    let mut folders = BTreeSet::new();
    for target in metadata().packages.iter().flat_map(|package| &package.targets) {
        let path = target.src_path.as_std_path();
        let folder = path.parent().expect("a file lies in a folder");
        if target.is_test() && folder.ends_with("tests") {
            let source = fs::read_to_string(path).expect("the program of tests is readable");
            built.extend(iter::once(path.to_owned()).chain(modules(&source).map(|name| folder.join(name + ".rs"))));
            folders.insert(folder.to_owned());
        }
    }
    assert!(folders.len() > 10, "{folders:?}");
    let files = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).expect("a folder of tests is readable"));
    let forgotten: Vec<_> = files
        .map(|file| file.expect("a folder of tests is readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs") && !built.contains(path))
        .collect();
    assert!(
        forgotten.is_empty(),
        "add `mod <name>;` to the program of tests of the crate: {forgotten:?}"
    );
}

/// Returns the names of the modules that a source declares in files of their own.
fn modules(source: &str) -> impl Iterator<Item = String> {
    source
        .lines()
        .filter_map(|line| Some(line.strip_prefix("mod ")?.strip_suffix(';')?.to_owned()))
}
