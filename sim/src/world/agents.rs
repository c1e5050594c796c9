//! Reports of agents, and execution of their orders.

use rankguard_checkpoint_schedule::agreement::{Heard, Word};
use rankguard_core::Event;
use rankguard_model::{Body, Entity, Exit, NodeId, Order, Rank, Source, Step};

use super::{Happening, World};
use crate::agent::Process;
use crate::witness::triage;

impl World {
    pub(super) fn join(&mut self, node: &NodeId) {
        let slots = self.script.ranks_per_node;
        let Some(agent) = self.agents.get_mut(node) else { return };
        agent.start();
        let info = agent.info(slots);
        let delay = self.dice.millis(1, 50);
        self.later(delay, Happening::Told(Event::NodeJoined { info }));
    }

    pub(super) fn report(&mut self, node: &NodeId, source: Source, entity: Entity, body: Body) {
        self.report_marked(node, source, entity, body, Vec::new());
    }

    pub(super) fn report_marked(
        &mut self,
        node: &NodeId,
        source: Source,
        entity: Entity,
        body: Body,
        marks: Vec<rankguard_model::Mark>,
    ) {
        let at = self.moment();
        let arrives = self.now + self.dice.millis(1, 10);
        let Some(agent) = self.agents.get_mut(node).filter(|agent| agent.alive) else {
            return;
        };
        agent.delivered = arrives.max(agent.delivered);
        let arrives = agent.delivered;
        let evidence = agent.evidence(at, source, entity, body, marks);
        self.at(arrives, Happening::Told(Event::EvidenceArrived { evidence }));
    }

    /// Appends lines to a log of a node; triage classifies them as on a live node.
    pub(super) fn lines(&mut self, node: &NodeId, source: Source, entity: &Entity, lines: &[String]) {
        for seen in triage(source, lines) {
            let entity = match (&seen.device, self.agents.get(node)) {
                (Some(device), Some(agent)) => agent.gpu_entity(&device.address),
                _ => entity.clone(),
            };
            let body = Body::Line {
                text: seen.text,
                context: seen.context,
                repeats: seen.repeats,
            };
            self.report_marked(node, source, entity, body, seen.marks);
        }
    }

    pub(super) fn obey(&mut self, node: &NodeId, order: Order) {
        let Some(agent) = self.agents.get_mut(node).filter(|agent| agent.alive) else {
            return;
        };
        match order {
            Order::Fence {
                job,
                generation,
                reserve_port,
                ..
            } => {
                if agent.fence(&job, generation) {
                    let body = Body::Fenced {
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
                    self.report(node, Source::Agent, entity, body);
                }
            }
            Order::Launch(launch) => {
                for slot in &launch.ranks {
                    let Some(agent) = self.agents.get_mut(node) else { return };
                    let Some(pid) = agent.launch(&launch.job, launch.generation, slot.rank) else {
                        continue;
                    };
                    let process = Process {
                        job: launch.job.clone(),
                        generation: launch.generation,
                        pid,
                    };
                    let entity = agent.rank_entity(slot.rank, &process);
                    self.report(node, Source::Ranks, entity, Body::RankStarted { pid });
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
            Order::Stop { job, generation, .. } => {
                let ended: Vec<(Rank, Process)> = agent
                    .ranks
                    .iter()
                    .filter(|(_, process)| process.job == job && process.generation == generation)
                    .map(|(rank, process)| (*rank, process.clone()))
                    .collect();
                self.training = None;
                let body = Body::Stopped {
                    job,
                    generation,
                    ended: ended.len() as u32,
                    left: Vec::new(),
                };
                for (rank, process) in ended {
                    self.report_exit(node, rank, &process, Exit::Signal(15), true);
                }
                let entity = Entity::Node { node: node.clone() };
                self.report(node, Source::Agent, entity, body);
            }
            Order::Checkpoint {
                generation,
                number,
                call,
                ..
            } => self.hear(
                node,
                &Word {
                    generation,
                    number,
                    call,
                },
            ),
            // Simulated nodes meet all requirements of jobs.
            Order::Preflight(wanted) => {
                let body = Body::Preflighted {
                    job: wanted.job,
                    generation: wanted.generation,
                    failed: Vec::new(),
                    environment: std::collections::BTreeMap::new(),
                };
                let entity = Entity::Node { node: node.clone() };
                self.report(node, Source::Agent, entity, body);
            }
            Order::Finish(wanted) => {
                let shards = self.images.finish(node, &wanted);
                let body = Body::ShardsFinished {
                    job: wanted.job,
                    generation: wanted.generation,
                    from: wanted.from,
                    shards,
                    failed: None,
                };
                let entity = Entity::Node { node: node.clone() };
                self.report(node, Source::Checkpoint, entity, body);
            }
            Order::Keep { .. } => {}
        }
    }

    /// Passes a checkpoint call to the ranks of a node.
    fn hear(&mut self, node: &NodeId, word: &Word) {
        let Some(training) = self.training.as_mut() else { return };
        let here = training.ranks.iter().filter(|(_, place)| *place == node);
        let here: Vec<Rank> = here.map(|(rank, _)| *rank).collect();
        let mut late = Vec::new();
        for rank in here {
            let heard = training.followers.get_mut(&rank).map(|follower| follower.hear(word));
            if let Some(Heard::TooLate { step }) = heard {
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
            self.report(node, Source::Checkpoint, entity, Body::ShardFailed { step, reason });
        }
    }

    /// Reports that the process of a rank ended by itself.
    pub(super) fn exit(&mut self, node: &NodeId, rank: Rank, process: &Process, exit: Exit) {
        self.report_exit(node, rank, process, exit, false);
    }

    fn report_exit(&mut self, node: &NodeId, rank: Rank, process: &Process, exit: Exit, ended_by_agent: bool) {
        let Some(agent) = self.agents.get_mut(node) else { return };
        agent.ranks.remove(&rank);
        let entity = agent.rank_entity(rank, process);
        self.report(
            node,
            Source::Ranks,
            entity,
            Body::RankExited {
                pid: process.pid,
                exit,
                ended_by_agent,
            },
        );
    }
}
