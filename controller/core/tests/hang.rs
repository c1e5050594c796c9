//! A job that hangs: named within the minute, left alone while it may still go on, started anew when it does not.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_core::{Action, Event, Policy, Stamped, State, Timer, invariants, step};
use rankguard_faults::Catalogue;
use rankguard_model::{
    Body, Case, CaseState, ClassId, ClockOffset, Entity, Evidence, EvidenceId, Exit, Generation, JobId, JobSpec, Mark,
    NodeId, NodeInfo, NodeRange, Order, Rank, Role, Sequence, Source, Step, Timestamp,
};

struct Cluster {
    state: State,
    now: Timestamp,
    seqs: BTreeMap<NodeId, u64>,
    orders: Vec<(NodeId, Order)>,
}

fn job() -> JobId {
    JobId::from("llm")
}

fn node(number: u32) -> NodeId {
    NodeId(format!("node-{number}"))
}

impl Cluster {
    /// Four nodes with two ranks each; all have made step 40.
    fn running(policy: Policy) -> Self {
        let mut cluster = Self {
            state: State::new(policy, Catalogue::builtin()),
            now: Timestamp(1_700_000_000_000_000_000),
            seqs: BTreeMap::new(),
            orders: Vec::new(),
        };
        for number in 0..4 {
            let info = NodeInfo {
                node: node(number),
                incarnation: "1".to_owned(),
                host: "h".to_owned(),
                peer_address: "h:1".to_owned(),
                slots: 2,
                failure_domain: String::new(),
                running: Vec::new(),
                clock: ClockOffset::default(),
            };
            cluster.tell(Event::NodeJoined { info });
        }
        let spec = JobSpec {
            id: job(),
            command: vec!["train".to_owned()],
            env: BTreeMap::new(),
            workdir: None,
            nodes: NodeRange { min: 4, max: 4 },
            ranks_per_node: 2,
            checkpoint: None,
            max_restarts: 3,
        };
        cluster.tell(Event::JobSubmitted { spec });
        cluster.obey();
        cluster.obey();
        for rank in 0..8 {
            cluster.progress(rank, 40);
        }
        cluster
    }

    fn tell(&mut self, event: Event) {
        let stamped = Stamped { at: self.now, event };
        for action in step(&mut self.state, &stamped) {
            if let Action::SendOrder { node, order, .. } = action {
                self.orders.push((node, order));
            }
        }
        assert_eq!(invariants::check(&self.state), []);
    }

    /// Time passes; what is due is done.
    fn wait(&mut self, duration: Duration) {
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

    fn report(&mut self, node: NodeId, source: Source, entity: Entity, body: Body, marks: Vec<Mark>) {
        let seq = self.seqs.entry(node.clone()).or_default();
        *seq += 1;
        let evidence = Evidence {
            id: EvidenceId {
                node,
                seq: Sequence(*seq),
            },
            at: self.now,
            source,
            entity,
            body,
            marks,
        };
        self.tell(Event::EvidenceArrived { evidence });
    }

    fn rank_says(&mut self, rank: u32, body: Body, marks: Vec<Mark>) {
        let node = node(rank / 2);
        let entity = Entity::Rank {
            job: job(),
            generation: self.state.jobs()[&job()].generation,
            rank: Rank(rank),
            node: node.clone(),
        };
        self.report(node, Source::Ranks, entity, body, marks);
    }

    fn obey(&mut self) {
        for (node, order) in std::mem::take(&mut self.orders) {
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
                    for slot in &launch.ranks {
                        self.rank_says(slot.rank.0, Body::RankStarted { pid: slot.rank.0 }, Vec::new());
                    }
                }
                _ => {}
            }
        }
    }

    fn progress(&mut self, rank: u32, step: u64) {
        let body = Body::Progress {
            step: Step(step),
            loss: None,
            step_ms: 1.0,
        };
        self.rank_says(rank, body, Vec::new());
    }

    /// An agent finds a rank silent for 31 s, in this place.
    fn silent(&mut self, rank: u32, step: u64, place: &str) {
        let fields = [("step", step.to_string()), ("silent_ms", "31000".to_owned())];
        let mark = Mark {
            class: ClassId::from("hang-no-error"),
            role: Role::Confirmation,
            confidence: 0.6,
            signature: "ranks.stalled".to_owned(),
            fields: fields
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        };
        let body = Body::Line {
            text: format!("no step for 31 s after step {step}"),
            context: vec![
                "main (train.py:9)".to_owned(),
                place.to_owned(),
                "-- thread x".to_owned(),
            ],
            repeats: 1,
        };
        self.rank_says(rank, body, vec![mark]);
    }

    fn cases(&self) -> Vec<&Case> {
        self.state.cases().values().collect()
    }

    fn generation(&self) -> Generation {
        self.state.jobs()[&job()].generation
    }
}

/// All ranks wait for rank 5, which reads.
fn hung() -> Cluster {
    let mut cluster = Cluster::running(Policy::default());
    cluster.wait(Duration::from_secs(31));
    for rank in 0..8 {
        let place = if rank == 5 {
            "read (data.py:3)"
        } else {
            "all_reduce (dist.py:7)"
        };
        cluster.silent(rank, 40, place);
    }
    cluster.wait(Duration::from_secs(10));
    cluster
}

#[test]
fn the_rank_that_stands_elsewhere_is_named_with_the_tree_of_all_stacks_and_nothing_is_restarted_yet() {
    let cluster = hung();
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.verdict.class.as_str(), "hang-stalled-ranks");
    assert_eq!(case.verdict.root_rank, Some(Rank(5)));
    assert_eq!(case.verdict.blamed.node(), Some(&node(2)));
    assert_eq!(case.state, CaseState::Recovering);
    let told: String = case
        .reasoning
        .iter()
        .map(|reason| reason.text.as_str())
        .collect::<Vec<_>>()
        .join("\n");
    for wanted in [
        "ranks 0-7: main (train.py:9)\n",
        "ranks 0-4,6-7:   all_reduce (dist.py:7)\n",
        "rank 5:   read (data.py:3)",
        "stands in read (data.py:3), while 7 of 8 wait for others",
    ] {
        assert!(told.contains(wanted), "{wanted} is not in {told}");
    }
    assert!(!told.contains("thread x"), "{told}");
    assert_eq!(cluster.generation(), Generation(1));
}

#[test]
fn a_step_clears_the_case() {
    let mut cluster = hung();
    cluster.progress(0, 41);
    assert_eq!(cluster.cases()[0].state, CaseState::Closed);
    for step in 42..600 {
        for rank in 0..8 {
            cluster.progress(rank, step);
        }
        cluster.wait(Duration::from_secs(1));
    }
    assert_eq!((cluster.cases().len(), cluster.generation()), (1, Generation(1)));
}

#[test]
fn a_report_of_an_old_step_clears_nothing() {
    let mut cluster = hung();
    cluster.progress(0, 40);
    assert_eq!(cluster.cases()[0].state, CaseState::Recovering);
}

#[test]
fn a_silence_that_lasts_ends_in_a_new_generation_of_the_same_case() {
    let mut cluster = hung();
    cluster.wait(Duration::from_secs(250));
    assert_eq!(cluster.generation(), Generation(1));
    cluster.wait(Duration::from_secs(20));
    assert_eq!(cluster.generation(), Generation(2));
    cluster.obey();
    cluster.obey();
    for rank in 0..8 {
        cluster.progress(rank, 1);
    }
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.state, CaseState::Recovered);
}

#[test]
fn a_second_silence_of_the_same_generation_is_answered_too() {
    let mut cluster = hung();
    for rank in 0..8 {
        cluster.progress(rank, 41);
    }
    cluster.wait(Duration::from_secs(31));
    for rank in 0..8 {
        cluster.silent(rank, 41, "all_reduce (dist.py:7)");
    }
    cluster.wait(Duration::from_secs(400));
    assert_eq!(cluster.generation(), Generation(2));
}

#[test]
fn a_rank_that_gives_up_ends_the_wait() {
    let mut cluster = hung();
    let exit = Body::RankExited {
        pid: 3,
        exit: Exit::Signal(6),
    };
    cluster.rank_says(3, exit, Vec::new());
    assert_eq!(cluster.generation(), Generation(2));
}

#[test]
fn a_rank_that_is_silent_while_others_go_on_is_no_hang() {
    let mut cluster = Cluster::running(Policy::default());
    cluster.wait(Duration::from_secs(31));
    cluster.silent(5, 40, "read (data.py:3)");
    for step in 41..400 {
        cluster.progress(0, step);
        cluster.wait(Duration::from_secs(1));
    }
    assert_eq!(cluster.cases().len(), 0);
    assert_eq!(cluster.generation(), Generation(1));
}

#[test]
fn the_job_hangs_although_one_agent_does_not_tell() {
    let mut cluster = Cluster::running(Policy::default());
    cluster.wait(Duration::from_secs(31));
    for rank in 0..7 {
        cluster.silent(rank, 40, "all_reduce (dist.py:7)");
    }
    assert_eq!(cluster.cases().len(), 0);
    cluster.wait(Duration::from_secs(20));
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.verdict.class.as_str(), "hang-no-error");
}

#[test]
fn what_agents_find_is_not_heeded_when_the_policy_says_so() {
    let mut cluster = Cluster::running(Policy {
        hang_ms: 0,
        ..Policy::default()
    });
    cluster.wait(Duration::from_secs(31));
    for rank in 0..8 {
        cluster.silent(rank, 40, "all_reduce (dist.py:7)");
    }
    cluster.wait(Duration::from_secs(1_000));
    assert_eq!(cluster.cases().len(), 0);
}

#[test]
fn reports_without_fields_and_of_old_generations_change_nothing() {
    let mut cluster = Cluster::running(Policy::default());
    let mark = Mark {
        class: ClassId::from("hang-no-error"),
        role: Role::Confirmation,
        confidence: 0.6,
        signature: "ranks.stalled".to_owned(),
        fields: BTreeMap::new(),
    };
    let line = || Body::Line {
        text: "x".to_owned(),
        context: Vec::new(),
        repeats: 1,
    };
    cluster.rank_says(0, line(), vec![mark.clone()]);
    let entity = Entity::Rank {
        job: job(),
        generation: Generation(0),
        rank: Rank(0),
        node: node(0),
    };
    cluster.report(node(0), Source::Ranks, entity, line(), vec![mark]);
    assert!(
        !cluster
            .state
            .timers()
            .keys()
            .any(|timer| matches!(timer, Timer::Hang { .. }))
    );
}
