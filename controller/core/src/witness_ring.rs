//! Witness selection: the agents that an agent asks about the controller when its own session is cut off; live nodes,
//! spread over failure domains.

use std::collections::BTreeMap;

use rankguard_model::{NodeId, PeerAgent};

use crate::{Fleet, Node};

/// Limit of witnesses of one agent.
pub const WITNESSES_MAX: usize = 8;
/// Ring neighbours considered for another failure domain; bounds the work if all nodes share one.
const LOOKED_AT: usize = 64;

/// Ring of live nodes in which neighbours belong to different failure domains as far as possible. The witnesses of a
/// node are its successors, so each node is a witness of about as many nodes as it has witnesses.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WitnessRing {
    ring: Vec<PeerAgent>,
    places: BTreeMap<NodeId, usize>,
}

impl WitnessRing {
    /// Builds the ring of the live nodes that answer witness requests.
    pub fn of(fleet: &Fleet) -> Self {
        let mut domains: BTreeMap<&str, Vec<PeerAgent>> = BTreeMap::new();
        // Agents without a lease do not support witness requests.
        let answers = |entry: &Node| entry.lost_since.is_none() && entry.info.lease_ms > 0;
        for (node, entry) in fleet.iter().filter(|(_, entry)| answers(entry)) {
            let domain = entry.info.failure_domain.as_str();
            domains.entry(domain).or_default().push(PeerAgent {
                node: node.clone(),
                address: entry.info.peer_address.clone(),
                failure_domain: domain.to_owned(),
            });
        }
        let longest = domains.values().map(Vec::len).max().unwrap_or(0);
        let rows = (0..longest).flat_map(|row| domains.values().filter_map(move |peers| peers.get(row)));
        let ring: Vec<PeerAgent> = rows.cloned().collect();
        let places = ring.iter().enumerate();
        let places = places.map(|(place, peer)| (peer.node.clone(), place)).collect();
        Self { ring, places }
    }

    pub fn len(&self) -> usize {
        self.ring.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Returns the witnesses of a node, those of other failure domains first.
    pub fn witnesses(&self, node: &NodeId, failure_domain: &str) -> Vec<PeerAgent> {
        let start = self
            .places
            .get(node)
            .map_or_else(|| self.entry_of(node), |place| place + 1);
        let following = self
            .ring
            .iter()
            .cycle()
            .skip(start)
            .take(self.ring.len().min(LOOKED_AT));
        let following = following.filter(|peer| peer.node != *node);
        let is_near = |peer: &&PeerAgent| !failure_domain.is_empty() && peer.failure_domain == failure_domain;
        let (near, far): (Vec<&PeerAgent>, Vec<&PeerAgent>) = following.partition(is_near);
        far.into_iter().chain(near).take(WITNESSES_MAX).cloned().collect()
    }

    /// Returns the start position of a node that is not in the ring: arbitrary but stable.
    fn entry_of(&self, node: &NodeId) -> usize {
        let mix = |sum: usize, byte: u8| sum.wrapping_mul(31).wrapping_add(usize::from(byte));
        let sum = node.as_str().bytes().fold(0, mix);
        sum.checked_rem(self.ring.len()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::{ClockOffset, NodeInfo, Timestamp};

    use super::*;

    fn fleet(nodes: &[(&str, &str)]) -> Fleet {
        let mut fleet = Fleet::default();
        for (node, domain) in nodes {
            let info = NodeInfo {
                node: NodeId::from(*node),
                incarnation: "1".to_owned(),
                boot_id: String::new(),
                host: "h".to_owned(),
                peer_address: format!("{node}:1"),
                image_address: String::new(),
                slots: 1,
                failure_domain: (*domain).to_owned(),
                running: Vec::new(),
                clock: ClockOffset::default(),
                lease_ms: 30_000,
                is_kernel_log_first: false,
                history: rankguard_model::NodeHistory::default(),
            };
            fleet.join(Timestamp(1), info);
        }
        fleet
    }

    fn names(peers: &[PeerAgent]) -> Vec<&str> {
        peers.iter().map(|peer| peer.node.as_str()).collect()
    }

    #[test]
    fn witnesses_are_live_others_and_of_other_domains_first() {
        let mut fleet = fleet(&[("a", "r1"), ("b", "r1"), ("c", "r2"), ("d", "r3")]);
        let ring = WitnessRing::of(&fleet);
        let of_a = ring.witnesses(&NodeId::from("a"), "r1");
        assert_eq!(names(&of_a), ["c", "d", "b"]);
        fleet.lose(Timestamp(2), &NodeId::from("c"));
        let ring = WitnessRing::of(&fleet);
        assert_eq!(names(&ring.witnesses(&NodeId::from("a"), "r1")), ["d", "b"]);
        // A node that is not in the ring yet has witnesses too.
        assert_eq!(ring.witnesses(&NodeId::from("new"), "").len(), 3);
        assert_eq!(WitnessRing::default().witnesses(&NodeId::from("a"), ""), []);
    }

    #[test]
    fn each_node_of_a_large_fleet_has_a_bounded_number_of_witnesses() {
        let nodes: Vec<String> = (0..200).map(|number| format!("n{number:03}")).collect();
        let nodes: Vec<(&str, &str)> = nodes.iter().map(|node| (node.as_str(), "")).collect();
        let ring = WitnessRing::of(&fleet(&nodes));
        let mut asked: BTreeMap<NodeId, usize> = BTreeMap::new();
        for (node, _) in &nodes {
            let witnesses = ring.witnesses(&NodeId::from(*node), "");
            assert_eq!(witnesses.len(), WITNESSES_MAX);
            for peer in witnesses {
                *asked.entry(peer.node).or_default() += 1;
            }
        }
        assert!(asked.values().all(|count| *count == WITNESSES_MAX), "{asked:?}");
    }
}
