//! Authorisation of evidence (RG-13): a session may report only its own node, the devices of that node and the ranks
//! that a plan placed there.
//!
//! [`judge`] compares evidence with the controller's plans and orders. Three outcomes:
//! - `Accept`: the evidence has its effects.
//! - `Void`: the evidence may be true, but the controller has no record of its subject (a generation or an order that
//!   was removed, a journal that was restored from a backup, a class of a newer catalogue). It is recorded without
//!   effect and without a finding against the sender, because a spool may deliver evidence hours late.
//! - `Refuse`: the evidence contradicts the controller's own plans. It is recorded without effect, counted, and becomes
//!   a finding against the node that sent it, never against the node that it names.
//!
//! The check is pure and runs before the journal is written, so journals of earlier versions replay unchanged. It
//! compares all evidence of a batch with the state before the batch. This suffices: every permission rests on an order,
//! and an order leaves the controller only after its event has been applied.
//!
//! Not covered: proof that a node reports the truth about its own ranks. A node that runs ranks of a job can report
//! their exits, fail their shards and claim steps within the limit of [`steps`]; it cannot do so for ranks of other
//! nodes.

mod body;
mod mark;
mod steps;
mod subject;

use std::fmt;

use rankguard_faults::classes;
use rankguard_model::{Evidence, NodeId, Timestamp};

use crate::DecisionState;

/// Failure class of refused evidence, defined in the catalogue.
pub const REFUSED_CLASS: &str = classes::EVIDENCE_REFUSED;
/// Prefix of the signatures of refused evidence; the name of the rule follows.
pub const REFUSED_SIGNATURE: &str = "authority.";

/// Result of the authorisation of evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvidenceRuling {
    /// The evidence has its effects.
    Accept,
    /// The evidence is recorded without effect and without a finding against the sender.
    Void {
        /// Subject of which the controller has no record, in words.
        why: String,
    },
    /// The evidence is recorded without effect and counted against the sender.
    Refuse {
        rule: AuthorityRule,
        /// Claim of the evidence and the plan that it contradicts, in words.
        why: String,
    },
}

/// Authorisation rules for evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuthorityRule {
    /// The subject is another node, or a device or rank of another node.
    ForeignNode,
    /// The subject is a rank that was placed on another node.
    ForeignRank,
    /// The subject is a rank of a generation that has not been launched.
    NotLaunched,
    /// The subject is a job that never had ranks on the node.
    ForeignJob,
    /// The body does not fit the kind of subject.
    WrongEntity,
    /// The evidence answers an order that the node never received.
    NoOrder,
    /// The evidence names a process other than the one that was started.
    WrongProcess,
    /// The claimed step is beyond the plausible limit.
    ImplausibleStep,
    /// The shard belongs to another rank, generation or world size.
    WrongShard,
    /// The evidence reports damage of a checkpoint that the rank was not ordered to load.
    WrongCheckpoint,
    /// A number or a confidence is out of range.
    OutOfRange,
}

impl AuthorityRule {
    pub const ALL: [Self; 11] = [
        Self::ForeignNode,
        Self::ForeignRank,
        Self::NotLaunched,
        Self::ForeignJob,
        Self::WrongEntity,
        Self::NoOrder,
        Self::WrongProcess,
        Self::ImplausibleStep,
        Self::WrongShard,
        Self::WrongCheckpoint,
        Self::OutOfRange,
    ];

    /// Returns the name of the rule in signatures and counts.
    pub fn name(self) -> &'static str {
        match self {
            Self::ForeignNode => "foreign-node",
            Self::ForeignRank => "foreign-rank",
            Self::NotLaunched => "not-launched",
            Self::ForeignJob => "foreign-job",
            Self::WrongEntity => "wrong-entity",
            Self::NoOrder => "no-order",
            Self::WrongProcess => "wrong-process",
            Self::ImplausibleStep => "implausible-step",
            Self::WrongShard => "wrong-shard",
            Self::WrongCheckpoint => "wrong-checkpoint",
            Self::OutOfRange => "out-of-range",
        }
    }
}

impl fmt::Display for AuthorityRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Evidence with the session that submitted it.
#[derive(Clone, Copy)]
struct SubmittedEvidence<'a> {
    state: &'a DecisionState,
    /// Node of the session.
    sender: &'a NodeId,
    now: Timestamp,
    evidence: &'a Evidence,
}

/// Reason to record evidence without effect.
#[derive(Debug)]
enum EvidenceObjection {
    Void(String),
    Refuse(AuthorityRule, String),
}

type AuthorityResult<T = ()> = Result<T, EvidenceObjection>;

fn refuse<T>(rule: AuthorityRule, why: String) -> AuthorityResult<T> {
    Err(EvidenceObjection::Refuse(rule, why))
}

fn void<T>(why: String) -> AuthorityResult<T> {
    Err(EvidenceObjection::Void(why))
}

/// Authorises evidence from a session of `sender`. Replayed evidence is always accepted, because a replay has no plans
/// and orders to compare with.
pub fn judge(state: &DecisionState, sender: &NodeId, now: Timestamp, evidence: &Evidence) -> EvidenceRuling {
    if state.policy().replay_only {
        return EvidenceRuling::Accept;
    }
    let claim = SubmittedEvidence {
        state,
        sender,
        now,
        evidence,
    };
    match check(claim) {
        Ok(()) => EvidenceRuling::Accept,
        Err(EvidenceObjection::Void(why)) => EvidenceRuling::Void { why },
        Err(EvidenceObjection::Refuse(rule, why)) => EvidenceRuling::Refuse { rule, why },
    }
}

fn check(claim: SubmittedEvidence<'_>) -> AuthorityResult {
    let subject = subject::check(claim)?;
    body::check(claim, &subject)?;
    mark::check(claim, &subject)
}
