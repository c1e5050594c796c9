//! Machines that messages name in their text: `Nodes gpu-07 not responding`, `node/gpu-07`, `node(s)=gpu-07`,
//! `srun: error: gpu-07: task 3`.

use rankguard_faults::{Catalogue, classes};
use rankguard_model::{Classification, NodeId};

/// Words before the name of a node.
const NODE_WORDS: [&str; 5] = ["Node", "Nodes", "node", "nodes", "host"];

/// Classes of failures of a machine outside the layer of hardware.
const OF_MACHINES: [&str; 7] = [
    classes::DRIVER_VERSION_MISMATCH,
    classes::FABRIC_MANAGER_NOT_READY,
    classes::HOST_OOM_KILL,
    classes::HUNG_TASK,
    classes::NIC_FAULT,
    classes::NIC_LINK_DOWN,
    classes::SLURM_NODE_FAIL,
];

/// Returns true if a mark is about a machine, so that a node in its text is the failed one.
pub(crate) fn is_of_machine(mark: &Classification) -> bool {
    let known = Catalogue::builtin().class(&mark.class);
    OF_MACHINES.contains(&mark.class.as_str()) || known.is_some_and(|class| class.layer == "hardware")
}

/// Returns the node that a message names; `None` if it names none or several.
pub(crate) fn node_in(text: &str) -> Option<NodeId> {
    let mut names = nodes_in(text);
    let first = names.next()?;
    names.all(|other| other == first).then(|| NodeId::from(first))
}

/// Returns the nodes that a message names.
pub(crate) fn nodes_in(text: &str) -> impl Iterator<Item = &str> {
    let task = text.strip_prefix("srun: error: ").and_then(|rest| {
        let (name, rest) = rest.split_once(": ")?;
        rest.starts_with("task").then_some(name)
    });
    let mut before = "";
    let named = text.split_whitespace().filter_map(move |word| {
        let after = std::mem::replace(&mut before, word);
        let object = word.strip_prefix("node/").or_else(|| word.strip_prefix("node(s)="));
        object.or_else(|| {
            NODE_WORDS
                .contains(&after.trim_start_matches(['(', '"']))
                .then_some(word)
        })
    });
    let names = task
        .into_iter()
        .chain(named)
        .map(bare)
        .filter(|name| is_node_name(name));
    let names = names.map(|name| name.split('.').next().unwrap_or(name));
    names.chain(node_address(text))
}

/// Returns the address with which Ray names a node: `the node (IP: 10.0.0.7, ID: abc)`, `node (ID: abc, IP: 10.0.0.7)`.
fn node_address(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("node (")?;
    let (inside, _) = rest.split_once(')')?;
    let address = inside.split(", ").find_map(|part| part.strip_prefix("IP: "))?;
    Some(address).filter(|address| address.parse::<std::net::IpAddr>().is_ok())
}

/// Returns the node that a description of `kubectl` is about, which its header names: `Name:    gpu-07`.
pub(crate) fn described_node(context: &[String]) -> Option<NodeId> {
    let header = context.iter().find_map(|line| line.strip_prefix("Name:   "))?;
    let is_condition = |line: &String| line.trim_start().starts_with("Conditions:");
    let name = bare(header.trim());
    (context.iter().any(is_condition) && is_node_name(name)).then(|| NodeId::from(name))
}

/// Returns a word without quotes and punctuation.
fn bare(word: &str) -> &str {
    let is_mark = |c: char| "'\"`,;:()*".contains(c);
    word.trim_start_matches(is_mark)
        .trim_end_matches(|c: char| is_mark(c) || c == '.')
}

/// Returns true for the name of one host: letters, digits and dashes with at least one letter and one digit. A word without
/// a digit may be any word of a sentence, and a list of hosts has brackets.
fn is_node_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let has_digit = name.bytes().any(|b| b.is_ascii_digit());
    let is_word = name.starts_with(|c: char| c.is_ascii_alphabetic());
    has_digit && is_word && name.len() <= 253 && name.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[&str]) {
        assert_eq!(nodes_in(text).collect::<Vec<_>>(), expect, "{text}");
    }

    #[test]
    fn messages_name_nodes_in_their_own_forms() {
        check("Nodes c7 not responding, setting DOWN", &["c7"]);
        check("Killing JobId=9 on failed node c7", &["c7"]);
        check("update_node: node c7 reason set to: drained by operator", &["c7"]);
        check("Warning   NodeNotReady   node/c7-pool   it stopped", &["c7-pool"]);
        check("srun: error: c7: tasks 0-3: Killed", &["c7"]);
        check("unexpected value (rank 5, node c7). Transient", &["c7"]);
        check("node c7.cluster.local rebooted", &["c7"]);
        check("Memory on the node (IP: 10.0.0.7, ID: abc) was 478 GB", &["10.0.0.7"]);
        check("Nodes c[7-9] not responding", &[]);
        check("killed at node (ID: abc, IP: 10.0.0.8) over time", &["10.0.0.8"]);
        check("node failure after 3 tries on node 12", &[]);
        check("no node is free", &[]);
        check("slurmd error running JobId=9 on node(s)=c7: Prolog error", &["c7"]);
        check("slurmd error running JobId=9 on node(s)=c[7-9]: Prolog error", &[]);
    }

    #[test]
    fn several_nodes_are_none() {
        assert_eq!(node_in("node c7 replaced by node c8"), None);
        assert_eq!(
            node_in("Node c7 status is now: node c7 NotReady"),
            Some(NodeId::from("c7"))
        );
    }
}
