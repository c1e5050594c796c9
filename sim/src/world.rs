//! The world: virtual time, agents, one job, a checkpoint store, and the brain among them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rankguard_checkpoint_format::Digest;
use rankguard_core::{Action, Event, Stamped, State, invariants, step};
use rankguard_faults::Catalogue;
use rankguard_model::{
    Body, CheckpointPolicy, Entity, Exit, Generation, JobId, JobSpec, JobState, NodeId, NodeRange, Order, Rank,
    RestoreBytes, ShardSeal, Source, StatusView, Step, Timestamp,
};

use crate::agent::{Agent, Process};
use crate::dice::Dice;
use crate::script::Script;
use crate::witness::triage;
use crate::{Fault, Transcript};

/// The world's beginning: 2024-01-01T00:00:00Z.
const EPOCH: Timestamp = Timestamp(1_704_067_200_000_000_000);
/// Silence after which the shell tells the brain that a node is silent.
const SILENCE: Duration = Duration::from_millis(1_000);
/// Address of the GPU that is lost, where one is.
const GPU: &str = "0000:9b:00";

/// A world that can be played once.
pub struct World {
    script: Script,
    dice: Dice,
    now: Duration,
    queue: BTreeMap<(Duration, u64), Happening>,
    tickets: u64,
    catalogue: &'static Catalogue,
    brain: State,
    journal: Vec<Stamped>,
    agents: BTreeMap<NodeId, Agent>,
    job: JobId,
    training: Option<Training>,
    bugs: Vec<(Rank, u64)>,
    transcript: Transcript,
    broken: Vec<String>,
}

/// How a world ended.
#[derive(Debug)]
pub struct Ended {
    /// What happened.
    pub transcript: Transcript,
    /// The brain's state.
    pub state: State,
    /// The job and the fleet as an operator sees them.
    pub status: StatusView,
    /// Sentences that did not hold, with the moment; empty when all is well.
    pub broken: Vec<String>,
    /// Everything the brain was told, in order: a journal.
    pub journal: Vec<Stamped>,
}

/// The ranks of one generation at work. They step together or not at all.
#[derive(Debug, Clone)]
struct Training {
    generation: Generation,
    world_size: usize,
    ranks: BTreeMap<Rank, NodeId>,
    step: u64,
    running: bool,
    failed: bool,
}

#[derive(Debug, Clone)]
enum Happening {
    /// The brain is told.
    Told(Event),
    /// An order reaches an agent.
    Ordered(NodeId, Order),
    /// All ranks of a generation complete a step.
    Stepped(Generation),
    /// Ranks of a generation notice that a peer is gone.
    PeersNotice(Generation),
    /// The script strikes.
    Struck(Fault),
    /// Silence has lasted too long, if it still lasts.
    Silence(NodeId, Duration),
}

impl World {
    /// A world as the script wants it.
    pub fn new(script: Script) -> Self {
        let catalogue = Catalogue::builtin();
        let agents = script
            .nodes
            .iter()
            .enumerate()
            .map(|(number, node)| (NodeId::from(node.as_str()), Agent::new(node, number)));
        let mut world = Self {
            dice: Dice::new(script.seed),
            now: Duration::ZERO,
            queue: BTreeMap::new(),
            tickets: 0,
            brain: State::new(script.policy.clone(), catalogue),
            catalogue,
            journal: Vec::new(),
            agents: agents.collect(),
            job: JobId::from("train"),
            training: None,
            bugs: Vec::new(),
            transcript: Transcript::default(),
            broken: Vec::new(),
            script,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        self.later(Duration::ZERO, Happening::Told(Event::ControllerStarted));
        let nodes: Vec<NodeId> = self.agents.keys().cloned().collect();
        for node in nodes {
            self.join(&node);
        }
        let spec = JobSpec {
            id: self.job.clone(),
            command: vec!["train".to_owned()],
            env: BTreeMap::new(),
            workdir: None,
            nodes: NodeRange {
                min: self.script.nodes_min,
                max: self.script.nodes_max,
            },
            ranks_per_node: self.script.ranks_per_node,
            checkpoint: Some(CheckpointPolicy {
                every_steps: self.script.checkpoint_every,
                store: "/checkpoints".to_owned(),
                keep: 3,
            }),
            max_restarts: 3,
        };
        self.later(
            Duration::from_millis(100),
            Happening::Told(Event::JobSubmitted { spec }),
        );
        for moment in self.script.faults.clone() {
            self.later(Duration::from_millis(moment.at_ms), Happening::Struck(moment.fault));
        }
    }

    /// Plays until the job is over, nothing is left to happen, or the script's end.
    pub fn play(mut self) -> Ended {
        let end = Duration::from_millis(self.script.end_ms);
        while let Some(((at, _), happening)) = self.queue.pop_first() {
            if at > end {
                break;
            }
            self.now = at;
            self.happen(happening);
        }
        let cases: Vec<_> = self.brain.cases().values().cloned().collect();
        for case in &cases {
            self.transcript.case(case);
        }
        let status = self.brain.status(self.moment());
        Ended {
            transcript: self.transcript,
            status,
            state: self.brain,
            broken: self.broken,
            journal: self.journal,
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Told(event) => self.tell(event),
            Happening::Ordered(node, order) => self.obey(&node, order),
            Happening::Stepped(generation) => self.stepped(generation),
            Happening::PeersNotice(generation) => self.peers_notice(generation),
            Happening::Struck(fault) => self.strike(&fault),
            Happening::Silence(node, since) => {
                if self.agents.get(&node).is_some_and(|agent| !agent.alive) {
                    self.tell(Event::NodeFellSilent {
                        node,
                        last_heard: moment(since),
                    });
                }
            }
        }
    }

    // ---- the brain -------------------------------------------------------------------------------------------------

    fn tell(&mut self, event: Event) {
        self.transcript.event(self.now, &event);
        let stamped = Stamped {
            at: self.moment(),
            event,
        };
        let actions = step(&mut self.brain, &stamped);
        self.journal.push(stamped);
        for violation in invariants::check(&self.brain) {
            self.broken.push(format!(
                "{:.3} s: {}: {}",
                self.now.as_secs_f64(),
                violation.invariant,
                violation.detail
            ));
        }
        for action in actions {
            self.transcript.action(self.now, &action);
            self.carry_out(action);
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::SendOrder { node, order, .. } => {
                let delay = self.dice.millis(1, 5);
                self.later(delay, Happening::Ordered(node, order));
            }
            Action::CommitManifest { manifest, .. } => {
                let delay = self.dice.millis(5, 15);
                let event = Event::ManifestCommitted {
                    job: manifest.job,
                    step: manifest.step,
                    generation: manifest.generation,
                };
                self.later(delay, Happening::Told(event));
            }
            Action::SetTimer { timer, at } => {
                let due = Duration::from_nanos(u64::try_from(at.0 - EPOCH.0).unwrap_or(0)).max(self.now);
                self.at(due, Happening::Told(Event::TimerFired { timer }));
            }
            Action::Announce { .. } => {}
        }
    }

    /// The controller dies and reads its journal: what comes back must be what was (RG-8).
    fn restart_controller(&mut self) {
        let mut rebuilt = State::new(self.script.policy.clone(), self.catalogue);
        for stamped in &self.journal {
            step(&mut rebuilt, stamped);
        }
        if rebuilt != self.brain {
            self.broken.push(format!(
                "{:.3} s: the journal does not give the state back",
                self.now.as_secs_f64()
            ));
        }
        self.brain = rebuilt;
        self.tell(Event::ControllerStarted);
        let live: Vec<NodeId> = self
            .agents
            .values()
            .filter(|agent| agent.alive)
            .map(|agent| agent.node.clone())
            .collect();
        for node in live {
            let info = self.agents[&node].info(self.script.ranks_per_node);
            let delay = self.dice.millis(20, 200);
            self.later(delay, Happening::Told(Event::NodeJoined { info }));
        }
    }

    // ---- agents ----------------------------------------------------------------------------------------------------

    fn join(&mut self, node: &NodeId) {
        let slots = self.script.ranks_per_node;
        let Some(agent) = self.agents.get_mut(node) else { return };
        agent.start();
        let info = agent.info(slots);
        let delay = self.dice.millis(1, 50);
        self.later(delay, Happening::Told(Event::NodeJoined { info }));
    }

    fn report(&mut self, node: &NodeId, source: Source, entity: Entity, body: Body) {
        self.report_marked(node, source, entity, body, Vec::new());
    }

    fn report_marked(
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

    /// Lines appear in a log of a node; triage names them as it does live.
    fn lines(&mut self, node: &NodeId, source: Source, entity: &Entity, lines: &[String]) {
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

    fn obey(&mut self, node: &NodeId, order: Order) {
        let Some(agent) = self.agents.get_mut(node).filter(|agent| agent.alive) else {
            return;
        };
        match order {
            Order::Fence {
                job,
                generation,
                reserve_port,
            } => {
                if agent.fence(&job, generation) {
                    let body = Body::Fenced {
                        job,
                        generation,
                        master_port: reserve_port.then_some(29_500),
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
                    self.rank_started(launch.generation, launch.world_size as usize, slot.rank, node, from);
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
                for (rank, process) in ended {
                    self.exit(node, rank, &process, Exit::Signal(15));
                }
            }
            Order::Keep { .. } => {}
        }
    }

    fn exit(&mut self, node: &NodeId, rank: Rank, process: &Process, exit: Exit) {
        let Some(agent) = self.agents.get_mut(node) else { return };
        agent.ranks.remove(&rank);
        let entity = agent.rank_entity(rank, process);
        self.report(node, Source::Ranks, entity, Body::RankExited { pid: process.pid, exit });
    }

    // ---- the job ---------------------------------------------------------------------------------------------------

    fn rank_started(&mut self, generation: Generation, world_size: usize, rank: Rank, node: &NodeId, from: u64) {
        let fresh = self
            .training
            .as_ref()
            .is_none_or(|training| training.generation < generation);
        if fresh {
            self.training = Some(Training {
                generation,
                world_size,
                ranks: BTreeMap::new(),
                step: from,
                running: false,
                failed: false,
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
        if training.ranks.len() == training.world_size && !training.running {
            training.running = true;
            let ranks = training.ranks.clone();
            for (rank, node) in ranks {
                if let Some(entity) = self.entity(&node, rank) {
                    let body = Body::Restored {
                        step: Step(from),
                        from: RestoreBytes::default(),
                        took_ms: 20.0,
                    };
                    self.report(&node, Source::Checkpoint, entity, body);
                }
            }
            let delay = self.dice.millis(50, 150);
            self.later(delay, Happening::Stepped(generation));
        }
    }

    fn entity(&self, node: &NodeId, rank: Rank) -> Option<Entity> {
        let agent = self.agents.get(node)?;
        Some(agent.rank_entity(rank, agent.ranks.get(&rank)?))
    }

    fn stepped(&mut self, generation: Generation) {
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
        let (now_at, ranks) = (training.step, training.ranks.clone());
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
                let body = Body::Progress {
                    step: Step(now_at),
                    loss: Some(2.3 / (1.0 + now_at as f64 / 50.0)),
                    step_ms: self.script.step_ms as f64,
                };
                self.report(node, Source::Ranks, entity.clone(), body);
            }
            if now_at.is_multiple_of(self.script.checkpoint_every) {
                self.report(
                    node,
                    Source::Checkpoint,
                    entity.clone(),
                    Body::ShardSealed {
                        step: Step(now_at),
                        stall_ms: 1.0,
                        bytes: 1 << 20,
                    },
                );
                let seal = ShardSeal {
                    rank: *rank,
                    step: Step(now_at),
                    world_size: ranks.len() as u32,
                    index: Digest::of(format!("{generation} {now_at} {rank}").as_bytes()).to_string(),
                    bytes: 1 << 20,
                };
                self.report(node, Source::Checkpoint, entity, Body::ShardDurable { seal });
            }
        }
        if now_at >= self.script.steps {
            for (rank, node) in &ranks {
                if let Some(process) = self.agents.get(node).and_then(|agent| agent.ranks.get(rank)).cloned() {
                    self.exit(node, *rank, &process, Exit::Code(0));
                }
            }
            return;
        }
        self.later(
            Duration::from_millis(self.script.step_ms),
            Happening::Stepped(generation),
        );
    }

    /// A rank raises the exception that its program has in it.
    fn raise(&mut self, rank: Rank, ranks: &BTreeMap<Rank, NodeId>) {
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
            self.lines(node, Source::JobLog, &entity, &lines);
        }
        self.exit(node, rank, &process, Exit::Code(1));
        self.peer_lost(process.generation);
    }

    /// One rank is gone: the others find out a little later.
    fn peer_lost(&mut self, generation: Generation) {
        if let Some(training) = self
            .training
            .as_mut()
            .filter(|training| training.generation == generation)
            && !training.failed
        {
            training.failed = true;
            let delay = self.dice.millis(20, 120);
            self.later(delay, Happening::PeersNotice(generation));
        }
    }

    fn peers_notice(&mut self, generation: Generation) {
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
            // The words of NCCL and of torch in a survivor, in the order in which they come.
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
                self.lines(node, Source::JobLog, &entity, &lines);
            }
            self.exit(node, *rank, &process, Exit::Code(1));
        }
    }

    // ---- hardship --------------------------------------------------------------------------------------------------

    fn strike(&mut self, fault: &Fault) {
        self.transcript.note(self.now, &format!("FAULT   {fault:?}"));
        match fault {
            Fault::GpuLost { node } => self.gpu_lost(&NodeId::from(node.as_str())),
            Fault::NodeLost { node } => {
                let node = NodeId::from(node.as_str());
                if let Some(agent) = self.agents.get_mut(&node).filter(|agent| agent.alive) {
                    agent.vanish();
                    let now = self.now;
                    self.later(SILENCE, Happening::Silence(node, now));
                    self.anyone_lost();
                }
            }
            Fault::NodeBack { node } => {
                let node = NodeId::from(node.as_str());
                if self.agents.get(&node).is_some_and(|agent| !agent.alive) {
                    self.join(&node);
                }
            }
            Fault::HostOom { rank } => self.host_oom(Rank(*rank)),
            Fault::RankKilled { rank } => self.rank_killed(Rank(*rank)),
            Fault::UserBug { rank, step } => self.bugs.push((Rank(*rank), *step)),
            Fault::ControllerRestart => self.restart_controller(),
        }
    }

    fn anyone_lost(&mut self) {
        if let Some(generation) = self.training.as_ref().map(|training| training.generation) {
            self.peer_lost(generation);
        }
    }

    fn gpu_lost(&mut self, node: &NodeId) {
        let Some(ranks) = self
            .agents
            .get(node)
            .filter(|agent| agent.alive)
            .map(|agent| agent.ranks.clone())
        else {
            return;
        };
        let mut lines = vec![format!(
            "NVRM: Xid (PCI:{GPU}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
        )];
        for process in ranks.values() {
            lines.extend((0..8).map(|channel| {
                format!(
                    "NVRM: Xid (PCI:{GPU}): 45, pid={}, name=python3, Ch {channel:08x}",
                    process.pid
                )
            }));
        }
        self.lines(node, Source::KernelLog, &Entity::Node { node: node.clone() }, &lines);
        for (rank, process) in ranks {
            self.exit(node, rank, &process, Exit::Signal(6));
        }
        self.anyone_lost();
    }

    fn rank_killed(&mut self, rank: Rank) {
        let home = self
            .agents
            .values()
            .find(|agent| agent.alive && agent.ranks.contains_key(&rank));
        let Some((node, process)) = home.map(|agent| (agent.node.clone(), agent.ranks[&rank].clone())) else {
            return;
        };
        self.exit(&node, rank, &process, Exit::Signal(9));
        self.anyone_lost();
    }

    fn host_oom(&mut self, rank: Rank) {
        let home = self
            .agents
            .values()
            .find(|agent| agent.alive && agent.ranks.contains_key(&rank));
        let Some((node, process)) = home.map(|agent| (agent.node.clone(), agent.ranks[&rank].clone())) else {
            return;
        };
        let pid = process.pid;
        let lines = [
            "python3 invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0"
                .to_owned(),
            format!(
                "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,\
                 task_memcg=/user.slice,task=python3,pid={pid},uid=0"
            ),
            format!(
                "Out of memory: Killed process {pid} (python3) total-vm:68432100kB, anon-rss:62914560kB, \
                 file-rss:4096kB, shmem-rss:0kB, UID:0 pgtables:124000kB oom_score_adj:0"
            ),
        ];
        if let Some(entity) = self.entity(&node, rank) {
            self.lines(&node, Source::KernelLog, &entity, &lines);
        }
        self.exit(&node, rank, &process, Exit::Signal(9));
        self.anyone_lost();
    }

    // ---- time ------------------------------------------------------------------------------------------------------

    fn moment(&self) -> Timestamp {
        moment(self.now)
    }

    fn later(&mut self, delay: Duration, happening: Happening) {
        self.at(self.now + delay, happening);
    }

    fn at(&mut self, at: Duration, happening: Happening) {
        self.tickets += 1;
        self.queue.insert((at, self.tickets), happening);
    }
}

impl Ended {
    /// Whether the job completed all its steps.
    pub fn is_finished(&self) -> bool {
        self.status.jobs.iter().all(|job| job.state == JobState::Finished)
    }

    /// Nodes that a verdict blames.
    pub fn blamed(&self) -> BTreeSet<NodeId> {
        self.state
            .cases()
            .values()
            .filter_map(|case| case.verdict.blamed.node().cloned())
            .collect()
    }
}

fn moment(at: Duration) -> Timestamp {
    EPOCH.after(at)
}
