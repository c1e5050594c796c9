//! Nodes and pods that launchers and clusters name as the lost part: `Remote daemon: [[51202,0],1] on node n2`, `ssh:
//! connect to host n3`, `pod/train-2`. They are fields of logs that are read later, which have no entity of a cluster.

use std::collections::BTreeSet;

use rankguard_faults::classes;
use rankguard_model::{Entity, NodeId, Timestamp};

use crate::{CauseCandidate, FailureScene, Signal};

/// Field with the node that a launcher lost or cannot reach.
pub const LOST_NODE_FIELD: &str = "lost_node";
/// Field with the pod that an event or a description is about.
pub const POD_FIELD: &str = "pod";
/// Field with the node of the pod.
pub const POD_NODE_FIELD: &str = "pod_node";
/// Field with the time of the last line before the boot of a machine, ns since 1970.
pub const SILENT_SINCE_FIELD: &str = "silent_since";

/// Signature of a machine that starts, without a shutdown before it in its log.
pub const BOOT_SIGNATURE: &str = "boot-without-shutdown";

/// Classes of reports of a launcher that a node is lost or cannot be reached.
const LOST: [&str; 2] = [classes::REMOTE_WORKER_LOST, classes::SSH_FAILURE];

/// Blames the node that a launcher reports as lost, if its reports name one.
pub(crate) fn blame(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    let is_of_job = |candidate: &CauseCandidate| {
        let is_unplaced = candidate.blamed == scene.job_entity() && candidate.root_rank.is_none();
        is_unplaced && candidate.shared.is_none() && LOST.contains(&candidate.class.as_str())
    };
    for candidate in ranking.iter_mut().filter(|other| is_of_job(other)) {
        let support = candidate.support.iter().map(|index| &scene.signs[index]);
        let names: BTreeSet<&str> = support.filter_map(|sign| sign.field(LOST_NODE_FIELD)).collect();
        if let (Some(name), 1) = (names.first(), names.len()) {
            candidate.blamed = Entity::Node {
                node: NodeId::from(*name),
            };
        }
    }
}

/// Notes what the log of a machine shows before a boot.
pub(crate) fn note_boots(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    for candidate in ranking {
        let first = &scene.signs[candidate.first];
        if let (Some(since), true) = (silent_since(first), first.is_signed(BOOT_SIGNATURE)) {
            candidate.notes.push(format!(
                "The log of the machine has no line from {since} to this boot, and no shutdown before it: the machine \
                 stopped in between."
            ));
        }
    }
}

fn silent_since(boot: &Signal) -> Option<Timestamp> {
    boot.field(SILENT_SINCE_FIELD)?.parse().ok().map(Timestamp)
}

/// Returns the pod that a sign is about, in words.
pub(crate) fn named_pod(sign: &Signal) -> Option<String> {
    let pod = sign.field(POD_FIELD)?;
    let of_entity = || sign.node().map(NodeId::as_str).filter(|node| !node.is_empty());
    Some(match sign.field(POD_NODE_FIELD).or_else(of_entity) {
        Some(node) => format!("pod {pod} of node {node}"),
        None => format!("pod {pod}"),
    })
}

/// Returns true if a sign is of the time between the last line of a machine's log and its boot.
pub(crate) fn is_in_silence(boot: &Signal, sign: &Signal) -> bool {
    silent_since(boot).is_some_and(|since| sign.timed && sign.at >= since && sign.at <= boot.at)
}
