//! Least role of each call of the operator service. An operator's certificate has every role, a viewer's the least.

use rankguard_access::AccessRole;
use rankguard_identity::PeerRole;

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
    /// Creates a join token.
    CreateJoinToken,
    /// Revokes a join token.
    RevokeJoinToken,
}

/// Roles of certificates that the operator service admits.
pub(crate) const OPERATOR_SERVICE_ROLES: &[PeerRole] = &[PeerRole::Operator, PeerRole::Viewer, PeerRole::Controller];
/// Roles of certificates that have the rights of an administrator.
const ADMINISTRATORS: &[PeerRole] = &[PeerRole::Operator, PeerRole::Controller];

/// Returns the role of a caller with a certificate that the operator service admits.
pub(crate) fn certificate_role(role: PeerRole) -> AccessRole {
    if ADMINISTRATORS.contains(&role) {
        AccessRole::Admin
    } else {
        AccessRole::Viewer
    }
}

/// Returns the roles of certificates that a method of the operator service permits; `None` for an unknown method.
pub(crate) fn method_roles(method: &str) -> Option<&'static [PeerRole]> {
    let (_, call) = OperatorCall::METHODS.iter().find(|(name, _)| *name == method)?;
    Some(call.permitted_certificates())
}

impl OperatorCall {
    /// Methods of the operator service with their calls.
    const METHODS: [(&'static str, Self); 17] = [
        ("SubmitJob", Self::SubmitJob),
        ("CancelJob", Self::CancelJob),
        ("GetStatus", Self::Read),
        ("ListCases", Self::Read),
        ("GetCase", Self::Read),
        ("CordonNode", Self::CordonNode),
        ("UncordonNode", Self::UncordonNode),
        ("DrainNode", Self::DrainNode),
        ("ForgetNode", Self::ForgetNode),
        ("NoteCase", Self::NoteCase),
        ("CreateToken", Self::CreateToken),
        ("ListTokens", Self::ReadAccess),
        ("RevokeToken", Self::RevokeToken),
        ("CreateJoinToken", Self::CreateJoinToken),
        ("ListJoinTokens", Self::ReadAccess),
        ("RevokeJoinToken", Self::RevokeJoinToken),
        ("ReadAudit", Self::ReadAccess),
    ];

    /// Returns the roles of certificates that the call permits.
    fn permitted_certificates(self) -> &'static [PeerRole] {
        if self.role() == AccessRole::Viewer {
            OPERATOR_SERVICE_ROLES
        } else {
            ADMINISTRATORS
        }
    }

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
            Self::ReadAccess
            | Self::CreateToken
            | Self::RevokeToken
            | Self::CreateJoinToken
            | Self::RevokeJoinToken => AccessRole::Admin,
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
            Self::CreateJoinToken => Some("join-token.create"),
            Self::RevokeJoinToken => Some("join-token.revoke"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every method of the service and every role of a certificate: a refusal names exactly the roles that are admitted.
    #[test]
    fn refusals_name_exactly_the_roles_that_a_method_permits() {
        let proto = include_str!("../../proto/rankguard/v1/operator.proto");
        let methods = proto.lines().filter_map(|line| line.trim().strip_prefix("rpc "));
        let methods: Vec<&str> = methods.filter_map(|method| method.split('(').next()).collect();
        assert_eq!(methods.len(), OperatorCall::METHODS.len());
        let roles = [
            PeerRole::Authority,
            PeerRole::Controller,
            PeerRole::Agent,
            PeerRole::Operator,
            PeerRole::Viewer,
            PeerRole::Launcher,
        ];
        for method in methods {
            let named = method_roles(method).unwrap_or_else(|| panic!("{method} has no call"));
            let call = OperatorCall::METHODS.iter().find(|(name, _)| *name == method);
            let least = call.expect("it was found").1.role();
            for role in roles {
                let is_admitted = OPERATOR_SERVICE_ROLES.contains(&role) && certificate_role(role) >= least;
                assert_eq!(named.contains(&role), is_admitted, "{method}, {role}");
            }
        }
    }
}
