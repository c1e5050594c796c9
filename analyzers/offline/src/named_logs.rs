//! Logs of machines that name their node in the name of the file only: `console-gpu-07.log`.
//!
//! A part of a name is a node only if another log of the diagnosis names the same node.

use std::collections::BTreeSet;

use rankguard_model::{Entity, NodeId};

use crate::incident::is_machine_log;
use crate::stream::ReadStream;

/// Sets the node of machines' logs without one, if the name of the file holds exactly one node that other logs name.
pub(crate) fn name_machines(streams: &mut [ReadStream]) {
    let named: BTreeSet<NodeId> = streams.iter().flat_map(nodes_of).collect();
    for stream in streams.iter_mut() {
        if !is_machine_log(stream) || stream.node.is_some() {
            continue;
        }
        let name = stream.name.rsplit('/').next().unwrap_or_default();
        let mut held = named.iter().filter(|node| holds(name, node.as_str()));
        let (Some(node), None) = (held.next(), held.next()) else {
            continue;
        };
        stream.node = Some(node.clone());
        for sign in stream.seen.iter_mut().flat_map(|seen| &mut seen.signs) {
            match &mut sign.entity {
                Entity::Node { node: of } | Entity::Device { node: of, .. } if of.as_str().is_empty() => {
                    *of = node.clone();
                }
                _ => {}
            }
        }
    }
}

/// Returns the nodes that a log and its lines name.
fn nodes_of(stream: &ReadStream) -> impl Iterator<Item = NodeId> {
    let signs = stream.seen.iter().flat_map(|seen| &seen.signs);
    let of_lines = signs.flat_map(|sign| {
        let stated = sign
            .field("node")
            .filter(|node| !node.contains(['[', ',']))
            .map(NodeId::from);
        [sign.node().cloned(), stated].into_iter().flatten()
    });
    let all = stream.node.iter().cloned().chain(of_lines);
    all.filter(|node| !node.as_str().is_empty())
}

/// Returns true if a file name holds a node as a whole part: `gpu-07` in `console-gpu-07.log`, and not in `gpu-071.log`.
fn holds(file: &str, node: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric();
    file.match_indices(node).any(|(at, _)| {
        let before = file[..at].chars().next_back();
        let after = file[at + node.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_holds_a_whole_node() {
        for (file, node, is_held) in [
            ("console-gpu-07.log", "gpu-07", true),
            ("gpu-07.console", "gpu-07", true),
            ("console-gpu-071.log", "gpu-07", false),
            ("xgpu-07.log", "gpu-07", false),
        ] {
            assert_eq!(holds(file, node), is_held, "{file} {node}");
        }
    }
}
