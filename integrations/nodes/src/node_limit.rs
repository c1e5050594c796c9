//! Limit on nodes that a scheduler takes out of use for reasons of Rankguard (RG-6).

use std::fmt;
use std::str::FromStr;

/// Largest number of nodes that are out of use for reasons of Rankguard at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeLimit {
    /// Number of nodes.
    Nodes(usize),
    /// Share of the nodes that both sides know, percent; at least one node unless it is 0.
    Percent(u8),
}

impl NodeLimit {
    /// Limit without a setting.
    pub const DEFAULT: Self = Self::Percent(10);

    /// Returns the number of nodes for a cluster of `total` nodes.
    pub fn nodes(self, total: usize) -> usize {
        match self {
            Self::Nodes(nodes) => nodes,
            Self::Percent(0) => 0,
            Self::Percent(percent) => (total.saturating_mul(usize::from(percent)) / 100).max(1),
        }
    }
}

impl fmt::Display for NodeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(nodes) => write!(f, "{nodes}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl FromStr for NodeLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let limit = match text.strip_suffix('%') {
            Some(percent) => percent
                .parse()
                .ok()
                .filter(|percent| *percent <= 100)
                .map(Self::Percent),
            None => text.parse().ok().map(Self::Nodes),
        };
        limit.ok_or_else(|| "write a number of nodes, or a share of up to 100%: 8, 10%".to_owned())
    }
}
