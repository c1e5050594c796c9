//! Reports of agents, and execution of their orders.

use rankguard_checkpoint_schedule::agreement::{CallResponse, CheckpointCallMessage};
use rankguard_core::Event;
use rankguard_model::{AgentOrder, Entity, EvidenceBody, EvidenceSource, NodeId, ProcessExit, Rank, Step};

use super::{SimulatedWorld, WorldEvent};
use crate::agent::SimulatedProcess;
use crate::log_triage::triage;

impl SimulatedWorld {
    pub(super) fn join(&mut self, node: &NodeId) {
        let slots = self.script.ranks_per_node;
        let Some(agent) = self.agents.get_mut(node) else { return };
        agent.start();
        let info = agent.info(slots);
        let delay = self.dice.millis(1, 50);
        self.later(delay, WorldEvent::Told(Event::NodeJoined { info }));
    }

    pub(super) fn report(&mut self, node: &NodeId, source: EvidenceSource, entity: Entity, body: EvidenceBody) {
        self.report_marked(node, source, entity, body, Vec::new());
    }

    pub(super) fn report_marked(
        &mut self,
        node: &NodeId,
        source: EvidenceSource,
        entity: Entity,
        body: EvidenceBody,
        marks: Vec<rankguard_model::Classification>,
    ) {
        let at = self.moment();
        let arrives = self.now + self.dice.millis(1, 10);
        let Some(agent) = self.agents.get_mut(node).filter(|agent| agent.alive) else {
            return;
        };
        agent.delivered = arrives.max(agent.delivered);
        let arrives = agent.delivered;
        let evidence = agent.evidence(at, source, entity, body, marks);
        self.at(arrives, WorldEvent::Told(Event::EvidenceArrived { evidence }));
    }

    /// Appends lines to a log of a node; triage classifies them as on a live node.
    pub(super) fn lines(&mut self, node: &NodeId, source: EvidenceSource, entity: &Entity, lines: &[String]) {
        for seen in triage(source, lines) {
            let entity = match (&seen.device, self.agents.get(node)) {
                (Some(device), Some(agent)) => agent.gpu_entity(&device.address),
                _ => entity.clone(),
            };
            let body = EvidenceBody::Line {
                text: seen.text,
                context: seen.context,
                repeats: seen.repeats,
            };
            self.report_marked(node, source, entity, body, seen.marks);
        }
    }

    pub(super) fn apply_order(&mut self, node: &NodeId, order: AgentOrder) {
        let Some(agent) = self.agents.get_mut(node).filter(|agent| agent.alive) else {
            return;
        };
        match order {
            AgentOrder::Fence {
                job,
                generation,
                reserve_port,
                ..
            } => {
                if agent.fence(&job, generation) {
                    let body = EvidenceBody::Fenced {
                        job,
                        generation,
                        master_port: reserve_port.then_some(29_500),
                        ended: 0,
                        left: Vec::new(),
                    };
                    let entity = Entity::Node { node: node.clone() };
                    self.training = self
                        .training
                        .take()
                        .filter(|training| training.generation >= generation);
                    self.report(node, EvidenceSource::Agent, entity, body);
                }
            }
            AgentOrder::Launch(launch) => {
                for slot in &launch.ranks {
                    let Some(agent) = self.agents.get_mut(node) else { return };
                    let Some(pid) = agent.launch(&launch.job, launch.generation, slot.rank) else {
                        continue;
                    };
                    let process = SimulatedProcess {
                        job: launch.job.clone(),
                        generation: launch.generation,
                        pid,
                    };
                    let entity = agent.rank_entity(slot.rank, &process);
                    self.report(
                        node,
                        EvidenceSource::Ranks,
                        entity,
                        EvidenceBody::RankStarted {
                            pid,
                            from_standby: false,
                        },
                    );
                    let from = launch.restore.as_ref().map_or(0, |restore| restore.step.0);
                    self.rank_started(
                        launch.generation,
                        launch.world_size as usize,
                        slot.rank,
                        node,
                        (from, launch.checkpoint_every),
                    );
                }
            }
            AgentOrder::Stop { job, generation, .. } => {
                let ended: Vec<(Rank, SimulatedProcess)> = agent
                    .ranks
                    .iter()
                    .filter(|(_, process)| process.job == job && process.generation == generation)
                    .map(|(rank, process)| (*rank, process.clone()))
                    .collect();
                // A node that the job has left has no ranks of it.
                if !ended.is_empty() {
                    self.training = None;
                }
                let body = EvidenceBody::Stopped {
                    job,
                    generation,
                    ended: ended.len() as u32,
                    left: Vec::new(),
                };
                for (rank, process) in ended {
                    self.report_exit(node, rank, &process, ProcessExit::Signal(15), true);
                }
                let entity = Entity::Node { node: node.clone() };
                self.report(node, EvidenceSource::Agent, entity, body);
            }
            AgentOrder::Checkpoint {
                generation,
                number,
                call,
                ..
            } => self.deliver_call(
                node,
                &CheckpointCallMessage {
                    generation,
                    number,
                    call,
                },
            ),
            // Simulated nodes meet all requirements of jobs.
            AgentOrder::Preflight(wanted) => {
                let body = EvidenceBody::Preflighted {
                    job: wanted.job,
                    generation: wanted.generation,
                    failed: Vec::new(),
                    environment: std::collections::BTreeMap::new(),
                };
                let entity = Entity::Node { node: node.clone() };
                self.report(node, EvidenceSource::Agent, entity, body);
            }
            AgentOrder::Finish(wanted) => {
                let shards = self.images.finish(node, &wanted);
                let body = EvidenceBody::ShardsFinished {
                    job: wanted.job,
                    generation: wanted.generation,
                    from: wanted.from,
                    shards,
                    failed: None,
                };
                let entity = Entity::Node { node: node.clone() };
                self.report(node, EvidenceSource::Checkpoint, entity, body);
            }
            // Simulated jobs have no standby processes.
            AgentOrder::Keep { .. } | AgentOrder::Prepare(_) => {}
        }
    }

    /// Passes a checkpoint call to the ranks of a node.
    fn deliver_call(&mut self, node: &NodeId, word: &CheckpointCallMessage) {
        let Some(training) = self.training.as_mut() else { return };
        let here = training.ranks.iter().filter(|(_, place)| *place == node);
        let here: Vec<Rank> = here.map(|(rank, _)| *rank).collect();
        let mut late = Vec::new();
        for rank in here {
            let heard = training
                .followers
                .get_mut(&rank)
                .map(|follower| follower.accept_call(word));
            if let Some(CallResponse::TooLate { step }) = heard {
                late.push((rank, step));
            }
        }
        for (rank, step) in late {
            self.missed(node, rank, step);
        }
    }

    /// Reports that a rank takes no image of a called step.
    pub(super) fn missed(&mut self, node: &NodeId, rank: Rank, step: Step) {
        if let Some(entity) = self.entity(node, rank) {
            let reason = "the call came too late".to_owned();
            self.report(
                node,
                EvidenceSource::Checkpoint,
                entity,
                EvidenceBody::ShardFailed { step, reason },
            );
        }
    }

    /// Reports that the process of a rank ended by itself.
    pub(super) fn exit(&mut self, node: &NodeId, rank: Rank, process: &SimulatedProcess, exit: ProcessExit) {
        self.report_exit(node, rank, process, exit, false);
    }

    fn report_exit(
        &mut self,
        node: &NodeId,
        rank: Rank,
        process: &SimulatedProcess,
        exit: ProcessExit,
        ended_by_agent: bool,
    ) {
        let Some(agent) = self.agents.get_mut(node) else { return };
        agent.ranks.remove(&rank);
        let entity = agent.rank_entity(rank, process);
        self.report(
            node,
            EvidenceSource::Ranks,
            entity,
            EvidenceBody::RankExited {
                pid: process.pid,
                exit,
                ended_by_agent,
            },
        );
    }
}
