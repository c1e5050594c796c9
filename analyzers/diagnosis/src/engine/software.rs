//! Engine for programs, their data, libraries, storage and platform: failures that a log names explicitly.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{EXIT_MESSAGE, Entity, EvidenceSource, Rank};

use super::{FailureFamily, confidence, roots};
use crate::signalled_ranks::struck_rank;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

pub(super) fn candidates(scene: &FailureScene<'_>, all: &mut Vec<CauseCandidate>) {
    let mut groups: BTreeMap<&str, Vec<(usize, &Signal)>> = BTreeMap::new();
    for (index, sign) in roots(scene, FailureFamily::Software) {
        if let Some(class) = sign.class() {
            groups.entry(class.as_str()).or_default().push((index, sign));
        }
    }
    all.extend(
        groups
            .into_iter()
            .filter_map(|(class, signs)| candidate(scene, class, &signs)),
    );
}

fn candidate(scene: &FailureScene<'_>, class: &str, signs: &[(usize, &Signal)]) -> Option<CauseCandidate> {
    let (first, earliest) = *signs.first()?;
    let score = signs.iter().map(|(_, sign)| confidence(sign)).fold(0.0, f64::max);
    let ranks: BTreeSet<Rank> = signs.iter().filter_map(|(_, sign)| sign.rank()).collect();
    let blamed = match (&earliest.entity, earliest.source) {
        (
            machine @ (Entity::Device { .. } | Entity::Node { .. }),
            EvidenceSource::KernelLog | EvidenceSource::Host | EvidenceSource::Gpu,
        ) => machine.clone(),
        // The same message from several ranks concerns the program, not the ranks.
        _ if ranks.len() > 1 => scene.job_entity(),
        _ => match earliest.rank() {
            Some(rank) => scene.rank_entity(rank, earliest.node()),
            None => scene.job_entity(),
        },
    };
    // An exception of unknown meaning, or a lost helper process, shows how a failure surfaced and not its cause.
    let strength = match class {
        "uncaught-exception" | "dataloader-worker-crash" => CandidateStrength::Symptom,
        _ => CandidateStrength::Cause,
    };
    let is_message = signs.iter().all(|(_, sign)| sign.is_signed(EXIT_MESSAGE));
    let (strength, score) = if is_message && ended_before(scene, earliest, &ranks) {
        // Survivors of a failure end with a message too.
        (CandidateStrength::Outcome, score.min(0.2))
    } else {
        (strength, score)
    };
    let mut candidate = CauseCandidate::new(class, blamed, first, strength, score);
    if is_message {
        candidate.notes.push(format!(
            "The program ended itself with exit code {} and wrote no traceback; its last line on standard error is shown.",
            earliest.field("exit").unwrap_or("1")
        ));
    }
    candidate.support.extend(signs.iter().map(|(index, _)| *index));
    // Without clocks the order of streams is unknown; a truncated traceback of another rank may be the same failure.
    let another = scene.marks().any(|(_, sign)| {
        sign.class().is_some_and(|class| class.as_str() == "uncaught-exception")
            && sign.rank().is_some_and(|rank| Some(rank) != earliest.rank())
    });
    let ordered = (ranks.len() < 2 && !another) || signs.iter().all(|(_, sign)| sign.timed);
    candidate.root_rank = if ordered { earliest.rank() } else { None };
    if ranks.len() > 1 {
        let whose = if scene.known(first).is_some_and(|class| class.is_program()) {
            "the program, its data or its configuration"
        } else {
            "what the ranks share"
        };
        let note = format!(
            "{} ranks report the same, which points to {whose} rather than to one rank.",
            ranks.len()
        );
        candidate.notes.push(note);
    }
    let exits: Vec<usize> = scene
        .exits()
        .filter(|(_, sign, ..)| sign.rank().is_some_and(|rank| Some(rank) == candidate.root_rank))
        .map(|(index, ..)| index)
        .collect();
    if let Some(rank) = candidate.root_rank {
        candidate.confirm(exits, || format!("Rank {rank} ended after its own report."));
    }
    Some(candidate)
}

/// Returns true if a rank without a message of its own was ended by a signal, or ended before the message.
fn ended_before(scene: &FailureScene<'_>, message: &Signal, ranks: &BTreeSet<Rank>) -> bool {
    if struck_rank(scene).is_some() {
        return true;
    }
    let mut others = scene
        .exits()
        .filter(|(_, sign, ..)| sign.rank().is_some_and(|rank| !ranks.contains(&rank)));
    others.any(|(_, sign, ..)| sign.timed && message.timed && sign.at < message.at)
}
