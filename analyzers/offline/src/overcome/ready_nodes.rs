//! Nodes of Kubernetes that were not ready for a moment, as after a restart of the kubelet: the pods run on, and the taint manager
//! takes their evictions back (`TaintManagerEviction: Cancelling deletion of Pod`).

use rankguard_diagnosis::Signal;
use rankguard_faults::classes;
use rankguard_model::Role;

use super::demotion::silence;
use crate::named_machine::node_in;
use crate::stream::PlacedObservation;

/// Signature of a node that is ready again, or of an eviction that is taken back.
const READY: &str = "k8s-node-ready";
/// Signature of a node that is not ready.
const NOT_READY: &str = "k8s-node-notready";
/// Lower-case texts of a node that was started again: its pods ended.
const STARTED: [&str; 2] = ["rebooted", "has been rebooted"];
/// Classes of the ends of pods.
const ENDS: [&str; 3] = [
    classes::EXTERNAL_TERMINATION,
    classes::PREEMPTED,
    classes::REMOTE_WORKER_LOST,
];

/// Returns true for the silenced report of a node that was not ready.
pub(super) fn is_overcome(sign: &Signal) -> bool {
    sign.is_signed(NOT_READY) && sign.mark().is_some_and(|mark| mark.role == Role::Noise)
}

/// Silences reports of a node that was not ready, if it is ready below them, and no line reports its start or the end of a pod.
pub(super) fn forgive(seen: &mut [PlacedObservation]) {
    let means_end = |sign: &Signal| {
        let is_noise = sign.mark().is_some_and(|mark| mark.role == Role::Noise);
        let class = sign.class().map_or("", |class| class.as_str());
        let lower = sign.text.to_ascii_lowercase();
        let is_start = STARTED.iter().any(|words| lower.contains(words));
        is_start || !is_noise && (ENDS.contains(&class) || class == classes::NODE_CRASH && !sign.is_signed(NOT_READY))
    };
    if seen.iter().flat_map(|seen| &seen.signs).any(means_end) {
        return;
    }
    let mut ready = Vec::new();
    for seen in seen.iter() {
        let states = seen.signs.iter().filter(|sign| sign.is_signed(READY));
        ready.extend(states.map(|sign| (seen.last_line, node_in(&sign.text))));
    }
    silence(seen, |seen, sign| {
        let node = node_in(&sign.text);
        let is_again = |(line, of): &(u64, Option<_>)| {
            // An eviction names its pod only.
            *line > seen.last_line && (of.is_none() || *of == node)
        };
        sign.is_signed(NOT_READY) && ready.iter().any(is_again)
    });
}
