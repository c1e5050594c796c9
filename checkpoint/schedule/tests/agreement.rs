//! Random walks over ranks, a controller and a network that delays, loses, duplicates and reorders messages, while any
//! of them restarts at any moment.
//!
//! Every image carries the true state of the rank: the generation, and the number of steps that changed its state.
//! Commits are judged by that, never by message contents.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rankguard_checkpoint_schedule::agreement::{
    AttemptTracker, CallResponse, CheckpointCallMessage, JobProgress, MAX_ATTEMPTS, RankCallState, StepScheduler,
};
use rankguard_model::{CheckpointCall, Generation, Rank, Step};

const STEP_MS: f64 = 1_000.0;

/// One event of a random walk.
#[derive(Debug, Clone)]
enum Happens {
    /// A rank of the current generation ends a step, if the others allow it: they exchange gradients every step.
    Steps(prop::sample::Index),
    /// A rank that a fence has not reached yet ends a step.
    ZombieSteps(prop::sample::Index),
    /// A rank skips steps (it skips a batch).
    Jumps(prop::sample::Index),
    /// Any message in transit arrives.
    Arrives(prop::sample::Index),
    /// A message arrives and remains in transit (duplicate).
    ArrivesTwice(prop::sample::Index),
    /// A message is lost.
    IsLost(prop::sample::Index),
    /// The controller calls a step.
    Calls,
    /// The controller calls a rule.
    Rules(u64),
    /// The controller repeats its calls.
    Repeats,
    /// The controller restarts from its journal.
    ControllerRestarts,
    /// A rank dies: the next generation starts from the newest commit.
    GenerationEnds(u32),
}

fn happens() -> impl Strategy<Value = Happens> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        12 => index().prop_map(Happens::Steps),
        1 => index().prop_map(Happens::ZombieSteps),
        1 => index().prop_map(Happens::Jumps),
        12 => index().prop_map(Happens::Arrives),
        2 => index().prop_map(Happens::ArrivesTwice),
        2 => index().prop_map(Happens::IsLost),
        3 => Just(Happens::Calls),
        1 => (0..6_u64).prop_map(Happens::Rules),
        1 => Just(Happens::Repeats),
        1 => Just(Happens::ControllerRestarts),
        1 => (1..4_u32).prop_map(Happens::GenerationEnds),
    ]
}

/// True state of a rank when it took an image; no message can change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    generation: Generation,
    steps: Step,
}

#[derive(Debug, Clone)]
enum Message {
    Called(Rank, CheckpointCallMessage),
    Image {
        generation: Generation,
        told: Step,
        rank: Rank,
        world: u32,
        held: Held,
    },
    Missed(Generation, Step),
    Progress(Generation, Step),
}

/// Journal entry of the controller.
#[derive(Debug, Clone)]
enum Entry {
    Heard(Message),
    Call,
    Rule(u64),
    Fence(Generation, u32),
}

#[derive(Debug, Clone, PartialEq)]
struct Controller {
    generation: Generation,
    world: u32,
    caller: StepScheduler,
    newest: Step,
    words: Vec<CheckpointCallMessage>,
    tally: AttemptTracker<Held>,
    /// Commits, with the true state of each image.
    commits: Vec<(Generation, Step, BTreeMap<Rank, Held>)>,
}

impl Controller {
    fn new() -> Self {
        Self {
            generation: Generation(0),
            world: 0,
            caller: StepScheduler::new(Generation(0)),
            newest: Step(0),
            words: Vec::new(),
            tally: AttemptTracker::default(),
            commits: Vec::new(),
        }
    }

    fn take(&mut self, entry: &Entry) {
        let pace = JobProgress {
            newest: self.newest,
            since_ms: 0.0,
            step_ms: STEP_MS,
        };
        match entry {
            Entry::Call => {
                let word = self.caller.call_step(&pace);
                self.words.push(word);
            }
            Entry::Rule(every) => {
                let word = self.caller.call_interval(&pace, *every);
                self.words.push(word);
            }
            Entry::Fence(generation, world) => {
                (self.generation, self.world) = (*generation, *world);
                self.caller = StepScheduler::new(*generation);
                self.newest = self.newest_commit();
                self.words.clear();
                self.tally.fence(*generation, None);
            }
            Entry::Heard(Message::Progress(generation, step)) if *generation == self.generation => {
                self.newest = self.newest.max(*step);
            }
            Entry::Heard(Message::Missed(generation, step)) if *generation == self.generation => {
                self.tally.mark_void(*generation, *step);
                self.caller.record_late_call(*step);
            }
            Entry::Heard(Message::Image {
                generation,
                told,
                rank,
                world,
                held,
            }) if *generation == self.generation => {
                if *told <= self.newest_commit() {
                    return;
                }
                self.tally.add_image(*generation, *told, *rank, *world, *held);
                if let Some((step, images)) = self.tally.newest_complete(*generation) {
                    self.commits.push((*generation, step, images.clone()));
                    self.tally.remove_committed(step, |_, _| false);
                    self.caller.record_timely_call();
                }
            }
            Entry::Heard(_) => {}
        }
    }

    fn newest_commit(&self) -> Step {
        self.commits.last().map_or(Step(0), |(_, step, _)| *step)
    }
}

struct Node {
    rank: Rank,
    world: u32,
    follower: RankCallState,
    steps: Step,
    /// Ground truth: steps of which the rank took an image.
    taken: BTreeSet<Step>,
}

struct World {
    controller: Controller,
    journal: Vec<Entry>,
    nodes: Vec<Node>,
    zombies: Vec<Node>,
    under_way: Vec<Message>,
    /// Ground truth: steps of a generation that some rank passed without an image.
    missed: BTreeSet<(Generation, Step)>,
}

impl World {
    fn new(world: u32) -> Self {
        let mut all = Self {
            controller: Controller::new(),
            journal: Vec::new(),
            nodes: Vec::new(),
            zombies: Vec::new(),
            under_way: Vec::new(),
            missed: BTreeSet::new(),
        };
        all.next_generation(world);
        all
    }

    fn tell(&mut self, entry: Entry) {
        let before = self.controller.words.len();
        self.controller.take(&entry);
        self.journal.push(entry);
        for word in self.controller.words.get(before..).unwrap_or_default().to_vec() {
            self.send(word);
        }
    }

    fn send(&mut self, word: CheckpointCallMessage) {
        let ranks: Vec<Rank> = self.nodes.iter().map(|node| node.rank).collect();
        self.under_way
            .extend(ranks.into_iter().map(|rank| Message::Called(rank, word)));
    }

    fn next_generation(&mut self, world: u32) {
        let generation = self.controller.generation.next();
        self.zombies = std::mem::take(&mut self.nodes);
        self.tell(Entry::Fence(generation, world));
        let start = self.controller.newest_commit();
        let node = |rank| Node {
            rank: Rank(rank),
            world,
            follower: RankCallState::new(generation, start, 0),
            steps: start,
            taken: BTreeSet::new(),
        };
        self.nodes = (0..world).map(node).collect();
    }

    fn arrive(&mut self, message: Message) {
        let Message::Called(rank, word) = &message else {
            return self.tell(Entry::Heard(message));
        };
        let Some(node) = self.nodes.iter_mut().find(|node| node.rank == *rank) else {
            return;
        };
        let generation = node.follower.generation();
        if let CallResponse::TooLate { step } = node.follower.accept_call(word) {
            // A late rule is not an attempt at a step.
            if matches!(word.call, CheckpointCall::At { .. }) && !node.taken.contains(&step) {
                self.missed.insert((generation, step));
                self.under_way.push(Message::Missed(generation, step));
            }
        }
    }

    /// Ends `by` steps of a rank at once. Returns the messages that it sends.
    fn end_step(node: &mut Node, by: u64, missed: &mut BTreeSet<(Generation, Step)>) -> Vec<Message> {
        node.steps = Step(node.steps.0 + by);
        let generation = node.follower.generation();
        let boundary = node.follower.decide_boundary(node.steps);
        let mut sent = vec![Message::Progress(generation, node.steps)];
        for step in boundary.missed {
            missed.insert((generation, step));
            sent.push(Message::Missed(generation, step));
        }
        if boundary.image {
            node.taken.insert(node.steps);
            let held = Held {
                generation,
                steps: node.steps,
            };
            sent.push(Message::Image {
                generation,
                told: node.steps,
                rank: node.rank,
                world: node.world,
                held,
            });
        }
        sent
    }

    fn step(&mut self, which: usize, by: u64) {
        let slowest = self.nodes.iter().map(|node| node.steps).min().unwrap_or_default();
        let node = &mut self.nodes[which];
        if by == 1 && node.steps > slowest {
            return;
        }
        let sent = Self::end_step(node, by, &mut self.missed);
        self.under_way.extend(sent);
    }

    fn happen(&mut self, what: &Happens) {
        match what {
            Happens::Steps(index) => self.step(index.index(self.nodes.len()), 1),
            Happens::Jumps(index) => self.step(index.index(self.nodes.len()), 3),
            Happens::ZombieSteps(index) if !self.zombies.is_empty() => {
                let which = index.index(self.zombies.len());
                let sent = Self::end_step(&mut self.zombies[which], 1, &mut self.missed);
                self.under_way.extend(sent);
            }
            Happens::Arrives(index) if !self.under_way.is_empty() => {
                let message = self.under_way.swap_remove(index.index(self.under_way.len()));
                self.arrive(message);
            }
            Happens::ArrivesTwice(index) if !self.under_way.is_empty() => {
                let message = self.under_way[index.index(self.under_way.len())].clone();
                self.arrive(message);
            }
            Happens::IsLost(index) if !self.under_way.is_empty() => {
                self.under_way.swap_remove(index.index(self.under_way.len()));
            }
            Happens::ZombieSteps(_) | Happens::Arrives(_) | Happens::ArrivesTwice(_) | Happens::IsLost(_) => {}
            Happens::Calls => self.tell(Entry::Call),
            Happens::Rules(every) => self.tell(Entry::Rule(*every)),
            Happens::Repeats => self
                .controller
                .words
                .clone()
                .into_iter()
                .for_each(|word| self.send(word)),
            Happens::ControllerRestarts => {
                let mut rebuilt = Controller::new();
                self.journal.iter().for_each(|entry| rebuilt.take(entry));
                assert_eq!(rebuilt, self.controller, "the journal does not give the state back");
                self.controller = rebuilt;
            }
            Happens::GenerationEnds(world) => self.next_generation(*world),
        }
    }

    /// Checks all commits against the true state of the ranks.
    fn judge(&self) -> Result<(), TestCaseError> {
        let mut last = None;
        for (generation, step, images) in &self.controller.commits {
            prop_assert!(last < Some((*step, *generation)), "commits go backwards");
            last = Some((*step, *generation));
            let truth = Held {
                generation: *generation,
                steps: *step,
            };
            prop_assert!(
                images.values().all(|held| *held == truth),
                "step {step} holds {images:?}"
            );
            prop_assert!(
                images.keys().enumerate().all(|(at, rank)| rank.0 as usize == at),
                "ranks are missing"
            );
            prop_assert!(
                !self.missed.contains(&(*generation, *step)),
                "step {step} was missed and is committed"
            );
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn no_commit_ever_holds_two_steps(world in 1..4_u32, script in prop::collection::vec(happens(), 1..250)) {
        let mut all = World::new(world);
        for what in &script {
            all.happen(what);
            all.judge()?;
        }
    }

    /// After any history, a call succeeds once messages flow: delays of up to `delay` steps, none lost.
    #[test]
    fn a_step_is_agreed_on_once_messages_flow(
        world in 1..4_u32, script in prop::collection::vec(happens(), 0..150), delay in 0..40_usize,
    ) {
        let mut all = World::new(world);
        script.iter().for_each(|what| all.happen(what));
        all.under_way.clear();
        // Slower ranks catch up: a collective waits for them.
        let furthest = all.nodes.iter().map(|node| node.steps).max().unwrap_or_default();
        while let Some(which) = (0..all.nodes.len()).filter(|at| all.nodes[*at].steps < furthest).min_by_key(|at| all.nodes[*at].steps) {
            all.step(which, 1);
        }
        let before = all.controller.commits.len();
        let mut queue: Vec<Vec<Message>> = Vec::new();
        let mut calls = 0;
        for round in 0..2_000 {
            if all.controller.commits.len() > before {
                break;
            }
            if round % 100 == 0 {
                all.tell(Entry::Call);
                calls += 1;
            }
            for which in 0..all.nodes.len() {
                all.step(which, 1);
            }
            queue.push(std::mem::take(&mut all.under_way));
            if queue.len() > delay {
                queue.remove(0).into_iter().for_each(|message| all.arrive(message));
            }
        }
        prop_assert!(all.controller.commits.len() > before, "no commit after {calls} calls");
        all.judge()?;
    }

    /// The controller was away for longer than it retains attempts (RG-5). Each agent reports in order what its rank
    /// saved meanwhile, interleaved at random: the newest step that all have is whole, and repeated reports change
    /// nothing.
    #[test]
    fn what_was_saved_while_the_controller_was_away_is_whole_when_all_have_told(
        newest in 1..60_u64,
        ahead in prop::collection::vec(0..MAX_ATTEMPTS as u64, 0..5),
        order in prop::collection::vec(any::<prop::sample::Index>(), 300),
        twice in any::<bool>(),
    ) {
        let steps: Vec<u64> = ahead.iter().map(|by| newest + by).chain([newest]).collect();
        let world = steps.len() as u32;
        let mut tally = AttemptTracker::default();
        let mut told = vec![0; steps.len()];
        let mut tell = |rank: usize, step| tally.add_image(Generation(1), Step(step), Rank(rank as u32), world, (rank, step));
        for pick in order {
            let behind: Vec<usize> = (0..steps.len()).filter(|rank| told[*rank] < steps[*rank]).collect();
            let Some(rank) = (!behind.is_empty()).then(|| behind[pick.index(behind.len())]) else { break };
            told[rank] += 1;
            tell(rank, told[rank]);
        }
        // The remaining images are reported at once, one agent after the other.
        for rank in 0..steps.len() {
            let from = if twice { 1 } else { told[rank] + 1 };
            for step in from..=steps[rank] {
                tell(rank, step);
            }
        }
        let whole = tally.newest_complete(Generation(1)).map(|(step, images)| (step.0, images.values().copied().collect::<Vec<_>>()));
        let expected: Vec<(usize, u64)> = (0..steps.len()).map(|rank| (rank, newest)).collect();
        prop_assert_eq!(whole, Some((newest, expected)));
    }

    /// Without any call, every rank takes exactly the images of its rule: the controller may be away (RG-5).
    #[test]
    fn the_rule_alone_checkpoints_without_a_controller(every in 1..20_u64, steps in 1..200_u64, world in 1..4_u32) {
        let mut tally = AttemptTracker::default();
        for rank in 0..world {
            let mut follower = RankCallState::new(Generation(1), Step(0), every);
            for step in (1..=steps).map(Step).filter(|step| follower.decide_boundary(*step).image) {
                tally.add_image(Generation(1), step, Rank(rank), world, ());
            }
        }
        let newest = steps / every * every;
        let whole = tally.newest_complete(Generation(1)).map(|(step, _)| step.0);
        prop_assert!(whole == Some(newest) || newest == 0, "{whole:?} {newest}");
    }
}
