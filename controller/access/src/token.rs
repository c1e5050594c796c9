//! Tokens and their states.

use std::time::Duration;

use rankguard_model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::role::AccessRole;
use crate::scope::TokenScope;
use crate::token_file::TokenFileError;

/// Longest name of a token, characters.
const NAME_MAX: usize = 64;
/// Longest prefix of job names and longest node name, bytes, and largest number of nodes in a scope.
const PREFIX_MAX: usize = 128;
const NODES_MAX: usize = 1_024;
/// Longest life of a token, 366 days.
const VALID_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Request to create a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// Name for people: 1 to 64 letters, digits, `.`, `_` or `-`.
    pub name: String,
    /// Role of its holder.
    pub role: AccessRole,
    /// Part of the cluster that it reaches.
    pub scope: TokenScope,
    /// Time until it expires, at most 366 days.
    pub valid: Duration,
}

impl NewToken {
    /// Checks the request.
    pub(crate) fn check(&self) -> Result<(), TokenError> {
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        if !(1..=NAME_MAX).contains(&self.name.len()) || !self.name.chars().all(is_letter) {
            let name = self.name.chars().take(NAME_MAX).collect();
            return Err(TokenError::Name { name });
        }
        let scope = &self.scope;
        let is_text = |text: &String| (1..=PREFIX_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
        let is_prefix = scope.job_prefix.as_ref().is_none_or(is_text);
        let are_nodes = scope.nodes.len() <= NODES_MAX && scope.nodes.iter().all(is_text);
        if !is_prefix || !are_nodes {
            return Err(TokenError::Scope);
        }
        if self.role == AccessRole::Admin && !scope.is_whole() {
            return Err(TokenError::ScopedAdmin);
        }
        if self.valid < Duration::from_secs(1) || self.valid > VALID_MAX {
            return Err(TokenError::Validity);
        }
        Ok(())
    }
}

/// Stored facts of a token, without its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenDetails {
    /// Id, under which the audit log names it.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Role of its holder.
    pub role: AccessRole,
    /// Part of the cluster that it reaches.
    #[serde(default)]
    pub scope: TokenScope,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// Creator, as the audit log names callers.
    pub created_by: String,
    /// Time from which it is refused.
    pub expires_at: Timestamp,
    /// Time of its latest use; up to a minute of uses is lost if the controller is killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    /// Time of its revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// Caller that revoked it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_by: Option<String>,
}

impl TokenDetails {
    /// Returns the state at a time.
    pub fn state(&self, now: Timestamp) -> TokenState {
        if self.revoked_at.is_some() {
            TokenState::Revoked
        } else if now >= self.expires_at {
            TokenState::Expired
        } else {
            TokenState::Active
        }
    }
}

/// Token as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredToken {
    pub(crate) details: TokenDetails,
    pub(crate) hash: Digest,
}

/// State of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenState {
    /// The token is accepted.
    Active,
    /// The token has expired.
    Expired,
    /// The token was revoked.
    Revoked,
}

/// Token with its state, for lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenView {
    /// State at the time of the list.
    pub state: TokenState,
    /// Stored facts of the token.
    #[serde(flatten)]
    pub details: TokenDetails,
}

/// Revoked token, and what of its revocation is not on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokedToken {
    /// Token, which is refused from now on.
    #[serde(flatten)]
    pub token: TokenView,
    /// Cause for which the revocation is not in the token file: it holds until the controller restarts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsaved: Option<String>,
    /// Cause for which the audit log has no entry of the revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unrecorded: Option<String>,
}

/// Reason to refuse a presented token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenRejection {
    /// The text is no token, or was mistyped.
    #[error("the value is no access token of Rankguard: its form or its checksum is wrong")]
    Malformed,
    /// This controller has not issued it, or has removed it after its end.
    #[error("this controller does not know the token")]
    Unknown,
    /// The token has expired.
    #[error("token {id} has expired")]
    Expired { id: String },
    /// The token was revoked.
    #[error("token {id} is revoked")]
    Revoked { id: String },
}

/// Failure to create or revoke a token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The name cannot be used.
    #[error("{name:?} is no name of a token; expected 1 to {NAME_MAX} letters, digits, `.`, `_` or `-`")]
    Name { name: String },
    /// An active token has the name.
    #[error("an active token has the name {name:?} already; revoke it first, or use another name")]
    Exists { name: String },
    /// The scope cannot be used.
    #[error(
        "a job prefix and a node name of a scope have 1 to {PREFIX_MAX} bytes and no control characters, and there are at most \
         {NODES_MAX} nodes"
    )]
    Scope,
    /// The audit log, which the role adds, cannot be limited to a part of the cluster.
    #[error(
        "an admin token has no scope: the role adds the audit log, which has the changes of the whole cluster; role operator \
         with this scope has the same other rights"
    )]
    ScopedAdmin,
    /// The time until its end cannot be used.
    #[error("a token is valid for 1 s to 366 days")]
    Validity,
    /// The table is full.
    #[error("there are {most} active tokens, and no more are stored; revoke some")]
    Full { most: usize },
    /// No token has this id or name.
    #[error("there is no token with the id {token:?}, and no active one with this name")]
    Absent { token: String },
    /// The token was revoked before.
    #[error("token {id} was revoked before")]
    Revoked { id: String },
    /// The system provides no random bytes.
    #[error("the system gives no random numbers")]
    Random,
    /// The file of a new token could not be written.
    #[error("the token was not created: {source}")]
    File { source: TokenFileError },
}
