//! Channels that the driver of a GPU tears down because of an earlier event of the same GPU (XID 45).
//!
//! The message names the event: `Ch 00000001 caused by previous Xid 149`. The order in which channels are torn down is not
//! the order of the events, so of several GPUs with such messages alone none is known as the first. None of them follows
//! from the message of another GPU.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_model::{ClassId, Entity, NodeId};

use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Field with the number of the earlier XID.
const EARLIER_FIELD: &str = "caused_by";
/// Maximum time between the messages of several GPUs about one failure.
const TOGETHER: Duration = Duration::from_secs(60);

/// Returns the number of the earlier XID that a message names as its cause.
pub(crate) fn earlier_xid(sign: &Signal) -> Option<&str> {
    sign.field(EARLIER_FIELD)
}

/// Blames the node for equal faults of several of its GPUs, if only messages about torn channels report them.
pub(crate) fn join(scene: &FailureScene<'_>, ranking: &mut Vec<CauseCandidate>) {
    if !scene.has_fault_ends {
        return;
    }
    let mut groups: BTreeMap<(ClassId, NodeId), Vec<usize>> = BTreeMap::new();
    for (at, candidate) in ranking.iter().enumerate() {
        if let Some(node) = candidate.blamed.node()
            && is_fault_of_device(candidate)
        {
            let key = (candidate.class.clone(), node.clone());
            groups.entry(key).or_default().push(at);
        }
    }
    let mut merged: Vec<usize> = Vec::new();
    for ((_, node), mut group) in groups {
        group.sort_by_key(|at| ranking[*at].first);
        let first = &scene.signs[ranking[group[0]].first];
        let is_near = |at: &usize| {
            let other = &scene.signs[ranking[*at].first];
            !(first.timed && other.timed) || other.at.since(first.at) <= TOGETHER
        };
        // The event itself, where a line shows it, names a GPU.
        let is_torn = group.iter().all(|at| is_of_torn_channels(scene, &ranking[*at]));
        group.retain(is_near);
        if !is_torn || group.len() < 2 {
            continue;
        }
        let others = group.split_off(1);
        let support: Vec<usize> = others.iter().flat_map(|at| ranking[*at].support.iter()).collect();
        let candidate = &mut ranking[group[0]];
        candidate.blamed = Entity::Node { node };
        candidate.root_rank = None;
        candidate.support.extend(support);
        candidate.notes.push(format!(
            "{} GPUs of the node report it, each because of an earlier XID of its own, which no line shows: which of them was \
             first is not known.",
            others.len() + 1
        ));
        merged.extend(others);
    }
    merged.sort_unstable();
    for at in merged.into_iter().rev() {
        ranking.remove(at);
    }
}

fn is_fault_of_device(candidate: &CauseCandidate) -> bool {
    candidate.strength == CandidateStrength::Overriding && matches!(candidate.blamed, Entity::Device { .. })
}

/// Returns true if a candidate rests only on messages that name an earlier event as their cause.
fn is_of_torn_channels(scene: &FailureScene<'_>, candidate: &CauseCandidate) -> bool {
    let mut marks = candidate.support.iter().map(|index| &scene.signs[index]);
    marks.all(|sign| sign.exit().is_some() || earlier_xid(sign).is_some())
}
