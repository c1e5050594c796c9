//! Arbiter: chooses one verdict among the candidates of all engines.

use std::cmp::Ordering;
use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{
    CaseFinding, ClassId, Entity, EvidenceId, EvidenceSource, ReasoningEntry, Severity, Timestamp, Verdict,
};

use crate::independent::is_independent;
use crate::job_numbers::are_of_different_jobs;
use crate::knowledge::ClassEntry;
use crate::named_losses::named_pod;
use crate::own_fault::{is_own_end, kills_no_rank};
use crate::waited_before::waited_before;
use crate::{
    CandidateStrength, CauseCandidate, FailureScene, Signal, consequences, engine, first_rank, full_storage,
    machine_states, missing_programs, mitigation, named_servers, published_categories, reasoning, refine, roles,
    shared_part, shared_services, signature, storage, timed_out_ranks, unordered, wrappers,
};

/// Delay after the first failure beyond which a machine fault did not start it. Logs of different collectors are read
/// and stamped with some delay, so a shorter lag proves nothing.
const HARDWARE_LAG: Duration = Duration::from_secs(10);

/// Distance beyond which events are unrelated: a log that was read as a whole covers weeks.
const UNRELATED: Duration = Duration::from_secs(3600);

/// Result of weighing one scene.
#[derive(Debug, Clone, PartialEq)]
pub struct SceneVerdict {
    pub verdict: Verdict,
    /// All evidence with its role, first cause first.
    pub findings: Vec<CaseFinding>,
    /// Reasoning log for the person on call.
    pub reasoning: Vec<ReasoningEntry>,
    /// Clearing condition (RG-10).
    pub clears: String,
    /// Signature under which a repeated failure is recognised as the same.
    pub signature: String,
    /// Failure in one line: location and message of the program, or blamed entity and class.
    pub headline: String,
    /// Reports of waits that began long before the first cause, which does not explain them.
    pub earlier_waits: Vec<EvidenceId>,
    /// Strength of the winning candidate; below [`Strength::Cause`] the draft waits for more evidence.
    pub strength: CandidateStrength,
}

/// Class of a failure that no candidate explains.
pub(crate) const UNKNOWN: &str = classes::UNKNOWN;

/// Weighs a scene as known at `now`.
pub fn diagnose(scene: &FailureScene<'_>, now: Timestamp) -> SceneVerdict {
    opinion(scene, &ranking(scene), now)
}

/// Weighs a scene as known at `now`, with a limit for the confidence of a verdict that rests on a sign.
pub fn diagnose_within(scene: &FailureScene<'_>, now: Timestamp, limit: impl Fn(&Signal) -> f64) -> SceneVerdict {
    limited_opinion(scene, &ranking(scene), now, limit)
}

/// Returns all candidates, best first; the first is the cause that [`diagnose`] names. Empty if nothing explains the
/// scene.
pub(crate) fn ranking(scene: &FailureScene<'_>) -> Vec<CauseCandidate> {
    let mut ranking = beside_each_other(scene);
    ranking.sort_by(|one, other| better(scene, one, other));
    ranking
}

/// Returns true if the log of a rank reports that a process was killed, such as the shell that started it, and the rank
/// ended; in logs without agents, if a rank was killed.
fn reports_own_end(scene: &FailureScene<'_>, winner: &CauseCandidate) -> bool {
    let is_class = winner.class.as_str() == classes::KILLED_BY_SIGNAL;
    // In logs that are read later, a launcher reports the end of a rank that it names.
    if scene.is_of_logs() {
        return is_class;
    }
    let is_kill = scene.distinguishes_ends() && is_class;
    let writer = scene.signs[winner.first].entity.rank().filter(|_| is_kill);
    writer.is_some() && winner.root_rank == writer && scene.exits().any(|(_, end, ..)| end.rank() == writer)
}

/// Builds the opinion of a scene from its ranked candidates.
pub(crate) fn opinion(scene: &FailureScene<'_>, ranking: &[CauseCandidate], now: Timestamp) -> SceneVerdict {
    limited_opinion(scene, ranking, now, |_| 1.0)
}

fn limited_opinion(
    scene: &FailureScene<'_>,
    ranking: &[CauseCandidate],
    now: Timestamp,
    limit: impl Fn(&Signal) -> f64,
) -> SceneVerdict {
    let Some(winner) = ranking.first() else {
        return unknown(scene, now);
    };
    let beside = |candidate: &&CauseCandidate| {
        let is_of_another_job =
            || scene.has_fault_ends && are_of_different_jobs(&scene.signs[winner.first], &scene.signs[candidate.first]);
        candidate.first != winner.first
            && (is_independent(scene, winner, candidate.first)
                || waited_before(scene, winner, candidate.first)
                || is_of_another_job())
    };
    // A failure of its own is no other explanation of this one.
    let explanations: Vec<CauseCandidate> = ranking.iter().filter(|candidate| !beside(candidate)).cloned().collect();
    let confidence = certainty(winner, &explanations);
    let known = ClassEntry::of(scene.catalogue, &winner.class);
    // The end of a supervised process is that of its rank, also where its class means something else in a log.
    let is_end = scene.has_fault_limits && scene.signs[winner.first].exit().is_some() || reports_own_end(scene, winner);
    let own = winner.root_rank.filter(|_| known.has_first_rank() || is_end);
    let root_rank = match own {
        Some(rank) => Some(rank).filter(|rank| !first_rank::is_one_of_several(scene, *rank, known)),
        None => first_rank::launcher_hint(scene, winner, known),
    };
    let limited = confidence.min(limit(&scene.signs[winner.first]));
    // A kill on another node that ended no rank explains nothing, as its finding states.
    let is_elsewhere = |candidate: &CauseCandidate| {
        let (first, sign) = (&scene.signs[winner.first], &scene.signs[candidate.first]);
        candidate.first != winner.first && kills_no_rank(scene, sign) && first.node() != sign.node()
    };
    let possible = || explanations.iter().filter(|candidate| !is_elsewhere(candidate));
    let mut alternatives = alternatives(possible(), confidence);
    for (_, share) in &mut alternatives {
        *share = share.min(limited);
    }
    let of_server = named_servers::only_named(scene, winner);
    let verdict = Verdict {
        layer: winner.layer.clone().unwrap_or_else(|| known.layer().to_owned()),
        severity: severity(scene, known),
        blamed: if of_server.is_some() {
            Entity::Unknown
        } else {
            winner.blamed.clone()
        },
        blamed_part: of_server.clone().or_else(|| blamed_part(scene, winner)),
        root_rank,
        first_cause: scene.signs.get(winner.first).map(|sign| sign.evidence.clone()),
        confidence: limited,
        taxonomies: published_categories::of_cause(scene, winner, known),
        mitigation: mitigation::of_cause(scene, winner, known),
        alternatives,
        class: winner.class.clone(),
    };
    SceneVerdict {
        findings: roles::findings(scene, winner),
        reasoning: reasoning::note(
            scene,
            &named_servers::with_note(winner, of_server.as_deref()),
            &verdict,
            now,
        ),
        clears: mitigation::clears_of(scene, winner, known),
        signature: signature::of(known, &verdict, &scene.signs[winner.first]),
        headline: signature::headline(known, &verdict, &scene.signs[winner.first]),
        earlier_waits: earlier_waits(scene, winner),
        strength: winner.strength,
        verdict,
    }
}

/// Returns the blamed part in words, if no entity of the cluster is to blame.
fn blamed_part(scene: &FailureScene<'_>, winner: &CauseCandidate) -> Option<String> {
    let first = &scene.signs[winner.first];
    let is_part_of_job = match &winner.blamed {
        Entity::Job { .. } => true,
        // The kubelet of a node reports on the pods there.
        Entity::Node { .. } => scene
            .known(winner.first)
            .is_some_and(|known| known.layer() != "hardware"),
        _ => false,
    };
    if scene.is_of_logs() && is_part_of_job && winner.root_rank.is_none() && first.source != EvidenceSource::Host {
        return named_pod(first);
    }
    let port = || scene.signs[winner.first].switch_port();
    let part = winner.shared.clone().or_else(port);
    part.filter(|_| winner.blamed == Entity::Unknown)
}

fn earlier_waits(scene: &FailureScene<'_>, winner: &CauseCandidate) -> Vec<EvidenceId> {
    let waits = scene.marks().filter(|(index, _)| waited_before(scene, winner, *index));
    waits.map(|(_, sign)| sign.evidence.clone()).collect()
}

/// Returns the candidates in engine order, with their strengths adjusted to each other.
fn beside_each_other(scene: &FailureScene<'_>) -> Vec<CauseCandidate> {
    let mut ranking = engine::candidates(scene);
    for candidate in &mut ranking {
        refine::refine(scene, candidate);
        storage::weigh(scene, candidate);
    }
    let late: Vec<bool> = ranking
        .iter()
        .map(|candidate| is_late(scene, &ranking, candidate))
        .collect();
    for candidate in ranking
        .iter_mut()
        .zip(late)
        .filter_map(|(candidate, late)| late.then_some(candidate))
    {
        candidate.strength = CandidateStrength::Cause;
        candidate.score *= 0.5;
    }
    wrappers::demote_wrappers(scene, &mut ranking);
    consequences::weigh(scene, &mut ranking);
    unordered::blame_first_error(scene, &mut ranking);
    shared_part::blame(scene, &mut ranking);
    timed_out_ranks::note(scene, &mut ranking);
    missing_programs::blame_lacking_node(scene, &mut ranking);
    missing_programs::blame_node(scene, &mut ranking);
    machine_states::blame(scene, &mut ranking);
    shared_services::blame(scene, &mut ranking);
    full_storage::blame(scene, &mut ranking);
    ranking
}

/// Returns true for a machine fault that came after the first failure of the program.
fn is_late(scene: &FailureScene<'_>, ranking: &[CauseCandidate], fault: &CauseCandidate) -> bool {
    if fault.strength != CandidateStrength::Overriding {
        return false;
    }
    let causes = ranking
        .iter()
        .filter(|candidate| candidate.strength == CandidateStrength::Cause && !foretells(scene, candidate, fault));
    let first = causes.map(|candidate| &scene.signs[candidate.first]);
    let first = first.filter(|sign| sign.timed).map(|sign| sign.at).min();
    let sign = &scene.signs[fault.first];
    first.is_some_and(|first| sign.timed && sign.at.since(first) > HARDWARE_LAG && sign.at.since(first) < UNRELATED)
}

/// Returns true if a candidate rests on an engine exception of the device that failed afterwards: such an exception is
/// the program's, unless the device itself failed.
fn foretells(scene: &FailureScene<'_>, candidate: &CauseCandidate, fault: &CauseCandidate) -> bool {
    let is_exception = |sign: &Signal| {
        sign.entity == fault.blamed
            && sign
                .class()
                .is_some_and(|class| class.as_str() == classes::GPU_ENGINE_EXCEPTION)
    };
    let is_device = matches!(fault.blamed, Entity::Device { .. });
    scene.has_fault_limits && is_device && candidate.support.iter().any(|index| is_exception(&scene.signs[index]))
}

/// Orders a real fault before a drill: the drill is understood, and the fault needs a repair.
fn real_first(scene: &FailureScene<'_>, one: &CauseCandidate, other: &CauseCandidate) -> Ordering {
    let is_real = |candidate: &CauseCandidate, drill: &CauseCandidate| {
        let is_real = || is_real_fault(scene, candidate) || is_own_end(scene, drill, candidate.first);
        scene.signs[drill.first].synthetic && is_real()
    };
    is_real(other, one).cmp(&is_real(one, other))
}

/// Returns true for a real fault that no drill causes: one of hardware, or an out-of-memory kill of a rank that the
/// kernel names.
fn is_real_fault(scene: &FailureScene<'_>, candidate: &CauseCandidate) -> bool {
    let sign = &scene.signs[candidate.first];
    let is_hardware = candidate.strength == CandidateStrength::Overriding
        && scene
            .known(candidate.first)
            .is_some_and(|known| known.is_outright_fault());
    let is_oom = candidate.strength >= CandidateStrength::Cause
        && candidate.class.as_str() == classes::HOST_OOM_KILL
        && candidate.root_rank.is_some();
    scene.has_fault_limits && (is_hardware || is_oom) && sign.is_root_mark() && !sign.synthetic
}

fn better(scene: &FailureScene<'_>, one: &CauseCandidate, other: &CauseCandidate) -> Ordering {
    real_first(scene, one, other)
        .then_with(|| other.strength.cmp(&one.strength))
        .then_with(|| weight(scene, other).total_cmp(&weight(scene, one)))
        .then_with(|| one.first.cmp(&other.first))
        .then_with(|| one.class.cmp(&other.class))
}

/// Returns the score with a small bonus for being early: the first event is more often the cause than the last.
fn weight(scene: &FailureScene<'_>, candidate: &CauseCandidate) -> f64 {
    let position = candidate.first as f64 / scene.signs.len().max(1) as f64;
    candidate.score - 0.05 * position
}

fn certainty(winner: &CauseCandidate, ranking: &[CauseCandidate]) -> f64 {
    let cap = match winner.strength {
        CandidateStrength::Overriding => 0.99,
        CandidateStrength::Cause => 0.95,
        CandidateStrength::Symptom => 0.6,
        CandidateStrength::Outcome => 0.4,
    };
    let rival = ranking
        .iter()
        .skip(1)
        .find(|other| other.class != winner.class && other.strength == winner.strength)
        .map_or(0.0, |other| other.score);
    // A rival of the same strength with nearly the same score reduces the certainty.
    let doubt = (rival - winner.score + 0.2).clamp(0.0, 0.2);
    ((winner.score - doubt).clamp(0.05, cap) * 100.0).round() / 100.0
}

/// Returns the other classes, best first. The ranking is by strength, which a share does not include.
fn alternatives<'c>(mut ranking: impl Iterator<Item = &'c CauseCandidate>, confidence: f64) -> Vec<(ClassId, f64)> {
    let mut others: Vec<(ClassId, f64)> = Vec::new();
    let Some(winner) = ranking.next() else { return others };
    for candidate in ranking {
        let known = candidate.class == winner.class || others.iter().any(|(class, _)| *class == candidate.class);
        if !known && others.len() < 4 {
            let share = (candidate.score * (1.0 - confidence) * 100.0).round() / 100.0;
            others.push((candidate.class.clone(), share));
        }
    }
    others.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    others
}

fn severity(scene: &FailureScene<'_>, known: ClassEntry<'_>) -> Severity {
    let died = scene.exits().next().is_some() || scene.silent().next().is_some();
    if died { Severity::Failure } else { known.severity() }
}

fn unknown(scene: &FailureScene<'_>, now: Timestamp) -> SceneVerdict {
    let class = ClassId::from(UNKNOWN);
    let known = ClassEntry::of(scene.catalogue, &class);
    let verdict = Verdict {
        layer: known.layer().to_owned(),
        severity: Severity::Failure,
        blamed: scene.job_entity(),
        blamed_part: None,
        root_rank: None,
        first_cause: scene.signs.first().map(|sign| sign.evidence.clone()),
        confidence: 0.1,
        taxonomies: known.taxonomies(scene.catalogue),
        mitigation: known.mitigation(scene.catalogue),
        alternatives: Vec::new(),
        class: class.clone(),
    };
    SceneVerdict {
        findings: roles::without_cause(scene),
        reasoning: vec![ReasoningEntry {
            at: now,
            text: format!(
                "Nothing among {} signs says what failed, so nobody is blamed.",
                scene.signs.len()
            ),
        }],
        clears: known.clears(),
        signature: format!("unknown|{}", verdict.blamed),
        headline: "a failure that nothing explains".to_owned(),
        earlier_waits: Vec::new(),
        strength: CandidateStrength::Outcome,
        verdict,
    }
}
