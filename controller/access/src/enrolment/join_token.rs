//! Join tokens and their states.

use std::collections::BTreeSet;
use std::time::Duration;

use rankguard_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::ledger_file::LedgerFileError;

/// Largest number of nodes of a token, and of certificates that it permits.
const NODES_MAX: usize = 16_384;
const USES_MAX: u32 = 100_000;
/// Longest name of a node, bytes: that of a certificate's name.
const NODE_BYTES_MAX: usize = 128;
/// Longest life of a token, 30 days.
const VALID_MAX: Duration = Duration::from_secs(30 * 86_400);

/// Request to create a join token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJoinToken {
    /// Nodes that may enrol with it.
    pub nodes: BTreeSet<String>,
    /// Certificates that may be issued with it.
    pub uses: u32,
    /// Time until it expires, at most 30 days.
    pub valid: Duration,
    /// True if it permits a certificate for a node that has a valid one.
    pub may_replace: bool,
}

impl NewJoinToken {
    /// Checks the request.
    pub(crate) fn check(&self) -> Result<(), JoinTokenError> {
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        let is_name = |name: &String| (1..=NODE_BYTES_MAX).contains(&name.len()) && name.chars().all(is_letter);
        if let Some(name) = self.nodes.iter().find(|name| !is_name(name)) {
            let name = name.chars().take(NODE_BYTES_MAX).collect();
            return Err(JoinTokenError::Node { name });
        }
        if !(1..=NODES_MAX).contains(&self.nodes.len()) {
            return Err(JoinTokenError::Nodes);
        }
        if !(1..=USES_MAX).contains(&self.uses) {
            return Err(JoinTokenError::Uses);
        }
        if self.valid < Duration::from_secs(1) || self.valid > VALID_MAX {
            return Err(JoinTokenError::Validity);
        }
        Ok(())
    }
}

/// Stored facts of a join token, without its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinTokenDetails {
    /// Id, under which the audit log names it.
    pub id: String,
    /// Nodes that may enrol with it.
    pub nodes: BTreeSet<String>,
    /// Certificates that may be issued with it.
    pub uses: u32,
    /// Certificates that were issued with it.
    pub used: u32,
    /// True if it permits a certificate for a node that has a valid one.
    pub may_replace: bool,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// Creator, as the audit log names callers.
    pub created_by: String,
    /// Time from which it is refused.
    pub expires_at: Timestamp,
    /// Time of its revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// Caller that revoked it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_by: Option<String>,
}

/// State of a join token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JoinTokenState {
    /// Nodes may enrol with it.
    Active,
    /// All of its certificates were issued.
    UsedUp,
    /// It has expired.
    Expired,
    /// It was revoked.
    Revoked,
}

impl JoinTokenState {
    /// Returns the text of the state in lists.
    pub fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::UsedUp => "used-up",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

impl JoinTokenDetails {
    /// Returns the state at a time.
    pub fn state(&self, now: Timestamp) -> JoinTokenState {
        if self.revoked_at.is_some() {
            JoinTokenState::Revoked
        } else if now >= self.expires_at {
            JoinTokenState::Expired
        } else if self.used >= self.uses {
            JoinTokenState::UsedUp
        } else {
            JoinTokenState::Active
        }
    }

    /// Returns the token with its state.
    pub(crate) fn view(&self, now: Timestamp) -> JoinTokenView {
        JoinTokenView {
            state: self.state(now),
            details: self.clone(),
        }
    }
}

/// Join token with its state, for lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinTokenView {
    /// State at the time of the list.
    pub state: JoinTokenState,
    /// Stored facts of the token.
    #[serde(flatten)]
    pub details: JoinTokenDetails,
}

/// Failure to create or revoke a join token.
#[derive(Debug, thiserror::Error)]
pub enum JoinTokenError {
    /// A node has a name that no certificate can have.
    #[error("{name:?} is no name of a node; expected 1 to {NODE_BYTES_MAX} letters, digits, `.`, `_` or `-`")]
    Node { name: String },
    /// The number of nodes cannot be used.
    #[error("a join token is for 1 to {NODES_MAX} nodes")]
    Nodes,
    /// The number of uses cannot be used.
    #[error("a join token permits 1 to {USES_MAX} certificates")]
    Uses,
    /// The time until its end cannot be used.
    #[error("a join token is valid for 1 s to 30 days")]
    Validity,
    /// The table is full.
    #[error("there are {most} active join tokens, and no more are stored; revoke some")]
    Full { most: usize },
    /// No join token has this id.
    #[error("there is no join token {id:?}")]
    Absent { id: String },
    /// The token was revoked before.
    #[error("join token {id} was revoked before")]
    Revoked { id: String },
    /// The system provides no random bytes.
    #[error("the system gives no random numbers")]
    Random,
    /// The record could not be written; the token is unchanged.
    #[error("the join token is unchanged: {source}")]
    File { source: LedgerFileError },
}
