//! Members and rounds as values; the order of the members in a round.

use std::collections::BTreeSet;
use std::time::Duration;

use rankguard_model::NodeId;

/// Random identity of a torchrun process, chosen by the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MemberId(pub(crate) u64);

/// Limits of a run, the same for all of its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunTerms {
    pub(crate) nodes_min: usize,
    pub(crate) nodes_max: usize,
    /// Maximum wait for the minimum of nodes.
    pub(crate) join_timeout: Duration,
    /// Wait for further nodes once the minimum is there, and before a running round is replaced by a larger one.
    pub(crate) last_call: Duration,
    /// Maximum wait for members that stop the workers of a round that is over.
    pub(crate) restart_timeout: Duration,
}

/// Description of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberProfile {
    pub(crate) node: NodeId,
    /// Host name or address at which other nodes reach it.
    pub(crate) address: String,
}

impl MemberProfile {
    /// Returns true if only processes of the same machine reach the address.
    pub(crate) fn is_loopback(&self) -> bool {
        let address = self.address.as_str();
        let parsed = address.parse::<std::net::IpAddr>();
        address == "localhost" || parsed.is_ok_and(|address| address.to_canonical().is_loopback())
    }
}

/// Member with its place in a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoundMember {
    pub(crate) id: MemberId,
    pub(crate) profile: MemberProfile,
    /// Port of the store that it serves as the first member.
    pub(crate) store_port: u16,
}

/// World of members. The index of a member is its group rank; the first one serves the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TorchrunRound {
    pub(crate) number: u64,
    pub(crate) members: Vec<RoundMember>,
}

impl TorchrunRound {
    pub(crate) fn has(&self, id: MemberId) -> bool {
        self.seat(id).is_some()
    }

    pub(crate) fn seat(&self, id: MemberId) -> Option<&RoundMember> {
        self.members.iter().find(|member| member.id == id)
    }

    pub(crate) fn rank(&self, id: MemberId) -> Option<usize> {
        self.members.iter().position(|member| member.id == id)
    }
}

/// Returns the members of the next round in the order of their group ranks: those of the previous round keep their
/// order, newcomers take the places of those that left, and places that remain empty are closed up.
pub(crate) fn compose(previous: &[MemberId], ready: &[MemberId], size_max: usize) -> Vec<MemberId> {
    let waiting: BTreeSet<MemberId> = ready.iter().copied().collect();
    let before: BTreeSet<MemberId> = previous.iter().copied().collect();
    let mut newcomers = ready.iter().copied().filter(|id| !before.contains(id));
    let survivors = previous.iter().filter(|id| waiting.contains(id)).count();
    let mut vacancies = size_max.saturating_sub(survivors);
    let mut members = Vec::new();
    for id in previous {
        if waiting.contains(id) {
            members.push(*id);
        } else if vacancies > 0
            && let Some(newcomer) = newcomers.next()
        {
            members.push(newcomer);
            vacancies -= 1;
        }
    }
    members.extend(newcomers.take(vacancies));
    members.truncate(size_max);
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(previous: &[u64], ready: &[u64], size_max: usize, expected: &[u64]) {
        let ids = |numbers: &[u64]| numbers.iter().copied().map(MemberId).collect::<Vec<_>>();
        assert_eq!(compose(&ids(previous), &ids(ready), size_max), ids(expected));
    }

    #[test]
    fn survivors_keep_their_order_and_newcomers_take_vacant_places() {
        check(&[], &[3, 1, 2], 2, &[3, 1]);
        check(&[1, 2, 3], &[3, 2, 1], 3, &[1, 2, 3]);
        check(&[1, 2, 3], &[3, 1], 3, &[1, 3]);
        check(&[1, 2, 3], &[3, 1, 9], 3, &[1, 9, 3]);
        check(&[1, 2, 3], &[2, 3, 9, 8], 3, &[9, 2, 3]);
        check(&[1, 2], &[1, 2, 9, 8], 3, &[1, 2, 9]);
    }

    #[test]
    fn loopback_addresses_are_recognised() {
        let profile = |address: &str| MemberProfile {
            node: NodeId::from("n1"),
            address: address.to_owned(),
        };
        for address in ["localhost", "127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(profile(address).is_loopback(), "{address}");
        }
        for address in ["10.0.0.1", "n1.example", "fd00::1"] {
            assert!(!profile(address).is_loopback(), "{address}");
        }
    }
}
