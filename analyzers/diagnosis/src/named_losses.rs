//! Nodes and pods that launchers and clusters name as the lost part: `Remote daemon: [[51202,0],1] on node n2`, `ssh:
//! connect to host n3`, `pod/train-2`. They are fields of logs that are read later, which have no entity of a cluster.

use std::collections::BTreeSet;

use rankguard_faults::classes;
use rankguard_model::{Entity, NodeId, Timestamp};

use crate::first_rank::reporting_node;
use crate::named_servers::{EVICTED, part_of_outage};
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Field with the node that a launcher lost or cannot reach.
pub const LOST_NODE_FIELD: &str = "lost_node";
/// Field with the peer that a survivor names as the other end of a connection that it lost: a host name or an address.
pub const LOST_PEER_FIELD: &str = "lost_peer";
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

/// Maximum number of lost nodes that are named.
const NAMED: usize = 4;

/// Blames the node that a launcher reports as lost, or the nodes if it reports several; without such a report the only peer that
/// survivors name and that reports no loss itself.
pub(crate) fn blame(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    let is_of_job = |candidate: &CauseCandidate| {
        let is_unplaced = candidate.blamed == scene.job_entity() && candidate.root_rank.is_none();
        is_unplaced && candidate.shared.is_none()
    };
    for candidate in ranking.iter_mut().filter(|other| is_of_job(other)) {
        let class = candidate.class.as_str();
        let is_lost = LOST.contains(&class);
        let support = || candidate.support.iter().map(|index| &*scene.signs[index]);
        let named = |field| support().filter_map(move |sign| sign.field(field));
        let names: BTreeSet<&str> = named(LOST_NODE_FIELD).filter(|_| is_lost).collect();
        let peers = if names.is_empty() && (is_lost || class == classes::CONNECTION_RESET) {
            let reporters: BTreeSet<&str> = support().filter_map(reporting_node).collect();
            named(LOST_PEER_FIELD)
                .filter(|peer| !reporters.contains(peer))
                .collect()
        } else {
            BTreeSet::new()
        };
        let only = match (names.len(), peers.len()) {
            (1, _) => names.first(),
            (0, 1) => peers.first(),
            _ => None,
        };
        if let Some(name) = only {
            candidate.blamed = Entity::Node {
                node: NodeId::from(*name),
            };
        } else if (2..=NAMED).contains(&names.len()) {
            let list: Vec<&str> = names.into_iter().collect();
            candidate.shared = Some(format!("nodes {}", list.join(", ")));
            candidate.blamed = Entity::Unknown;
        }
    }
}

/// Blames the server of a file system and the task of a job that lines of the job's log name as lost.
pub(crate) fn blame_parts(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    let is_of_job = |candidate: &CauseCandidate| candidate.blamed == scene.job_entity() && candidate.shared.is_none();
    for candidate in ranking.iter_mut().filter(|other| is_of_job(other)) {
        if let Some(part) = lost_server(scene, candidate).filter(|_| candidate.root_rank.is_none()) {
            candidate.shared = Some(part);
            candidate.blamed = Entity::Unknown;
        } else {
            blame_lost_task(scene, candidate);
        }
    }
}

/// Returns the words for the server that a client of a file system names in a log without a host: the log of a job.
fn lost_server(scene: &FailureScene<'_>, candidate: &CauseCandidate) -> Option<String> {
    let first = &scene.signs[candidate.first];
    let is_wait = candidate.class.as_str() == classes::FILESYSTEM_HANG && !first.text.contains(EVICTED);
    is_wait.then(|| part_of_outage(candidate.support.iter().map(|index| &*scene.signs[index])))?
}

/// Field with the task that a coordination service gave up.
const TASK_FIELD: &str = "task";

/// Blames the rank that a coordination service lists as the only one that sent no heartbeats.
fn blame_lost_task(scene: &FailureScene<'_>, candidate: &mut CauseCandidate) {
    let Some(rank) = candidate.root_rank else { return };
    let is_loss = candidate.class.as_str() == classes::REMOTE_WORKER_LOST && candidate.blamed == scene.job_entity();
    let mut support = candidate.support.iter().map(|index| &scene.signs[index]);
    let names_it = |sign: &Signal| sign.field(TASK_FIELD).and_then(|task| task.parse().ok()) == Some(rank.0);
    if is_loss && support.any(|sign| names_it(sign)) {
        candidate.blamed = scene.rank_entity(rank, Some(&NodeId::from("")));
    }
}

/// Texts of a launcher of MPI when a process ended the job.
const MPI_ENDS: [&str; 4] = [
    "MPI_ABORT was invoked",
    "application called MPI_Abort",
    "noticed that process rank",
    "detected that one or more processes exited with non-zero",
];
/// Texts of the runtime below MPI about itself: Open MPI, PRRTE, OpenPMIx.
const MPI_RUNTIME: [&str; 6] = [
    "PMIX ERROR",
    "PMIX_ERROR",
    "ORTE_ERROR",
    "PRTE ERROR",
    "PRTE_ERROR",
    "OPAL ERROR",
];

/// Removes errors of the runtime of MPI after the end of one of its processes: daemons that are ended lose each other.
pub(crate) fn without_mpi_runtime(scene: &FailureScene<'_>, ranking: &mut Vec<CauseCandidate>) {
    let names = |sign: &Signal, texts: &[&str]| texts.iter().any(|text| sign.text.contains(text));
    let ends: Vec<&Signal> = scene
        .marks()
        .map(|(_, sign)| sign)
        .filter(|sign| names(sign, &MPI_ENDS))
        .collect();
    let follows = |sign: &Signal| {
        let is_below = |end: &&Signal| {
            end.evidence.node == sign.evidence.node && end.evidence.seq < sign.evidence.seq
                || end.timed && sign.timed && end.at <= sign.at
        };
        names(sign, &MPI_RUNTIME) && ends.iter().any(is_below)
    };
    let is_consequence =
        |candidate: &CauseCandidate| candidate.support.iter().all(|index| follows(&scene.signs[index]));
    if ranking.iter().any(|candidate| !is_consequence(candidate)) {
        ranking.retain(|candidate| !is_consequence(candidate));
    }
}

/// Classes of what survivors report of the network after a peer ended.
const AFTER_LOSS: [&str; 4] = [
    classes::CONNECTION_RESET,
    classes::IB_RDMA_ERROR,
    classes::NCCL_REMOTE_ERROR,
    classes::NCCL_SYSTEM_ERROR,
];
/// Difference of the scores of a stated end and of what follows from it.
const BELOW: f64 = 0.1;

/// Lets the end of a process that a manager of processes states go before errors of the network below it: they follow from it, and
/// it names the process.
pub(crate) fn demote_survivors(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    let is_stated = |sign: &Signal| sign.field(LOST_NODE_FIELD).is_some() && states_process_end(&sign.text);
    let mut ends = ranking
        .iter()
        .filter(|candidate| candidate.class.as_str() == classes::REMOTE_WORKER_LOST);
    let stated = ends.find_map(|candidate| {
        let mut support = candidate.support.iter();
        Some((support.find(|index| is_stated(&scene.signs[*index]))?, candidate.score))
    });
    let Some((end, score)) = stated else { return };
    let end = &scene.signs[end];
    let is_below = |sign: &Signal| {
        let is_same_log = sign.evidence.node == end.evidence.node && sign.evidence.seq > end.evidence.seq;
        is_same_log || sign.timed && end.timed && sign.at >= end.at
    };
    let follows = |candidate: &CauseCandidate| {
        let is_error = AFTER_LOSS.contains(&candidate.class.as_str());
        is_error && candidate.support.iter().all(|index| is_below(&scene.signs[index]))
    };
    for candidate in ranking.iter_mut().filter(|other| follows(other)) {
        candidate.strength = candidate.strength.min(CandidateStrength::Symptom);
        candidate.score = candidate.score.min(score - BELOW);
        candidate
            .notes
            .push("A process of the job had ended before it, which breaks the connections of its peers.".to_owned());
    }
}

/// Returns true for the report of a process that died or was killed, by the daemon that had started it.
fn states_process_end(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let ends = ["died or was killed", "worker process has died", "the actor died"];
    ends.iter().any(|words| lower.contains(words))
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
