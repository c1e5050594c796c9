//! States of machines that a log of a job reports without the machine: a driver of two versions, a mount that is gone, a hook of
//! the container runtime, an instance that the cloud takes back. No change of the program ends them, so the machine is to blame, and
//! not the job. What is wrong for every task alike, such as the name of an image, is not one of the rank that reports it.

use std::collections::BTreeSet;

use rankguard_faults::classes;
use rankguard_model::{Entity, NodeId};

use crate::named_losses::named_pod;
use crate::{CauseCandidate, FailureScene, HOST_FIELD, LOST_NODE_FIELD, Signal, labelled_node};

/// State of a machine.
struct MachineState {
    class: &'static str,
    /// Lower-case texts, one of which occurs in the report; none if each report of the class is about a machine.
    words: &'static [&'static str],
    /// True if the machine that writes the report has the state; false for a report about another one.
    is_own: bool,
}

/// States of machines outside the layer of hardware. Classes that are missing here are of a program, an image, a user or a shared
/// server, or their own engine blames the machine.
const STATES: [MachineState; 11] = [
    MachineState {
        class: classes::CLOCK_SKEW,
        words: &[],
        is_own: false,
    },
    MachineState {
        class: classes::CONTAINER_RUNTIME_ERROR,
        words: &[
            "nvidia-container-",
            "could not select device driver",
            "connect to the docker daemon",
            "cgroup mountpoint",
            "seccomp profile",
            "pyxis: couldn't",
            "spank_pyxis",
        ],
        is_own: true,
    },
    // A file system that a kubelet or a container runtime watches is one of its node.
    MachineState {
        class: classes::DISK_FULL,
        words: &[
            "node was low on resource",
            "diskpressure",
            "disk pressure",
            "error syncing pod",
            "failed to register layer",
            // Ray's daemon of a node watches the file system of its session.
            "file_system_monitor",
        ],
        is_own: true,
    },
    // A driver that is too old for an image is not in this list: the image may be the one to change.
    MachineState {
        class: classes::DRIVER_VERSION_MISMATCH,
        words: &[
            "driver/library version mismatch",
            "lib_rm_version_mismatch",
            "librmversionmismatch",
            "nvml/rm version mismatch",
            "does not match dso version",
        ],
        is_own: true,
    },
    MachineState {
        class: classes::FILESYSTEM_MOUNT_FAILURE,
        words: &[],
        is_own: true,
    },
    MachineState {
        class: classes::FILESYSTEM_MOUNT_MISSING,
        words: &[],
        is_own: true,
    },
    MachineState {
        class: classes::PERMISSION_DENIED,
        words: &["error: pyxis: "],
        is_own: true,
    },
    MachineState {
        class: classes::PREEMPTED,
        words: &[
            "spot ",
            "instance ",
            "termination is imminent",
            "will change into status",
        ],
        is_own: false,
    },
    MachineState {
        class: classes::RESOURCE_CONTENTION,
        words: &["node was low on resource", "memorypressure", "pidpressure"],
        is_own: true,
    },
    // https://slurm.schedmd.com/slurm.conf.html, SlurmdSpoolDir: slurmd wrote the script there itself.
    MachineState {
        class: classes::SLURM_NODE_FAIL,
        words: &["slurm_script: no such file"],
        is_own: true,
    },
    MachineState {
        class: classes::SLURM_NODE_FAIL,
        words: &["node failure", "node_fail", "node fail", "node lost", "nodelost"],
        is_own: false,
    },
];

/// Classes of what every task of a job meets alike.
const OF_ALL_TASKS: [&str; 1] = [classes::K8S_IMAGE_PULL];

/// Blames the machine for its state, by the node that the report names if it names one.
pub(crate) fn blame(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    if !scene.is_of_logs() {
        return;
    }
    for candidate in ranking {
        if OF_ALL_TASKS.contains(&candidate.class.as_str()) && matches!(candidate.blamed, Entity::Rank { .. }) {
            candidate.blamed = scene.job_entity();
            candidate.root_rank = None;
        }
        let first = &scene.signs[candidate.first];
        let is_of_job = candidate.blamed == scene.job_entity() && candidate.shared.is_none();
        let Some(state) = state_of(candidate, first).filter(|_| is_of_job && named_pod(first).is_none()) else {
            continue;
        };
        let support = candidate.support.iter().map(|index| &scene.signs[index]);
        let named: BTreeSet<&str> = support.filter_map(|sign| sign.field(LOST_NODE_FIELD)).collect();
        let named = named
            .first()
            .filter(|_| named.len() == 1)
            .map(|name| NodeId::from(*name));
        let own = || {
            labelled_node(first, OWN_LAYER)
                .or_else(|| kubelet_node(first))
                .or_else(|| sole_node(scene))
        };
        match named.or_else(|| own().filter(|_| state.is_own)) {
            Some(node) => candidate.blamed = Entity::Node { node },
            None => {
                candidate.blamed = Entity::Unknown;
                candidate.shared = Some(unnamed(scene).to_owned());
            }
        }
    }
}

/// Layer of states of the machine that writes the report.
const OWN_LAYER: &str = "platform";

fn state_of(candidate: &CauseCandidate, first: &Signal) -> Option<&'static MachineState> {
    let text = first.text.to_ascii_lowercase();
    let is_stated = |state: &&MachineState| {
        let has_words = || state.words.is_empty() || state.words.iter().any(|words| text.contains(words));
        state.class == candidate.class.as_str() && has_words()
    };
    STATES.iter().find(is_stated)
}

/// Returns the node of the kubelet that reports an event, which its label names.
fn kubelet_node(first: &Signal) -> Option<NodeId> {
    let label = first.field(HOST_FIELD).filter(|_| first.text.contains("kubelet"));
    label.map(NodeId::from)
}

/// Returns the only node on which launchers and logs place ranks.
fn sole_node(scene: &FailureScene<'_>) -> Option<NodeId> {
    let nodes: BTreeSet<&NodeId> = placed_nodes(scene).collect();
    nodes.first().filter(|_| nodes.len() == 1).map(|node| (*node).clone())
}

fn placed_nodes<'s>(scene: &'s FailureScene<'_>) -> impl Iterator<Item = &'s NodeId> {
    scene.placements.values().filter(|node| !node.as_str().is_empty())
}

/// Returns the words for a machine without a name.
fn unnamed(scene: &FailureScene<'_>) -> &'static str {
    if scene.named_nodes.is_empty() && placed_nodes(scene).next().is_none() {
        "a machine that the log does not name"
    } else {
        "a machine that the logs do not show"
    }
}
