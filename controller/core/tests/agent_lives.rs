//! Agents that end, return or are lost, and the ranks of their job.

mod foreign_ranks;
mod restart_outcomes;

use std::time::Duration;

use rankguard_core::{Event, JobPhase, Policy};
use rankguard_model::{
    CaseState, ClassId, Classification, Entity, EvidenceBody, EvidenceSource, FAREWELL_SIGNATURE, FieldValues,
    Generation, JobId, JobState, NodeState, ProcessExit, Rank, Role,
};

use crate::cluster::{Cluster, agent_info, job, node};

/// Rules that judged the end of an agent by its silence only.
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
    fn completes(&mut self, rank: u32) {
        self.exits(rank, ProcessExit::Code(0), false);
    }

    fn is_killed(&mut self, rank: u32) {
        self.exits(rank, ProcessExit::Signal(9), false);
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

    fn node_says(&mut self, number: u32, source: EvidenceSource, body: EvidenceBody, marks: Vec<Classification>) {
        let node = node(number);
        self.report(node.clone(), source, Entity::Node { node }, body, marks);
    }

    fn reason(&self) -> String {
        let view = self.state.status(self.now);
        view.jobs[0].reason.clone().unwrap_or_default()
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

impl Cluster {
    /// All ranks of the job write output.
    fn all_work(&mut self) {
        for rank in 0..8 {
            self.activity(rank, "output");
        }
    }
}

/// The agent was away for a moment longer than the limit, and its ranks live: nothing is lost by the time of the verdict.
#[test]
fn ranks_of_an_agent_that_returns_before_the_verdict_go_on() {
    for delay in [Duration::ZERO, Duration::from_millis(7), Duration::from_millis(1_400)] {
        for least in [3, 4] {
            let mut cluster = Cluster::new(policy());
            cluster.submit(least);
            cluster.obey();
            cluster.obey();
            for rank in 0..8 {
                cluster.progress(rank, 40);
            }
            cluster.falls_silent(3);
            cluster.wait(delay);
            cluster.joins(3, "1", &[6, 7]);
            cluster.wait(Duration::from_secs(20));
            assert_eq!(
                cluster.generation(),
                Generation(1),
                "{delay:?}: {:?}",
                cluster.announced
            );
            assert_eq!(cluster.job().state(), JobState::Running, "{delay:?}");
        }
    }
}

/// Controller and agents were started again: when the agents ended is not known, and the journal's newest entry is the bound.
#[test]
fn agents_that_ended_while_the_controller_was_away_were_last_heard_before_its_start() {
    let mut cluster = Cluster::new(policy());
    let joins = |cluster: &mut Cluster, number: u32, incarnation: &str| {
        let mut info = agent_info(&node(number), incarnation);
        info.boot_id = "5e4a3f52".to_owned();
        cluster.tell(Event::NodeJoined { info });
    };
    (0..4).for_each(|number| joins(&mut cluster, number, "1"));
    cluster.submit(4);
    cluster.obey();
    cluster.obey();
    (0..8).for_each(|rank| cluster.progress(rank, 40));
    let newest = cluster.now;
    cluster.wait(Duration::from_secs(20));
    cluster.tell(Event::LifeBegan {
        life: 8,
        position: 10,
        newest_at: Some(newest),
    });
    cluster.tell(Event::ControllerStarted);
    for number in 0..4 {
        cluster.wait(Duration::from_millis(80));
        joins(&mut cluster, number, "2");
    }
    cluster.wait(Duration::from_secs(10));
    let case = cluster.cases()[0];
    let texts: Vec<&str> = case.reasoning.iter().map(|entry| entry.text.as_str()).collect();
    let text = texts.join("\n");
    assert_eq!(case.first_at, newest, "{text}");
    assert!(!text.contains("fell silent within"), "{text}");
    assert!(
        text.contains("4 nodes (node-0, node-1, node-2, node-3) returned without the ranks"),
        "{text}"
    );
}
