//! Role, confidence and reason of each piece of evidence, relative to the chosen first cause.

use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{CaseFinding, ClassId, EvidenceSource, Role};

use crate::connect_attempts::is_connect_attempt;
use crate::direction::is_of_machine_beside;
use crate::engine_exceptions::reason_beside;
use crate::exit_class::{exit_class, signal_name};
use crate::independent::{follows_own_kill, is_independent};
use crate::named_losses::is_in_silence;
use crate::own_exceptions::explains_loss;
use crate::own_fault::{
    follows_own_fault, has_own_fault_before, is_drill_beside, is_own_end, is_own_fault, kills_no_rank,
};
use crate::place_in_log::older_until;
use crate::signalled_ranks::has_known_order;
use crate::stated_relations::stated_relation;
use crate::unordered::{
    are_silent_together, ended_of_own_error, is_a_moment_before, is_error_of_another, is_loss_before,
};
use crate::waited_before::waited_before;
use crate::{CauseCandidate, FailureScene, Signal, SignalMeaning};

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
    let has_signal = sign.exit().is_some_and(|(_, exit)| signal_name(exit).is_some());
    if scene.distinguishes_ends() && has_known_order(first, sign) {
        "The same signal ended it; nothing shows that it ended because of the first."
    } else if scene.distinguishes_ends() && !has_signal {
        "It ended with the same exit code at about the same time; which rank was first is not known."
    } else {
        "The same signal ended it at about the same time; which rank was first is not known."
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
        return (
            Role::Root,
            winner.score,
            "It is the earliest sign of the cause that explains the rest.".to_owned(),
        );
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
    if is_own_fault(scene, winner, index) {
        let why = "It is a fault of its own: the first cause does not explain it.".to_owned();
        return (Role::Root, 0.8, why);
    }
    if is_independent(scene, winner, index) {
        let why = "It is a failure of its own: nothing leads from the first cause to it.".to_owned();
        return (Role::Root, 0.8, why);
    }
    if waited_before(scene, winner, index) {
        let why = "It belongs to a wait that began long before the first cause, which does not explain it.".to_owned();
        return (Role::Root, 0.6, why);
    }
    if is_own_end(scene, winner, index) {
        let why = "It is a failure of its own: no survivor of the first cause ends this way.".to_owned();
        return (Role::Root, 0.8, why);
    }
    if is_drill_beside(scene, winner, index) {
        let why = "It is a drill, which explains no real failure beside it.".to_owned();
        return (Role::Noise, 0.9, why);
    }
    if let Some(why) = reason_beside(scene, winner, sign) {
        return (Role::Noise, 0.6, why.to_owned());
    }
    if scene.distinguishes_ends() && is_connect_attempt(sign) && sign.entity == first.entity {
        let why = "It warns of an attempt to connect, which is repeated; it does not explain the end.".to_owned();
        return (Role::Noise, 0.6, why);
    }
    if kills_no_rank(scene, sign) && first.node() != sign.node() {
        let why = "No rank of the job on its node ended by it, so it explains nothing here.".to_owned();
        return (Role::Noise, 0.6, why);
    }
    if follows_own_fault(scene, winner, sign) {
        let why = "It follows from the fault of its own node, which is a failure of its own.".to_owned();
        return (Role::Cascade, 0.8, why);
    }
    if scene.has_fault_ends && is_closing(first, sign) {
        let why = "The launcher ends the other processes after one has ended; it reports that end itself later.";
        return (Role::Cascade, 0.8, why.to_owned());
    }
    if follows_own_kill(scene, winner, sign) {
        let why = "It is the end of a process that another kill ended, which is a failure of its own.".to_owned();
        return (Role::Noise, 0.8, why);
    }
    let comparable = sign.timed && first.timed;
    if is_error_of_another(scene, winner, index) {
        let why =
            "It is an error that its rank raised for a reason of its own: nothing leads from the first cause to it.";
        return (Role::Root, 0.8, why.to_owned());
    }
    if ended_of_own_error(scene, winner, sign) {
        let why = "The rank ended after an error of its own.".to_owned();
        return (Role::Confirmation, 0.8, why);
    }
    let is_explained = || {
        explains_loss(scene, winner.first, index) || is_in_silence(first, sign) || is_loss_before(scene, winner, index)
    };
    if comparable && sign.at < first.at && sign.mark().is_some() && !is_explained() {
        let why = "It came before the first cause and does not explain it.".to_owned();
        return (Role::Noise, 0.6, why);
    }
    if let Some(until) = older_until(sign, first) {
        let why = format!("By its place in its log it was written before {until}, long before the first cause.");
        return (Role::Noise, 0.6, why);
    }
    if is_of_machine_beside(scene, winner, index) {
        let why = "No error of a program or of a connection causes it, and nothing shows that it led to the failure.";
        return (Role::Noise, 0.6, why.to_owned());
    }
    let is_before = comparable && sign.at < first.at;
    let why = match &sign.what {
        SignalMeaning::Exit { .. } if is_before && scene.distinguishes_ends() && reports(scene, winner, sign) => {
            "It is the end of a rank that reports the first cause; its log was read a moment later.".to_owned()
        }
        SignalMeaning::Exit { .. } if scene.distinguishes_ends() && is_a_moment_before(sign, first) => {
            "The rank ended at about the same time, in an order that proves nothing; it is a consequence.".to_owned()
        }
        SignalMeaning::Exit { .. } if is_before => {
            "The rank ended before the first cause was reported, which explains it.".to_owned()
        }
        SignalMeaning::Exit { .. } if has_own_fault_before(scene, winner, sign) => {
            "The rank ended after a fault of its own node; that or the first cause ended it.".to_owned()
        }
        SignalMeaning::Stalled => "The job makes no progress because of the first cause.".to_owned(),
        SignalMeaning::Exit { .. } => {
            "The rank ended after the first cause; it is a consequence and blames nobody.".to_owned()
        }
        what if what.is_silence() && scene.distinguishes_ends() && first.what.is_silence() => {
            "The node became silent as well; whether one cause explains both is not known.".to_owned()
        }
        what if what.is_silence() => "The silence follows from the first cause.".to_owned(),
        _ if sign.mark().is_some_and(|mark| mark.role == Role::Cascade) => {
            "Survivors of a failure report this; it is a consequence and blames nobody.".to_owned()
        }
        _ if is_before => "It was reported before the first cause, which explains it.".to_owned(),
        _ if comparable => "It came after the first cause, which explains it.".to_owned(),
        _ => "The first cause explains it better than the other way round.".to_owned(),
    };
    (Role::Cascade, 0.8, why)
}

/// Longest time from the end of a process to the launcher's report of its exit code: launchers first wait for the others,
/// DeepSpeed for 30 s (`launch.py`, `sigkill_handler`).
const CLOSING: Duration = Duration::from_secs(60);

/// Returns true if a launcher ends its processes shortly before it reports the end of one, which is the first cause.
fn is_closing(first: &Signal, sign: &Signal) -> bool {
    let is_end = first.mark().is_some_and(|mark| mark.signature.starts_with("exit-"));
    let is_same_log = sign.source == first.source && sign.node() == first.node();
    let is_before = sign.timed && first.timed && sign.at < first.at && first.at.since(sign.at) <= CLOSING;
    is_end && is_same_log && is_before && sign.is_signed("launcher-closing")
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

/// Returns true if the rank of an end reports the winner.
fn reports(scene: &FailureScene<'_>, winner: &CauseCandidate, end: &Signal) -> bool {
    let mut support = winner.support.iter().map(|index| &*scene.signs[index]);
    support.any(|sign| sign.mark().is_some() && sign.rank().is_some() && sign.rank() == end.rank())
}
