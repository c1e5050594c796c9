//! Parity over the images of several nodes, in the memory of other nodes: needs less memory than copies for the same
//! losses.
//!
//! Every agent of a generation computes the same groups. A lane is one rank of each node of a group; its members send
//! their images to the nodes that hold its parities, which retain only the sums. A lost image is rebuilt from the
//! images left in arenas and the sums, so a parity is useful only while those images exist: ranks under parity have at
//! least two slots, and a save leaves the previous image in place.

use rankguard_checkpoint::format::ShardIndex;
use rankguard_checkpoint::source::ChunkSource;
use rankguard_checkpoint_tiers::bulk::{RankLane, RebuildSource, SumHolder};
use rankguard_checkpoint_tiers::placement::plan_parity;
use rankguard_model::{CheckpointParity, LaunchOrder, NodeId, PeerAgent, Rank};

use super::CheckpointService;
use super::peer::peer_of;

/// Minimum slots of a rank under parity: the one that is being filled and the one that other nodes depend on.
const SLOTS: u32 = 2;

impl CheckpointService {
    /// Returns the number of slots of each rank's arena.
    pub(super) fn slots(&self, launch: &LaunchOrder) -> u32 {
        match launch.tiers.parity {
            Some(_) => self.images.slots.max(SLOTS),
            None => self.images.slots,
        }
    }

    /// Returns the lane of a rank of this node and the nodes that hold its parities, in their order; empty if this
    /// node is alone.
    pub(super) fn parity_of<'a>(
        &self,
        launch: &'a LaunchOrder,
        rank: Rank,
        asked: CheckpointParity,
    ) -> (RankLane, Vec<&'a PeerAgent>) {
        let count = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        let groups = plan_parity(&self.members(launch), count(asked.nodes), count(asked.parities), &[]);
        let own = groups.into_iter().find(|group| group.members.contains(&self.node));
        let (members, holders) = own.map(|group| (group.members, group.holders)).unwrap_or_default();
        // Ranks are numbered node by node, and every node has equally many.
        let nodes = u32::try_from(launch.nodes.len()).unwrap_or(u32::MAX).max(1);
        let each = (launch.world_size / nodes).max(1);
        let place = |node: &NodeId| launch.nodes.iter().position(|other| other == node);
        let at = |node| Some(Rank(u32::try_from(place(node)?).ok()? * each + rank.0 % each));
        let mut ranks: Vec<Rank> = members.iter().filter_map(at).collect();
        ranks.sort_unstable();
        let holders: Vec<&PeerAgent> = holders.iter().filter_map(|node| peer_of(launch, node)).collect();
        let parities = holders.len() as u32;
        (RankLane { ranks, parities }, holders)
    }

    /// Returns a source that rebuilds lost images from `survivors` and the parity that this agent and others hold.
    /// Blocks.
    pub(super) fn rebuilt<'a>(
        &self,
        launch: &LaunchOrder,
        indexes: &'a [ShardIndex],
        survivors: Vec<&'a dyn ChunkSource>,
    ) -> Option<RebuildSource<'a>> {
        launch.tiers.parity?;
        let holders = self.sum_holders(&launch.peers);
        RebuildSource::new(indexes, survivors, holders, launch.generation, self.runtime.clone())
    }

    /// Returns all agents that may hold parity, this one first.
    pub(super) fn sum_holders(&self, peers: &[PeerAgent]) -> Vec<SumHolder> {
        let others = peers.iter().filter_map(|peer| self.open(peer).ok());
        let mut holders = vec![SumHolder::Here(self.sums.clone())];
        holders.extend(others.map(SumHolder::Peer));
        holders
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::collectors::testing::{launch, rank};
    use crate::intake::EvidenceIntake;
    use crate::roster::RankRoster;
    use crate::settings::AgentSettings;

    const NODES: [&str; 5] = ["n1", "n2", "n3", "n4", "n5"];

    fn on(node: &str) -> std::sync::Arc<CheckpointService> {
        let mut settings = AgentSettings::new(NodeId::from(node), "", "");
        settings.failure_domain = format!("rack-of-{node}");
        let node = settings.node.clone();
        let runtime = tokio::runtime::Handle::current();
        CheckpointService::new(
            &settings,
            &EvidenceIntake::new(node.clone()),
            &RankRoster::new(node),
            runtime,
        )
    }

    fn peer(node: &str) -> PeerAgent {
        PeerAgent {
            node: NodeId::from(node),
            address: "127.0.0.1:1".to_owned(),
            failure_domain: format!("rack-of-{node}"),
        }
    }

    #[tokio::test]
    async fn all_nodes_of_a_group_plan_alike_and_no_parity_is_kept_by_a_member() {
        let mut launch = launch(&rank(0));
        (launch.nodes, launch.world_size) = (NODES.map(NodeId::from).to_vec(), 10);
        let asked = CheckpointParity { nodes: 3, parities: 2 };
        let mut lanes: Vec<(RankLane, Vec<NodeId>)> = Vec::new();
        for (group_rank, node) in NODES.iter().enumerate() {
            launch.peers = NODES
                .iter()
                .filter(|other| *other != node)
                .map(|other| peer(other))
                .collect();
            let all = on(node);
            for local_rank in 0..2 {
                let rank = Rank(2 * group_rank as u32 + local_rank);
                let (lane, holders) = all.parity_of(&launch, rank, asked);
                let holders: Vec<NodeId> = holders.iter().map(|peer| peer.node.clone()).collect();
                assert!(lane.ranks.contains(&rank), "{lane:?}");
                let members: BTreeSet<&str> = lane.ranks.iter().map(|rank| NODES[rank.0 as usize / 2]).collect();
                assert_eq!(members.len(), lane.ranks.len(), "one rank of each node");
                assert!(holders.iter().all(|holder| !members.contains(holder.as_str())));
                assert_eq!((holders.len(), lane.parities), (2, 2));
                lanes.push((lane, holders));
            }
        }
        for (lane, holders) in &lanes {
            let same = lanes.iter().filter(|(other, _)| other == lane);
            assert!(same.clone().all(|(_, others)| others == holders), "{lane:?}");
            assert_eq!(same.count(), lane.ranks.len());
        }
        (launch.nodes, launch.world_size) = (vec![NodeId::from("n1")], 2);
        assert!(
            on("n1").parity_of(&launch, Rank(1), asked).1.is_empty(),
            "nobody else is there"
        );
    }
}
