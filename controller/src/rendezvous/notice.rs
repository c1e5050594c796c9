//! Messages of the state machine to members, and facts that it receives.

use std::collections::BTreeMap;
use std::sync::Arc;

use rankguard_model::NodeId;

use super::round::{MemberId, TorchrunRound};

/// Message to one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RoundNotice {
    /// The round begins, with the member in it.
    RoundBegan(Arc<TorchrunRound>),
    /// The round of the member is over.
    RoundOver { reason: String },
    /// The request of the member waits.
    Waits { reason: String },
    /// The request of the member ends without a round.
    Refused(RoundRefusal),
    /// All members of the run finished.
    RunFinished,
}

/// Member with a message for it.
pub(crate) type MemberNotice = (MemberId, RoundNotice);

/// Kind of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalKind {
    /// The run is closed.
    Closed,
    /// A deadline of the run passed.
    TimedOut,
    /// The request contradicts the run or its owner, or exceeds a limit.
    Denied,
}

/// Reason why a member gets no round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoundRefusal {
    pub(crate) kind: RefusalKind,
    pub(crate) reason: String,
}

impl RoundRefusal {
    pub(crate) fn new(kind: RefusalKind, reason: impl Into<String>) -> Self {
        Self {
            kind,
            reason: reason.into(),
        }
    }
}

/// Reason why a member leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberDeparture {
    /// The workers ended with success.
    Finished,
    /// The workers failed and are not started again.
    Failed,
    /// The process ended without a reason.
    Ended,
}

/// State of a node that restricts its use. A node that is usable, or that no agent reports, has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodeCondition {
    /// The node is cordoned, for this reason: its members leave their round.
    Cordoned(String),
    /// Ranks of an ended generation may still run on the node: its members join no round.
    Fencing,
}

/// Nodes with a condition.
pub(crate) type NodeConditions = BTreeMap<NodeId, NodeCondition>;
