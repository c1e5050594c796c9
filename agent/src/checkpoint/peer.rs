//! Exchange of images with the agents of other nodes.
//!
//! Absent: releasing images of a job that this node no longer belongs to before that job ends.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Instant;

use rankguard_checkpoint::ImageSource;
use rankguard_checkpoint::source::ArenaSource;
use rankguard_checkpoint_tiers::bulk::{
    BulkError, BulkPeer, BulkSource, ClientLimits, ImageHolder, ReplicaKind, ReplicaName, ReplicaStorage,
};
use rankguard_checkpoint_tiers::placement::{PlacementNode, plan_replicas};
use rankguard_identity::ExpectedPeer;
use rankguard_model::{
    CopyTier, EvidenceBody, EvidenceSource, Generation, LaunchOrder, NodeId, PeerAgent, Rank, RankRef, Step,
    with_causes,
};
use tokio::task::JoinHandle;

use super::CheckpointService;
use super::arenas::RankArena;
use crate::pending_evidence::PendingEvidence;

/// Read-only source of the images in this agent's arenas, for other agents.
#[derive(Debug)]
pub(crate) struct ArenaImageSource(pub(crate) Arc<CheckpointService>);

impl ImageHolder for ArenaImageSource {
    fn read(&self, name: &ReplicaName, runs: &[(u32, u32)], max: usize) -> Option<Result<Vec<u8>, String>> {
        let places = self.0.arenas.of(&name.job);
        let source = ArenaSource::new(places.iter().map(|place| &*place.arena));
        if name.what != ReplicaKind::Image || !source.holds(&name.job, name.checkpoint, name.rank) {
            return None;
        }
        let mut all = Vec::new();
        for chunk in runs
            .iter()
            .flat_map(|&(first, count)| first..first.saturating_add(count))
        {
            match source.sealed_chunk(&name.job, name.checkpoint, name.rank, chunk) {
                Ok(Some(bytes)) if all.len() + bytes.len() <= max => all.extend_from_slice(&bytes),
                Ok(Some(_)) => return Some(Err("more than one answer may hold".to_owned())),
                Ok(None) => return Some(Err(format!("the image has no chunk {chunk}"))),
                Err(problem) => return Some(Err(problem.to_string())),
            }
        }
        Some(Ok(all))
    }
}

/// Image in a slot; valid until the slot is filled again.
struct SlotImage {
    place: Arc<RankArena>,
    slot: u32,
}

impl ImageSource for SlotImage {
    fn read_at(&self, at: u64, out: &mut [u8]) -> std::io::Result<()> {
        Ok(self.place.arena.read_image(self.slot, at, out)?)
    }
}

impl CheckpointService {
    /// Returns the other agents as tiers of a restore. Blocks.
    pub(super) fn peers(&self, peers: &[PeerAgent], generation: Generation) -> Vec<BulkSource> {
        let source = |peer: &PeerAgent| {
            let opened = self.open(peer).inspect_err(|problem| {
                tracing::warn!(peer = %peer.node, problem, "chunks are not asked for there");
            });
            let node = peer.node.as_str();
            Some(BulkSource::new(opened.ok()?, node, generation, self.runtime.clone()))
        };
        peers.iter().filter_map(source).collect()
    }

    /// Sends the image of a sealed slot to the nodes that hold its copies or parity, while it is written to disk. The
    /// slot may be filled again once this has ended. Returns `None` where the job uses neither.
    pub(super) fn copy_to_peers(
        self: &Arc<Self>,
        launch: &Arc<LaunchOrder>,
        place: &Arc<RankArena>,
        slot: u32,
        rank: &RankRef,
    ) -> Option<JoinHandle<()>> {
        if launch.tiers.nodes == 0 && launch.tiers.parity.is_none() {
            return None;
        }
        let all = self.clone();
        let launch = launch.clone();
        let place = place.clone();
        let rank = rank.clone();
        Some(self.runtime.spawn(async move {
            let Ok(index) = place.arena.sealed(slot).map(|image| image.index().clone()) else {
                return;
            };
            for ImageTransfer { tier, to, what, keep } in all.errands(&launch, rank.rank) {
                let started = Instant::now();
                let Some(to) = to else {
                    let alone = Err("no other node of the job can keep it".to_owned());
                    all.report_copy(&rank, index.step, tier, "another node", started, alone);
                    continue;
                };
                let image = Arc::new(SlotImage {
                    place: place.clone(),
                    slot,
                });
                let pushed = match all.open(to) {
                    Ok(peer) => peer.push(what, &index, image, keep).await.map_err(chain),
                    Err(problem) => Err(problem),
                };
                let sent = pushed.map(|pushed| pushed.sent_bytes);
                all.report_copy(&rank, index.step, tier, to.node.as_str(), started, sent);
            }
        }))
    }

    /// Returns the transfers for an image of this node.
    fn errands<'a>(&self, launch: &'a LaunchOrder, rank: Rank) -> Vec<ImageTransfer<'a>> {
        let mut errands = Vec::new();
        if launch.tiers.nodes > 0 {
            let copy = |to| ImageTransfer {
                tier: CopyTier::Peer,
                to,
                what: ReplicaKind::Image,
                keep: ReplicaStorage::Memory,
            };
            errands.extend(or_nobody(self.copy_targets(launch)).map(copy));
        }
        if let Some(asked) = launch.tiers.parity {
            let (lane, holders) = self.parity_of(launch, rank, asked);
            let holders = or_nobody(holders).enumerate();
            errands.extend(holders.map(|(nth, to)| ImageTransfer {
                tier: CopyTier::Parity,
                to,
                what: ReplicaKind::Share(nth as u32),
                keep: ReplicaStorage::Sum(lane.clone()),
            }));
        }
        errands
    }

    fn report_copy(
        &self,
        rank: &RankRef,
        step: Step,
        tier: CopyTier,
        to: &str,
        started: Instant,
        sent: Result<u64, String>,
    ) {
        let body = EvidenceBody::Copied {
            generation: rank.generation,
            step,
            tier,
            to: to.to_owned(),
            bytes: sent.as_ref().copied().unwrap_or_default(),
            took_ms: started.elapsed().as_secs_f64() * 1e3,
            failed: sent.err(),
        };
        let entity = self.roster.entity(rank);
        self.intake
            .push(PendingEvidence::now(EvidenceSource::Checkpoint, entity, body));
    }

    /// Returns the nodes that hold the images of this one. All agents of a generation compute the same plan.
    fn copy_targets<'a>(&self, launch: &'a LaunchOrder) -> Vec<&'a PeerAgent> {
        let copies = usize::try_from(launch.tiers.nodes).unwrap_or(usize::MAX);
        let plan = plan_replicas(&self.members(launch), copies.saturating_add(1), None);
        let keepers = plan.holders_of(&self.node);
        keepers.iter().filter_map(|node| peer_of(launch, node)).collect()
    }

    /// Returns the nodes of a generation, each with its failure domain.
    pub(super) fn members(&self, launch: &LaunchOrder) -> Vec<PlacementNode> {
        let member = |node: &NodeId| {
            let domain = match peer_of(launch, node) {
                Some(peer) => &peer.failure_domain,
                None => &self.failure_domain,
            };
            let domains = Some(domain.clone()).filter(|domain| !domain.is_empty());
            PlacementNode {
                node: node.clone(),
                domains: domains.into_iter().collect(),
            }
        };
        launch.nodes.iter().map(member).collect()
    }

    pub(super) fn open(&self, peer: &PeerAgent) -> Result<Arc<BulkPeer>, String> {
        let limits = ClientLimits {
            deadline: self.peer_fetch,
            ..ClientLimits::default()
        };
        let address = address_of(&peer.address)?;
        let expected = ExpectedPeer::Agent(peer.node.clone());
        let opened = BulkPeer::new(address, expected, &self.network, limits, self.cap.clone());
        opened.map(Arc::new).map_err(chain)
    }
}

/// Returns the launch's entry for a node.
pub(super) fn peer_of<'a>(launch: &'a LaunchOrder, node: &NodeId) -> Option<&'a PeerAgent> {
    launch.peers.iter().find(|peer| peer.node == *node)
}

/// Transfer of an image or share to one node.
struct ImageTransfer<'a> {
    tier: CopyTier,
    /// `None` if no other node of the job can hold it.
    to: Option<&'a PeerAgent>,
    what: ReplicaKind,
    keep: ReplicaStorage,
}

/// Yields each node; yields one `None` if there are none, so that the failure is reported.
fn or_nobody(peers: Vec<&PeerAgent>) -> impl Iterator<Item = Option<&PeerAgent>> {
    let nobody = peers.is_empty().then_some(None);
    peers.into_iter().map(Some).chain(nobody)
}

/// Resolves an address, which may hold a host name.
fn address_of(told: &str) -> Result<SocketAddr, String> {
    let mut found = told
        .to_socket_addrs()
        .map_err(|problem| format!("{told:?} is no address: {problem}"))?;
    found.next().ok_or_else(|| format!("{told:?} has no address"))
}

/// Formats an error with all its causes, on one line.
fn chain(problem: BulkError) -> String {
    with_causes(&problem)
}

#[cfg(test)]
mod tests {
    use rankguard_model::CheckpointTiers;

    use super::*;
    use crate::collectors::testing::{launch, rank};
    use crate::intake::EvidenceIntake;
    use crate::roster::RankRoster;
    use crate::settings::AgentSettings;

    fn peer(node: &str, domain: &str) -> PeerAgent {
        PeerAgent {
            node: NodeId::from(node),
            address: "127.0.0.1:1".to_owned(),
            failure_domain: domain.to_owned(),
        }
    }

    #[tokio::test]
    async fn images_go_to_another_failure_domain_and_to_nobody_who_has_no_part_in_the_job() {
        let mut settings = AgentSettings::new(NodeId::from("n1"), "", "");
        settings.failure_domain = "rack-1".to_owned();
        let runtime = tokio::runtime::Handle::current();
        let node = settings.node.clone();
        let all = CheckpointService::new(
            &settings,
            &EvidenceIntake::new(node.clone()),
            &RankRoster::new(node),
            runtime,
        );
        let mut launch = launch(&rank(0));
        launch.nodes = ["n1", "n2", "n3", "n4"].map(NodeId::from).to_vec();
        launch.peers = vec![
            peer("n2", "rack-1"),
            peer("n3", "rack-2"),
            peer("n4", "rack-2"),
            peer("spare", "rack-3"),
        ];
        launch.tiers = CheckpointTiers {
            nodes: 1,
            ..CheckpointTiers::default()
        };
        let keepers = all.copy_targets(&launch);
        assert_eq!(keepers.len(), 1);
        assert_eq!(keepers[0].failure_domain, "rack-2");
        launch.nodes = vec![NodeId::from("n1")];
        assert!(all.copy_targets(&launch).is_empty());
    }
}
