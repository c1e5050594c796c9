//! Statements of an operator's first hour: jobs without their ranks, recoveries, and reasons to stop.

mod cluster;

use std::time::Duration;

use cluster::{Cluster, job, node};
use rankguard_core::{Event, Job, JobPhase, Policy};
use rankguard_model::{
    AgentOrder, CaseState, ClassId, Classification, ClockOffset, Device, DeviceKind, Entity, EvidenceBody,
    EvidenceSource, FAREWELL_SIGNATURE, FieldValues, Generation, JobFence, JobId, JobState, NodeHistory, NodeInfo,
    NodeState, ProcessExit, Rank, RankRef, Role, RunningRank, Step,
};

/// Rules before this round.
const OLDER: u32 = 4;

fn policy() -> Policy {
    Policy {
        first_step_ms: 100_000,
        ..Policy::default()
    }
}

fn older() -> Policy {
    Policy {
        rules: OLDER,
        ..policy()
    }
}

/// A job of four nodes that reports no steps and has no checkpoints; all its ranks write output.
fn unmarked(policy: Policy) -> Cluster {
    let mut cluster = Cluster::new(policy);
    cluster.submit(4);
    cluster.obey();
    cluster.obey();
    for rank in 0..8 {
        cluster.activity(rank, "output");
    }
    assert!(matches!(cluster.job().phase(), JobPhase::Running));
    cluster
}

impl Cluster {
    fn job(&self) -> &Job {
        &self.state.jobs()[&job()]
    }

    fn activity(&mut self, rank: u32, state: &str) {
        let mark = mark("none", Role::Noise, "ranks.activity", &[("state", state)]);
        self.rank_says(rank, line(state), vec![mark]);
    }

    fn exits(&mut self, rank: u32, exit: ProcessExit, ended_by_agent: bool) {
        let body = EvidenceBody::RankExited {
            pid: rank,
            exit,
            ended_by_agent,
        };
        self.rank_says(rank, body, Vec::new());
    }

    fn completes(&mut self, rank: u32) {
        self.exits(rank, ProcessExit::Code(0), false);
    }

    fn is_killed(&mut self, rank: u32) {
        self.exits(rank, ProcessExit::Signal(9), false);
    }

    fn falls_silent(&mut self, number: u32) {
        let last_heard = self.now;
        self.tell(Event::NodeFellSilent {
            node: node(number),
            last_heard,
        });
    }

    fn joins(&mut self, number: u32, incarnation: &str, ranks: &[u32]) {
        let mut info = self.info(number, incarnation);
        info.running = ranks
            .iter()
            .map(|rank| running("llm", self.generation().0, *rank))
            .collect();
        self.tell(Event::NodeJoined { info });
    }

    fn info(&self, number: u32, incarnation: &str) -> NodeInfo {
        NodeInfo {
            node: node(number),
            incarnation: incarnation.to_owned(),
            boot_id: String::new(),
            host: "h".to_owned(),
            peer_address: "h:1".to_owned(),
            image_address: "h:1".to_owned(),
            slots: 2,
            failure_domain: String::new(),
            running: Vec::new(),
            clock: ClockOffset::default(),
            lease_ms: 30_000,
            is_kernel_log_first: false,
            history: NodeHistory::default(),
        }
    }

    /// Reports evidence of a rank of [`with_foreign_ranks`].
    fn foreign_rank_says(&mut self, rank: u32, body: EvidenceBody) {
        let entity = Entity::Rank {
            job: JobId::from("old"),
            generation: Generation(6),
            rank: Rank(rank),
            node: node(0),
        };
        self.report(node(0), EvidenceSource::Ranks, entity, body, Vec::new());
    }

    fn node_state(&self, number: u32) -> NodeState {
        self.state.fleet().get(&node(number)).expect("it joined").state()
    }

    fn node_says(&mut self, number: u32, source: EvidenceSource, body: EvidenceBody, marks: Vec<Classification>) {
        let node = node(number);
        self.report(node.clone(), source, Entity::Node { node }, body, marks);
    }

    fn reason(&self) -> String {
        let view = self.state.status(self.now);
        view.jobs[0].reason.clone().unwrap_or_default()
    }

    /// Carries out orders until the ranks of the next generation have started.
    fn restarts(&mut self) {
        for _ in 0..4 {
            self.obey();
        }
    }

    /// A GPU of a node falls off its bus.
    fn gpu_is_lost(&mut self, number: u32) {
        let name = node(number);
        let mark = mark("gpu-fallen-off-bus", Role::Root, "nvrm.xid-79", &[]);
        let device = Device {
            kind: DeviceKind::Gpu,
            address: "0000:9b:00".to_owned(),
        };
        let entity = Entity::Device {
            node: name.clone(),
            device,
        };
        let body = line("NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.");
        self.report(name, EvidenceSource::KernelLog, entity, body, vec![mark]);
    }
}

fn mark(class: &str, role: Role, signature: &str, fields: &[(&str, &str)]) -> Classification {
    let mut all = FieldValues::new();
    for (name, value) in fields {
        all.insert((*name).to_owned(), (*value).to_owned());
    }
    Classification {
        class: ClassId::from(class),
        role,
        confidence: 0.95,
        signature: signature.into(),
        fields: all,
    }
}

fn line(text: &str) -> EvidenceBody {
    EvidenceBody::Line {
        text: text.to_owned(),
        context: Vec::new(),
        repeats: 1,
    }
}

fn running(name: &str, generation: u64, rank: u32) -> RunningRank {
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

/// Node 3 is away, and the job waits for it.
fn waiting(policy: Policy) -> Cluster {
    let mut cluster = unmarked(policy);
    cluster.falls_silent(3);
    cluster.wait(Duration::from_secs(10));
    assert!(
        matches!(cluster.job().phase(), JobPhase::Pending { .. }),
        "{:?}",
        cluster.announced
    );
    cluster
}

#[test]
fn a_restarted_agent_has_none_of_the_ranks_of_the_one_before() {
    let mut cluster = waiting(policy());
    cluster.joins(3, "2", &[]);
    assert_eq!(cluster.generation(), Generation(2), "its ranks died with its agent");
    let mut old = waiting(older());
    old.joins(3, "2", &[]);
    assert_eq!(
        (old.generation(), old.job().state()),
        (Generation(1), JobState::Running),
        "the old rules hold"
    );
}

#[test]
fn a_returned_agent_without_its_ranks_reports_their_exits_before_the_job_is_judged() {
    let mut cluster = waiting(policy());
    cluster.joins(3, "1", &[6]);
    assert!(
        matches!(cluster.job().phase(), JobPhase::Pending { .. }),
        "the exit of rank 7 is awaited"
    );
    cluster.is_killed(7);
    assert_eq!(cluster.generation(), Generation(2));
    // The ranks completed while their node was away.
    let mut cluster = waiting(policy());
    cluster.joins(3, "1", &[6]);
    cluster.completes(7);
    assert_eq!(
        (cluster.generation(), cluster.job().state()),
        (Generation(1), JobState::Running)
    );
    // RG-9: an exit that is never reported does not delay the job for ever.
    let mut cluster = waiting(policy());
    cluster.joins(3, "1", &[6]);
    cluster.wait(Duration::from_secs(20));
    assert_eq!(cluster.generation(), Generation(2));
}

#[test]
fn ranks_that_live_when_their_agent_returns_go_on() {
    let mut cluster = waiting(policy());
    cluster.joins(3, "1", &[6, 7]);
    assert_eq!(
        (cluster.generation(), cluster.job().state()),
        (Generation(1), JobState::Running)
    );
}

#[test]
fn rg_9_an_exit_that_joins_a_closed_case_restarts_the_job() {
    let check = |policy: Policy, generation: u64| {
        let mut cluster = waiting(policy);
        cluster.joins(3, "1", &[6, 7]);
        assert_eq!(cluster.job().state(), JobState::Running);
        // The supervisor had ended the rank, and its agent did not know.
        cluster.exits(7, ProcessExit::Signal(9), true);
        cluster.wait(Duration::from_secs(5));
        assert_eq!(cluster.generation(), Generation(generation), "{:#?}", cluster.announced);
        cluster
    };
    check(older(), 1);
    let mut cluster = check(policy(), 2);
    let case = cluster.cases()[0];
    assert_eq!((case.state, case.outcome.as_deref()), (CaseState::Recovering, None));
    let text = "rank 7 on node node-3 has ended without completion; the job is restarted for it";
    assert!(case.actions.iter().any(|action| action.text == text), "{case:#?}");
    cluster.restarts();
    cluster.all_work();
    assert_eq!(cluster.cases().len(), 1);
    assert_eq!(cluster.cases()[0].state, CaseState::Recovered);
}

#[test]
fn an_end_by_the_agent_without_a_case_restarts_the_job_with_one() {
    let mut cluster = unmarked(policy());
    cluster.exits(2, ProcessExit::Signal(9), true);
    cluster.wait(Duration::from_secs(30));
    assert_eq!(cluster.generation(), Generation(2));
    let case = cluster.cases()[0];
    assert_eq!((case.job.clone(), case.generation), (Some(job()), Some(Generation(1))));
    assert_eq!(
        case.findings[0].text,
        "rank 2 on node node-1 has ended without completion"
    );
}

#[test]
fn ranks_that_a_lease_ended_while_their_job_waits_are_no_second_failure() {
    let check = |policy: Policy, cases: usize| {
        let mut cluster = waiting(policy);
        cluster.joins(3, "1", &[]);
        let fields = [("job", "llm"), ("generation", "1")];
        let mark = mark(
            "node-agent-silent",
            Role::Confirmation,
            rankguard_model::LEASE_SIGNATURE,
            &fields,
        );
        cluster.node_says(3, EvidenceSource::Agent, line("the lease of 30 s is over"), vec![mark]);
        cluster.wait(Duration::from_secs(10));
        assert_eq!(cluster.cases().len(), cases, "{:#?}", cluster.cases());
    };
    check(policy(), 1);
}

#[test]
fn rg_9_the_loss_of_a_node_whose_ranks_have_completed_is_no_failure_of_the_job() {
    let mut cluster = unmarked(policy());
    cluster.completes(6);
    cluster.completes(7);
    cluster.falls_silent(3);
    cluster.wait(Duration::from_secs(30));
    assert_eq!((cluster.generation(), cluster.cases().len()), (Generation(1), 0));
    for rank in 0..6 {
        cluster.completes(rank);
    }
    assert_eq!(cluster.job().state(), JobState::Finished);
    let mut old = unmarked(older());
    old.completes(6);
    old.completes(7);
    old.falls_silent(3);
    old.wait(Duration::from_secs(30));
    assert!(
        matches!(old.job().phase(), JobPhase::Pending { .. }),
        "the old rules hold"
    );
}

/// The agent of node 1 is asked to end: it reports that, the exits of its ranks, and that nothing is left of them.
fn is_asked_to_end(cluster: &mut Cluster) {
    reports_its_end(cluster);
    let last_heard = Some(cluster.now);
    cluster.tell(Event::SessionEnded {
        node: node(1),
        last_heard,
    });
}

fn reports_its_end(cluster: &mut Cluster) {
    let mark = mark("maintenance", Role::Confirmation, FAREWELL_SIGNATURE, &[]);
    let text = "the agent was asked to end and takes its ranks along";
    cluster.node_says(1, EvidenceSource::Agent, line(text), vec![mark]);
    for rank in [2, 3] {
        cluster.exits(rank, ProcessExit::Signal(15), true);
    }
    let body = EvidenceBody::Stopped {
        job: job(),
        generation: cluster.generation(),
        ended: 2,
        left: Vec::new(),
    };
    cluster.node_says(1, EvidenceSource::Agent, body, Vec::new());
}

/// Returns the generation some seconds after the reports of an ending agent, before and after the end of its session.
fn generations_around_an_end(policy: Policy) -> (Generation, Generation) {
    let mut cluster = Cluster::checkpointed(policy, rankguard_model::CheckpointTiers::default());
    reports_its_end(&mut cluster);
    cluster.wait(Duration::from_secs(3));
    let before = cluster.generation();
    let last_heard = Some(cluster.now);
    cluster.tell(Event::SessionEnded {
        node: node(1),
        last_heard,
    });
    cluster.wait(Duration::from_secs(3));
    (before, cluster.generation())
}

#[test]
fn ranks_that_end_with_their_agent_are_not_restarted_before_its_end() {
    let (before, after) = generations_around_an_end(policy());
    assert_eq!((before, after), (Generation(1), Generation(2)));
    let older = Policy { rules: 5, ..policy() };
    assert_ne!(generations_around_an_end(older).0, Generation(1), "the old rules hold");
}

#[test]
fn an_agent_that_was_asked_to_end_needs_no_silence_and_no_fence() {
    let mut cluster = Cluster::checkpointed(policy(), rankguard_model::CheckpointTiers::default());
    let before = cluster.now;
    is_asked_to_end(&mut cluster);
    assert_eq!(cluster.node_state(1), NodeState::Lost);
    cluster.wait(Duration::from_secs(3));
    assert_eq!(cluster.generation(), Generation(2), "{:?}", cluster.announced);
    let case = cluster.cases()[0];
    assert_eq!(case.verdict.class, ClassId::from("maintenance"), "{case:#?}");
    assert!(case.first_at >= before);
    let view = cluster.state.status(cluster.now);
    assert_eq!(view.jobs[0].unconfirmed, [], "its agent has confirmed the ends");
    let reason = view.nodes[1].reason.clone().unwrap_or_default();
    assert!(reason.starts_with("its agent was asked to end at"), "{reason}");
    // A new agent of the node is fenced for nothing.
    cluster.joins(1, "2", &[]);
    assert_eq!(cluster.node_state(1), NodeState::Healthy);
}

#[test]
fn a_session_that_ends_without_a_farewell_is_judged_by_its_silence() {
    let mut cluster = Cluster::running(policy());
    cluster.tell(Event::SessionEnded {
        node: node(1),
        last_heard: None,
    });
    assert_eq!(cluster.node_state(1), NodeState::Healthy);
}

#[test]
fn a_lost_agent_was_last_heard_before_its_successor_joined() {
    let mut cluster = unmarked(policy());
    let killed = cluster.now;
    cluster.tell(Event::SessionEnded {
        node: node(1),
        last_heard: Some(killed),
    });
    cluster.wait(Duration::from_secs(2));
    cluster.joins(1, "2", &[]);
    cluster.wait(Duration::from_secs(5));
    let case = cluster.cases()[0];
    assert_eq!(case.first_at, killed, "{case:#?}");
}

fn with_restarts(max_restarts: u32, policy: Policy) -> Cluster {
    let mut cluster = Cluster::new(policy);
    let mut spec = cluster.spec(4, None);
    spec.max_restarts = max_restarts;
    cluster.tell(Event::JobSubmitted { spec, claim: None });
    cluster.obey();
    cluster.obey();
    for rank in 0..8 {
        cluster.progress(rank, 40);
    }
    cluster
}

impl Cluster {
    /// All ranks of the job write output.
    fn all_work(&mut self) {
        for rank in 0..8 {
            self.activity(rank, "output");
        }
    }
}

#[test]
fn a_job_without_restarts_is_not_stopped_for_restarts_that_were_never_made() {
    let mut cluster = with_restarts(0, policy());
    cluster.gpu_is_lost(1);
    cluster.wait(Duration::from_secs(10));
    assert_eq!(cluster.job().state(), JobState::Stopped);
    let expect = "gpu-fallen-off-bus, blamed: node node-1, gpu 0000:9b:00; no restarts are allowed (case 1)";
    assert_eq!(cluster.reason(), expect);
    let mut cluster = with_restarts(0, policy());
    cluster.is_killed(1);
    cluster.wait(Duration::from_secs(10));
    let reason = cluster.reason();
    assert!(reason.ends_with("no restarts are allowed (case 1)"), "{reason}");
}

#[test]
fn a_restart_failed_only_if_its_own_generation_failed_before_it_worked() {
    // The restarted ranks work; then another node fails.
    let mut cluster = unmarked(policy());
    cluster.is_killed(1);
    cluster.wait(Duration::from_secs(5));
    cluster.restarts();
    assert_eq!(cluster.job().state(), JobState::Recovering);
    cluster.all_work();
    assert_eq!(cluster.job().state(), JobState::Running);
    assert_eq!(cluster.cases()[0].state, CaseState::Recovered);
    cluster.wait(Duration::from_secs(14));
    cluster.falls_silent(2);
    cluster.wait(Duration::from_secs(10));
    let outcome = cluster.cases()[0].outcome.clone().expect("an outcome");
    assert_eq!(outcome, "the ranks of the job worked again; it reports no steps");
    // The restarted ranks fail at once.
    let mut cluster = unmarked(policy());
    cluster.is_killed(1);
    cluster.wait(Duration::from_secs(5));
    cluster.restarts();
    cluster.is_killed(1);
    cluster.wait(Duration::from_secs(5));
    let outcome = cluster.cases()[0].outcome.clone().expect("an outcome");
    assert_eq!(outcome, "the restart failed too, see case 2");
    // The restarted rank fails at once, while the others write output.
    let mut cluster = unmarked(policy());
    cluster.is_killed(1);
    cluster.wait(Duration::from_secs(5));
    cluster.restarts();
    cluster.activity(0, "output");
    cluster.is_killed(1);
    cluster.activity(2, "output");
    cluster.wait(Duration::from_secs(5));
    let outcome = cluster.cases()[0].outcome.clone().expect("an outcome");
    assert_eq!(outcome, "the restart failed too, see case 2");
    // The restarted ranks run without a sign of life, and then another failure ends them.
    let mut cluster = unmarked(policy());
    cluster.is_killed(1);
    cluster.wait(Duration::from_secs(5));
    cluster.restarts();
    cluster.wait(Duration::from_secs(9));
    cluster.exits(1, ProcessExit::Code(3), false);
    cluster.wait(Duration::from_secs(5));
    let outcome = cluster.cases()[0].outcome.clone().expect("an outcome");
    assert_eq!(
        outcome,
        "another failure ended the restarted ranks after 9.0 s, see case 2"
    );
    // Another failure comes while the old ranks are being ended.
    let mut cluster = Cluster::checkpointed(policy(), rankguard_model::CheckpointTiers::default());
    cluster.is_killed(1);
    cluster.wait(Duration::from_secs(5));
    cluster.falls_silent(3);
    cluster.wait(Duration::from_secs(5));
    let outcome = cluster.cases()[0].outcome.clone().expect("an outcome");
    assert_eq!(outcome, "another failure followed before the job ran again, see case 2");
}

#[test]
fn a_failure_that_comes_back_after_a_recovery_names_the_earlier_case() {
    let mut cluster = unmarked(policy());
    cluster.is_killed(1);
    cluster.wait(Duration::from_secs(5));
    cluster.restarts();
    cluster.all_work();
    assert_eq!(cluster.cases()[0].state, CaseState::Recovered);
    let before = cluster.cases()[0].clone();
    cluster.wait(Duration::from_secs(4));
    cluster.is_killed(1);
    cluster.wait(Duration::from_secs(5));
    assert_eq!(*cluster.cases()[0], before);
    let actions: Vec<&str> = cluster.cases()[1]
        .actions
        .iter()
        .map(|action| action.text.as_str())
        .collect();
    assert_eq!(
        actions[0],
        "case 1 was of the same class and rank, and the job had worked again after it"
    );
}

#[test]
fn a_restarted_job_without_signs_of_life_is_running_after_the_limit_of_its_first_step() {
    let mut cluster = unmarked(policy());
    cluster.is_killed(1);
    cluster.wait(Duration::from_secs(5));
    cluster.restarts();
    cluster.wait(Duration::from_secs(90));
    assert_eq!(cluster.job().state(), JobState::Recovering);
    cluster.wait(Duration::from_secs(20));
    assert_eq!(cluster.job().state(), JobState::Running);
    assert_eq!(cluster.cases()[0].state, CaseState::Recovered);
}

#[test]
fn a_sign_of_life_while_other_ranks_start_counts() {
    let mut cluster = Cluster::new(policy());
    cluster.submit(4);
    cluster.obey();
    let launches = std::mem::take(&mut cluster.orders);
    let (last, first) = launches.split_last().expect("four launches");
    cluster.orders = first.to_vec();
    cluster.obey();
    cluster.activity(0, "output");
    assert!(matches!(cluster.job().phase(), JobPhase::Launching { .. }));
    cluster.orders = vec![last.clone()];
    cluster.obey();
    assert!(
        matches!(cluster.job().phase(), JobPhase::Running),
        "{:?}",
        cluster.job().phase()
    );
}

#[test]
fn nothing_is_placed_on_a_node_with_a_fatal_fault_before_its_verdict() {
    let mut cluster = Cluster::new(policy());
    cluster.gpu_is_lost(0);
    cluster.submit(1);
    cluster.wait(Duration::from_secs(10));
    assert_eq!(cluster.job().nodes(), [node(1), node(2), node(3)]);
    assert_eq!(cluster.generation(), Generation(1));
    assert_eq!(cluster.node_state(0), NodeState::Cordoned);
}

#[test]
fn a_case_names_the_job_that_it_restarts() {
    let mut cluster = Cluster::new(older());
    cluster.gpu_is_lost(0);
    cluster.submit(4);
    cluster.tell(Event::RulesAdopted {
        rules: rankguard_core::RULES,
    });
    cluster.wait(Duration::from_secs(10));
    let case = cluster.cases()[0];
    assert_eq!(
        (case.job.clone(), case.generation),
        (Some(job()), Some(Generation(1))),
        "{case:#?}"
    );
}

/// Returns the join of a node with two ranks of a job that a journal with this start has begun.
fn with_foreign_ranks(cluster: &Cluster, life: u64) -> NodeInfo {
    let mut info = cluster.info(0, "1");
    info.running = vec![running("old", 6, 0), running("old", 6, 1)];
    info.history.fences = vec![JobFence {
        job: JobId::from("old"),
        generation: Generation(6),
        life,
    }];
    info
}

#[test]
fn rg_5_ranks_of_another_journal_run_on_and_are_shown() {
    let mut cluster = Cluster::new(policy());
    cluster.tell(Event::LifeBegan {
        life: 7,
        position: 1,
        newest_at: None,
    });
    let info = with_foreign_ranks(&cluster, 3);
    cluster.tell(Event::NodeJoined { info });
    assert_eq!(cluster.orders, []);
    let view = cluster.state.status(cluster.now);
    let old = &view.jobs[0];
    assert_eq!(
        (old.spec.id.as_str(), old.state, old.generation),
        ("old", JobState::Running, Generation(6))
    );
    assert_eq!(old.placements.len(), 2);
    assert!(
        old.reason
            .as_deref()
            .is_some_and(|reason| reason.contains("no record of the job"))
    );
    let reason = view.nodes[0].reason.clone().expect("a reason");
    assert!(reason.starts_with("runs 2 ranks of job old, generation 6"), "{reason}");
    let told = "node node-0 runs rank 0 as process 70, rank 1 as process 71 of job old, generation 6";
    assert!(
        cluster.announced.iter().any(|text| text.starts_with(told)),
        "{:?}",
        cluster.announced
    );
    // RG-3: its node takes no work.
    cluster.submit(1);
    cluster.wait(Duration::from_secs(10));
    assert!(!cluster.job().nodes().contains(&node(0)));
    // An operator cancels the job.
    cluster.orders.clear();
    cluster.tell(Event::JobCancelled {
        job: JobId::from("old"),
        by: Some("alice".to_owned()),
    });
    let stop = |(to, order): &(_, AgentOrder)| {
        *to == node(0)
            && matches!(
                order,
                AgentOrder::Stop {
                    generation: Generation(6),
                    ..
                }
            )
    };
    assert!(cluster.orders.iter().any(stop));
    assert_eq!(cluster.node_state(0), NodeState::Fencing);
    cluster.obey();
    assert_eq!(cluster.node_state(0), NodeState::Healthy);
    let view = cluster.state.status(cluster.now);
    assert_eq!(view.jobs.len(), 2);
    assert_eq!(
        (view.jobs[1].spec.id.as_str(), view.jobs[1].state),
        ("old", JobState::Stopped)
    );
    let reason = view.jobs[1].reason.clone().unwrap_or_default();
    assert!(reason.starts_with("cancelled by operator alice; "), "{reason}");
    assert!(
        cluster
            .announced
            .iter()
            .any(|text| text.starts_with("node node-0 ended 2 processes of job old"))
    );
}

#[test]
fn a_node_is_free_when_its_ranks_of_another_journal_have_ended() {
    let mut cluster = Cluster::new(policy());
    cluster.tell(Event::LifeBegan {
        life: 7,
        position: 1,
        newest_at: None,
    });
    let info = with_foreign_ranks(&cluster, 3);
    cluster.tell(Event::NodeJoined { info });
    let old = |cluster: &Cluster| {
        cluster
            .state
            .status(cluster.now)
            .jobs
            .last()
            .cloned()
            .expect("it is shown")
    };
    cluster.foreign_rank_says(
        1,
        EvidenceBody::Progress {
            step: Step(40),
            loss: None,
            step_ms: 5.0,
            own_ms: None,
        },
    );
    assert_eq!(old(&cluster).step, Some(Step(40)), "its steps are shown");
    for (rank, exit) in [(0, ProcessExit::Code(0)), (1, ProcessExit::Code(1))] {
        let body = EvidenceBody::RankExited {
            pid: 70 + rank,
            exit,
            ended_by_agent: false,
        };
        cluster.foreign_rank_says(rank, body);
    }
    let ended = old(&cluster);
    assert_eq!((ended.state, ended.step), (JobState::Stopped, Some(Step(40))));
    assert_eq!(ended.ended_at, Some(cluster.now));
    let reason = ended.reason.unwrap_or_default();
    assert!(reason.starts_with("a rank failed: rank 1 on node node-0: "), "{reason}");
    cluster.wait(Duration::from_secs(10));
    assert_eq!(cluster.cases().len(), 0, "the job is not of this journal");
    assert!(
        cluster
            .state
            .fleet()
            .get(&node(0))
            .is_some_and(rankguard_core::Node::is_usable)
    );
}

#[test]
fn rg_3_ranks_that_this_journal_has_begun_and_forgotten_are_ended() {
    let mut cluster = Cluster::new(policy());
    cluster.tell(Event::LifeBegan {
        life: 7,
        position: 1,
        newest_at: None,
    });
    let info = with_foreign_ranks(&cluster, 7);
    cluster.tell(Event::NodeJoined { info });
    let fence = |(to, order): &(_, AgentOrder)| *to == node(0) && matches!(order, AgentOrder::Fence { .. });
    assert!(cluster.orders.iter().any(fence));
}

#[test]
fn a_job_that_is_resumed_replaces_its_ranks_of_another_journal() {
    let mut cluster = Cluster::new(policy());
    cluster.tell(Event::LifeBegan {
        life: 7,
        position: 1,
        newest_at: None,
    });
    let mut info = with_foreign_ranks(&cluster, 3);
    info.running = vec![running("llm", 6, 0)];
    info.history.fences[0].job = job();
    cluster.tell(Event::NodeJoined { info });
    cluster.submit(4);
    for _ in 0..4 {
        cluster.obey();
    }
    cluster.wait(Duration::from_secs(10));
    assert_eq!(
        cluster.generation(),
        Generation(7),
        "above the generation of the other journal"
    );
    assert_eq!(cluster.job().nodes().len(), 4);
}

#[test]
fn a_waiting_job_counts_the_nodes_that_are_free_after_another_took_some() {
    let mut cluster = Cluster::new(policy());
    let submit = |cluster: &mut Cluster, name: &str, nodes: u32| {
        let spec = rankguard_model::JobSpec {
            id: name.into(),
            nodes: rankguard_model::NodeRange { min: nodes, max: nodes },
            ..cluster.spec(nodes, None)
        };
        cluster.tell(Event::JobSubmitted { spec, claim: None });
    };
    submit(&mut cluster, "wide", 5);
    let reason = |cluster: &Cluster| {
        let status = cluster.state.status(cluster.now);
        let wide = status.jobs.iter().find(|job| job.spec.id.as_str() == "wide");
        wide.and_then(|job| job.reason.clone()).expect("it waits")
    };
    let all = "waits for nodes: it needs at least 5 free healthy nodes with 2 slots each, and there are 4";
    assert_eq!(reason(&cluster), all);
    submit(&mut cluster, "narrow", 3);
    let taken = "; node-0 has job narrow; node-1 has job narrow; node-2 has job narrow";
    assert_eq!(reason(&cluster), all.replace("there are 4", "there is 1") + taken);
}

#[test]
fn the_same_fault_on_another_node_is_no_return_of_the_first() {
    let mut cluster = Cluster::new(policy());
    cluster.submit(3);
    cluster.wait(Duration::from_secs(5));
    cluster.restarts();
    cluster.gpu_is_lost(1);
    cluster.wait(Duration::from_secs(5));
    cluster.restarts();
    cluster.all_work();
    assert_eq!(cluster.cases()[0].state, CaseState::Recovered);
    cluster.wait(Duration::from_secs(4));
    cluster.gpu_is_lost(2);
    cluster.wait(Duration::from_secs(5));
    let case = cluster.cases()[1];
    assert_eq!(case.verdict.class, cluster.cases()[0].verdict.class);
    let is_return = |text: &str| text.contains("was of the same class and rank");
    assert!(
        !case.actions.iter().any(|action| is_return(&action.text)),
        "{:?}",
        case.actions
    );
}
