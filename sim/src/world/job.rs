//! Simulated job. All ranks complete each step at the same time.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_checkpoint_format::{Digest, Manifest};
use rankguard_checkpoint_schedule::agreement::{BoundaryDecision, RankCallState};
use rankguard_checkpoint_schedule::replica_differences::judgement::refusal;
use rankguard_checkpoint_schedule::replica_differences::{BoxReplica, ReplicaDifference, differences};
use rankguard_model::{
    Entity, EvidenceBody, EvidenceSource, Generation, NodeId, ProcessExit, Rank, RestoreBytes, ShardSeal, Step,
};

use rankguard_core::Event;

use super::{SimulatedWorld, TrainingGeneration, WorldEvent};

impl SimulatedWorld {
    /// Records the start of a rank, which restores step `from` and takes an image every `every` steps. When all ranks
    /// of the generation have started, they report the restore, and the first step is scheduled.
    pub(super) fn rank_started(
        &mut self,
        generation: Generation,
        world_size: usize,
        rank: Rank,
        node: &NodeId,
        (from, every): (u64, u64),
    ) {
        let fresh = self
            .training
            .as_ref()
            .is_none_or(|training| training.generation < generation);
        if fresh {
            self.training = Some(TrainingGeneration {
                generation,
                world_size,
                ranks: BTreeMap::new(),
                step: from,
                running: false,
                failed: false,
                followers: BTreeMap::new(),
            });
        }
        let Some(training) = self
            .training
            .as_mut()
            .filter(|training| training.generation == generation)
        else {
            return;
        };
        training.ranks.insert(rank, node.clone());
        let follower = RankCallState::new(generation, Step(from), every);
        training.followers.insert(rank, follower);
        if training.ranks.len() == training.world_size && !training.running {
            training.running = true;
            let ranks = training.ranks.clone();
            for (rank, node) in ranks {
                if let Some(entity) = self.entity(&node, rank) {
                    let body = EvidenceBody::Restored {
                        step: Step(from),
                        from: RestoreBytes::default(),
                        took_ms: 20.0,
                    };
                    self.report(&node, EvidenceSource::Checkpoint, entity, body);
                }
            }
            let delay = self.dice.millis(50, 150);
            self.later(delay, WorldEvent::Stepped(generation));
        }
    }

    /// Returns the entity of a rank on a node; `None` if it does not run there.
    pub(super) fn entity(&self, node: &NodeId, rank: Rank) -> Option<Entity> {
        let agent = self.agents.get(node)?;
        Some(agent.rank_entity(rank, agent.ranks.get(&rank)?))
    }

    /// Completes a step of all ranks: rank 0 reports progress, images that are due are sealed and reported as durable,
    /// and the next step is scheduled. After the last step of the script all ranks exit.
    pub(super) fn stepped(&mut self, generation: Generation) {
        let Some(training) = self
            .training
            .as_mut()
            .filter(|training| training.generation == generation)
        else {
            return;
        };
        let alive = |(rank, node): (&Rank, &NodeId)| {
            self.agents.get(node).is_some_and(|agent| {
                agent.alive
                    && agent
                        .ranks
                        .get(rank)
                        .is_some_and(|process| process.generation == generation)
            })
        };
        if training.failed || !training.ranks.iter().all(alive) {
            return self.peer_lost(generation);
        }
        training.step += 1;
        let now_at = training.step;
        let ranks = training.ranks.clone();
        let boundaries: BTreeMap<Rank, BoundaryDecision> = training
            .followers
            .iter_mut()
            .map(|(rank, follower)| (*rank, follower.decide_boundary(Step(now_at))))
            .collect();
        if let Some((rank, _)) = self
            .bugs
            .iter()
            .find(|(rank, at)| *at == now_at && ranks.contains_key(rank))
            .copied()
        {
            return self.raise(rank, &ranks);
        }
        for (rank, node) in &ranks {
            let Some(entity) = self.entity(node, *rank) else {
                continue;
            };
            if *rank == Rank(0) {
                let body = EvidenceBody::Progress {
                    step: Step(now_at),
                    loss: Some(2.3 / (1.0 + now_at as f64 / 50.0)),
                    step_ms: self.script.step_ms as f64,
                    own_ms: None,
                };
                self.report(node, EvidenceSource::Ranks, entity.clone(), body);
            }
            if boundaries.get(rank).is_some_and(|boundary| boundary.image) {
                let seal = ShardSeal {
                    rank: *rank,
                    step: Step(now_at),
                    world_size: ranks.len() as u32,
                    index: Digest::of(format!("{generation} {now_at} {rank}").as_bytes()).to_string(),
                    bytes: 1 << 20,
                    ledger: None,
                    schema: String::new(),
                };
                if let Some((lost, at, left)) = &self.untold
                    && (lost, *at) == (node, now_at)
                {
                    let other = ranks.values().find(|other| *other != node);
                    self.images.leave(generation, seal, *left, other);
                    continue;
                }
                self.images.put(generation, seal.clone());
                self.report(
                    node,
                    EvidenceSource::Checkpoint,
                    entity.clone(),
                    EvidenceBody::ShardSealed {
                        step: Step(now_at),
                        stall_ms: self.script.stall_ms as f64,
                        bytes: 1 << 20,
                    },
                );
                self.report(
                    node,
                    EvidenceSource::Checkpoint,
                    entity,
                    EvidenceBody::ShardDurable { seal },
                );
            }
        }
        if let Some((node, ..)) = self.untold.take_if(|(_, at, _)| *at == now_at) {
            self.transcript.note(
                self.now,
                &format!("FAULT   {node} is gone before it tells what it sealed"),
            );
            self.node_lost(&node);
        }
        if now_at >= self.script.steps {
            for (rank, node) in &ranks {
                if let Some(process) = self.agents.get(node).and_then(|agent| agent.ranks.get(rank)).cloned() {
                    self.exit(node, *rank, &process, ProcessExit::Code(0));
                }
            }
            return;
        }
        self.later(
            Duration::from_millis(self.script.step_ms),
            WorldEvent::Stepped(generation),
        );
    }

    /// Returns the outcome of a commit, as the store of a cluster answers it.
    pub(super) fn commit_event(&self, manifest: Manifest) -> Event {
        let differing = self.differing(manifest.step);
        let Manifest {
            job, step, generation, ..
        } = manifest;
        match refusal(&differing) {
            Some(reason) => Event::ManifestRefused {
                job,
                step,
                generation,
                reason,
                differing,
            },
            None => Event::ManifestCommitted {
                job,
                step,
                generation,
                differing,
                per_rank: Vec::new(),
                same_size: Vec::new(),
            },
        }
    }

    /// Returns the differences between replicas at a step. The ranks train data-parallel, so all hold the same values,
    /// except those on a node that computes wrong ones ([`crate::ScriptedFault::NodeCorrupt`]).
    fn differing(&self, step: Step) -> Vec<ReplicaDifference> {
        let (Some(training), Some((bad, from))) = (&self.training, &self.corrupt) else {
            return Vec::new();
        };
        let right = [Digest::of(b"right")];
        let wrong = [Digest::of(b"wrong")];
        let replica = |(rank, node): (&Rank, &NodeId)| BoxReplica {
            rank: *rank,
            tensor: "decoder.0.weight",
            offset: &[0, 0],
            shape: &[64, 64],
            chunk_bytes: 65_536,
            digests: if node == bad && step.0 >= *from { &wrong } else { &right },
        };
        differences(training.ranks.iter().map(replica))
    }

    /// Makes a rank write the traceback of an exception and exit with code 1.
    pub(super) fn raise(&mut self, rank: Rank, ranks: &BTreeMap<Rank, NodeId>) {
        let Some(node) = ranks.get(&rank) else { return };
        let Some(process) = self.agents.get(node).and_then(|agent| agent.ranks.get(&rank)).cloned() else {
            return;
        };
        let lines: Vec<String> = [
            "Traceback (most recent call last):",
            "  File \"train.py\", line 88, in <module>",
            "    main()",
            "  File \"train.py\", line 61, in main",
            "    logits = model(batch)",
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x65 and 64x256)",
        ]
        .map(str::to_owned)
        .into();
        if let Some(entity) = self.entity(node, rank) {
            self.lines(node, EvidenceSource::JobLog, &entity, &lines);
        }
        self.exit(node, rank, &process, ProcessExit::Code(1));
        self.peer_lost(process.generation);
    }

    /// Records that a rank of a generation is gone; the others notice after 20 to 120 ms.
    pub(super) fn peer_lost(&mut self, generation: Generation) {
        if let Some(training) = self
            .training
            .as_mut()
            .filter(|training| training.generation == generation)
            && !training.failed
        {
            training.failed = true;
            let delay = self.dice.millis(20, 120);
            self.later(delay, WorldEvent::PeersNotice(generation));
        }
    }

    /// Makes the surviving ranks of a generation write NCCL errors and exit with code 1.
    pub(super) fn peers_notice(&mut self, generation: Generation) {
        let Some(training) = self.training.take_if(|training| training.generation == generation) else {
            return;
        };
        for (rank, node) in &training.ranks {
            let Some(process) = self
                .agents
                .get(node)
                .filter(|agent| agent.alive)
                .and_then(|agent| agent.ranks.get(rank))
                .cloned()
            else {
                continue;
            };
            // Messages of NCCL and torch in a surviving rank, in the order in which they appear.
            let lines = [
                format!(
                    "{node}:{pid}:{pid} [0] misc/socket.cc:71 NCCL WARN socketProgressOpt: Call to recv from \
                     10.0.0.7<43532> failed : Connection reset by peer",
                    pid = process.pid
                ),
                format!(
                    "[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: \
                     /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3690, remote process exited or there was a \
                     network error, NCCL version 2.27.3"
                ),
                format!(
                    "[rank{rank}]: ncclRemoteError: A call failed possibly due to a network error or a remote process \
                     exiting prematurely."
                ),
                format!("[rank{rank}]: Last error:"),
                format!(
                    "[rank{rank}]: socketProgressOpt: Call to recv from 10.0.0.7<43532> failed : Connection reset by peer"
                ),
            ];
            if let Some(entity) = self.entity(node, *rank) {
                self.lines(node, EvidenceSource::JobLog, &entity, &lines);
            }
            self.exit(node, *rank, &process, ProcessExit::Code(1));
        }
    }
}
