//! Random walk in progress: the state, its journal and a world that carries out its actions.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_checkpoint_format::CheckpointId;
use rankguard_core::{
    Action, CheckFinding, DecisionState, Event, Policy, PreflightMode, StampedEvent, invariants, step,
};
use rankguard_faults::Catalogue;
use rankguard_model::{
    AgentOrder, ClassId, Classification, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, FailedCheck,
    Generation, JobId, NodeId, Rank, RankRef, Sequence, ShardSeal, Timestamp,
};

use super::budgets::BudgetJudge;
use super::cases::CaseJudge;

pub(super) struct Walk {
    pub(super) state: DecisionState,
    pub(super) journal: Vec<StampedEvent>,
    pub(super) now: Timestamp,
    seqs: BTreeMap<NodeId, u64>,
    pub(super) orders: Vec<(NodeId, AgentOrder)>,
    pub(super) manifests: Vec<rankguard_checkpoint_format::Manifest>,
    generations: BTreeMap<JobId, Generation>,
    /// Open requests to list shards in the store: job, current generation, generation of the shards.
    looks: Vec<(JobId, Generation, Generation)>,
    /// Requested checks that are not answered yet.
    pub(super) checks: Vec<(JobId, CheckpointId)>,
    /// Shards in the store, regardless of their writer.
    pub(super) store: BTreeMap<(JobId, Generation), Vec<ShardSeal>>,
    /// Newest generation of each job that could commit.
    commits: BTreeMap<JobId, Generation>,
    /// Hidden truth: the ranks that run on each node.
    pub(super) processes: BTreeMap<NodeId, BTreeSet<RankRef>>,
    /// Fence of each agent, on its disk.
    fences: BTreeMap<(NodeId, JobId), Generation>,
    budgets: BTreeMap<JobId, BudgetJudge>,
    cases: CaseJudge,
    /// True if reported evidence is synthetic.
    pub(super) is_drill: bool,
}

pub(super) const CLASSES: [&str; 5] = [
    "gpu-fallen-off-bus",
    "nic-fault",
    "host-oom-kill",
    "cpu-lockup",
    "gpu-ecc-degrading",
];

/// Returns a difference between two replicas, without a majority.
pub(super) fn difference() -> rankguard_checkpoint_schedule::replica_differences::ReplicaDifference {
    rankguard_checkpoint_schedule::replica_differences::ReplicaDifference {
        tensor: "w".to_owned(),
        offset: vec![0],
        shape: vec![8],
        chunks: vec![0],
        chunk_count: 1,
        groups: vec![vec![Rank(0)], vec![Rank(1)]],
    }
}

/// Risks are answered at once, so that calls mix with all other events.
pub(super) fn policy() -> Policy {
    Policy {
        risk_ms: 1,
        preflight: PreflightMode::Require,
        ..Policy::default()
    }
}

pub(super) fn node(number: u8) -> NodeId {
    NodeId::from(format!("node-{number}"))
}

pub(super) fn job(number: u8) -> JobId {
    JobId::from(format!("job-{number}"))
}

impl Walk {
    pub(super) fn new() -> Self {
        Self {
            state: DecisionState::new(policy(), Catalogue::builtin()),
            journal: Vec::new(),
            now: Timestamp(1_700_000_000_000_000_000),
            seqs: BTreeMap::new(),
            orders: Vec::new(),
            manifests: Vec::new(),
            generations: BTreeMap::new(),
            looks: Vec::new(),
            checks: Vec::new(),
            store: BTreeMap::new(),
            commits: BTreeMap::new(),
            processes: BTreeMap::new(),
            fences: BTreeMap::new(),
            budgets: BTreeMap::new(),
            cases: CaseJudge::default(),
            is_drill: false,
        }
    }

    /// An agent ends the ranks of a job below a generation and refuses them from now on.
    pub(super) fn end_below(&mut self, node: &NodeId, job: &JobId, generation: Generation) -> u32 {
        let fence = self.fences.entry((node.clone(), job.clone())).or_default();
        *fence = generation.max(*fence);
        let Some(running) = self.processes.get_mut(node) else {
            return 0;
        };
        let before = running.len();
        running.retain(|rank| rank.job != *job || rank.generation >= generation);
        (before - running.len()) as u32
    }

    /// RG-3: a node that takes work runs no rank of another job or generation.
    fn start_rank(&mut self, node: &NodeId, rank: RankRef) -> bool {
        let fence = self.fences.get(&(node.clone(), rank.job.clone()));
        if fence.is_some_and(|fence| rank.generation < *fence) {
            return false;
        }
        let running = self.processes.entry(node.clone()).or_default();
        let stale = running
            .iter()
            .find(|other| (&other.job, other.generation) != (&rank.job, rank.generation));
        assert!(stale.is_none(), "RG-3: {node} starts {rank:?} beside {stale:?}");
        running.insert(rank)
    }

    pub(super) fn tell(&mut self, event: Event) {
        self.now = self.now.after(std::time::Duration::from_millis(1));
        let is_return = matches!(event, Event::NodeUncordoned { .. });
        let stamped = StampedEvent { at: self.now, event };
        let cordoned = self.state.fleet().cordoned_by_verdict();
        let actions = step(&mut self.state, &stamped);
        self.journal.push(stamped);
        self.cases.look(&self.state, self.now, is_return);
        let fleet = self.state.fleet();
        let limit = self.state.policy().cordon_budget(fleet.live());
        if fleet.cordoned_by_verdict() > cordoned {
            let used = fleet.cordoned();
            assert!(
                used <= limit,
                "RG-6: {used} nodes are cordoned of {} live",
                fleet.live()
            );
        }
        for action in actions {
            match action {
                Action::SendOrder { node, order, .. } => self.orders.push((node, order)),
                Action::CommitManifest { manifest, .. } => {
                    let job = &self.state.jobs()[&manifest.job];
                    let acts = job.committable() == Some(manifest.generation);
                    let again = job.checkpoints.committing.as_ref() == Some(&manifest);
                    assert!(acts || again, "RG-3: generation {} commits", manifest.generation);
                    self.manifests.push(manifest);
                }
                Action::FindShards {
                    job, generation, of, ..
                } => self.looks.push((job, generation, of)),
                Action::CheckCheckpoint { job, id, .. } => self.checks.push((job, id)),
                Action::SetTimer { .. } | Action::Announce { .. } => {}
            }
        }
        let broken = invariants::check(&self.state);
        assert!(broken.is_empty(), "{broken:?}\nafter {:#?}", self.journal.last());
        for (name, job) in self.state.jobs() {
            self.budgets.entry(name.clone()).or_default().judge(name, job);
            let before = self
                .generations
                .insert(name.clone(), job.generation())
                .unwrap_or_default();
            assert!(
                before <= job.generation(),
                "RG-3: {name} went from generation {before} to {}",
                job.generation()
            );
            if let Some(committable) = job.committable() {
                let newest = self.commits.insert(name.clone(), committable).unwrap_or_default();
                assert!(
                    newest <= committable,
                    "RG-3: {name} gave the commit right back from generation {newest} to {committable}"
                );
            }
        }
    }

    pub(super) fn report(
        &mut self,
        node: NodeId,
        source: EvidenceSource,
        entity: Entity,
        body: EvidenceBody,
        marks: Vec<Classification>,
    ) {
        let seq = self.seqs.entry(node.clone()).or_default();
        *seq += 1;
        let id = EvidenceId {
            node,
            seq: Sequence(*seq),
        };
        let evidence = Evidence {
            id,
            at: self.now,
            source,
            entity,
            body,
            marks,
            synthetic: self.is_drill,
        };
        self.tell(Event::EvidenceArrived { evidence });
    }

    pub(super) fn rank_report(&mut self, name: &JobId, rank: u8, old: bool, body: EvidenceBody) {
        self.rank_report_marked(name, rank, old, body, Vec::new());
    }

    pub(super) fn rank_report_marked(
        &mut self,
        name: &JobId,
        rank: u8,
        old: bool,
        body: EvidenceBody,
        marks: Vec<Classification>,
    ) {
        let Some(job) = self.state.jobs().get(name) else { return };
        let generation = Generation(job.generation().0.saturating_sub(u64::from(old)));
        let Some(plan) = job.plan() else { return };
        let places = plan.placements();
        let place = places[usize::from(rank) % places.len()].clone();
        if let EvidenceBody::RankExited { .. } = &body {
            let ended = RankRef {
                job: name.clone(),
                generation,
                rank: place.rank,
            };
            self.processes.entry(place.node.clone()).or_default().remove(&ended);
        }
        let entity = Entity::Rank {
            job: name.clone(),
            generation,
            rank: place.rank,
            node: place.node.clone(),
        };
        let source = match &body {
            EvidenceBody::ShardFailed { .. } => EvidenceSource::Checkpoint,
            _ => EvidenceSource::Ranks,
        };
        self.report(place.node, source, entity, body, marks);
    }

    pub(super) fn obey(&mut self) {
        // The consequences of the answers follow later: other events may occur in between.
        let orders = std::mem::take(&mut self.orders);
        for (job, generation, of) in std::mem::take(&mut self.looks) {
            let seals = self.store.get(&(job.clone(), of)).cloned().unwrap_or_default();
            self.tell(Event::ShardsFound {
                job,
                generation,
                seals,
                newest: None,
                committed: Vec::new(),
                same_size: Vec::new(),
                unusable: Vec::new(),
                problem: None,
            });
        }
        for (job, id) in std::mem::take(&mut self.checks) {
            // Every third is damaged, every other third cannot be read.
            let finding = match id.step.0 % 3 {
                0 => CheckFinding::Intact,
                1 => CheckFinding::Damaged {
                    what: "a flipped bit".to_owned(),
                },
                _ => CheckFinding::Unavailable {
                    reason: "no answer".to_owned(),
                },
            };
            self.checked(job, id, finding);
        }
        for (node, order) in orders {
            if !self.state.fleet().is_live(&node) {
                continue;
            }
            match order {
                AgentOrder::Fence {
                    job,
                    generation,
                    reserve_port,
                    ..
                } => {
                    let ended = self.end_below(&node, &job, generation);
                    let body = EvidenceBody::Fenced {
                        job,
                        generation,
                        master_port: reserve_port.then_some(29_500),
                        ended,
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
                AgentOrder::Launch(launch) => {
                    for slot in launch.ranks {
                        let rank = RankRef {
                            job: launch.job.clone(),
                            generation: launch.generation,
                            rank: slot.rank,
                        };
                        if !self.start_rank(&node, rank) {
                            continue;
                        }
                        let entity = Entity::Rank {
                            job: launch.job.clone(),
                            generation: launch.generation,
                            rank: slot.rank,
                            node: node.clone(),
                        };
                        self.report(
                            node.clone(),
                            EvidenceSource::Ranks,
                            entity,
                            EvidenceBody::RankStarted {
                                pid: 7,
                                from_standby: false,
                            },
                            Vec::new(),
                        );
                    }
                }
                AgentOrder::Preflight(wanted) => {
                    // Nodes with a number that ends in 2 fail a check.
                    let class = ClassId::from("path-not-found");
                    let lacks = node.as_str().ends_with('2').then(|| FailedCheck {
                        check: "path".to_owned(),
                        subject: "/data".to_owned(),
                        class,
                        found: "it is not there".to_owned(),
                        advice: String::new(),
                    });
                    let body = EvidenceBody::Preflighted {
                        job: wanted.job,
                        generation: wanted.generation,
                        failed: lacks.into_iter().collect(),
                        environment: BTreeMap::new(),
                    };
                    self.report(
                        node.clone(),
                        EvidenceSource::Agent,
                        Entity::Node { node },
                        body,
                        Vec::new(),
                    );
                }
                AgentOrder::Finish(wanted) => {
                    let shards = self.bring(&node, &wanted.job, wanted.of);
                    let body = EvidenceBody::ShardsFinished {
                        job: wanted.job,
                        generation: wanted.generation,
                        from: wanted.from,
                        shards,
                        failed: None,
                    };
                    self.report(
                        node.clone(),
                        EvidenceSource::Checkpoint,
                        Entity::Node { node },
                        body,
                        Vec::new(),
                    );
                }
                AgentOrder::Stop { job, generation, .. } => {
                    let ended = self.end_below(&node, &job, generation.next());
                    let body = EvidenceBody::Stopped {
                        job,
                        generation,
                        ended,
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
                // Nodes with a number that ends in 3 do not answer.
                AgentOrder::Prepare(wanted) => {
                    let count = wanted.standby.map_or(0, |policy| policy.count);
                    if count == 0 || node.as_str().ends_with('3') {
                        continue;
                    }
                    let body = EvidenceBody::Prepared {
                        job: wanted.job,
                        generation: wanted.generation,
                        waiting: count,
                        problem: None,
                    };
                    self.report(
                        node.clone(),
                        EvidenceSource::Agent,
                        Entity::Node { node },
                        body,
                        Vec::new(),
                    );
                }
                AgentOrder::Keep { .. } | AgentOrder::Checkpoint { .. } => {}
            }
        }
    }

    /// Answers a check by the controller.
    pub(super) fn checked(&mut self, job: JobId, id: CheckpointId, finding: CheckFinding) {
        self.tell(Event::CheckpointChecked {
            job,
            step: id.step,
            generation: id.generation,
            finding,
        });
    }

    /// Writes the missing shards of the newest step to the store, for nodes with a number that does not end in 1.
    fn bring(&mut self, node: &NodeId, job: &JobId, of: Generation) -> u32 {
        let Some(there) = self.store.get_mut(&(job.clone(), of)) else {
            return 0;
        };
        let Some(newest) = there.iter().max_by_key(|seal| seal.step).cloned() else {
            return 0;
        };
        let has = |there: &[ShardSeal], rank| there.iter().any(|seal| (seal.step, seal.rank) == (newest.step, rank));
        let missing: Vec<Rank> = (0..newest.world_size)
            .map(Rank)
            .filter(|rank| !has(there, *rank))
            .collect();
        if node.as_str().ends_with('1') {
            return 0;
        }
        there.extend(missing.iter().map(|rank| ShardSeal {
            rank: *rank,
            ..newest.clone()
        }));
        missing.len() as u32
    }

    /// Writes a shard to the store; every fifth is not reported.
    pub(super) fn seal(&mut self, job: &JobId, seal: ShardSeal) {
        let generation = self.state.jobs()[job].generation();
        self.store
            .entry((job.clone(), generation))
            .or_default()
            .push(seal.clone());
        let rank = u8::try_from(seal.rank.0).unwrap_or(0);
        if (seal.step.0 + u64::from(rank)) % 5 != 4 {
            self.rank_report(job, rank, false, EvidenceBody::ShardDurable { seal });
        }
    }
}
