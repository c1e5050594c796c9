//! Faults of a part that several nodes share: the server of a file system, a switch.
//!
//! Several nodes that report the same fault at the same time did not fail each by itself. None of them is blamed, because
//! the repair of a node would not end the fault.

use std::collections::BTreeSet;
use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{Entity, EvidenceSource, NodeId};

use crate::named_servers::{is_same_system, named_server, part_of_outage};
use crate::unordered::are_silent_together;
use crate::{CauseCandidate, FailureScene, Signal, SignalMeaning};

/// Maximum time between reports of one fault by several nodes: clients notice a lost server at their next request.
const TOGETHER: Duration = Duration::from_secs(10);

/// Blames no node for faults that several nodes report of what they share.
pub(crate) fn blame(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    if !scene.has_fault_ends {
        return;
    }
    for candidate in ranking {
        if let Some(node) = reported_node(scene, candidate) {
            candidate.blamed = Entity::Node { node };
        }
        blame_shared_silence(scene, candidate);
        let is_candidate = matches!(candidate.blamed, Entity::Node { .. } | Entity::Device { .. });
        let same: Vec<(usize, &Signal)> = scene
            .marks()
            .filter(|(_, sign)| is_candidate && is_same_part(scene, &scene.signs[candidate.first], sign))
            .collect();
        let nodes: BTreeSet<&NodeId> = same.iter().filter_map(|(_, sign)| sign.node()).collect();
        if nodes.len() < 2 {
            continue;
        }
        let names: Vec<&str> = nodes.iter().take(6).map(|node| node.as_str()).collect();
        let names = names.join(", ");
        candidate.shared =
            Some(part_name(scene, candidate, &same).unwrap_or_else(|| format!("what nodes {names} share")));
        candidate.notes.push(format!(
            "{} nodes report the same within {} s ({names}), which points to what they share rather than to one of them.",
            nodes.len(),
            span(&same)
        ));
        candidate.blamed = Entity::Unknown;
        candidate.support.extend(same.iter().map(|(index, _)| *index));
    }
}

/// Returns the words for the servers that the reports name.
fn part_name(scene: &FailureScene<'_>, candidate: &CauseCandidate, same: &[(usize, &Signal)]) -> Option<String> {
    let first = &scene.signs[candidate.first];
    if scene.is_of_logs() {
        return part_of_outage(std::iter::once(&**first).chain(same.iter().map(|(_, sign)| *sign)));
    }
    server_of(scene, first).map(|server| format!("server {server}"))
}

/// Returns the time in which reports came, s; at least [`TOGETHER`].
fn span(same: &[(usize, &Signal)]) -> u64 {
    let times = || same.iter().map(|(_, sign)| sign.at);
    let span = times().max().zip(times().min()).map(|(last, first)| last.since(first));
    span.unwrap_or_default().max(TOGETHER).as_secs()
}

/// Blames no node if the agents of several fell silent together: the silence of one does not cause that of another.
fn blame_shared_silence(scene: &FailureScene<'_>, candidate: &mut CauseCandidate) {
    let first = &scene.signs[candidate.first];
    if !scene.distinguishes_ends() || !matches!(candidate.blamed, Entity::Node { .. }) {
        return;
    }
    let together = scene.silent().filter(|(_, other)| are_silent_together(first, other));
    let together: Vec<(usize, &Signal)> = together.collect();
    let nodes: BTreeSet<&NodeId> = together.iter().filter_map(|(_, sign)| sign.node()).collect();
    if nodes.len() < 2 {
        return;
    }
    let times = || together.iter().map(|(_, sign)| sign.at);
    let (Some(start), Some(last)) = (times().min(), times().max()) else {
        return;
    };
    let names: Vec<&str> = nodes.iter().take(6).map(|node| node.as_str()).collect();
    let names = names.join(", ");
    candidate.shared = Some(format!("what nodes {names} share"));
    // The one that began first is the root; those that follow confirm it.
    let earliest = together.iter().min_by_key(|(index, sign)| (sign.at, *index));
    let earliest = earliest.filter(|_| scene.has_local_causes());
    candidate.first = earliest.map_or(candidate.first, |(index, _)| *index);
    candidate
        .notes
        .push(silence_note(scene, &together, &nodes, last.millis_since(start)));
    candidate.blamed = Entity::Unknown;
    candidate.root_rank = None;
    candidate.support.extend(together.iter().map(|(index, _)| *index));
}

/// Returns the note about nodes that were silent together, by what is known of the ends of their agents.
fn silence_note(
    scene: &FailureScene<'_>,
    together: &[(usize, &Signal)],
    nodes: &BTreeSet<&NodeId>,
    span_ms: i64,
) -> String {
    let count = nodes.len();
    let names: Vec<&str> = nodes.iter().take(6).map(|node| node.as_str()).collect();
    let names = names.join(", ");
    let is_of = |node: &NodeId, meaning: &SignalMeaning| {
        let mut of_node = together.iter().filter(|(_, sign)| sign.node() == Some(node));
        of_node.any(|(_, sign)| sign.what == *meaning)
    };
    let was_silent = |sign: &Signal| matches!(sign.what, SignalMeaning::Silent | SignalMeaning::AgentEnded);
    let is_local = scene.has_local_causes();
    if is_local && nodes.iter().all(|node| is_of(node, &SignalMeaning::AgentEnded)) {
        format!(
            "The agents of {count} nodes were last heard within {span_ms} ms ({names}), and the connection of each was closed, \
             as for a process that ends. That points to one cause for all of them, such as an update or a restart of the agents, \
             rather than to one of the nodes."
        )
    } else if is_local && !together.iter().any(|(_, sign)| was_silent(sign)) {
        format!(
            "{count} nodes ({names}) returned without the ranks that ran there, and when each ended is not known. That points \
             to one cause for all of them, such as a restart of the agents or of the machines, rather than to one of the nodes."
        )
    } else {
        format!(
            "{count} nodes fell silent within {span_ms} ms ({names}), which points to what they share, such as a rack, a switch \
             or the network of the controller, rather than to one of them."
        )
    }
}

/// Classes of a machine that is not ready for a program, which the program reports as well.
const NOT_READY: [&str; 3] = [
    classes::DRIVER_VERSION_MISMATCH,
    classes::FABRIC_MANAGER_NOT_READY,
    classes::GPU_NOT_VISIBLE,
];

/// Returns the node with a kernel or services that report what a program without a known node reports as well.
fn reported_node(scene: &FailureScene<'_>, candidate: &CauseCandidate) -> Option<NodeId> {
    let is_nameless = match &candidate.blamed {
        Entity::Unknown | Entity::Job { .. } => true,
        Entity::Node { node } => node.as_str().is_empty(),
        Entity::Rank { .. } | Entity::Device { .. } => false,
    };
    if !is_nameless || !NOT_READY.contains(&candidate.class.as_str()) {
        return None;
    }
    let same = scene.marks().map(|(_, sign)| sign).filter(|sign| {
        sign.source == EvidenceSource::KernelLog && sign.class().is_some_and(|class| *class == candidate.class)
    });
    let named = same.filter_map(Signal::node).filter(|node| !node.as_str().is_empty());
    let nodes: BTreeSet<&NodeId> = named.collect();
    nodes.first().filter(|_| nodes.len() == 1).map(|node| (*node).clone())
}

/// Returns the server that a client names. In a cluster, agents record it as a field.
fn server_of<'s>(scene: &FailureScene<'_>, sign: &'s Signal) -> Option<&'s str> {
    if scene.is_of_logs() {
        named_server(sign)
    } else {
        sign.field("server")
    }
}

/// Returns true if two reports of kernels are of one fault of a shared part: two nodes name the same server, or their links
/// went down together.
fn is_same_part(scene: &FailureScene<'_>, first: &Signal, other: &Signal) -> bool {
    let is_kernel = |sign: &Signal| sign.source == EvidenceSource::KernelLog && sign.is_root_mark() && sign.timed;
    let is_named = |sign: &Signal| sign.node().is_some_and(|node| !node.as_str().is_empty());
    let is_together = first.at <= other.at.after(TOGETHER) && other.at <= first.at.after(TOGETHER);
    let is_comparable = is_kernel(first) && is_kernel(other) && is_named(first) && is_named(other);
    if !is_comparable || first.class() != other.class() {
        return false;
    }
    // Clients lose the servers of a file system one after the other.
    let is_hang = first
        .class()
        .is_some_and(|class| class.as_str() == classes::FILESYSTEM_HANG);
    if scene.is_of_logs() && is_hang && is_same_system(first, other) {
        return true;
    }
    if !is_together {
        return false;
    }
    match first.class().map_or("", |class| class.as_str()) {
        classes::NIC_LINK_DOWN => !are_links_of_other_media(first, other),
        classes::FILESYSTEM_HANG => match (server_of(scene, first), server_of(scene, other)) {
            (Some(one), Some(other)) => one == other,
            _ => first.text == other.text,
        },
        _ => false,
    }
}

/// Medium of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkMedium {
    Infiniband,
    Ethernet,
}

impl LinkMedium {
    /// Returns the medium that a report of a link names, by the subsystem of the kernel or the name of the interface.
    fn of(sign: &Signal) -> Option<Self> {
        let address = match &sign.entity {
            Entity::Device { device, .. } => device.address.as_str(),
            _ => "",
        };
        let name = sign.field("nic").unwrap_or(address);
        let has_number = |start: &str| name.strip_prefix(start).is_some_and(|rest| rest.starts_with(is_digit));
        if sign.text.contains("infiniband ") || name.starts_with("ib") {
            return Some(Self::Infiniband);
        }
        let is_ethernet = has_number("eth") || ["eno", "enp", "ens", "enx"].iter().any(|start| name.starts_with(start));
        is_ethernet.then_some(Self::Ethernet)
    }
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

/// Returns true if two reports are of links of different media, which share no switch.
pub(crate) fn are_links_of_other_media(one: &Signal, other: &Signal) -> bool {
    match (LinkMedium::of(one), LinkMedium::of(other)) {
        (Some(one), Some(other)) => one != other,
        _ => false,
    }
}
