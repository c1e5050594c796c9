//! Replicas and quorums as values.

use std::fmt;
use std::time::Duration;

use rankguard_model::{NodeId, Timestamp};

/// Identity of a replica, chosen by its manager; another one after a restart of the replica.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReplicaId(pub(crate) String);

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Limits of a lighthouse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LighthouseTerms {
    pub(crate) replicas_min: usize,
    /// Maximum wait for healthy replicas without a request, from the first request on.
    pub(crate) join_timeout: Duration,
    /// Age of the newest heartbeat from which on a replica is not healthy.
    pub(crate) heartbeat_timeout: Duration,
}

/// Replica with the content of its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplicaMember {
    pub(crate) id: ReplicaId,
    /// URL of the manager.
    pub(crate) address: String,
    pub(crate) store_address: String,
    pub(crate) step: i64,
    /// True if no replica may be added to the previous quorum.
    pub(crate) is_shrink_only: bool,
    pub(crate) commit_failures: i64,
    /// Message as it was sent.
    pub(crate) content: Vec<u8>,
}

impl ReplicaMember {
    /// Returns the host in the URL of the manager.
    pub(crate) fn host(&self) -> Option<&str> {
        let (_, rest) = self.address.split_once("://")?;
        let authority = rest.split('/').next()?;
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (!host.is_empty()).then_some(host)
    }

    /// Returns the names that the node of the manager may have: its host name, with and without the domain.
    pub(crate) fn node_names(&self) -> Vec<NodeId> {
        let Some(host) = self.host() else { return Vec::new() };
        let short = host.split('.').next().filter(|short| *short != host);
        let is_address = host.parse::<std::net::IpAddr>().is_ok();
        let names = [Some(host), short.filter(|_| !is_address)];
        names.into_iter().flatten().map(NodeId::from).collect()
    }
}

/// Set of replicas that take the next step together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplicaQuorum {
    pub(crate) id: i64,
    /// Members, sorted by id.
    pub(crate) members: Vec<ReplicaMember>,
    pub(crate) created_at: Timestamp,
}

impl ReplicaQuorum {
    pub(crate) fn has(&self, id: &ReplicaId) -> bool {
        self.members.iter().any(|member| member.id == *id)
    }

    /// Returns true if the process groups of these members are those of this quorum.
    pub(crate) fn has_groups_of(&self, members: &[ReplicaMember]) -> bool {
        let peer = |member: &ReplicaMember| {
            let ReplicaMember {
                id,
                address,
                store_address,
                ..
            } = member;
            (id.clone(), address.clone(), store_address.clone())
        };
        self.members.iter().map(peer).eq(members.iter().map(peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_assigned_to_the_node_of_its_host() {
        let check = |address: &str, expected: &[&str]| {
            let member = ReplicaMember {
                id: ReplicaId("a".to_owned()),
                address: address.to_owned(),
                store_address: String::new(),
                step: 0,
                is_shrink_only: false,
                commit_failures: 0,
                content: Vec::new(),
            };
            let expected: Vec<NodeId> = expected.iter().copied().map(NodeId::from).collect();
            assert_eq!(member.node_names(), expected, "{address}");
        };
        check("http://gpu-7:29511", &["gpu-7"]);
        check("http://gpu-7.rack3.example:29511/x", &["gpu-7.rack3.example", "gpu-7"]);
        check("http://10.0.0.7:29511", &["10.0.0.7"]);
        check("http://[fd00::7]:29511", &["fd00::7"]);
        check("gpu-7", &[]);
        check("", &[]);
    }
}
