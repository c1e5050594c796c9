//! Role, confidence and reason of each piece of evidence, relative to the chosen first cause.

mod rules;

use rankguard_faults::classes;
use rankguard_model::{CaseFinding, ClassId, EvidenceSource, ProcessExit, Role};

use crate::exit_class::{exit_class, signal_name};
use crate::signalled_ranks::has_known_order;
use crate::stated_relations::stated_relation;
use crate::unordered::are_silent_together;
use crate::{CauseCandidate, FailureScene, Signal, SignalMeaning};
use rules::{RelatedSign, rule_of};

/// Returns one finding for each evidence id, the first cause first, the rest in order of time.
pub(crate) fn findings(scene: &FailureScene<'_>, winner: &CauseCandidate) -> Vec<CaseFinding> {
    let representatives = representatives(scene, Some(winner));
    let mut all: Vec<CaseFinding> = Vec::with_capacity(representatives.len());
    for index in representatives {
        let sign = &scene.signs[index];
        let (role, confidence, why) = role(scene, winner, index, sign);
        let mut finding = finding(sign, role, confidence, why);
        // A failed order has no class of its own: it takes the class of the failure that explains it.
        let is_of_start = matches!(sign.what, SignalMeaning::OrderFailed | SignalMeaning::StartsElsewhere);
        if is_of_start && matches!(role, Role::Root | Role::Confirmation) {
            finding.class = winner.class.clone();
        }
        if index == winner.first {
            all.insert(0, finding);
        } else {
            all.push(finding);
        }
    }
    all
}

/// Returns the findings of a scene without a candidate for the first cause, in order of time: each has the role of its
/// classification, or cascade without one, and confidence 0.1.
pub(crate) fn without_cause(scene: &FailureScene<'_>) -> Vec<CaseFinding> {
    representatives(scene, None)
        .into_iter()
        .map(|index| {
            let sign = &scene.signs[index];
            let role = sign.mark().map_or(Role::Cascade, |mark| mark.role);
            finding(sign, role, 0.1, "Nothing in the case explains it.".to_owned())
        })
        .collect()
}

/// Returns the index of one signal for each evidence id, ascending: the first cause if it is among them, else one that
/// supports it, else one without the role noise, else the one of highest confidence.
pub(crate) fn representatives(scene: &FailureScene<'_>, winner: Option<&CauseCandidate>) -> Vec<usize> {
    // Most scenes have one signal; sorting is skipped.
    if scene.signs.len() == 1 {
        return vec![0];
    }
    let worth = |index: usize| {
        let sign = &scene.signs[index];
        let supports = winner.is_some_and(|winner| winner.support.contains(index));
        let first = winner.is_some_and(|winner| winner.first == index);
        let is_noise = sign.mark().is_some_and(|mark| mark.role == Role::Noise);
        (
            first,
            supports,
            !is_noise,
            (sign.mark().map_or(0.0, |mark| mark.confidence) * 1000.0) as u32,
        )
    };
    // Facts of the caller have sequence 0 on every node, so each is its own representative.
    let evidence = |index: &usize| &scene.signs[*index].evidence;
    let same = |one: &usize, other: &usize| evidence(one).seq.0 > 0 && evidence(one) == evidence(other);
    let mut told: Vec<usize> = (0..scene.signs.len()).collect();
    told.sort_by(|one, other| evidence(one).cmp(evidence(other)));
    let better = |one, other| if worth(other) > worth(one) { other } else { one };
    let mut chosen: Vec<usize> = told
        .chunk_by(same)
        .filter_map(|same| same.iter().copied().reduce(better))
        .collect();
    chosen.sort_unstable();
    chosen
}

/// Returns the reason why the end of a rank is no consequence of the equal end that is named first.
fn why_equal_end(scene: &FailureScene<'_>, first: &Signal, sign: &Signal) -> &'static str {
    // Shells report a signal as an exit code, which programs may choose as well.
    let has_signal = sign.exit().is_some_and(|(_, exit)| match exit {
        ProcessExit::Signal(_) => true,
        ProcessExit::Code(_) | ProcessExit::Left => !scene.has_local_causes() && signal_name(exit).is_some(),
    });
    if scene.has_local_causes() && has_known_order(first, sign) && !has_signal {
        "It ended with the same exit code; nothing shows that it ended because of the first."
    } else if scene.distinguishes_ends() && has_known_order(first, sign) {
        "The same signal ended it; nothing shows that it ended because of the first."
    } else if scene.distinguishes_ends() && !has_signal {
        "It ended with the same exit code at about the same time; which rank was first is not known."
    } else {
        "The same signal ended it at about the same time; which rank was first is not known."
    }
}

/// Returns the reason of the first cause. A sign of the same cause may be earlier and show the cause less directly, such as the
/// exception that a signal raises before it ends the process.
fn why_root(scene: &FailureScene<'_>, winner: &CauseCandidate, first: &Signal) -> &'static str {
    let is_earlier = |index: usize| {
        let sign = &scene.signs[index];
        index != winner.first && sign.evidence != first.evidence && sign.timed && first.timed && sign.at < first.at
    };
    if scene.states_order() && winner.support.iter().any(is_earlier) {
        "It shows the cause that explains the rest; another sign of the same cause is earlier."
    } else {
        "It is the earliest sign of the cause that explains the rest."
    }
}

/// Returns the role of the signal at `index` relative to the first cause, with confidence (0 to 1) and reason.
pub(crate) fn role(
    scene: &FailureScene<'_>,
    winner: &CauseCandidate,
    index: usize,
    sign: &Signal,
) -> (Role, f64, String) {
    let first = &scene.signs[winner.first];
    if index == winner.first {
        return (Role::Root, winner.score, why_root(scene, winner, first).to_owned());
    }
    if winner.support.contains(index) {
        let why = if sign.what == SignalMeaning::AgentReturned {
            "The agent returned on the same boot, so the node itself did not crash."
        } else if sign.what == SignalMeaning::NodeRebooted {
            "The node was started again, so it had stopped."
        } else if are_silent_together(sign, first) && sign.node() != first.node() {
            "The node became silent at the same time; the silence of one does not cause that of another."
        } else if sign.exit().is_some() && first.exit().is_some() {
            why_equal_end(scene, first, sign)
        } else {
            "It reports the first cause as well, or an effect of it."
        };
        return (Role::Confirmation, winner.score, why.to_owned());
    }
    if sign.mark().is_some_and(|mark| mark.role == Role::Noise) {
        let is_of_agent = scene.has_fault_ends && sign.source == EvidenceSource::Ranks;
        let why = if is_of_agent {
            "It is a report of the agent, and no sign of a failure."
        } else {
            "Its signature is that of a message that is no sign of a failure."
        };
        return (Role::Noise, 0.9, why.to_owned());
    }
    if let Some(stated) = stated_relation(scene, first, sign) {
        return (stated.role, 0.8, stated.why);
    }
    rule_of(&RelatedSign {
        scene,
        winner,
        index,
        sign,
        first,
    })
}

fn finding(sign: &Signal, role: Role, confidence: f64, why: String) -> CaseFinding {
    CaseFinding {
        evidence: sign.evidence.clone(),
        at: sign.at,
        source: sign.source,
        entity: sign.entity.clone(),
        class: class_of(&sign.what),
        role,
        confidence,
        text: sign.text.clone(),
        why,
        synthetic: sign.synthetic,
    }
}

/// Returns the class of a finding: that of its classification; exits and facts of the caller have fixed classes.
pub(crate) fn class_of(meaning: &SignalMeaning) -> ClassId {
    match meaning {
        SignalMeaning::Mark(mark) => mark.class.clone(),
        SignalMeaning::Exit { exit, .. } => exit_class(*exit).0.into(),
        SignalMeaning::NodeRebooted => classes::NODE_CRASH.into(),
        SignalMeaning::Silent | SignalMeaning::AgentReturned | SignalMeaning::AgentEnded => {
            classes::NODE_AGENT_SILENT.into()
        }
        SignalMeaning::Stalled => classes::HANG_NO_ERROR.into(),
        SignalMeaning::OrderFailed | SignalMeaning::StartsElsewhere => classes::UNKNOWN.into(),
    }
}
