//! Engine for silent nodes.

use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{Entity, NodeId, Role, Timestamp};

use super::FailureFamily;
use crate::exit_class::{is_crash, is_kill};
use crate::own_exceptions::reports_own_error;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal, SignalMeaning};

/// Longest time from the complaint of a peer to the last report of the silent node.
const NEAR: Duration = Duration::from_secs(10);
/// Difference of clocks up to which a report counts as earlier.
const CLOCKS: Duration = Duration::from_secs(2);

/// Layer of an agent that was silent while its node ran on.
const AGENT_LAYER: &str = "platform";

/// Score of an agent with a closed connection: a network may close connections as well.
const ENDED_SCORE: f64 = 0.7;

/// Treats the silence of a node as a crash if peers complain or the node was started again; otherwise only the agent may
/// be silent. So it is if the agent returned on the same boot, or its connection was closed. A node that reported its end
/// before is in maintenance. Under older rules, the silence of a node with ranks was a crash as well.
pub(super) fn candidates(scene: &FailureScene<'_>, all: &mut Vec<CauseCandidate>) {
    all.extend(scene.silent().filter_map(|(index, sign)| {
        let node = sign.node()?;
        if let Some(announced) = announced_end(scene, node, sign.at) {
            return Some(maintenance(node, announced, index));
        }
        let ranks = scene.ranks_on(node);
        let complaints = complaints(scene, node, sign.at);
        let has_returned = has_meaning(scene, node, &SignalMeaning::AgentReturned);
        let has_ended = has_meaning(scene, node, &SignalMeaning::AgentEnded);
        // An agent that ended before is not the crash of its node.
        let has_rebooted = !has_ended && has_meaning(scene, node, &SignalMeaning::NodeRebooted);
        let may_run_on = ranks.is_empty() || scene.distinguishes_ends();
        let is_agent = !has_rebooted && (has_returned || has_ended || may_run_on && complaints.is_empty());
        let class = if is_agent {
            classes::NODE_AGENT_SILENT
        } else {
            classes::NODE_CRASH
        };
        let mut candidate = CauseCandidate::new(
            class,
            Entity::Node { node: node.clone() },
            index,
            CandidateStrength::Overriding,
            if has_ended && !has_returned { ENDED_SCORE } else { 0.8 },
        );
        candidate.root_rank = ranks.first().copied();
        let before = candidate.support.clone();
        let note = || "Ranks on other nodes lost their peers at about the same time.".to_owned();
        candidate.confirm(complaints, note);
        // The complaints raise the confidence, but they remain consequences.
        candidate.support = before;
        if has_rebooted {
            let note = "The node reports again on another boot, so it had stopped.";
            candidate.notes.push(note.to_owned());
            let same = scene.silent().filter(|(_, other)| other.node() == Some(node));
            candidate.support.extend(same.map(|(index, _)| index));
        } else if has_returned {
            let note = "The agent returned on the same boot, so the node itself did not crash.";
            candidate.notes.push(note.to_owned());
        }
        if has_ended && !has_returned {
            let note = "Its connection was closed, as the kernel does for a process that ends: the agent ended, and \
                        the node itself may run on.";
            candidate.notes.push(note.to_owned());
        }
        if (has_returned || has_ended) && !has_rebooted && scene.has_fault_limits {
            candidate.layer = Some(AGENT_LAYER.to_owned());
            // The reports of one silence do not follow from each other.
            let same = scene.silent().filter(|(_, other)| other.node() == Some(node));
            candidate.support.extend(same.map(|(index, _)| index));
        }
        Some(candidate)
    }));
}

/// Returns true if a silence of a node has this meaning.
fn has_meaning(scene: &FailureScene<'_>, node: &NodeId, what: &SignalMeaning) -> bool {
    let mut silences = scene.silent();
    silences.any(|(_, sign)| sign.what == *what && sign.node() == Some(node))
}

/// Returns the signs of other nodes that show the loss of a peer: complaints about connections and collectives, and
/// ranks that ended.
fn complaints(scene: &FailureScene<'_>, node: &NodeId, silent_at: Timestamp) -> Vec<usize> {
    let is_near = |sign: &Signal| !sign.timed || silent_at.since(sign.at) <= NEAR;
    let is_complaint = |index: usize, sign: &Signal| match sign.mark() {
        _ if !scene.has_cause_limits => true,
        None => sign.exit().is_some() && is_near(sign) && !ended_for_itself(scene, sign),
        Some(mark) => mark.role != Role::Noise && scene.family(index) == Some(FailureFamily::Fabric) && is_near(sign),
    };
    let elsewhere = scene
        .each()
        .filter(|(_, other)| other.node().is_some_and(|other| other != node));
    elsewhere
        .filter(|(index, other)| is_complaint(*index, other))
        .map(|(index, _)| index)
        .collect()
}

/// Returns true for the end of a rank that the loss of a peer does not cause: a crash, a kill, an error of its own.
fn ended_for_itself(scene: &FailureScene<'_>, end: &Signal) -> bool {
    let is_struck = end.exit().is_some_and(|(_, exit)| is_crash(exit) || is_kill(exit));
    scene.distinguishes_ends() && (is_struck || reports_own_error(scene, end))
}

/// Returns the sign with which a node reported its end before it became silent, by clocks that may differ.
fn announced_end(scene: &FailureScene<'_>, node: &NodeId, silent_at: Timestamp) -> Option<usize> {
    let is_announced = |sign: &Signal| {
        let has_class = sign.class().is_some_and(|class| class.as_str() == classes::MAINTENANCE);
        let mark = sign.mark().filter(|mark| mark.role != Role::Noise);
        has_class && mark.is_some() && matches!(&sign.entity, Entity::Node { node: of } if of == node)
    };
    let mut marks = scene.marks().filter(|_| scene.has_cause_limits);
    marks
        .find(|(_, sign)| is_announced(sign) && sign.at <= silent_at.after(CLOCKS))
        .map(|(index, _)| index)
}

fn maintenance(node: &NodeId, announced: usize, silence: usize) -> CauseCandidate {
    let mut candidate = CauseCandidate::new(
        classes::MAINTENANCE,
        Entity::Node { node: node.clone() },
        announced,
        CandidateStrength::Overriding,
        0.9,
    );
    candidate.confirm([silence], || {
        "The node reported its end, and then it became silent.".to_owned()
    });
    candidate
}
