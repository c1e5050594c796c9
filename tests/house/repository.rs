//! Files of the repository: no caches of tools, modules in files of their own name.

use std::process::Command;

use crate::root;

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
