//! Names of folders and files that are names of nodes.
//!
//! `gpu-07/` has the form of a host name, and so has `ticket-99/`. A name of this form is a node only if log lines of the
//! diagnosis name the same host, or if sibling names of the same form hold logs of one node each: system logs, logs of
//! different ranks, or folders with either.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rankguard_faults::line::{self, LineClock};
use rankguard_model::{NodeId, Rank};

use crate::guess;
use crate::named_machine::nodes_in;

/// Parts of the names of logs that a machine writes about itself.
const SYSTEM_LOGS: [&str; 12] = [
    "dcgm",
    "dmesg",
    "fabricmanager",
    "ipmi",
    "journal",
    "kern.log",
    "kmsg",
    "mcelog",
    "messages",
    "nvidia-smi",
    "pstore",
    "syslog",
];

/// Names of logs that the controller of a machine's board writes, without their endings.
const BOARD_LOGS: [&str; 4] = ["bmc", "sel", "sel-list", "sel_list"];

/// Minimum number of sibling names of the same form.
const SIBLINGS: usize = 2;

/// Names of nodes among the names of folders and files.
#[derive(Debug, Clone, Default)]
pub struct NodeNames {
    /// Names that have the form of a host name, with evidence that they are nodes.
    found: BTreeSet<String>,
    /// Names that the caller knows to be nodes, of any form, by their lower case.
    given: BTreeMap<String, NodeId>,
}

/// Logs below one name.
#[derive(Debug, Default)]
struct NamedLogs {
    is_folder: bool,
    has_system_log: bool,
    ranks: BTreeSet<Rank>,
}

/// Returns the hosts that lines of a log name, in their prefixes or in the words of a scheduler, in lower case and without
/// their domain.
pub fn hosts_of(lines: &[String]) -> BTreeSet<String> {
    let clock = LineClock::default();
    let mut hosts = BTreeSet::new();
    for text in lines {
        let cleaned = line::clean(text);
        let parsed = line::parse(&cleaned, &clock);
        hosts.extend(parsed.host.map(label));
        hosts.extend(nodes_in(parsed.text).map(label));
    }
    hosts
}

/// Returns the first label of a host name in lower case.
fn label(host: &str) -> String {
    host.split('.').next().unwrap_or(host).to_lowercase()
}

impl NodeNames {
    /// Finds the names of nodes among files below `root`; each file has the hosts that its lines name.
    pub fn among<'a>(root: &Path, files: impl IntoIterator<Item = (&'a Path, &'a BTreeSet<String>)>) -> Self {
        let files: Vec<(&Path, &BTreeSet<String>)> = files.into_iter().collect();
        // The log of a scheduler names the hosts of folders beside it.
        let all_hosts: BTreeSet<&String> = files.iter().flat_map(|(_, hosts)| *hosts).collect();
        let mut names = BTreeSet::new();
        let mut siblings: BTreeMap<(Vec<String>, String), BTreeMap<String, NamedLogs>> = BTreeMap::new();
        for (path, _) in &files {
            let possible = guess::possible_hosts(root, path);
            names.extend(possible.into_iter().filter(|name| all_hosts.contains(name)));
            let Some(guess::HostName {
                parents,
                name,
                is_folder,
            }) = guess::host_name(root, path)
            else {
                continue;
            };
            let form = name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
            let logs = siblings.entry((parents, form)).or_default().entry(name).or_default();
            let file = path.file_name().map(|file| file.to_string_lossy().to_lowercase());
            let file = file.unwrap_or_default();
            logs.is_folder = is_folder;
            let stem = file.split('.').next().unwrap_or_default();
            let is_system_log = SYSTEM_LOGS.iter().any(|part| file.contains(part)) || BOARD_LOGS.contains(&stem);
            logs.has_system_log |= is_system_log;
            logs.ranks.extend(guess::rank(root, path));
        }
        for logs in siblings.into_values().filter(|logs| logs.len() >= SIBLINGS) {
            let of_machines = logs
                .values()
                .filter(|logs| logs.has_system_log || !logs.is_folder)
                .count();
            let has_machines = of_machines >= SIBLINGS;
            let is_each_of_node = have_different_ranks(&logs) || are_folders_of_nodes(&logs);
            let found = logs
                .into_iter()
                .filter(|(_, logs)| is_each_of_node || has_machines && (logs.has_system_log || !logs.is_folder));
            names.extend(found.map(|(name, _)| name));
        }
        Self {
            found: names,
            given: BTreeMap::new(),
        }
    }

    /// Adds names that are known to be of nodes, of any form.
    #[must_use]
    pub fn with<'a>(mut self, names: impl IntoIterator<Item = &'a NodeId>) -> Self {
        let names = names
            .into_iter()
            .map(|name| (name.as_str().to_lowercase(), name.clone()));
        self.given.extend(names);
        self
    }

    /// Returns the node that a path names: one that the caller knows, one with a word for it (`node-07/`,
    /// `worker-2.log`), or a confirmed host name.
    pub fn node(&self, root: &Path, path: &Path) -> Option<NodeId> {
        if let Some(given) = guess::stems(root, path).find_map(|stem| self.given.get(&stem)) {
            return Some(given.clone());
        }
        let hosts = || guess::possible_hosts(root, path).into_iter().rev();
        let host = || hosts().find(|name| self.found.contains(name)).map(NodeId::from);
        guess::named_node(root, path).or_else(host)
    }
}

/// Returns true if all names have logs of ranks, and no two of the same rank: runs of a job have the same ranks, its nodes
/// have different ones.
fn have_different_ranks(logs: &BTreeMap<String, NamedLogs>) -> bool {
    let total: usize = logs.values().map(|logs| logs.ranks.len()).sum();
    let all: BTreeSet<Rank> = logs.values().flat_map(|logs| logs.ranks.iter().copied()).collect();
    logs.values().all(|logs| !logs.ranks.is_empty()) && all.len() == total
}

/// Returns true if all names are folders with a system log or with logs of ranks, and no two have the same rank.
fn are_folders_of_nodes(logs: &BTreeMap<String, NamedLogs>) -> bool {
    let with_ranks = || logs.values().filter(|logs| !logs.ranks.is_empty());
    let total: usize = with_ranks().map(|logs| logs.ranks.len()).sum();
    let all: BTreeSet<Rank> = with_ranks().flat_map(|logs| logs.ranks.iter().copied()).collect();
    let is_of_node = |logs: &NamedLogs| logs.is_folder && (logs.has_system_log || !logs.ranks.is_empty());
    with_ranks().next().is_some() && logs.values().all(is_of_node) && all.len() == total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expected: &[Option<&str>]) {
        let root = Path::new("/logs");
        let hosts: Vec<BTreeSet<String>> = files
            .iter()
            .map(|(_, host)| host.split_whitespace().map(label).collect())
            .collect();
        let paths = files.iter().map(|(path, _)| Path::new(*path));
        let names = NodeNames::among(root, paths.zip(&hosts));
        let found = files.iter().map(|(path, _)| names.node(root, Path::new(path)));
        let found: Vec<Option<String>> = found.map(|node| node.map(|node| node.to_string())).collect();
        let expected: Vec<Option<String>> = expected.iter().map(|node| node.map(str::to_owned)).collect();
        assert_eq!(found, expected, "{files:?}");
    }

    #[test]
    fn a_folder_with_a_number_is_no_node_by_itself() {
        check(&[("/logs/ticket-99/train.log", "")], &[None]);
        check(&[("/logs/ticket-99/dmesg.txt", "")], &[None]);
        check(&[("/logs/ticket-99/dmesg.txt", "gpu-07")], &[None]);
        check(&[("/logs/run-3/dmesg", ""), ("/logs/run-4/dmesg", "")], &[None, None]);
        check(
            &[("/logs/llama-3/rank-0.err", ""), ("/logs/llama-4/rank-0.err", "")],
            &[None, None],
        );
    }

    #[test]
    fn a_host_in_the_lines_confirms_a_name() {
        check(
            &[
                ("/logs/tcn12/syslog", "TCN12.cluster.local"),
                ("/logs/tcn12/rank-3.err", ""),
                ("/logs/train.log", "tcn12"),
            ],
            &[Some("tcn12"), Some("tcn12"), None],
        );
    }

    #[test]
    fn a_host_in_the_lines_confirms_a_short_name() {
        check(
            &[
                ("/logs/b7/kern.log", "b7"),
                ("/logs/b7/rank8.log", ""),
                ("/logs/b7.messages", "b7"),
                ("/logs/rank8.log", "rank8"),
                ("/logs/b8/rank0.log", ""),
            ],
            &[Some("b7"), Some("b7"), Some("b7"), None, None],
        );
    }

    #[test]
    fn a_host_in_another_log_confirms_a_folder() {
        check(
            &[
                ("/logs/slurmctld.log", "k5"),
                ("/logs/k5/console.log", ""),
                ("/logs/k6/console.log", ""),
            ],
            &[None, Some("k5"), None],
        );
        check(
            &[("/logs/slurm-9.out", "n21"), ("/logs/n21-dmesg.txt", "")],
            &[None, Some("n21")],
        );
    }

    #[test]
    fn lines_of_schedulers_name_hosts() {
        let lines = ["[2026-11-24T10:03:00.000] error: Nodes k5 not responding, setting DOWN".to_owned()];
        assert_eq!(hosts_of(&lines).into_iter().collect::<Vec<_>>(), ["k5"]);
    }

    #[test]
    fn siblings_with_logs_of_one_node_each_are_nodes() {
        check(
            &[("/logs/gpu-07/dmesg", ""), ("/logs/gpu-08/dmesg", "")],
            &[Some("gpu-07"), Some("gpu-08")],
        );
        check(
            &[("/logs/tcn1/rank-0.err", ""), ("/logs/tcn2/rank-4.err", "")],
            &[Some("tcn1"), Some("tcn2")],
        );
        check(
            &[("/logs/n1/rank-0.err", ""), ("/logs/n2/rank-4.err", "")],
            &[Some("n1"), Some("n2")],
        );
        check(
            &[("/logs/g1/rank-0.err", ""), ("/logs/g2/rank-4.err", "")],
            &[None, None],
        );
        check(
            &[("/logs/ip-10-0-0-17.log", ""), ("/logs/ip-10-0-0-18.log", "")],
            &[Some("ip-10-0-0-17"), Some("ip-10-0-0-18")],
        );
        check(
            &[("/logs/tcn1/rank-0.err", ""), ("/logs/abc2/rank-4.err", "")],
            &[None, None],
        );
    }

    #[test]
    fn a_folder_with_the_log_of_a_board_is_a_node_beside_folders_with_ranks() {
        for log in ["sel.log", "bmc.txt", "ipmi-sel.log", "dmesg", "syslog"] {
            let machine = format!("/logs/tcn4/{log}");
            check(
                &[(machine.as_str(), ""), ("/logs/tcn1/rank-0.log", "")],
                &[Some("tcn4"), Some("tcn1")],
            );
        }
        // Folders of runs.
        check(
            &[
                ("/logs/llama-3/rank-0.err", ""),
                ("/logs/llama-4/rank-0.err", ""),
                ("/logs/llama-4/dmesg", ""),
            ],
            &[None, None, None],
        );
        check(
            &[("/logs/tcn4/select.log", ""), ("/logs/tcn1/rank-0.log", "")],
            &[None, None],
        );
    }

    #[test]
    fn a_word_for_a_node_needs_no_confirmation() {
        check(
            &[("/logs/node-07/rank_12/stderr.log", ""), ("/logs/worker-2.log", "")],
            &[Some("node-07"), Some("worker-2")],
        );
    }
}
