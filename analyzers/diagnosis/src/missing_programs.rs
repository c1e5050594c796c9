//! Programs that lack on one node and run on others.
//!
//! All ranks of a job run the same command. If the interpreter of a rank cannot open the program, and ranks on other nodes
//! run it, the node lacks the file: a mount or a staged copy is missing there. The program and its settings are the same
//! on all nodes.

use std::collections::BTreeSet;

use rankguard_faults::classes;
use rankguard_model::{Entity, EvidenceSource, NodeId, Rank};

use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Layer of a node that lacks a file.
const LAYER: &str = "storage";
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

/// Returns true for the message of an interpreter that its program does not exist: `python3: can't open file '/srv/a.py':
/// [Errno 2] No such file or directory`.
fn lacks_program(sign: &Signal) -> bool {
    let is_own = sign.source == EvidenceSource::JobLog && sign.entity.rank().is_some();
    is_own && sign.text.contains("can't open file '") && sign.text.contains("[Errno 2]")
}

fn runs_program(sign: &Signal) -> bool {
    sign.is_signed(ACTIVITY) && sign.field(STATE_FIELD).is_some_and(|state| RUNNING.contains(&state))
}
