//! Engine for silent nodes.

use rankguard_model::Entity;

use crate::{CandidateStrength, CauseCandidate, FailureScene};

/// Treats the silence of a node with ranks, or with complaining peers, as a crash; otherwise only the agent
/// may be silent.
pub(super) fn candidates(scene: &FailureScene<'_>, all: &mut Vec<CauseCandidate>) {
    all.extend(scene.silent().filter_map(|(index, sign)| {
        let node = sign.node()?;
        let ranks = scene.ranks_on(node);
        let complaints: Vec<usize> = scene
            .each()
            .filter(|(_, other)| other.node().is_some_and(|other| other != node))
            .map(|(index, _)| index)
            .collect();
        let class = if ranks.is_empty() && complaints.is_empty() {
            "node-agent-silent"
        } else {
            "node-crash"
        };
        let mut candidate = CauseCandidate::new(
            class,
            Entity::Node { node: node.clone() },
            index,
            CandidateStrength::Overriding,
            0.8,
        );
        candidate.root_rank = ranks.first().copied();
        let before = candidate.support.clone();
        let note = || "Ranks on other nodes lost their peers at about the same time.".to_owned();
        candidate.confirm(complaints, note);
        // The complaints raise the confidence, but they remain consequences.
        candidate.support = before;
        Some(candidate)
    }));
}
