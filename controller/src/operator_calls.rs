//! Least role of each call of the operator service. An operator's certificate has every role, a viewer's the least.

use rankguard_access::AccessRole;

/// Call of the operator service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperatorCall {
    /// Reads nodes, jobs and cases.
    Read,
    /// Submits a job.
    SubmitJob,
    /// Cancels a job.
    CancelJob,
    /// Cordons, uncordons, drains or forgets a node.
    ChangeNode,
    /// Adds a note to a case.
    NoteCase,
    /// Creates or revokes a token.
    ChangeToken,
    /// Reads the tokens or the audit log.
    ReadAccess,
}

impl OperatorCall {
    /// Returns the least role of a caller.
    pub(crate) fn role(self) -> AccessRole {
        match self {
            Self::Read => AccessRole::Viewer,
            Self::SubmitJob | Self::CancelJob | Self::ChangeNode | Self::NoteCase => AccessRole::Operator,
            Self::ChangeToken | Self::ReadAccess => AccessRole::Admin,
        }
    }

    /// Returns true if the call changes something.
    pub(crate) fn is_change(self) -> bool {
        !matches!(self, Self::Read | Self::ReadAccess)
    }

    /// Describes the call for messages.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Read => "read the state",
            Self::SubmitJob => "submit jobs",
            Self::CancelJob => "cancel jobs",
            Self::ChangeNode => "change nodes",
            Self::NoteCase => "add notes to cases",
            Self::ChangeToken => "change tokens",
            Self::ReadAccess => "read tokens and the audit log",
        }
    }
}
