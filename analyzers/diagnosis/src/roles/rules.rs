//! Rules for the role of a sign that is neither the first cause nor a part of it: each has a condition with its reason, a role
//! and a confidence. The first rule that applies decides.

use std::borrow::Cow;
use std::time::Duration;

use rankguard_model::Role;

use crate::connect_attempts::is_connect_attempt;
use crate::direction::is_of_machine_beside;
use crate::engine_exceptions::reason_beside;
use crate::independent::{follows_own_kill, is_independent};
use crate::named_losses::is_in_silence;
use crate::own_exceptions::explains_loss;
use crate::own_fault::{
    follows_own_fault, has_own_fault_before, is_drill_beside, is_own_end, is_own_fault, kills_no_rank,
};
use crate::place_in_log::{millis_of_boot, older_until};
use crate::unordered::{
    ended_of_own_error, ended_of_same_error, is_a_moment_before, is_error_of_another, is_loss_before,
};
use crate::waited_before::waited_before;
use crate::{CauseCandidate, FailureScene, Signal, SignalMeaning};

/// Sign beside the first cause.
pub(super) struct RelatedSign<'a, 's> {
    pub(super) scene: &'a FailureScene<'s>,
    pub(super) winner: &'a CauseCandidate,
    /// Index of the sign in the scene.
    pub(super) index: usize,
    pub(super) sign: &'a Signal,
    /// The first cause of the case.
    pub(super) first: &'a Signal,
}

impl RelatedSign<'_, '_> {
    /// Returns true if both times are known and the sign is the earlier one.
    fn is_before(&self) -> bool {
        let is_timed = self.sign.timed && self.first.timed;
        is_timed && self.sign.at < self.first.at
            || millis_of_boot(self.sign, self.first).is_some_and(|millis| millis < 0)
    }

    /// Returns true if the job was found without progress before the first cause.
    fn is_stall_before(&self) -> bool {
        let is_stall = self.scene.has_local_causes() && self.sign.what == SignalMeaning::Stalled && self.first.timed;
        // The text begins with the time at which the caller found it; the last step is always earlier than its reason.
        let found_at = self
            .sign
            .text
            .strip_prefix("as of ")
            .and_then(|text| text.split_once(", "));
        is_stall && found_at.is_some_and(|(found_at, _)| found_at < self.first.at.to_string().as_str())
    }

    /// Returns true if the sign is a loss that the first cause explains although it was reported before it.
    fn is_loss_explained(&self) -> bool {
        explains_loss(self.scene, self.winner.first, self.index)
            || is_in_silence(self.first, self.sign)
            || is_loss_before(self.scene, self.winner, self.index)
    }

    /// Returns true if the rank of an end reports the first cause.
    fn reports_cause(&self) -> bool {
        let mut support = self.winner.support.iter().map(|index| &*self.scene.signs[index]);
        support.any(|sign| sign.mark().is_some() && sign.rank().is_some() && sign.rank() == self.sign.rank())
    }
}

/// Reason of a rule that applies.
type Reason = Option<Cow<'static, str>>;

/// Rule for the role of a sign.
struct RoleRule {
    role: Role,
    /// Confidence of the role, 0 to 1.
    confidence: f64,
    /// Reason; none if the rule does not apply.
    reason: fn(&RelatedSign<'_, '_>) -> Reason,
}

fn when(applies: bool, reason: &'static str) -> Reason {
    applies.then_some(Cow::Borrowed(reason))
}

/// Rules before those for consequences.
const RULES: [RoleRule; 19] = [
    RoleRule {
        role: Role::Root,
        confidence: 0.8,
        reason: |of| {
            let applies = is_own_fault(of.scene, of.winner, of.index);
            when(
                applies,
                "It is a fault of its own: the first cause does not explain it.",
            )
        },
    },
    RoleRule {
        role: Role::Root,
        confidence: 0.8,
        reason: |of| {
            let applies = is_independent(of.scene, of.winner, of.index);
            when(
                applies,
                "It is a failure of its own: nothing leads from the first cause to it.",
            )
        },
    },
    RoleRule {
        role: Role::Root,
        confidence: 0.6,
        reason: |of| {
            let applies = waited_before(of.scene, of.winner, of.index);
            when(
                applies,
                "It belongs to a wait that began long before the first cause, which does not explain it.",
            )
        },
    },
    RoleRule {
        role: Role::Root,
        confidence: 0.8,
        reason: |of| {
            let applies = is_own_end(of.scene, of.winner, of.index);
            when(
                applies,
                "It is a failure of its own: no survivor of the first cause ends this way.",
            )
        },
    },
    RoleRule {
        role: Role::Noise,
        confidence: 0.9,
        reason: |of| {
            let applies = is_drill_beside(of.scene, of.winner, of.index);
            when(applies, "It is a drill, which explains no real failure beside it.")
        },
    },
    RoleRule {
        role: Role::Noise,
        confidence: 0.6,
        reason: |of| reason_beside(of.scene, of.winner, of.sign).map(Cow::Borrowed),
    },
    RoleRule {
        role: Role::Noise,
        confidence: 0.6,
        reason: |of| {
            let is_attempt = of.scene.distinguishes_ends() && is_connect_attempt(of.sign);
            when(
                is_attempt && of.sign.entity == of.first.entity,
                "It warns of an attempt to connect, which is repeated; it does not explain the end.",
            )
        },
    },
    RoleRule {
        role: Role::Noise,
        confidence: 0.6,
        reason: |of| {
            let applies = kills_no_rank(of.scene, of.sign) && of.first.node() != of.sign.node();
            when(
                applies,
                "No rank of the job on its node ended by it, so it explains nothing here.",
            )
        },
    },
    RoleRule {
        role: Role::Cascade,
        confidence: 0.8,
        reason: |of| {
            let applies = follows_own_fault(of.scene, of.winner, of.sign);
            when(
                applies,
                "It follows from the fault of its own node, which is a failure of its own.",
            )
        },
    },
    RoleRule {
        role: Role::Cascade,
        confidence: 0.8,
        reason: |of| {
            when(
                of.scene.has_fault_ends && is_closing(of.first, of.sign),
                "The launcher ends the other processes after one has ended; it reports that end itself later.",
            )
        },
    },
    RoleRule {
        role: Role::Noise,
        confidence: 0.8,
        reason: |of| {
            let applies = follows_own_kill(of.scene, of.winner, of.sign);
            when(
                applies,
                "It is the end of a process that another kill ended, which is a failure of its own.",
            )
        },
    },
    RoleRule {
        role: Role::Root,
        confidence: 0.8,
        reason: |of| {
            when(
                is_error_of_another(of.scene, of.winner, of.index),
                "It is an error that its rank raised for a reason of its own: nothing leads from the first cause to it.",
            )
        },
    },
    RoleRule {
        role: Role::Confirmation,
        confidence: 0.8,
        reason: |of| {
            let applies = ended_of_own_error(of.scene, of.winner, of.sign);
            when(applies, "The rank ended after an error of its own.")
        },
    },
    RoleRule {
        role: Role::Confirmation,
        confidence: 0.8,
        reason: |of| {
            let applies = ended_of_same_error(of.scene, of.winner, of.sign);
            when(applies, "The rank raised the same error itself and ended by it.")
        },
    },
    RoleRule {
        role: Role::Noise,
        confidence: 0.6,
        reason: |of| {
            let is_earlier = of.is_before() && of.sign.mark().is_some() && !of.is_loss_explained();
            when(is_earlier, "It came before the first cause and does not explain it.")
        },
    },
    RoleRule {
        role: Role::Noise,
        confidence: 0.6,
        reason: |of| {
            when(
                of.is_stall_before(),
                "The job was found without progress before the first cause, which does not explain it.",
            )
        },
    },
    RoleRule {
        role: Role::Noise,
        confidence: 0.6,
        reason: |of| {
            let until = older_until(of.sign, of.first)?;
            let why = format!("By its place in its log it was written before {until}, long before the first cause.");
            Some(Cow::Owned(why))
        },
    },
    RoleRule {
        role: Role::Noise,
        confidence: 0.6,
        reason: |of| {
            when(
                is_of_machine_beside(of.scene, of.winner, of.index),
                "No error of a program or of a connection causes it, and nothing shows that it led to the failure.",
            )
        },
    },
    RoleRule {
        role: Role::Cascade,
        confidence: 0.8,
        reason: |of| Some(Cow::Borrowed(consequence(of))),
    },
];

/// Returns role, confidence and reason by the first rule that applies.
pub(super) fn rule_of(of: &RelatedSign<'_, '_>) -> (Role, f64, String) {
    let mut decided = RULES.iter().filter_map(|rule| Some((rule, (rule.reason)(of)?)));
    // The last rule always applies.
    decided
        .next()
        .map_or((Role::Cascade, 0.8, String::new()), |(rule, why)| {
            (rule.role, rule.confidence, why.into_owned())
        })
}

/// Returns the reason why a sign is a consequence of the first cause.
fn consequence(of: &RelatedSign<'_, '_>) -> &'static str {
    let RelatedSign {
        scene,
        winner,
        sign,
        first,
        ..
    } = of;
    let is_before = of.is_before();
    match &sign.what {
        SignalMeaning::Exit { .. } if is_before && scene.distinguishes_ends() && of.reports_cause() => {
            "It is the end of a rank that reports the first cause; its log was read a moment later."
        }
        SignalMeaning::Exit { .. } if scene.distinguishes_ends() && is_a_moment_before(sign, first) => {
            "The rank ended at about the same time, in an order that proves nothing; it is a consequence."
        }
        SignalMeaning::Exit { .. } if is_before => {
            "The rank ended before the first cause was reported, which explains it."
        }
        SignalMeaning::Exit { .. } if has_own_fault_before(scene, winner, sign) => {
            "The rank ended after a fault of its own node; that or the first cause ended it."
        }
        SignalMeaning::Stalled => "The job makes no progress because of the first cause.",
        SignalMeaning::Exit { .. } => "The rank ended after the first cause; it is a consequence and blames nobody.",
        what if what.is_silence() && scene.distinguishes_ends() && first.what.is_silence() => {
            "The node became silent as well; whether one cause explains both is not known."
        }
        what if what.is_silence() => "The silence follows from the first cause.",
        _ if sign.mark().is_some_and(|mark| mark.role == Role::Cascade) => {
            "Survivors of a failure report this; it is a consequence and blames nobody."
        }
        _ if is_before => "It was reported before the first cause, which explains it.",
        _ if sign.timed && first.timed => "It came after the first cause, which explains it.",
        _ => "The first cause explains it better than the other way round.",
    }
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
