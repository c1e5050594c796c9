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
        candidate.notes.push(format!(
            "Only node {first} reports it, so the full file system is one of that node."
        ));
        candidate.blamed = Entity::Node { node: (*first).clone() };
    }
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
