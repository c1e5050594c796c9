//! Name of a peer, as a URI in its certificate: `rankguard://CLUSTER/ROLE` or `rankguard://CLUSTER/ROLE/NAME`.

use std::fmt;
use std::str::FromStr;

use rankguard_model::NodeId;

const SCHEME: &str = "rankguard://";
/// Maximum bytes of a cluster or name.
const WORD_MAX: usize = 128;

/// Role of a peer, which determines its rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerRole {
    /// Signs the certificates of a cluster, and does nothing else.
    Authority,
    /// Receives evidence and sends orders.
    Controller,
    /// Acts for one node.
    Agent,
    /// Submits jobs, drains nodes, queries, issues tokens.
    Operator,
    /// Queries, and changes nothing.
    Viewer,
    /// Joins runs of torchrun, and does nothing else.
    Launcher,
    /// Signs certificates of agents for a controller, and does nothing else.
    Issuer,
}

impl PeerRole {
    /// Returns the role's text in a name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Authority => "authority",
            Self::Controller => "controller",
            Self::Agent => "agent",
            Self::Operator => "operator",
            Self::Viewer => "viewer",
            Self::Launcher => "launcher",
            Self::Issuer => "issuer",
        }
    }

    /// Returns true if peers of the role accept connections, which needs a server certificate.
    pub fn is_server(self) -> bool {
        matches!(self, Self::Controller | Self::Agent)
    }

    /// Returns true if a cluster has several peers of the role, so that each has a name of its own.
    pub fn is_named(self) -> bool {
        matches!(self, Self::Agent | Self::Operator | Self::Viewer | Self::Launcher)
    }

    fn of(word: &str) -> Option<Self> {
        [
            Self::Authority,
            Self::Controller,
            Self::Agent,
            Self::Operator,
            Self::Viewer,
            Self::Launcher,
            Self::Issuer,
        ]
        .into_iter()
        .find(|role| role.word() == word)
    }
}

impl fmt::Display for PeerRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Name of a peer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerName {
    cluster: String,
    role: PeerRole,
    own: String,
}

/// Error of a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum NameError {
    #[error("{word:?} is not a valid name; expected 1 to {WORD_MAX} letters, digits, `.`, `_` or `-`")]
    Word { word: String },
    #[error("a certificate of role {role} has a name of its own; none was given")]
    Nameless { role: PeerRole },
    #[error("there is one {role} in a cluster: it has no name of its own, and {own:?} was given")]
    Named { role: PeerRole, own: String },
    #[error("{text:?} is no name; want {SCHEME}CLUSTER/ROLE/NAME")]
    Form { text: String },
}

impl PeerName {
    /// Creates a name of this cluster; `own` is empty for roles with one peer.
    pub fn new(cluster: &str, role: PeerRole, own: &str) -> Result<Self, NameError> {
        word(cluster)?;
        match (role.is_named(), own) {
            (true, "") => return Err(NameError::Nameless { role }),
            (false, "") => {}
            (true, own) => word(own)?,
            (false, own) => {
                return Err(NameError::Named {
                    role,
                    own: own.to_owned(),
                });
            }
        }
        Ok(Self {
            cluster: cluster.to_owned(),
            role,
            own: own.to_owned(),
        })
    }

    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    pub fn role(&self) -> PeerRole {
        self.role
    }

    /// Returns the peer's own name within its role; empty for roles with one peer.
    pub fn own(&self) -> &str {
        &self.own
    }

    /// Returns true if this is the agent of `node`.
    pub fn is_agent_of(&self, node: &NodeId) -> bool {
        self.role == PeerRole::Agent && self.own == node.as_str()
    }

    /// Returns role and name without the cluster, for messages: `agent n1`.
    pub fn short(&self) -> String {
        match self.own.as_str() {
            "" => self.role.to_string(),
            own => format!("{} {own}", self.role),
        }
    }

    /// Returns true if a URI has the scheme of a name.
    pub(crate) fn is_meant(uri: &str) -> bool {
        uri.starts_with(SCHEME)
    }
}

fn word(word: &str) -> Result<(), NameError> {
    let fine = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if (1..=WORD_MAX).contains(&word.len()) && word.chars().all(fine) {
        return Ok(());
    }
    Err(NameError::Word {
        word: word.chars().take(WORD_MAX).collect(),
    })
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.cluster, self.role)?;
        if !self.own.is_empty() {
            write!(f, "/{}", self.own)?;
        }
        Ok(())
    }
}

impl FromStr for PeerName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let form = || NameError::Form {
            text: text.chars().take(3 * WORD_MAX).collect(),
        };
        let rest = text.strip_prefix(SCHEME).ok_or_else(form)?;
        let (cluster, rest) = rest.split_once('/').ok_or_else(form)?;
        let (role, own) = match rest.split_once('/') {
            // Each name has one spelling: no empty last part.
            Some((_, "")) => return Err(form()),
            Some(both) => both,
            None => (rest, ""),
        };
        Self::new(cluster, PeerRole::of(role).ok_or_else(form)?, own)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_come_back_as_they_were_written() {
        for text in [
            "rankguard://prod/controller",
            "rankguard://prod/authority",
            "rankguard://prod-2/agent/gpu-017.rack3",
            "rankguard://c/operator/ada_l",
            "rankguard://c/launcher/vision-team",
        ] {
            let name: PeerName = text.parse().expect(text);
            assert_eq!(name.to_string(), text);
        }
        let agent: PeerName = "rankguard://c/agent/n1".parse().expect("a name");
        assert!(agent.is_agent_of(&NodeId::from("n1")) && !agent.is_agent_of(&NodeId::from("n11")));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_no_name() {
        for text in [
            "",
            "https://c/agent/n1",
            "rankguard://c",
            "rankguard://c/agent",
            "rankguard://c/agent/",
            "rankguard://c/agent/n1/",
            "rankguard://c/agent/n1/n2",
            "rankguard://c/agent/n%31",
            "rankguard://c/controller/",
            "rankguard://c/controller/x",
            "rankguard:///agent/n1",
            "rankguard://c/Agent/n1",
            "rankguard://c/agent/n1?x",
            "rankguard://c/launcher",
            "rankguard://c/launchers/x",
        ] {
            assert!(text.parse::<PeerName>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_text_that_is_a_name_is_the_only_text_of_that_name(text in "rankguard://[a-z./%-]{1,4}/(agent|operator|launcher|controller)(/[a-zA-Z0-9./%-]{0,6})?") {
            if let Ok(name) = text.parse::<PeerName>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
