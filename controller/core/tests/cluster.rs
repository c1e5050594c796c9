//! Small cluster around the decision core, with nodes that carry out their orders.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_checkpoint_format::{CheckpointId, Manifest};
use rankguard_core::{Action, ChunkName, DecisionState, Event, Job, Policy, StampedEvent, invariants, step};
use rankguard_faults::Catalogue;
use rankguard_model::{
    AgentOrder, Case, CheckpointCall, CheckpointPolicy, CheckpointTiers, ClassId, Classification, ClockOffset, Device,
    DeviceKind, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, FailedCheck, FieldValues, Generation,
    JobId, JobSpec, NodeHistory, NodeId, NodeInfo, NodeRange, NodeState, ProcessExit, Rank, RankRef, RetentionPolicy,
    Role, RunningRank, Sequence, ShardSeal, Step, Timestamp,
};

/// Four nodes with two slots each, and a job with at most four nodes.
pub(crate) struct Cluster {
    pub(crate) state: DecisionState,
    pub(crate) now: Timestamp,
    seqs: BTreeMap<NodeId, u64>,
    pub(crate) orders: Vec<(NodeId, AgentOrder)>,
    /// Preflight answers of the nodes.
    pub(crate) answers: BTreeMap<NodeId, (Vec<FailedCheck>, BTreeMap<String, String>)>,
    pub(crate) announced: Vec<String>,
    /// Open requests to list shards in the store.
    pub(crate) looks: Vec<Look>,
    /// Manifests that are not written yet.
    pub(crate) manifests: Vec<Manifest>,
    /// Checkpoints that the collection after the newest of these manifests leaves.
    pub(crate) pinned: Vec<CheckpointId>,
    /// Requested checks that are not answered yet.
    pub(crate) checks: Vec<(CheckpointId, Option<ChunkName>)>,
}

/// Request to list shards in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) generation: Generation,
    pub(crate) of: Generation,
    pub(crate) after: Option<Step>,
}

/// Returns the name of the job.
pub(crate) fn job() -> JobId {
    JobId::from("llm")
}

/// Returns the name of a node.
pub(crate) fn node(number: u32) -> NodeId {
    NodeId::from(format!("node-{number}"))
}

/// Returns the join of an agent with two slots and no ranks.
pub(crate) fn agent_info(name: &NodeId, incarnation: &str) -> NodeInfo {
    NodeInfo {
        node: name.clone(),
        incarnation: incarnation.to_owned(),
        boot_id: String::new(),
        host: "h".to_owned(),
        peer_address: "h:1".to_owned(),
        image_address: "h:1".to_owned(),
        slots: 2,
        failure_domain: String::new(),
        running: Vec::new(),
        clock: ClockOffset::default(),
        lease_ms: 0,
        is_kernel_log_first: false,
        history: NodeHistory::default(),
    }
}

/// Returns a rank that an agent reports at its join.
pub(crate) fn running_rank(name: &str, generation: u64, rank: u32) -> RunningRank {
    RunningRank {
        rank: RankRef {
            job: JobId::from(name),
            generation: Generation(generation),
            rank: Rank(rank),
        },
        pid: 70 + rank,
        step: None,
    }
}

impl Cluster {
    /// Creates a cluster with all nodes joined.
    pub(crate) fn new(policy: Policy) -> Self {
        let mut cluster = Self {
            state: DecisionState::new(policy, Catalogue::builtin()),
            now: Timestamp(1_700_000_000_000_000_000),
            seqs: BTreeMap::new(),
            orders: Vec::new(),
            answers: BTreeMap::new(),
            announced: Vec::new(),
            looks: Vec::new(),
            manifests: Vec::new(),
            pinned: Vec::new(),
            checks: Vec::new(),
        };
        for number in 0..4 {
            let info = agent_info(&node(number), "1");
            cluster.tell(Event::NodeJoined { info });
        }
        cluster
    }

    /// Runs a job with two ranks a node; all have made step 40.
    pub(crate) fn running(policy: Policy) -> Self {
        Self::started(policy, None, 4)
    }

    /// Runs a job with checkpoints and at least three nodes.
    pub(crate) fn checkpointed(policy: Policy, tiers: CheckpointTiers) -> Self {
        Self::started(policy, Some(Self::checkpoint_policy(tiers)), 3)
    }

    pub(crate) fn checkpoint_policy(tiers: CheckpointTiers) -> CheckpointPolicy {
        CheckpointPolicy {
            every_steps: 10,
            store: "/checkpoints".to_owned(),
            keep: 2,
            retention: RetentionPolicy::default(),
            tiers,
        }
    }

    /// Runs a job with checkpoints and without step marks.
    pub(crate) fn unmarked(policy: Policy) -> Self {
        let mut cluster = Self::new(policy);
        cluster.submit_with(3, Some(Self::checkpoint_policy(CheckpointTiers::default())));
        cluster.obey();
        cluster.obey();
        cluster
    }

    fn started(policy: Policy, checkpoint: Option<CheckpointPolicy>, least: u32) -> Self {
        let mut cluster = Self::new(policy);
        cluster.submit_with(least, checkpoint);
        cluster.obey();
        cluster.obey();
        for rank in 0..8 {
            cluster.progress(rank, 40);
        }
        cluster
    }

    /// Submits a job with at most four nodes and at least `least`.
    pub(crate) fn submit(&mut self, least: u32) {
        self.submit_with(least, None);
    }

    fn submit_with(&mut self, least: u32, checkpoint: Option<CheckpointPolicy>) {
        let spec = self.spec(least, checkpoint);
        self.tell(Event::JobSubmitted { spec, claim: None });
    }

    /// Returns the specification of the job.
    pub(crate) fn spec(&self, least: u32, checkpoint: Option<CheckpointPolicy>) -> JobSpec {
        JobSpec {
            id: job(),
            command: vec!["train".to_owned()],
            env: BTreeMap::new(),
            workdir: None,
            nodes: NodeRange { min: least, max: 4 },
            ranks_per_node: 2,
            checkpoint,
            max_restarts: 3,
            user: None,
            resume_from: None,
            standby: None,
        }
    }

    pub(crate) fn tell(&mut self, event: Event) {
        let stamped = StampedEvent { at: self.now, event };
        for action in step(&mut self.state, &stamped) {
            match action {
                Action::SendOrder { node, order, .. } => self.orders.push((node, order)),
                Action::Announce { text } => self.announced.push(text),
                Action::FindShards {
                    generation, of, after, ..
                } => self.looks.push(Look { generation, of, after }),
                Action::CommitManifest { manifest, pinned, .. } => {
                    self.manifests.push(manifest);
                    self.pinned = pinned;
                }
                Action::CheckCheckpoint { id, chunk, .. } => self.checks.push((id, chunk)),
                Action::SetTimer { .. } => {}
            }
        }
        assert_eq!(invariants::check(&self.state), []);
    }

    /// Advances the time and fires the timers that are due.
    pub(crate) fn wait(&mut self, duration: Duration) {
        let until = self.now.after(duration);
        loop {
            let timers = self.state.timers();
            let Some((timer, due)) = timers.iter().min_by_key(|(_, due)| **due).map(|(t, d)| (t.clone(), *d)) else {
                break;
            };
            if due > until {
                break;
            }
            self.now = self.now.max(due);
            self.tell(Event::TimerFired { timer });
        }
        self.now = until;
    }

    pub(crate) fn report(
        &mut self,
        node: NodeId,
        source: EvidenceSource,
        entity: Entity,
        body: EvidenceBody,
        marks: Vec<Classification>,
    ) {
        self.report_as(false, node, source, entity, (body, marks));
    }

    /// Reports evidence of a drill, or real evidence.
    pub(crate) fn report_as(
        &mut self,
        synthetic: bool,
        node: NodeId,
        source: EvidenceSource,
        entity: Entity,
        (body, marks): (EvidenceBody, Vec<Classification>),
    ) {
        let evidence = Evidence {
            marks,
            synthetic,
            ..self.next_evidence(node, source, entity, body)
        };
        self.tell(Event::EvidenceArrived { evidence });
    }

    pub(crate) fn rank_says(&mut self, rank: u32, body: EvidenceBody, marks: Vec<Classification>) {
        let (node, entity) = self.rank_entity(rank);
        self.report(node, EvidenceSource::Ranks, entity, body, marks);
    }

    /// Reports evidence of a rank that is of an earlier time than its arrival.
    pub(crate) fn rank_says_at(&mut self, at: Timestamp, rank: u32, body: EvidenceBody) {
        let arrived_at = std::mem::replace(&mut self.now, at);
        let (node, entity) = self.rank_entity(rank);
        let evidence = self.next_evidence(node, EvidenceSource::Ranks, entity, body);
        self.now = arrived_at;
        self.tell(Event::EvidenceArrived { evidence });
    }

    /// Returns evidence of the present with the next sequence number of a node.
    fn next_evidence(&mut self, node: NodeId, source: EvidenceSource, entity: Entity, body: EvidenceBody) -> Evidence {
        let seq = self.seqs.entry(node.clone()).or_default();
        *seq += 1;
        Evidence {
            id: EvidenceId {
                node,
                seq: Sequence(*seq),
            },
            at: self.now,
            source,
            entity,
            body,
            marks: Vec::new(),
            synthetic: false,
        }
    }

    /// Reports evidence of a rank, which is of a drill if `synthetic` is true.
    pub(crate) fn rank_reports(&mut self, rank: u32, body: EvidenceBody, synthetic: bool) {
        let (node, entity) = self.rank_entity(rank);
        self.report_as(synthetic, node, EvidenceSource::Ranks, entity, (body, Vec::new()));
    }

    pub(crate) fn rank_entity(&self, rank: u32) -> (NodeId, Entity) {
        let node = node(rank / 2);
        let entity = Entity::Rank {
            job: job(),
            generation: self.state.jobs()[&job()].generation(),
            rank: Rank(rank),
            node: node.clone(),
        };
        (node, entity)
    }

    pub(crate) fn obey(&mut self) {
        for (node, order) in std::mem::take(&mut self.orders) {
            match order {
                AgentOrder::Fence {
                    job,
                    generation,
                    reserve_port,
                    ..
                } => {
                    let body = EvidenceBody::Fenced {
                        job,
                        generation,
                        master_port: reserve_port.then_some(29_500),
                        ended: 0,
                        left: Vec::new(),
                    };
                    self.report(
                        node.clone(),
                        EvidenceSource::Agent,
                        Entity::Node { node },
                        body,
                        Vec::new(),
                    );
                }
                AgentOrder::Stop { job, generation, .. } => {
                    let body = EvidenceBody::Stopped {
                        job,
                        generation,
                        ended: 2,
                        left: Vec::new(),
                    };
                    self.report(
                        node.clone(),
                        EvidenceSource::Agent,
                        Entity::Node { node },
                        body,
                        Vec::new(),
                    );
                }
                AgentOrder::Preflight(wanted) => {
                    let (failed, environment) = self.answers.get(&node).cloned().unwrap_or_default();
                    let body = EvidenceBody::Preflighted {
                        job: wanted.job,
                        generation: wanted.generation,
                        failed,
                        environment,
                    };
                    self.report(
                        node.clone(),
                        EvidenceSource::Agent,
                        Entity::Node { node },
                        body,
                        Vec::new(),
                    );
                }
                AgentOrder::Launch(launch) => {
                    for slot in &launch.ranks {
                        self.rank_says(
                            slot.rank.0,
                            EvidenceBody::RankStarted {
                                pid: slot.rank.0,
                                from_standby: false,
                            },
                            Vec::new(),
                        );
                    }
                }
                _ => {}
            }
        }
    }

    pub(crate) fn progress(&mut self, rank: u32, step: u64) {
        let body = EvidenceBody::Progress {
            step: Step(step),
            loss: None,
            step_ms: 1.0,
            own_ms: None,
        };
        self.rank_says(rank, body, Vec::new());
    }

    /// All ranks store the step that they were called to checkpoint.
    pub(crate) fn checkpoint_called(&mut self) {
        let called = self.orders.iter().rev().find_map(|(_, order)| match order {
            AgentOrder::Checkpoint {
                call: CheckpointCall::At { step },
                ..
            } => Some(step.0),
            _ => None,
        });
        self.checkpoint(called.expect("a step is called"));
    }

    /// Returns true if an order calls the job to checkpoint.
    pub(crate) fn is_called(&self) -> bool {
        let is_call = |order: &AgentOrder| matches!(order, AgentOrder::Checkpoint { .. });
        self.orders.iter().any(|(_, order)| is_call(order))
    }

    pub(crate) fn cases(&self) -> Vec<&Case> {
        self.state.cases().values().collect()
    }

    pub(crate) fn generation(&self) -> Generation {
        self.state.jobs()[&job()].generation()
    }

    pub(crate) fn job(&self) -> &Job {
        &self.state.jobs()[&job()]
    }

    pub(crate) fn node_state(&self, number: u32) -> NodeState {
        self.state.fleet().get(&node(number)).expect("it joined").state()
    }

    pub(crate) fn joins(&mut self, number: u32, incarnation: &str, ranks: &[u32]) {
        let mut info = agent_info(&node(number), incarnation);
        info.running = ranks
            .iter()
            .map(|rank| running_rank("llm", self.generation().0, *rank))
            .collect();
        self.tell(Event::NodeJoined { info });
    }

    pub(crate) fn falls_silent(&mut self, number: u32) {
        let last_heard = self.now;
        self.tell(Event::NodeFellSilent {
            node: node(number),
            last_heard,
        });
    }

    pub(crate) fn gpu_is_lost(&mut self, name: &NodeId) {
        let mark = Classification {
            class: ClassId::from("gpu-fallen-off-bus"),
            role: Role::Root,
            confidence: 0.95,
            signature: "nvrm.xid-79".into(),
            fields: FieldValues::new(),
        };
        let device = Device {
            kind: DeviceKind::Gpu,
            address: "0000:9b:00".to_owned(),
        };
        let entity = Entity::Device {
            node: name.clone(),
            device,
        };
        let body = EvidenceBody::Line {
            text: "NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.".to_owned(),
            context: Vec::new(),
            repeats: 1,
        };
        self.report(name.clone(), EvidenceSource::KernelLog, entity, body, vec![mark]);
    }

    pub(crate) fn exits(&mut self, rank: u32, exit: ProcessExit, ended_by_agent: bool) {
        let body = EvidenceBody::RankExited {
            pid: rank,
            exit,
            ended_by_agent,
        };
        self.rank_says(rank, body, Vec::new());
    }

    pub(crate) fn activity(&mut self, rank: u32, state: &str) {
        let mark = Classification {
            class: ClassId::from("none"),
            role: Role::Noise,
            confidence: 0.9,
            signature: "ranks.activity".into(),
            fields: [("state", state.to_owned())].into(),
        };
        let body = EvidenceBody::Line {
            text: state.to_owned(),
            context: Vec::new(),
            repeats: 1,
        };
        self.rank_says(rank, body, vec![mark]);
    }

    /// Carries out orders until the ranks of the next generation have started.
    pub(crate) fn restarts(&mut self) {
        for _ in 0..4 {
            self.obey();
        }
    }

    /// Carries out orders until the ranks of the next generation have started; the store has no shards of them.
    pub(crate) fn restarts_from_empty_store(&mut self) {
        for _ in 0..4 {
            self.obey();
            for look in std::mem::take(&mut self.looks) {
                self.tell(Event::ShardsFound {
                    job: job(),
                    generation: look.generation,
                    seals: Vec::new(),
                    newest: None,
                    committed: Vec::new(),
                    same_size: Vec::new(),
                    unusable: Vec::new(),
                    problem: None,
                });
            }
        }
    }

    /// All ranks store their shard of a step, and the manifest is written.
    pub(crate) fn checkpoint(&mut self, step: u64) {
        let world_size = self.job().plan().expect("it is placed").world_size();
        for rank in 0..world_size {
            let seal = ShardSeal {
                rank: Rank(rank),
                step: Step(step),
                world_size,
                index: "0".repeat(64),
                bytes: 1,
                ledger: None,
                schema: String::new(),
            };
            self.rank_says(rank, EvidenceBody::ShardDurable { seal }, Vec::new());
        }
        let manifest = self.manifests.pop().expect("it is whole");
        self.tell(Event::ManifestCommitted {
            job: job(),
            step: manifest.step,
            generation: manifest.generation,
            differing: Vec::new(),
            per_rank: Vec::new(),
            same_size: Vec::new(),
        });
    }
}
