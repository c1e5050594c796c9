//! Random lists of events, sensible or not: every named invariant holds after each of them, the generation of a job never
//! goes back (RG-3), the same events give the same state (RG-8), and events survive the journal's form.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rankguard_core::{Action, Adoption, Event, Gate, Policy, Stamped, State, Timer, invariants, step};
use rankguard_faults::Catalogue;
use rankguard_model::{
    Body, CheckpointPolicy, ClassId, ClockOffset, Device, DeviceKind, Entity, Evidence, EvidenceId, Exit, FailedCheck,
    Fields, Generation, JobId, JobSpec, JobState, Mark, NodeId, NodeInfo, NodeRange, Order, Rank, Role, Sequence,
    ShardSeal, Source, Step, Timestamp,
};

/// What a walk may do next. Numbers are taken modulo what there is, so that every list means something.
#[derive(Debug, Clone)]
enum Move {
    Join {
        node: u8,
        incarnation: u8,
    },
    Silence {
        node: u8,
    },
    Submit {
        job: u8,
        min: u8,
        max: u8,
    },
    Cancel {
        job: u8,
    },
    Fence {
        job: u8,
        node: u8,
        port: bool,
        old: bool,
    },
    Start {
        job: u8,
        rank: u8,
    },
    Exit {
        job: u8,
        rank: u8,
        code: u8,
        old: bool,
    },
    Progress {
        job: u8,
        rank: u8,
        step: u8,
    },
    /// An agent finds a rank silent.
    Silent {
        job: u8,
        rank: u8,
        step: u8,
    },
    Durable {
        job: u8,
        rank: u8,
        step: u8,
        world: u8,
    },
    /// All ranks make the same step durable.
    Checkpoint {
        job: u8,
        ahead: u8,
    },
    Commit {
        refuse: bool,
    },
    Hardware {
        node: u8,
        class: u8,
    },
    Timer {
        pick: u8,
    },
    Wait {
        millis: u16,
    },
    Cordon {
        node: u8,
    },
    Uncordon {
        node: u8,
    },
    Restart,
    /// Everything that was ordered happens as it should: without it no job would ever run.
    Obey,
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        3 => (0..5u8, 0..3u8).prop_map(|(node, incarnation)| Move::Join { node, incarnation }),
        1 => (0..5u8).prop_map(|node| Move::Silence { node }),
        2 => (0..2u8, 1..3u8, 0..3u8).prop_map(|(job, min, more)| Move::Submit { job, min, max: min + more }),
        1 => (0..2u8).prop_map(|job| Move::Cancel { job }),
        1 => (0..2u8, 0..5u8, any::<bool>(), any::<bool>())
            .prop_map(|(job, node, port, old)| Move::Fence { job, node, port, old }),
        1 => (0..2u8, 0..6u8).prop_map(|(job, rank)| Move::Start { job, rank }),
        2 => (0..2u8, 0..6u8, 0..4u8, any::<bool>())
            .prop_map(|(job, rank, code, old)| Move::Exit { job, rank, code, old }),
        2 => (0..2u8, 0..6u8, any::<u8>()).prop_map(|(job, rank, step)| Move::Progress { job, rank, step }),
        4 => (0..2u8, 0..6u8, any::<u8>()).prop_map(|(job, rank, step)| Move::Silent { job, rank, step }),
        3 => (0..2u8, 0..6u8, 0..4u8, 1..7u8)
            .prop_map(|(job, rank, step, world)| Move::Durable { job, rank, step, world }),
        3 => (0..2u8, 1..9u8).prop_map(|(job, ahead)| Move::Checkpoint { job, ahead }),
        3 => any::<bool>().prop_map(|refuse| Move::Commit { refuse }),
        2 => (0..5u8, 0..5u8).prop_map(|(node, class)| Move::Hardware { node, class }),
        3 => any::<u8>().prop_map(|pick| Move::Timer { pick }),
        2 => (0..5_000u16).prop_map(|millis| Move::Wait { millis }),
        1 => (0..5u8).prop_map(|node| Move::Cordon { node }),
        1 => (0..5u8).prop_map(|node| Move::Uncordon { node }),
        1 => Just(Move::Restart),
        6 => Just(Move::Obey),
    ]
}

/// Walks without an aim, and walks that may reach a job which ends with something sealed that nobody told.
fn moves() -> impl Strategy<Value = Vec<Move>> {
    prop_oneof![
        3 => prop::collection::vec(any_move(), 1..80),
        2 => towards_adoption(),
    ]
}

/// A job runs, seals a step or a part of one, and loses a node or a rank; whoever is to bring what is missing may go, too. Other
/// things happen in between.
fn towards_adoption() -> impl Strategy<Value = Vec<Move>> {
    let begin = [
        Move::Join {
            node: 0,
            incarnation: 0,
        },
        Move::Join {
            node: 1,
            incarnation: 0,
        },
        Move::Join {
            node: 3,
            incarnation: 0,
        },
        Move::Submit { job: 0, min: 1, max: 2 },
        Move::Obey,
        Move::Obey,
        Move::Progress {
            job: 0,
            rank: 0,
            step: 1,
        },
    ];
    let seal = prop_oneof![
        1 => (1..4u8).prop_map(|ahead| Move::Checkpoint { job: 0, ahead }),
        3 => (0..4u8, 1..9u8).prop_map(|(rank, step)| Move::Durable {
            job: 0,
            rank,
            step,
            world: 0
        }),
    ];
    let lose = prop_oneof![
        (0..4u8).prop_map(|node| Move::Silence { node }),
        (0..4u8, 1..4u8).prop_map(|(rank, code)| Move::Exit {
            job: 0,
            rank,
            code,
            old: false
        }),
    ];
    let go_on = prop_oneof![
        12 => Just(Move::Obey),
        2 => any::<u8>().prop_map(|pick| Move::Timer { pick }),
        1 => (0..4u8).prop_map(|node| Move::Silence { node }),
        2 => any::<bool>().prop_map(|refuse| Move::Commit { refuse }),
        1 => Just(Move::Restart),
    ];
    // Evidence is gathered and old ranks are given up before anything is looked for.
    let wait = prop::collection::vec(any::<u8>().prop_map(|pick| Move::Timer { pick }), 1..3);
    let chance = || prop::collection::vec(any_move(), 0..3);
    let seals = prop::collection::vec(seal, 1..5);
    let go_on = prop::collection::vec(go_on, 8..24);
    // By now nodes may have been asked for what they hold.
    let lose_another = prop::collection::vec((0..4u8).prop_map(|node| Move::Silence { node }), 0..2);
    let parts = (chance(), seals, chance(), lose, wait, lose_another, go_on);
    parts.prop_map(move |(before, seals, between, lose, wait, lose_another, go_on)| {
        let begin = begin.iter().cloned().chain(before).chain(seals).chain(between);
        begin
            .chain([lose])
            .chain(wait)
            .chain([Move::Obey, Move::Obey])
            .chain(lose_another)
            .chain(go_on)
            .collect()
    })
}

struct Walk {
    state: State,
    journal: Vec<Stamped>,
    now: Timestamp,
    seqs: BTreeMap<NodeId, u64>,
    orders: Vec<(NodeId, Order)>,
    manifests: Vec<rankguard_checkpoint_format::Manifest>,
    generations: BTreeMap<JobId, Generation>,
    /// Looks at the store that nobody has answered: whose, for which generation, of which.
    looks: Vec<(JobId, Generation, Generation)>,
    /// Shards that stand in the store, by whoever sealed them.
    store: BTreeMap<(JobId, Generation), Vec<ShardSeal>>,
}

const CLASSES: [&str; 5] = [
    "gpu-fallen-off-bus",
    "nic-fault",
    "host-oom-kill",
    "cpu-lockup",
    "gpu-ecc-degrading",
];

/// Two replicas of a box: which of them is wrong nobody can tell.
fn difference() -> rankguard_checkpoint_schedule::twins::Difference {
    rankguard_checkpoint_schedule::twins::Difference {
        tensor: "w".to_owned(),
        offset: vec![0],
        shape: vec![8],
        chunks: vec![0],
        groups: vec![vec![Rank(0)], vec![Rank(1)]],
    }
}

/// Risks are answered at once, so that calls mix with everything else.
fn policy() -> Policy {
    Policy {
        risk_ms: 1,
        preflight: Gate::Require,
        ..Policy::default()
    }
}

fn node(number: u8) -> NodeId {
    NodeId::from(format!("node-{number}"))
}

fn job(number: u8) -> JobId {
    JobId::from(format!("job-{number}"))
}

impl Walk {
    fn new() -> Self {
        Self {
            state: State::new(policy(), Catalogue::builtin()),
            journal: Vec::new(),
            now: Timestamp(1_700_000_000_000_000_000),
            seqs: BTreeMap::new(),
            orders: Vec::new(),
            manifests: Vec::new(),
            generations: BTreeMap::new(),
            looks: Vec::new(),
            store: BTreeMap::new(),
        }
    }

    fn tell(&mut self, event: Event) {
        self.now = self.now.after(std::time::Duration::from_millis(1));
        let stamped = Stamped { at: self.now, event };
        let actions = step(&mut self.state, &stamped);
        self.journal.push(stamped);
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
                Action::SetTimer { .. } | Action::Announce { .. } => {}
            }
        }
        let broken = invariants::check(&self.state);
        assert!(broken.is_empty(), "{broken:?}\nafter {:#?}", self.journal.last());
        for (name, job) in self.state.jobs() {
            let before = self
                .generations
                .insert(name.clone(), job.generation)
                .unwrap_or_default();
            assert!(
                before <= job.generation,
                "RG-3: {name} went from generation {before} to {}",
                job.generation
            );
        }
    }

    fn report(&mut self, node: NodeId, source: Source, entity: Entity, body: Body, marks: Vec<Mark>) {
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
            synthetic: false,
        };
        self.tell(Event::EvidenceArrived { evidence });
    }

    fn rank_report(&mut self, name: &JobId, rank: u8, old: bool, body: Body) {
        self.rank_report_marked(name, rank, old, body, Vec::new());
    }

    fn rank_report_marked(&mut self, name: &JobId, rank: u8, old: bool, body: Body, marks: Vec<Mark>) {
        let Some(job) = self.state.jobs().get(name) else { return };
        let generation = Generation(job.generation.0.saturating_sub(u64::from(old)));
        let Some(plan) = &job.plan else { return };
        let places = plan.placements();
        let place = places[usize::from(rank) % places.len()].clone();
        let entity = Entity::Rank {
            job: name.clone(),
            generation,
            rank: place.rank,
            node: place.node.clone(),
        };
        self.report(place.node, Source::Ranks, entity, body, marks);
    }

    fn obey(&mut self) {
        // What follows from the answers is for the next time: something may happen in between.
        let orders = std::mem::take(&mut self.orders);
        for (job, generation, of) in std::mem::take(&mut self.looks) {
            let seals = self.store.get(&(job.clone(), of)).cloned().unwrap_or_default();
            self.tell(Event::ShardsFound {
                job,
                generation,
                seals,
                problem: None,
            });
        }
        for (node, order) in orders {
            if !self.state.fleet().is_live(&node) {
                continue;
            }
            match order {
                Order::Fence {
                    job,
                    generation,
                    reserve_port,
                } => {
                    let body = Body::Fenced {
                        job,
                        generation,
                        master_port: reserve_port.then_some(29_500),
                    };
                    self.report(node.clone(), Source::Agent, Entity::Node { node }, body, Vec::new());
                }
                Order::Launch(launch) => {
                    for slot in launch.ranks {
                        let entity = Entity::Rank {
                            job: launch.job.clone(),
                            generation: launch.generation,
                            rank: slot.rank,
                            node: node.clone(),
                        };
                        self.report(
                            node.clone(),
                            Source::Ranks,
                            entity,
                            Body::RankStarted { pid: 7 },
                            Vec::new(),
                        );
                    }
                }
                Order::Preflight(wanted) => {
                    // Every third node lacks something.
                    let class = ClassId::from("path-not-found");
                    let lacks = node.as_str().ends_with('2').then(|| FailedCheck {
                        check: "path".to_owned(),
                        subject: "/data".to_owned(),
                        class,
                        found: "it is not there".to_owned(),
                        advice: String::new(),
                    });
                    let body = Body::Preflighted {
                        job: wanted.job,
                        generation: wanted.generation,
                        failed: lacks.into_iter().collect(),
                        environment: BTreeMap::new(),
                    };
                    self.report(node.clone(), Source::Agent, Entity::Node { node }, body, Vec::new());
                }
                Order::Finish(wanted) => {
                    let shards = self.bring(&node, &wanted.job, wanted.of);
                    let body = Body::ShardsFinished {
                        job: wanted.job,
                        generation: wanted.generation,
                        from: wanted.from,
                        shards,
                        failed: None,
                    };
                    self.report(
                        node.clone(),
                        Source::Checkpoint,
                        Entity::Node { node },
                        body,
                        Vec::new(),
                    );
                }
                Order::Stop { .. } | Order::Keep { .. } | Order::Checkpoint { .. } => {}
            }
        }
    }

    /// What is missing of the newest step in the store is in the memory of every other node, which writes it there.
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

    /// A shard is in the store; of every fifth nobody says so.
    fn seal(&mut self, job: &JobId, seal: ShardSeal) {
        let generation = self.state.jobs()[job].generation;
        self.store
            .entry((job.clone(), generation))
            .or_default()
            .push(seal.clone());
        let rank = u8::try_from(seal.rank.0).unwrap_or(0);
        if (seal.step.0 + u64::from(rank)) % 5 != 4 {
            self.rank_report(job, rank, false, Body::ShardDurable { seal });
        }
    }

    fn make(&mut self, one: &Move) {
        match *one {
            Move::Join {
                node: number,
                incarnation,
            } => {
                let info = NodeInfo {
                    node: node(number),
                    incarnation: incarnation.to_string(),
                    host: "h".to_owned(),
                    peer_address: "h:1".to_owned(),
                    image_address: "h:1".to_owned(),
                    slots: 2,
                    failure_domain: String::new(),
                    running: Vec::new(),
                    clock: ClockOffset::default(),
                };
                self.tell(Event::NodeJoined { info });
            }
            Move::Silence { node: number } => {
                let last_heard = self.now;
                self.tell(Event::NodeFellSilent {
                    node: node(number),
                    last_heard,
                });
            }
            Move::Submit { job: number, min, max } => {
                let spec = JobSpec {
                    id: job(number),
                    command: vec!["train".to_owned()],
                    env: BTreeMap::new(),
                    workdir: None,
                    nodes: NodeRange {
                        min: u32::from(min),
                        max: u32::from(max),
                    },
                    ranks_per_node: 2,
                    checkpoint: Some(CheckpointPolicy {
                        every_steps: 1,
                        store: "/c".to_owned(),
                        keep: 2,
                        retention: rankguard_model::Retention::default(),
                        copies: rankguard_model::CheckpointCopies::default(),
                    }),
                    max_restarts: 2,
                };
                self.tell(Event::JobSubmitted { spec });
            }
            Move::Cancel { job: number } => self.tell(Event::JobCancelled { job: job(number) }),
            Move::Fence {
                job: number,
                node: at,
                port,
                old,
            } => {
                let Some(entry) = self.state.jobs().get(&job(number)) else {
                    return;
                };
                let generation = Generation(entry.generation.0.saturating_sub(u64::from(old)));
                let body = Body::Fenced {
                    job: job(number),
                    generation,
                    master_port: port.then_some(1),
                };
                self.report(
                    node(at),
                    Source::Agent,
                    Entity::Node { node: node(at) },
                    body,
                    Vec::new(),
                );
            }
            Move::Start { job: number, rank } => {
                self.rank_report(&job(number), rank, false, Body::RankStarted { pid: 1 });
            }
            Move::Exit {
                job: number,
                rank,
                code,
                old,
            } => {
                let exit = if code == 3 {
                    Exit::Signal(9)
                } else {
                    Exit::Code(i32::from(code))
                };
                self.rank_report(&job(number), rank, old, Body::RankExited { pid: 1, exit });
            }
            Move::Progress {
                job: number,
                rank,
                step,
            } => {
                let body = Body::Progress {
                    step: Step(u64::from(step)),
                    loss: None,
                    step_ms: 1.0,
                    own_ms: None,
                };
                self.rank_report(&job(number), rank, false, body);
            }
            Move::Silent {
                job: number,
                rank,
                step,
            } => {
                let fields = [("step", u64::from(step)), ("silent_ms", 31_000)];
                let mark = Mark {
                    class: ClassId::from("hang-no-error"),
                    role: Role::Confirmation,
                    confidence: 0.6,
                    signature: "ranks.stalled".into(),
                    fields: fields.map(|(name, value)| (name, value.to_string())).into(),
                };
                let body = Body::Line {
                    text: "no step".to_owned(),
                    context: vec![format!("place {}", step % 3)],
                    repeats: 1,
                };
                self.rank_report_marked(&job(number), rank, false, body, vec![mark]);
            }
            Move::Durable {
                job: number,
                rank,
                step,
                world,
            } => {
                let Some(plan) = self.state.jobs().get(&job(number)).and_then(|job| job.plan.clone()) else {
                    return;
                };
                let seal = ShardSeal {
                    rank: Rank(u32::from(rank) % plan.world_size()),
                    step: Step(u64::from(step)),
                    // Now and then a world size that is a lie.
                    world_size: if world == 6 { 1 } else { plan.world_size() },
                    index: "0".repeat(64),
                    bytes: 1,
                    ledger: None,
                    schema: String::new(),
                };
                self.seal(&job(number), seal);
            }
            Move::Checkpoint { job: number, ahead } => {
                let Some(entry) = self.state.jobs().get(&job(number)) else {
                    return;
                };
                let Some(plan) = entry.plan.clone() else { return };
                let newest = entry.checkpoints.newest().map_or(0, |newest| newest.step.0);
                for rank in 0..plan.world_size() {
                    let seal = ShardSeal {
                        rank: Rank(rank),
                        step: Step(newest + u64::from(ahead)),
                        world_size: plan.world_size(),
                        index: "0".repeat(64),
                        bytes: 1,
                        ledger: None,
                        schema: String::new(),
                    };
                    self.seal(&job(number), seal);
                }
            }
            Move::Commit { refuse } => {
                let Some(manifest) = self.manifests.pop() else { return };
                let (job, step, generation) = (manifest.job, manifest.step, manifest.generation);
                self.tell(if refuse {
                    Event::ManifestRefused {
                        job,
                        step,
                        generation,
                        reason: "disk full".to_owned(),
                    }
                } else {
                    Event::ManifestCommitted {
                        job,
                        step,
                        generation,
                        differing: if step.0.is_multiple_of(3) {
                            vec![difference()]
                        } else {
                            Vec::new()
                        },
                    }
                });
            }
            Move::Hardware { node: number, class } => {
                let device = Device {
                    kind: DeviceKind::Gpu,
                    address: "0000:9b:00".to_owned(),
                };
                let mark = Mark {
                    class: ClassId::from(CLASSES[usize::from(class)]),
                    role: Role::Root,
                    confidence: 0.9,
                    signature: "walk".into(),
                    fields: Fields::new(),
                };
                let body = Body::Line {
                    text: "it broke".to_owned(),
                    context: Vec::new(),
                    repeats: 1,
                };
                let entity = Entity::Device {
                    node: node(number),
                    device,
                };
                self.report(node(number), Source::KernelLog, entity, body, vec![mark]);
            }
            Move::Timer { pick } => {
                let timers: Vec<(Timer, Timestamp)> = self
                    .state
                    .timers()
                    .iter()
                    .map(|(timer, at)| (timer.clone(), *at))
                    .collect();
                if !timers.is_empty() {
                    let (timer, at) = timers[usize::from(pick) % timers.len()].clone();
                    self.now = self.now.max(at);
                    self.tell(Event::TimerFired { timer });
                }
            }
            Move::Wait { millis } => self.now = self.now.after(std::time::Duration::from_millis(millis.into())),
            Move::Cordon { node: number } => {
                self.tell(Event::NodeCordoned {
                    node: node(number),
                    reason: "walk".to_owned(),
                });
            }
            Move::Uncordon { node: number } => self.tell(Event::NodeUncordoned { node: node(number) }),
            Move::Restart => self.tell(Event::ControllerStarted),
            Move::Obey => self.obey(),
        }
    }
}

proptest! {
    #[test]
    fn invariants_hold_on_every_walk(list in moves()) {
        let mut walk = Walk::new();
        for one in &list {
            walk.make(one);
        }
        // The journal gives the state back (RG-8), also through its own form on disk.
        let mut again = State::new(policy(), Catalogue::builtin());
        for stamped in &walk.journal {
            let text = serde_json::to_string(stamped).expect("an event can be written");
            let read: Stamped = serde_json::from_str(&text).expect("an event can be read");
            prop_assert_eq!(&read, stamped);
            step(&mut again, &read);
        }
        prop_assert!(again == walk.state, "the journal gives another state");
    }
}

/// The judge bites: a plan that nobody may carry out is refused by name.
#[test]
fn a_plan_on_a_lost_node_is_refused() {
    let mut walk = Walk::new();
    for number in 0..2 {
        walk.make(&Move::Join {
            node: number,
            incarnation: 0,
        });
    }
    walk.make(&Move::Submit { job: 0, min: 1, max: 2 });
    let plan = walk.state.jobs()[&job(0)].plan.clone().expect("two nodes are enough");
    walk.make(&Move::Silence { node: 1 });
    let problems = rankguard_core::plan_check(&walk.state, &plan);
    assert!(
        problems.contains(&rankguard_core::PlanProblem::NodeNotUsable(node(1))),
        "{problems:?}"
    );
    assert!(
        problems.contains(&rankguard_core::PlanProblem::GenerationNotNewer(plan.generation)),
        "{problems:?}"
    );
}

/// The walks are worth something: they get to running jobs, checkpoints, cases, cordons and later generations.
#[test]
fn walks_reach_the_states_that_matter() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let mut reached: BTreeMap<&str, u32> = BTreeMap::new();
    for _ in 0..300 {
        let list = moves().new_tree(&mut runner).expect("moves can be drawn").current();
        let mut walk = Walk::new();
        let mut seen: BTreeMap<&str, bool> = BTreeMap::new();
        let mut asked = false;
        for one in &list {
            let adopters = adopters(&walk.state);
            walk.make(one);
            asked |= !adopters.is_empty();
            if adopters.iter().any(|node| !walk.state.fleet().is_live(node)) {
                seen.insert("an adopter lost", true);
            }
            for job in walk.state.jobs().values() {
                if job.state() == JobState::Running {
                    seen.insert("running", true);
                }
                if !job.checkpoints.committed.is_empty() {
                    seen.insert("committed", true);
                }
                if job.generation > Generation(1) {
                    seen.insert("second generation", true);
                }
                let committing = job.checkpoints.committing.as_ref();
                if matches!(job.phase, rankguard_core::Phase::Adopting { .. })
                    && committing.is_some_and(|manifest| manifest.generation < job.generation)
                {
                    seen.insert("adopted", true);
                    seen.entry("adopted out of memory").or_insert(asked);
                }
            }
            seen.insert("case", !walk.state.cases().is_empty());
            seen.insert("cordon", walk.state.fleet().cordoned_by_verdict() > 0);
        }
        for (what, _) in seen.into_iter().filter(|(_, there)| *there) {
            *reached.entry(what).or_default() += 1;
        }
    }
    let often = ["running", "committed", "second generation", "case", "cordon"];
    let adoption = ["adopted", "adopted out of memory", "an adopter lost"];
    for what in often.into_iter().chain(adoption) {
        assert!(reached.get(what).copied().unwrap_or(0) >= 10, "{what}: {reached:?}");
    }
}

/// Nodes that are to bring what they hold of a step.
fn adopters(state: &State) -> BTreeSet<NodeId> {
    let stages = state.jobs().values().filter_map(|job| match &job.phase {
        rankguard_core::Phase::Adopting {
            stage: Adoption::Asking { waiting, .. },
            ..
        } => Some(waiting),
        _ => None,
    });
    stages.flatten().cloned().collect()
}

/// RG-2: an unreadable checkpoint is struck off and the one before is next; without any the job stops and says so, rather
/// than starting from nothing.
#[test]
fn an_unreadable_checkpoint_gives_way_to_the_one_before_and_the_last_one_stops_the_job() {
    let mut walk = Walk::new();
    walk.make(&Move::Join {
        node: 0,
        incarnation: 0,
    });
    walk.make(&Move::Submit { job: 0, min: 1, max: 1 });
    for _ in 0..2 {
        walk.make(&Move::Obey);
    }
    for _ in 0..2 {
        walk.make(&Move::Checkpoint { job: 0, ahead: 5 });
        walk.make(&Move::Commit { refuse: false });
    }
    let newest = |walk: &Walk| {
        walk.state.jobs()[&job(0)]
            .checkpoints
            .newest()
            .map(|newest| newest.step.0)
    };
    assert_eq!(newest(&walk), Some(10));
    let corrupt = |walk: &mut Walk, step: u64| {
        let fields = [("step", step.to_string()), ("generation", "1".to_owned())];
        let mark = Mark {
            class: ClassId::from("checkpoint-corrupt"),
            role: Role::Root,
            confidence: 0.95,
            signature: "walk".into(),
            fields: fields.into(),
        };
        let entity = Entity::Rank {
            job: job(0),
            generation: Generation(1),
            rank: Rank(0),
            node: node(0),
        };
        let body = Body::Line {
            text: "it cannot be loaded".to_owned(),
            context: Vec::new(),
            repeats: 1,
        };
        walk.report(node(0), Source::Checkpoint, entity, body, vec![mark]);
    };
    corrupt(&mut walk, 10);
    assert_eq!(newest(&walk), Some(5));
    assert_ne!(walk.state.jobs()[&job(0)].state(), JobState::Stopped);
    corrupt(&mut walk, 5);
    assert_eq!(walk.state.jobs()[&job(0)].state(), JobState::Stopped);
}
