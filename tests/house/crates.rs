//! Dependencies between crates point down only; every crate has a doc and a place on the map.

use std::collections::BTreeMap;
use std::fs;

use cargo_metadata::{DependencyKind, Package};

use crate::{metadata, root};

/// The order of the house: an arrow may point only to a lower rank. Crates of one rank do not know each other.
pub(crate) const RANKS: [(&str, u32); 45] = [
    ("rankguard-model", 0),
    ("rankguard-files", 0),
    ("rankguard-fake-nvml", 0),
    ("rankguard-fake-kubernetes", 0),
    ("rankguard-pickle", 0),
    ("rankguard-tcp-store", 0),
    ("rankguard-faults", 1),
    ("rankguard-flight", 1),
    ("rankguard-identity", 1),
    ("rankguard-scheduler-nodes", 1),
    ("rankguard-stragglers", 1),
    ("rankguard-templates", 1),
    ("rankguard-web-client", 1),
    ("rankguard-checkpoint-format", 1),
    ("rankguard-checkpoint-schedule", 1),
    ("rankguard-slurm", 2),
    ("rankguard-kubernetes", 2),
    ("rankguard-access", 2),
    ("rankguard-policies", 2),
    ("rankguard-console", 2),
    ("rankguard-reader", 2),
    ("rankguard-summary", 2),
    ("rankguard-statistics", 2),
    ("rankguard-checkpoint", 2),
    ("rankguard-checkpoint-exchange", 3),
    ("rankguard-proto", 2),
    ("rankguard-checkpoint-tiers", 3),
    ("rankguard-diagnosis", 3),
    ("rankguard-rank", 3),
    ("rankguard-report", 3),
    ("rankguard-notify", 3),
    ("rankguard-bench", 3),
    ("rankguard-offline", 4),
    ("rankguard-trainer", 4),
    ("rankguard-python", 4),
    ("rankguard-agent", 4),
    ("rankguard-core", 4),
    ("rankguard-journal", 5),
    ("rankguard-api", 5),
    ("rankguard-controller", 6),
    ("rankguard-datasets", 6),
    ("rankguard-studies", 7),
    ("rankguard-sim", 7),
    ("rankguard", 8),
    ("rankguard-history", 8),
];

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
            // The journal asks it what a recorded history means, the API reads its state; both decide nothing.
            let may = matches!(
                name,
                "rankguard-sim" | "rankguard-journal" | "rankguard-api" | "rankguard-controller"
            );
            assert!(to != "rankguard-core" || may, "{name} imports the brain");
        }
    }
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
