//! Least role of each call of the operator service. An operator's certificate has every role, a viewer's the least.

use rankguard_access::AccessRole;

/// Call of the operator service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperatorCall {
    /// Reads nodes, jobs and cases.
    Read,
    /// Reads the tokens or the audit log.
    ReadAccess,
    /// Submits a new job.
    SubmitJob,
    /// Cancels a job permanently.
    CancelJob,
    /// Places no new ranks on a node.
    CordonNode,
    /// Uses a cordoned node again.
    UncordonNode,
    /// Cordons a node and moves its job.
    DrainNode,
    /// Removes the record of a lost node.
    ForgetNode,
    /// Adds a note to a case.
    NoteCase,
    /// Creates an access token.
    CreateToken,
    /// Revokes an access token.
    RevokeToken,
}

impl OperatorCall {
    /// Returns the least role of a caller.
    pub(crate) fn role(self) -> AccessRole {
        match self {
            Self::Read => AccessRole::Viewer,
            Self::SubmitJob
            | Self::CancelJob
            | Self::CordonNode
            | Self::UncordonNode
            | Self::DrainNode
            | Self::ForgetNode
            | Self::NoteCase => AccessRole::Operator,
            Self::ReadAccess | Self::CreateToken | Self::RevokeToken => AccessRole::Admin,
        }
    }

    /// Returns the name of the change in the audit log; `None` for a call that reads.
    pub(crate) fn action(self) -> Option<&'static str> {
        match self {
            Self::Read | Self::ReadAccess => None,
            Self::SubmitJob => Some("job.submit"),
            Self::CancelJob => Some("job.cancel"),
            Self::CordonNode => Some("node.cordon"),
            Self::UncordonNode => Some("node.uncordon"),
            Self::DrainNode => Some("node.drain"),
            Self::ForgetNode => Some("node.forget"),
            Self::NoteCase => Some("case.note"),
            Self::CreateToken => Some("token.create"),
            Self::RevokeToken => Some("token.revoke"),
        }
    }
}
