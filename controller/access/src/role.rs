//! Roles of callers, in the order of their rights.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Right of a caller. Each role includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessRole {
    /// Reads the state of the cluster.
    Viewer,
    /// Changes nodes, jobs and cases, too.
    Operator,
    /// Reads the audit log, too; with a certificate or on this machine, creates and revokes tokens.
    Admin,
}

impl AccessRole {
    /// All roles, weakest first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// Returns the text of the role in options and documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for AccessRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Text that names no role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no role; expected viewer, operator or admin")]
pub struct RoleError {
    text: String,
}

impl FromStr for AccessRole {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Self, RoleError> {
        let found = Self::ALL.into_iter().find(|role| role.word() == text);
        found.ok_or_else(|| RoleError {
            text: text.chars().take(60).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_includes_those_before_it() {
        assert!(AccessRole::ALL.is_sorted());
        for role in AccessRole::ALL {
            assert_eq!(role.word().parse(), Ok(role));
        }
        assert!("Admin".parse::<AccessRole>().is_err());
        assert!("".parse::<AccessRole>().is_err());
    }
}
