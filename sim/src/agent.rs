//! Simulated agent: reports evidence, carries out orders, and can vanish.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_model::{Classification, EvidenceBody};
use rankguard_model::{
    ClockOffset, Device, DeviceKind, Entity, Evidence, EvidenceId, EvidenceSource, Generation, JobId, NodeId, NodeInfo,
    Rank, RankRef, RunningRank, Sequence, Timestamp,
};

/// Simulated node with its agent.
#[derive(Debug, Clone)]
pub(crate) struct SimulatedAgent {
    pub(crate) node: NodeId,
    pub(crate) alive: bool,
    incarnation: u32,
    seq: Sequence,
    /// Fences survive a restart of the agent, because they are stored on its disk.
    fences: BTreeMap<JobId, Generation>,
    /// Running ranks by number.
    pub(crate) ranks: BTreeMap<Rank, SimulatedProcess>,
    next_pid: u32,
    /// Arrival time of the latest report; later reports must not overtake it.
    pub(crate) delivered: Duration,
}

/// Process of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SimulatedProcess {
    pub(crate) job: JobId,
    pub(crate) generation: Generation,
    pub(crate) pid: u32,
}

impl SimulatedAgent {
    pub(crate) fn new(node: &str, number: usize) -> Self {
        Self {
            node: NodeId::from(node),
            alive: false,
            incarnation: 0,
            seq: Sequence(0),
            fences: BTreeMap::new(),
            ranks: BTreeMap::new(),
            next_pid: 1_000 * (number as u32 + 1),
            delivered: Duration::ZERO,
        }
    }

    /// Starts the agent without ranks.
    pub(crate) fn start(&mut self) {
        self.alive = true;
        self.incarnation += 1;
    }

    /// Stops the agent with its ranks.
    pub(crate) fn vanish(&mut self) {
        self.alive = false;
        self.ranks.clear();
    }

    pub(crate) fn info(&self, slots: u32) -> NodeInfo {
        NodeInfo {
            node: self.node.clone(),
            incarnation: format!("{}-{}", self.node, self.incarnation),
            boot_id: String::new(),
            host: self.node.to_string(),
            peer_address: format!("{}:7000", self.node),
            image_address: format!("{}:7001", self.node),
            slots,
            failure_domain: String::new(),
            running: self
                .ranks
                .iter()
                .map(|(rank, process)| RunningRank {
                    rank: RankRef {
                        job: process.job.clone(),
                        generation: process.generation,
                        rank: *rank,
                    },
                    pid: process.pid,
                    step: None,
                })
                .collect(),
            clock: ClockOffset::default(),
            lease_ms: 0,
            is_kernel_log_first: true,
            history: rankguard_model::NodeHistory::default(),
        }
    }

    /// Carries out a fence. Returns false if it is stale.
    pub(crate) fn fence(&mut self, job: &JobId, generation: Generation) -> bool {
        let known = self.fences.entry(job.clone()).or_default();
        if generation < *known {
            return false;
        }
        *known = generation;
        self.ranks
            .retain(|_, process| process.job != *job || process.generation >= generation);
        true
    }

    /// Starts a rank and returns its process id, or `None` if the order is stale or already carried out.
    pub(crate) fn launch(&mut self, job: &JobId, generation: Generation, rank: Rank) -> Option<u32> {
        let stale = self.fences.get(job).is_some_and(|known| generation < *known);
        let runs = self
            .ranks
            .get(&rank)
            .is_some_and(|process| process.generation == generation);
        if stale || runs {
            return None;
        }
        let pid = self.next_pid;
        self.next_pid += 1;
        self.ranks.insert(
            rank,
            SimulatedProcess {
                job: job.clone(),
                generation,
                pid,
            },
        );
        Some(pid)
    }

    pub(crate) fn rank_entity(&self, rank: Rank, process: &SimulatedProcess) -> Entity {
        Entity::Rank {
            job: process.job.clone(),
            generation: process.generation,
            rank,
            node: self.node.clone(),
        }
    }

    pub(crate) fn gpu_entity(&self, address: &str) -> Entity {
        let device = Device {
            kind: DeviceKind::Gpu,
            address: address.to_owned(),
        };
        Entity::Device {
            node: self.node.clone(),
            device,
        }
    }

    /// Returns the next piece of evidence of this node.
    pub(crate) fn evidence(
        &mut self,
        at: Timestamp,
        source: EvidenceSource,
        entity: Entity,
        body: EvidenceBody,
        marks: Vec<Classification>,
    ) -> Evidence {
        self.seq = self.seq.next();
        Evidence {
            id: EvidenceId {
                node: self.node.clone(),
                seq: self.seq,
            },
            at,
            source,
            entity,
            body,
            marks,
            synthetic: false,
        }
    }
}
