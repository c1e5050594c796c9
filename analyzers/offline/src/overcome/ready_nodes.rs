//! Nodes that did not answer for a moment: nodes of Kubernetes that were not ready, as after a restart of the kubelet, where the pods
//! run on and the taint manager takes their evictions back (`TaintManagerEviction: Cancelling deletion of Pod`), and nodes of Slurm
//! that missed a ping and answered before `SlurmdTimeout` (slurm.conf(5)), until which Slurm ends no job.

use rankguard_diagnosis::Signal;
use rankguard_faults::classes;
use rankguard_model::{NodeId, Role};

use super::demotion::silence;
use crate::named_machine::node_in;
use crate::stream::PlacedObservation;

/// Signature of a node that is ready again, or of an eviction that is taken back.
const READY: &str = "k8s-node-ready";
/// Signature of a node that is not ready.
const NOT_READY: &str = "k8s-node-notready";
/// Signature of a node of Slurm that answers again: `Node %s now responding` of slurmctld's `node_mgr.c`.
const RESPONDS: &str = "slurm-node-responds";
/// Signature of a node of Slurm that failed or does not answer; it has the id of its class.
const FAILED: &str = classes::SLURM_NODE_FAIL;
/// End of slurmctld's report of a node that missed a ping. That of a node which it gives up goes on with `, setting DOWN`.
const NO_ANSWER: &str = " not responding";
/// Lower-case texts of a node that was started again: its pods ended.
const STARTED: [&str; 2] = ["rebooted", "has been rebooted"];
/// Classes of the ends of pods.
const ENDS: [&str; 3] = [
    classes::EXTERNAL_TERMINATION,
    classes::PREEMPTED,
    classes::REMOTE_WORKER_LOST,
];

/// Returns true for the report of a node that does not answer and was not given up.
fn is_outage(sign: &Signal) -> bool {
    sign.is_signed(NOT_READY) || sign.is_signed(FAILED) && sign.text.trim_end().ends_with(NO_ANSWER)
}

/// Returns the node that a report is about; `None` if it names none or several.
fn subject(sign: &Signal) -> Option<NodeId> {
    let field = sign.field("nodes").or_else(|| sign.field("node"));
    field.map(NodeId::from).or_else(|| node_in(&sign.text))
}

/// Returns true for the silenced report of a node that was not ready.
pub(super) fn is_overcome(sign: &Signal) -> bool {
    is_outage(sign) && sign.mark().is_some_and(|mark| mark.role == Role::Noise)
}

/// Silences reports of a node that was not ready, if it is ready below them, and no line reports its start or the end of a pod.
pub(super) fn forgive(seen: &mut [PlacedObservation]) {
    let means_end = |sign: &Signal| {
        let is_noise = sign.mark().is_some_and(|mark| mark.role == Role::Noise);
        let class = sign.class().map_or("", |class| class.as_str());
        let lower = sign.text.to_ascii_lowercase();
        let is_start = STARTED.iter().any(|words| lower.contains(words));
        let is_lost = class == classes::NODE_CRASH || class == classes::SLURM_NODE_FAIL;
        is_start || !is_noise && (ENDS.contains(&class) || is_lost && !is_outage(sign))
    };
    if seen.iter().flat_map(|seen| &seen.signs).any(means_end) {
        return;
    }
    let mut ready = Vec::new();
    for seen in seen.iter() {
        let is_back = |sign: &&Signal| sign.is_signed(READY) || sign.is_signed(RESPONDS);
        let states = seen.signs.iter().filter(is_back);
        ready.extend(states.map(|sign| (seen.last_line, subject(sign))));
    }
    silence(seen, |seen, sign| {
        let node = subject(sign);
        let is_again = |(line, of): &(u64, Option<_>)| {
            // An eviction names its pod only.
            *line > seen.last_line && (of.is_none() || *of == node)
        };
        is_outage(sign) && ready.iter().any(is_again)
    });
}
