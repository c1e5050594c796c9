//! Which evidence a session may submit (RG-13): a session speaks for its own node, the devices of that node and the ranks that
//! a plan placed there, and for nothing else.
//!
//! [`judge`] compares a piece of evidence with what the controller planned and ordered. Three outcomes:
//! - `Accept`: the evidence has its effects.
//! - `Void`: the evidence may be true, but the controller does not know what it is about (a generation or an order that was
//!   forgotten, a journal that was restored from a backup, a class of a newer catalogue). It is recorded without effect, and
//!   the sender is not accused: a spool delivers evidence hours late.
//! - `Refuse`: the evidence contradicts what the controller itself planned. It is recorded without effect, counted, and
//!   becomes a finding against the node that sent it, never against the node that it names.
//!
//! The check is pure and runs before the journal is written, so journals of earlier versions replay unchanged. It compares
//! each piece with the state before the batch that holds it. This suffices: every permission rests on an order, and an order
//! leaves the controller only after its event has been applied.
//!
//! Absent: proof that a node reports the truth about its own ranks. A node that runs ranks of a job can report their exits,
//! fail their shards and claim steps within the limit of [`steps`]; it cannot do so for ranks of other nodes.

mod body;
mod mark;
mod steps;
mod subject;

use std::fmt;

use rankguard_model::{Evidence, NodeId, Timestamp};

use crate::State;

/// The failure class of refused evidence; the catalogue describes it.
pub const REFUSED_CLASS: &str = "evidence-refused";
/// Signatures of refused evidence begin with this and end with the word of the rule.
pub const REFUSED_SIGNATURE: &str = "authority.";

/// What becomes of a piece of evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// It has its effects.
    Accept,
    /// It is recorded without effect; the sender is not accused.
    Void {
        /// What the controller does not know, in words.
        why: String,
    },
    /// It is recorded without effect and counted against the sender.
    Refuse {
        /// The rule that it breaks.
        rule: Rule,
        /// What it claims and what was planned, in words.
        why: String,
    },
}

/// The rules that evidence can break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// It is about another node, or a device or rank of another node.
    ForeignNode,
    /// It is about a rank that was placed on another node.
    ForeignRank,
    /// It is about a rank whose generation has not been launched.
    NotLaunched,
    /// It is about a job that never had ranks on the node.
    ForeignJob,
    /// The body cannot be about an entity of this kind.
    WrongEntity,
    /// It answers an order that the node never got.
    NoOrder,
    /// It names a process other than the one that was started.
    WrongProcess,
    /// It claims a step that no training can have reached.
    ImplausibleStep,
    /// It claims a shard of another rank, generation or world size.
    WrongShard,
    /// It calls a checkpoint damaged that the rank was not ordered to load.
    WrongCheckpoint,
    /// A mark or a number is out of its range.
    OutOfRange,
}

impl Rule {
    /// All rules.
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

    /// The word of the rule in signatures and counts.
    pub fn word(self) -> &'static str {
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

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A piece of evidence with the session that submitted it.
#[derive(Clone, Copy)]
struct Claim<'a> {
    state: &'a State,
    /// The node of the session.
    sender: &'a NodeId,
    now: Timestamp,
    evidence: &'a Evidence,
}

/// Why a claim has no effect.
#[derive(Debug)]
enum Objection {
    Void(String),
    Refuse(Rule, String),
}

type Checked<T = ()> = Result<T, Objection>;

fn refuse<T>(rule: Rule, why: String) -> Checked<T> {
    Err(Objection::Refuse(rule, why))
}

fn void<T>(why: String) -> Checked<T> {
    Err(Objection::Void(why))
}

/// Decides what becomes of evidence that a session of `sender` submits. Replayed evidence is accepted: nothing was planned,
/// and nothing can be ordered.
pub fn judge(state: &State, sender: &NodeId, now: Timestamp, evidence: &Evidence) -> Ruling {
    if state.policy().replay_only {
        return Ruling::Accept;
    }
    let claim = Claim {
        state,
        sender,
        now,
        evidence,
    };
    match check(claim) {
        Ok(()) => Ruling::Accept,
        Err(Objection::Void(why)) => Ruling::Void { why },
        Err(Objection::Refuse(rule, why)) => Ruling::Refuse { rule, why },
    }
}

fn check(claim: Claim<'_>) -> Checked {
    let subject = subject::check(claim)?;
    body::check(claim, &subject)?;
    mark::check(claim, &subject)
}
