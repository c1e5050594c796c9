//! Simulated world: virtual time, agents, one job, a checkpoint store, and the decision core.

mod agents;
mod faults;
mod images;
mod job;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rankguard_checkpoint_schedule::agreement::RankCallState;
use rankguard_core::{Action, CheckFinding, DecisionState, Event, StampedEvent, invariants, step};
use rankguard_faults::Catalogue;
use rankguard_model::{
    AgentOrder, CheckpointPolicy, Generation, JobId, JobSpec, JobState, NodeId, NodeRange, Rank, StatusView, Timestamp,
};

use crate::agent::SimulatedAgent;
use crate::dice::SeededRandom;
use crate::script::FaultScript;
use crate::{ScriptedFault, SurvivingImages, WorldTranscript};
use images::StoredImages;

/// Start of the simulation: 2024-01-01T00:00:00Z.
const EPOCH: Timestamp = Timestamp(1_704_067_200_000_000_000);
/// Silence after which the shell reports a node as silent.
const SILENCE: Duration = Duration::from_millis(1_000);
/// PCI address of the GPU in faults.
const GPU: &str = "0000:9b:00";

/// Simulated world that can be played once.
pub struct SimulatedWorld {
    script: FaultScript,
    dice: SeededRandom,
    now: Duration,
    queue: BTreeMap<(Duration, u64), WorldEvent>,
    tickets: u64,
    catalogue: &'static Catalogue,
    brain: DecisionState,
    journal: Vec<StampedEvent>,
    agents: BTreeMap<NodeId, SimulatedAgent>,
    job: JobId,
    training: Option<TrainingGeneration>,
    bugs: Vec<(Rank, u64)>,
    /// Node with wrong values from a step on.
    corrupt: Option<(NodeId, u64)>,
    /// Node that is lost at a step before it reports it, and the remains of its images.
    untold: Option<(NodeId, u64, SurvivingImages)>,
    images: StoredImages,
    /// Delays of orders to nodes with other than the usual delay.
    slow: BTreeMap<NodeId, Duration>,
    transcript: WorldTranscript,
    broken: Vec<String>,
}

/// Result of a simulation.
#[derive(Debug)]
pub struct SimulationOutcome {
    pub transcript: WorldTranscript,
    /// Final state of the decision core.
    pub state: DecisionState,
    /// Final status as operators see it.
    pub status: StatusView,
    /// Violated invariants, each with its time; empty if all held.
    pub broken: Vec<String>,
    /// All events of the decision core, in order: a journal.
    pub journal: Vec<StampedEvent>,
}

/// Running ranks of one generation; all step together.
#[derive(Debug, Clone)]
struct TrainingGeneration {
    generation: Generation,
    world_size: usize,
    ranks: BTreeMap<Rank, NodeId>,
    step: u64,
    running: bool,
    failed: bool,
    /// Checkpoint protocol state of each rank.
    followers: BTreeMap<Rank, RankCallState>,
}

#[derive(Debug, Clone)]
enum WorldEvent {
    /// An event reaches the decision core.
    Told(Event),
    /// An order reaches an agent.
    Ordered(NodeId, AgentOrder),
    /// All ranks of a generation complete a step.
    Stepped(Generation),
    /// Ranks of a generation notice that a peer is gone.
    PeersNotice(Generation),
    /// A fault of the script occurs.
    Struck(ScriptedFault),
    /// The silence limit of a node expires, unless it returned.
    Silence(NodeId, Duration),
}

impl SimulatedWorld {
    /// Creates the world of a script.
    pub fn new(script: FaultScript) -> Self {
        let catalogue = Catalogue::builtin();
        let agents = script
            .nodes
            .iter()
            .enumerate()
            .map(|(number, node)| (NodeId::from(node.as_str()), SimulatedAgent::new(node, number)));
        let mut world = Self {
            dice: SeededRandom::new(script.seed),
            now: Duration::ZERO,
            queue: BTreeMap::new(),
            tickets: 0,
            brain: DecisionState::new(script.policy.clone(), catalogue),
            catalogue,
            journal: Vec::new(),
            agents: agents.collect(),
            job: JobId::from("train"),
            training: None,
            bugs: Vec::new(),
            corrupt: None,
            untold: None,
            images: StoredImages::default(),
            slow: BTreeMap::new(),
            transcript: WorldTranscript::default(),
            broken: Vec::new(),
            script,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        self.later(Duration::ZERO, WorldEvent::Told(Event::ControllerStarted));
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
                retention: rankguard_model::RetentionPolicy::default(),
                tiers: rankguard_model::CheckpointTiers {
                    nodes: self.script.copies,
                    ..rankguard_model::CheckpointTiers::default()
                },
            }),
            max_restarts: 3,
            user: None,
            resume_from: None,
            standby: None,
        };
        self.later(
            Duration::from_millis(100),
            WorldEvent::Told(Event::JobSubmitted { spec, claim: None }),
        );
        for moment in self.script.faults.clone() {
            self.later(Duration::from_millis(moment.at_ms), WorldEvent::Struck(moment.fault));
        }
    }

    /// Runs until no event is left or the script ends.
    pub fn play(mut self) -> SimulationOutcome {
        let end = Duration::from_millis(self.script.end_ms);
        while let Some(((at, _), event)) = self.queue.pop_first() {
            if at > end {
                break;
            }
            self.now = at;
            self.handle_event(event);
        }
        let cases: Vec<_> = self.brain.cases().values().cloned().collect();
        for case in &cases {
            self.transcript.case(case);
        }
        let status = self.brain.status(self.moment());
        SimulationOutcome {
            transcript: self.transcript,
            status,
            state: self.brain,
            broken: self.broken,
            journal: self.journal,
        }
    }

    fn handle_event(&mut self, event: WorldEvent) {
        match event {
            WorldEvent::Told(event) => self.apply_event(event),
            WorldEvent::Ordered(node, order) => self.apply_order(&node, order),
            WorldEvent::Stepped(generation) => self.stepped(generation),
            WorldEvent::PeersNotice(generation) => self.peers_notice(generation),
            WorldEvent::Struck(fault) => self.strike(&fault),
            WorldEvent::Silence(node, since) => {
                if self.agents.get(&node).is_some_and(|agent| !agent.alive) {
                    self.apply_event(Event::NodeFellSilent {
                        node,
                        last_heard: moment(since),
                    });
                }
            }
        }
    }

    fn apply_event(&mut self, event: Event) {
        self.transcript.event(self.now, &event);
        let stamped = StampedEvent {
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
                let usual = self.dice.millis(1, 5);
                let delay = self.slow.get(&node).copied().unwrap_or(usual);
                self.later(delay, WorldEvent::Ordered(node, order));
            }
            Action::CommitManifest { manifest, .. } => {
                let delay = self.dice.millis(5, 15);
                let event = self.commit_event(manifest);
                self.later(delay, WorldEvent::Told(event));
            }
            Action::FindShards {
                job,
                generation,
                of,
                after,
                ..
            } => {
                let delay = self.dice.millis(2, 8);
                let event = Event::ShardsFound {
                    job,
                    generation,
                    seals: self.images.in_store(of, after),
                    newest: None,
                    committed: Vec::new(),
                    same_size: Vec::new(),
                    unusable: Vec::new(),
                    problem: None,
                };
                self.later(delay, WorldEvent::Told(event));
            }
            // No script damages a store, so every reported chunk is intact.
            Action::CheckCheckpoint { job, id, .. } => {
                let delay = self.dice.millis(2, 8);
                let event = Event::CheckpointChecked {
                    job,
                    step: id.step,
                    generation: id.generation,
                    finding: CheckFinding::Intact,
                };
                self.later(delay, WorldEvent::Told(event));
            }
            Action::SetTimer { timer, at } => {
                let due = Duration::from_nanos(u64::try_from(at.0 - EPOCH.0).unwrap_or(0)).max(self.now);
                self.at(due, WorldEvent::Told(Event::TimerFired { timer }));
            }
            Action::Announce { .. } => {}
        }
    }

    /// Restarts the controller from its journal; the state must be the same (RG-8).
    fn restart_controller(&mut self) {
        let mut rebuilt = DecisionState::new(self.script.policy.clone(), self.catalogue);
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
        self.apply_event(Event::ControllerStarted);
        let live: Vec<NodeId> = self
            .agents
            .values()
            .filter(|agent| agent.alive)
            .map(|agent| agent.node.clone())
            .collect();
        for node in live {
            let info = self.agents[&node].info(self.script.ranks_per_node);
            let delay = self.dice.millis(20, 200);
            self.later(delay, WorldEvent::Told(Event::NodeJoined { info }));
        }
    }

    fn moment(&self) -> Timestamp {
        moment(self.now)
    }

    fn later(&mut self, delay: Duration, event: WorldEvent) {
        self.at(self.now + delay, event);
    }

    fn at(&mut self, at: Duration, event: WorldEvent) {
        self.tickets += 1;
        self.queue.insert((at, self.tickets), event);
    }
}

impl SimulationOutcome {
    /// Returns true if the job completed all its steps.
    pub fn is_finished(&self) -> bool {
        self.status.jobs.iter().all(|job| job.state == JobState::Finished)
    }

    /// Returns the nodes that a verdict blames.
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
