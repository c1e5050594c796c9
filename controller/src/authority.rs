//! Applies the rules of [`rankguard_core::authority`] to evidence before it is journalled (RG-13).
//!
//! Evidence that a session may not submit is replaced by a record without effect at the same sequence number, so that
//! the number is acknowledged and its absence is explained (RG-4).

use std::collections::BTreeSet;
use std::time::Duration;

use rankguard_core::DecisionState;
use rankguard_core::authority::{AuthorityRule, EvidenceRuling, REFUSED_CLASS, REFUSED_SIGNATURE, judge};
use rankguard_model::{
    ClassId, Classification, Entity, Evidence, EvidenceBody, FieldValues, NodeId, PrintableText, Role, Timestamp,
};

use crate::gap::gap;

/// Largest lead of evidence over the controller's clock. An agent subtracts its measured offset; before the first
/// measurement its clock may be off by as much as operators tolerate. Later times are replaced by the arrival time,
/// because evidence from the future would remain the newest of its node until then. Times in the past are unchanged: a
/// spool delivers evidence hours late, and the log of a previous boot is older still.
const AHEAD_MAX: Duration = Duration::from_secs(600);
/// Characters of a reason that the record of a refusal includes.
const TEXT_MAX: usize = 300;

/// Rank processes that the current batch reports as started; the state does not contain them yet.
pub(crate) type StartedProcesses = BTreeSet<(NodeId, u32)>;

/// Returns evidence of a session of `sender` in the form in which it is journalled.
pub(crate) fn admit(
    state: &DecisionState,
    sender: &NodeId,
    now: Timestamp,
    started: &mut StartedProcesses,
    mut evidence: Evidence,
) -> Evidence {
    if !state.policy().replay_only && !(0..=now.after(AHEAD_MAX).0).contains(&evidence.at.0) {
        evidence.at = now;
    }
    match judge(state, sender, now, &evidence) {
        EvidenceRuling::Accept => {
            if let EvidenceBody::RankStarted { pid, .. } = evidence.body {
                started.insert((sender.clone(), pid));
            }
            evidence
        }
        // The rank was restarted and ended at once: both reports are in one batch.
        EvidenceRuling::Refuse {
            rule: AuthorityRule::WrongProcess,
            ..
        } if matches!(evidence.body, EvidenceBody::RankExited { pid, .. } if started.contains(&(sender.clone(), pid))) => {
            evidence
        }
        EvidenceRuling::Void { why } => without_effect(sender, evidence, &why),
        EvidenceRuling::Refuse { rule, why } => refused(sender, evidence, rule, &why),
    }
}

/// Returns the record of refused evidence, with a classification against the sender.
fn refused(sender: &NodeId, evidence: Evidence, rule: AuthorityRule, why: &str) -> Evidence {
    let what = format!(
        "evidence {} ({}) was refused, rule {rule}: {}",
        evidence.id.seq,
        body_name(&evidence.body),
        PrintableText::first(why, TEXT_MAX)
    );
    let mark = Classification {
        class: ClassId::from(REFUSED_CLASS),
        role: Role::Noise,
        confidence: 1.0,
        signature: format!("{REFUSED_SIGNATURE}{rule}").into(),
        fields: FieldValues::new(),
    };
    Evidence {
        marks: vec![mark],
        synthetic: evidence.synthetic,
        ..record(sender, evidence, what)
    }
}

/// Returns the record of evidence with an unknown subject: observations retain their text, reports about ranks and
/// orders become a gap.
fn without_effect(sender: &NodeId, evidence: Evidence, why: &str) -> Evidence {
    let node = sender.clone();
    if matches!(
        evidence.body,
        EvidenceBody::Line { .. } | EvidenceBody::Sample { .. } | EvidenceBody::Gap { .. }
    ) {
        return Evidence {
            entity: Entity::Node { node },
            marks: Vec::new(),
            ..evidence
        };
    }
    let what = format!(
        "evidence {} ({}) has no effect: {}",
        evidence.id.seq,
        body_name(&evidence.body),
        PrintableText::first(why, TEXT_MAX)
    );
    record(sender, evidence, what)
}

fn record(sender: &NodeId, evidence: Evidence, what: String) -> Evidence {
    let mut id = evidence.id;
    id.node = sender.clone();
    gap(id, evidence.at, what, 1)
}

fn body_name(body: &EvidenceBody) -> &'static str {
    match body {
        EvidenceBody::Line { .. } => "line",
        EvidenceBody::Sample { .. } => "sample",
        EvidenceBody::Gap { .. } => "gap",
        EvidenceBody::RankStarted { .. } => "rank-started",
        EvidenceBody::RankExited { .. } => "rank-exited",
        EvidenceBody::Progress { .. } => "progress",
        EvidenceBody::Fenced { .. } => "fenced",
        EvidenceBody::Stopped { .. } => "stopped",
        EvidenceBody::ShardSealed { .. } => "shard-sealed",
        EvidenceBody::ShardDurable { .. } => "shard-durable",
        EvidenceBody::ShardFailed { .. } => "shard-failed",
        EvidenceBody::Copied { .. } => "copied",
        EvidenceBody::ShardsFinished { .. } => "shards-finished",
        EvidenceBody::Restored { .. } => "restored",
        EvidenceBody::FlightDump { .. } => "flight-dump",
        EvidenceBody::RankFinished => "rank-finished",
        EvidenceBody::Preflighted { .. } => "preflighted",
        EvidenceBody::Prepared { .. } => "prepared",
        EvidenceBody::OrderFailed { .. } => "order-failed",
    }
}
