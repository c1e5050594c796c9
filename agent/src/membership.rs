//! Nodes that the controller named to this agent, by purpose (RG-13): which nodes may read and write images of a job,
//! and which may measure the links to this one.
//!
//! A certificate proves that a caller is an agent of the cluster. It does not prove that the caller takes part in a
//! job: only the controller's orders show that. Callers without a certificate exist on loopback only, where they
//! cannot be identified and the check does not apply.
//!
//! Names are held in memory. A restarted agent has none until the controller fences the job again, and refuses callers
//! until then; they read from another tier.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rankguard_checkpoint_tiers::bulk::CallerAuthorization;
use rankguard_model::{AgentOrder, Generation, JobId, LaunchOrder, NodeId, PeerAgent};
use tokio::sync::watch;

/// Time for which nodes may measure after a preflight named them: several times the longest preflight.
const LINK_PERMIT: Duration = Duration::from_secs(600);
/// Maximum number of jobs that may measure at a time; the oldest permit is dropped first.
const LINK_PERMITS_MAX: usize = 64;
/// Longest time by which a caller may precede the order that names it: orders of one preflight are sent at the same
/// moment.
const ORDER_WAIT: Duration = Duration::from_secs(4);

/// Nodes that orders named. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobMembership {
    table: Arc<Mutex<MembershipTable>>,
    /// Counts changes, for callers that wait.
    learned: Arc<watch::Sender<u64>>,
}

#[derive(Debug, Default)]
struct MembershipTable {
    jobs: BTreeMap<JobId, GenerationMembers>,
    links: BTreeMap<JobId, LinkPermit>,
}

/// Nodes that take part in the newest generation of a job.
#[derive(Debug)]
struct GenerationMembers {
    generation: Generation,
    /// `None` if the controller is an older version that does not name them.
    nodes: Option<Vec<NodeId>>,
}

#[derive(Debug)]
struct LinkPermit {
    since: Instant,
    peers: Vec<PeerAgent>,
}

impl JobMembership {
    fn lock(&self) -> MutexGuard<'_, MembershipTable> {
        self.table.lock().expect("no holder of the membership panics")
    }

    /// Records the nodes that an order names. Called when the order arrives, ahead of queued orders.
    pub(crate) fn learn(&self, order: &AgentOrder) {
        match order {
            AgentOrder::Fence {
                job, generation, nodes, ..
            } => {
                let named = Some(nodes.clone()).filter(|nodes| !nodes.is_empty());
                self.lock().name(job, *generation, named);
            }
            AgentOrder::Launch(launch) => self.launch(launch),
            AgentOrder::Preflight(wanted) => self.lock().permit(&wanted.job, &wanted.links),
            AgentOrder::Keep { .. }
            | AgentOrder::Finish(_)
            | AgentOrder::Prepare(_)
            | AgentOrder::Stop { .. }
            | AgentOrder::Checkpoint { .. } => return,
        }
        self.learned.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Records the nodes of a generation that runs here.
    pub(crate) fn launch(&self, launch: &LaunchOrder) {
        let nodes = Some(launch.nodes.clone()).filter(|nodes| !nodes.is_empty());
        self.lock().name(&launch.job, launch.generation, nodes);
    }

    /// Removes a job that has ended.
    pub(crate) fn forget(&self, job: &JobId) {
        let mut table = self.lock();
        table.jobs.remove(job);
        table.links.remove(job);
    }

    /// Returns true if `caller` may open a port here for a measurement.
    pub(crate) async fn may_receive_from(&self, caller: &NodeId) -> bool {
        self.wait_for(|permit| permit.names(caller)).await
    }

    /// Returns true if `caller` may order this agent to send to an agent of this host.
    pub(crate) async fn may_send_to(&self, caller: &NodeId, host: &str) -> bool {
        self.wait_for(|permit| permit.names(caller) && permit.peers.iter().any(|peer| host_of(&peer.address) == host))
            .await
    }

    async fn wait_for(&self, wanted: impl Fn(&LinkPermit) -> bool) -> bool {
        let mut learned = self.learned.subscribe();
        let named = async {
            loop {
                let found = self
                    .lock()
                    .links
                    .values()
                    .any(|permit| permit.is_valid() && wanted(permit));
                if found {
                    return;
                }
                if learned.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::time::timeout(ORDER_WAIT, named).await.is_ok()
    }
}

/// Returns the host of an address (`host:port`), without the brackets of IPv6.
pub(crate) fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_matches(['[', ']'])
}

impl MembershipTable {
    fn name(&mut self, job: &JobId, generation: Generation, nodes: Option<Vec<NodeId>>) {
        if self.jobs.get(job).is_none_or(|known| known.generation <= generation) {
            self.jobs.insert(job.clone(), GenerationMembers { generation, nodes });
        }
    }

    fn permit(&mut self, job: &JobId, peers: &[PeerAgent]) {
        self.links.retain(|_, permit| permit.is_valid());
        if peers.is_empty() {
            return;
        }
        if self.links.len() >= LINK_PERMITS_MAX {
            let oldest = self.links.iter().min_by_key(|(_, permit)| permit.since);
            let oldest = oldest.map(|(job, _)| job.clone());
            oldest.and_then(|job| self.links.remove(&job));
        }
        let permit = LinkPermit {
            since: Instant::now(),
            peers: peers.to_vec(),
        };
        self.links.insert(job.clone(), permit);
    }
}

impl LinkPermit {
    fn is_valid(&self) -> bool {
        self.since.elapsed() < LINK_PERMIT
    }

    fn names(&self, node: &NodeId) -> bool {
        self.peers.iter().any(|peer| peer.node == *node)
    }
}

impl CallerAuthorization for JobMembership {
    /// Admits only nodes of the newest generation that an order named. An older generation is admitted here and
    /// refused as stale by the fence of the images; a newer one is not known to exist.
    fn is_authorized(&self, node: &NodeId, job: &JobId, generation: Generation) -> bool {
        let table = self.lock();
        let Some(known) = table.jobs.get(job) else {
            return false;
        };
        match &known.nodes {
            None => true,
            Some(_) if generation < known.generation => true,
            Some(nodes) => generation == known.generation && nodes.contains(node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(generation: u64, nodes: &[&str]) -> AgentOrder {
        AgentOrder::Fence {
            job: JobId::from("llm"),
            generation: Generation(generation),
            reserve_port: false,
            nodes: nodes.iter().map(|node| NodeId::from(*node)).collect(),
        }
    }

    #[test]
    fn only_nodes_of_the_newest_generation_use_images() {
        let members = JobMembership::default();
        let may = |node: &str, generation: u64| {
            members.is_authorized(&NodeId::from(node), &JobId::from("llm"), Generation(generation))
        };
        assert!(!may("a", 1), "a job that nobody named");
        members.learn(&fence(2, &["a", "b"]));
        assert!(may("a", 2) && may("b", 2) && !may("c", 2));
        assert!(
            !may("a", 3) && !may("c", 3) && !may("c", u64::MAX),
            "a generation that nobody named"
        );
        members.learn(&fence(1, &["c"]));
        assert!(!may("c", 2), "an order that came late");
        members.learn(&fence(3, &["b", "c"]));
        assert!(may("c", 3) && !may("a", 3));
        members.forget(&JobId::from("llm"));
        assert!(!may("b", 3));
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_measure_with_those_that_a_preflight_named() {
        let members = JobMembership::default();
        let peer = |node: &str, address: &str| PeerAgent {
            node: NodeId::from(node),
            address: address.to_owned(),
            failure_domain: String::new(),
        };
        let a = NodeId::from("a");
        let c = NodeId::from("c");
        assert!(!members.may_receive_from(&a).await);
        let table = &members.table;
        let peers = [peer("a", "10.0.0.1:7"), peer("b", "[fe80::1]:7")];
        table.lock().expect("it is free").permit(&JobId::from("llm"), &peers);
        assert!(members.may_receive_from(&a).await && !members.may_receive_from(&c).await);
        assert!(members.may_send_to(&a, "fe80::1").await);
        assert!(!members.may_send_to(&a, "169.254.169.254").await && !members.may_send_to(&c, "10.0.0.1").await);
    }
}
