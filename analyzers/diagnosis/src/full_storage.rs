//! Full file systems of a live job: of one node, or of what its nodes share.
//!
//! A rank that writes to a full file system is not at fault, and neither is its job: the repair is made where the file
//! system is. The checkpoint store is a directory that all nodes of a job share, so a job on several nodes finds the store full,
//! whichever rank writes first.

use std::collections::BTreeSet;

use rankguard_faults::classes;
use rankguard_model::{Entity, NodeId};

use crate::storage::is_lost_shard;
use crate::{CauseCandidate, FailureScene, Signal};

/// Words of a store error before the path that could not be written.
const PATH_FOLLOWS: &str = " bytes of /";

/// Word of a quota, which is of the user or the job and not of a machine.
const QUOTA: &str = "quota";

/// Blames the node of a full file system, or the file system that several nodes share.
pub(crate) fn blame(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    if scene.is_of_logs() || !scene.has_fault_ends {
        return;
    }
    for candidate in ranking {
        let is_placed = matches!(candidate.blamed, Entity::Rank { .. } | Entity::Job { .. });
        if candidate.class.as_str() == classes::DISK_FULL && is_placed && candidate.shared.is_none() {
            blame_place(scene, candidate);
        }
    }
}

fn blame_place(scene: &FailureScene<'_>, candidate: &mut CauseCandidate) {
    let reports: Vec<&Signal> = candidate.support.iter().map(|index| &*scene.signs[index]).collect();
    let nodes: BTreeSet<&NodeId> = reports.iter().filter_map(|sign| sign.node()).collect();
    let is_quota = reports
        .iter()
        .any(|sign| sign.text.to_ascii_lowercase().contains(QUOTA));
    let Some(first) = nodes.first().filter(|_| !is_quota) else {
        return;
    };
    let is_store = reports.iter().all(|sign| is_lost_shard(sign));
    let of_job: BTreeSet<&NodeId> = scene.placements.values().collect();
    if nodes.len() > 1 || is_store && of_job.len() > 1 {
        let path = reports.iter().find_map(|sign| unwritten_path(&sign.text));
        candidate.shared = Some(shared_storage(scene, is_store, path));
        candidate.blamed = Entity::Unknown;
        candidate.root_rank = None;
    } else {
        candidate.notes.push(reach(scene, first, &reports, of_job.len()));
        candidate.blamed = Entity::Node { node: (*first).clone() };
    }
}

/// Returns a sentence about the nodes that the file system may belong to. One node that reports it shows a file system of that
/// node only if ranks of another node wrote to the same folder without a complaint.
fn reach(scene: &FailureScene<'_>, node: &NodeId, reports: &[&Signal], nodes_of_job: usize) -> String {
    if nodes_of_job < 2 {
        return format!(
            "All ranks of the job ran on node {node}, so the full file system may be one of that node or one that nodes \
             share."
        );
    }
    let folders: BTreeSet<&str> = reports.iter().filter_map(|sign| folder_of(&sign.text)).collect();
    let is_other = |sign: &Signal| sign.node().is_some_and(|other| other != node);
    let writes = |sign: &Signal| folders.iter().any(|folder| sign.text.contains(folder));
    if scene.signs.iter().any(|sign| is_other(sign) && writes(sign)) {
        return format!(
            "Only node {node} reports it, and a rank of another node used the same folder, so the full file system is one of \
             that node."
        );
    }
    format!(
        "Only node {node} reports it. Nothing shows that ranks of other nodes wrote there, so the full file system may be one \
         of that node or one that nodes share."
    )
}

/// Returns the folder of the first absolute path in a message, with the slash at its end.
fn folder_of(text: &str) -> Option<&str> {
    let mut words = text.split([' ', '\'', '"', '`', ',', '(', ')', ';']);
    let path = words.find(|word| word.len() > 1 && word.starts_with('/'))?;
    let end = path.rfind('/').filter(|end| *end > 0)?;
    Some(&path[..=end])
}

/// Returns the path of a store error.
fn unwritten_path(text: &str) -> Option<&str> {
    let start = text.find(PATH_FOLLOWS)? + PATH_FOLLOWS.len() - 1;
    let rest = &text[start..];
    Some(&rest[..rest.find(';').unwrap_or(rest.len())])
}

fn shared_storage(scene: &FailureScene<'_>, is_store: bool, path: Option<&str>) -> String {
    // The folder of a job lies in the store.
    let store = match (path, scene.job) {
        (Some(path), Some(job)) => path.find(&format!("/{job}/")).map(|end| &path[..end]),
        _ => None,
    };
    match (is_store, store) {
        (true, Some(store)) => format!("the checkpoint store {store}"),
        (true, None) => "the checkpoint store".to_owned(),
        (false, _) => "a file system that the nodes of the job share".to_owned(),
    }
}
