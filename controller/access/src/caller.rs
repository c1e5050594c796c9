//! Caller of a request, as access rules and the audit log see it.

use crate::role::AccessRole;
use crate::scope::TokenScope;
use crate::token_store::AuthenticatedToken;

/// Caller with its right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerIdentity {
    /// Name for the audit log and for rate limits: `operator ada`, `token tk-12345678 (ci)`, `local`.
    pub actor: String,
    /// Name under which its notes are recorded; `None` for a local caller.
    pub author: Option<String>,
    /// Address of the client, if known.
    pub address: Option<String>,
    /// Role of the caller.
    pub role: AccessRole,
    /// Part of the cluster that it reaches.
    pub scope: TokenScope,
    /// Id of the token; `None` for a certificate and a local caller.
    pub token: Option<String>,
}

impl CallerIdentity {
    /// Returns the caller with a certificate of this role and name.
    pub fn certificate(actor: String, author: &str, role: AccessRole) -> Self {
        Self {
            actor,
            author: (!author.is_empty()).then(|| author.to_owned()),
            address: None,
            role,
            scope: TokenScope::default(),
            token: None,
        }
    }

    /// Returns a process of this machine, without a certificate and without a token.
    pub fn local(role: AccessRole) -> Self {
        Self {
            actor: "local".to_owned(),
            author: None,
            address: None,
            role,
            scope: TokenScope::default(),
            token: None,
        }
    }

    /// Returns the holder of a token.
    pub fn token(token: AuthenticatedToken) -> Self {
        let AuthenticatedToken { id, name, role, scope } = token;
        Self {
            actor: format!("token {id} ({name})"),
            author: Some(format!("{name} ({id})")),
            address: None,
            role,
            scope,
            token: Some(id),
        }
    }

    /// Sets the address of the client.
    #[must_use]
    pub fn at(self, address: Option<std::net::SocketAddr>) -> Self {
        Self {
            address: address.map(|address| address.ip().to_string()),
            ..self
        }
    }
}
