//! Programs, files and packages that lack on one node and not on others.
//!
//! All ranks of a job run the same command. If the interpreter of a rank cannot open the program, and ranks on other nodes
//! run it, the node lacks the file: a mount or a staged copy is missing there. The program and its settings are the same
//! on all nodes. If all ranks of a node, at least two, miss a file or a package, and no rank of another node reports it, the
//! node is blamed as well; the controller corrects that if another node lacks the same.

use std::collections::BTreeSet;

use rankguard_faults::classes;
use rankguard_model::{Entity, EvidenceSource, NodeId, Rank};

use crate::engine::lacking_node;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Layer of a node that lacks a file.
const LAYER: &str = "storage";
/// Layer of a node that lacks a package or a permission.
const PLATFORM_LAYER: &str = "platform";
/// Classes of failures for which a node may lack a file.
const FILES: [&str; 3] = [
    classes::DATA_MISSING,
    classes::FILESYSTEM_MOUNT_MISSING,
    classes::FILE_NOT_FOUND,
];
/// Classes of failures for which a node may lack a part of its environment.
const ENVIRONMENTS: [&str; 3] = [
    classes::IMPORT_ERROR,
    classes::LIBRARY_MISSING,
    classes::PERMISSION_DENIED,
];
/// Signature of an agent's report about what a rank does, and the field with its state.
const ACTIVITY: &str = "ranks.activity";
const STATE_FIELD: &str = "state";
/// States of a rank that runs its program.
const RUNNING: [&str; 2] = ["output", "busy"];

/// Blames the node on which the program of a job lacks, if ranks on other nodes run it.
pub(crate) fn blame_node(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    if !scene.distinguishes_ends() {
        return;
    }
    let is_lack = |candidate: &CauseCandidate| {
        candidate.class.as_str() == classes::FILE_NOT_FOUND
            && candidate.strength == CandidateStrength::Cause
            && lacks_program(&scene.signs[candidate.first])
    };
    let Some(at) = ranking.iter().position(is_lack) else {
        return;
    };
    let lacking: BTreeSet<&NodeId> = scene
        .marks()
        .filter(|(_, sign)| lacks_program(sign))
        .filter_map(|(_, sign)| sign.node())
        .collect();
    let (Some(node), 1) = (lacking.first().copied(), lacking.len()) else {
        return;
    };
    let others: BTreeSet<Rank> = scene
        .marks()
        .filter(|(_, sign)| runs_program(sign) && sign.node() != Some(node))
        .filter_map(|(_, sign)| sign.entity.rank())
        .collect();
    if others.is_empty() {
        return;
    }
    let names: Vec<String> = others.iter().map(ToString::to_string).collect();
    let (noun, verb) = if names.len() == 1 {
        ("rank", "runs")
    } else {
        ("ranks", "run")
    };
    let candidate = &mut ranking[at];
    candidate.blamed = Entity::Node { node: node.clone() };
    candidate.layer = Some(LAYER.to_owned());
    candidate.notes.push(format!(
        "The same program on other nodes was found ({noun} {} {verb} it), so node {node} lacks the file: a mount or a copy is \
         missing there.",
        names.join(", ")
    ));
}

/// Blames the node of which all ranks report that a file or a part of the environment lacks, if no rank of another node
/// does.
pub(crate) fn blame_lacking_node(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    if !scene.distinguishes_ends() {
        return;
    }
    for candidate in ranking {
        let class = candidate.class.as_str();
        let Some(layer) = layer_of(class).filter(|_| candidate.strength == CandidateStrength::Cause) else {
            continue;
        };
        let support = candidate.support.iter().map(|index| &*scene.signs[index]);
        let signs: Vec<&Signal> = support.filter(|sign| sign.class() == Some(&candidate.class)).collect();
        if let Some(node) = lacking_node(scene, class, &signs) {
            candidate.blamed = Entity::Node { node };
            candidate.layer = Some(layer.to_owned());
        }
    }
}

fn layer_of(class: &str) -> Option<&'static str> {
    if FILES.contains(&class) {
        Some(LAYER)
    } else {
        ENVIRONMENTS.contains(&class).then_some(PLATFORM_LAYER)
    }
}

/// Returns the node that a candidate blames for what its ranks miss there.
pub(crate) fn node_that_lacks<'c>(scene: &FailureScene<'_>, candidate: &'c CauseCandidate) -> Option<&'c NodeId> {
    let first = &scene.signs[candidate.first];
    let is_own = first.source == EvidenceSource::JobLog && first.entity.rank().is_some();
    let is_lack = scene.distinguishes_ends() && is_own && layer_of(candidate.class.as_str()).is_some();
    match &candidate.blamed {
        Entity::Node { node } if is_lack => Some(node),
        _ => None,
    }
}

/// Returns true for the message of an interpreter that its program does not exist: `python3: can't open file '/srv/a.py':
/// [Errno 2] No such file or directory`.
fn lacks_program(sign: &Signal) -> bool {
    let is_own = sign.source == EvidenceSource::JobLog && sign.entity.rank().is_some();
    is_own && reports_missing_program(&sign.text)
}

/// Returns true for the text of such a message.
pub fn reports_missing_program(text: &str) -> bool {
    text.contains("can't open file '") && text.contains("[Errno 2]")
}

fn runs_program(sign: &Signal) -> bool {
    sign.is_signed(ACTIVITY) && sign.field(STATE_FIELD).is_some_and(|state| RUNNING.contains(&state))
}
