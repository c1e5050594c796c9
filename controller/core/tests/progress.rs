//! Progress of jobs: refill of restart budgets, signs of life of jobs without step marks, growth, and reports of void
//! checkpoints.

use std::time::Duration;

use rankguard_core::{Event, JobPhase, Policy};
use rankguard_model::{
    AgentOrder, CaseState, CheckpointTiers, ClassId, Classification, EvidenceBody, Generation, JobState, NodeState,
    ProcessExit, Rank, Role, ShardSeal, Step,
};

use crate::cluster::{Cluster, agent_info, job, node};

fn policy() -> Policy {
    Policy {
        first_step_ms: 100_000,
        stall_ms: 200_000,
        ..Policy::default()
    }
}

/// Job with checkpoints without a step report.
fn unmarked() -> Cluster {
    Cluster::unmarked(policy())
}

impl Cluster {
    /// A rank is killed, and the job is restarted.
    fn kill(&mut self, rank: u32) {
        self.end_by_signal(rank, 9);
    }

    fn end_by_signal(&mut self, rank: u32, signal: i32) {
        let exit = ProcessExit::Signal(signal);
        self.rank_says(
            rank,
            EvidenceBody::RankExited {
                pid: rank,
                exit,
                ended_by_agent: false,
            },
            Vec::new(),
        );
        self.wait(Duration::from_secs(10));
        self.restarts_from_empty_store();
    }
}

#[test]
fn a_job_that_commits_between_failures_is_never_stopped_for_its_budget() {
    let mut cluster = Cluster::checkpointed(policy(), CheckpointTiers::default());
    for round in 1..=10 {
        cluster.checkpoint(40 + round * 10);
        cluster.kill((round % 4) as u32);
        cluster.progress(0, 41 + round * 10);
        assert_eq!(cluster.job().state(), JobState::Running, "round {round}");
    }
}

#[test]
fn a_failure_that_comes_back_at_the_same_step_ends_the_job_after_its_limit() {
    let mut cluster = Cluster::checkpointed(policy(), CheckpointTiers::default());
    cluster.checkpoint(50);
    for _ in 0..3 {
        cluster.kill(1);
        cluster.progress(0, 55);
        assert_eq!(cluster.job().state(), JobState::Running);
    }
    cluster.kill(1);
    assert_eq!(cluster.job().state(), JobState::Stopped);
}

#[test]
fn steps_refill_the_budget_of_a_job_without_checkpoints() {
    let mut cluster = Cluster::running(policy());
    for round in 1..=6_u64 {
        cluster.kill((round % 4) as u32);
        cluster.progress(0, 40 + round * 20);
        assert_eq!(cluster.job().state(), JobState::Running, "round {round}");
    }
    for _ in 0..3 {
        cluster.kill(1);
        cluster.progress(0, 160);
    }
    cluster.kill(1);
    assert_eq!(cluster.job().state(), JobState::Stopped, "it got no further");
}

/// Its output may show that each generation came further; steps that are not reported do not.
#[test]
fn a_job_without_steps_is_not_said_to_have_come_no_further() {
    let mut cluster = unmarked();
    // Each class has retries of its own.
    for signal in [9, 11, 6, 9] {
        cluster.wait(Duration::from_secs(60));
        cluster.end_by_signal(1, signal);
    }
    let JobPhase::Stopped { reason } = cluster.job().phase() else {
        panic!("{:?}", cluster.job().phase());
    };
    let end = "; it reports no step that would show progress after 3 restarts in a row (case 4)";
    assert!(reason.ends_with(end), "{reason}");
}

#[test]
fn a_job_that_commits_and_reports_no_steps_runs_on() {
    let mut cluster = unmarked();
    for step in 1..=20 {
        cluster.wait(Duration::from_secs(60));
        cluster.checkpoint(step);
        assert_eq!(cluster.job().state(), JobState::Running);
    }
    assert_eq!((cluster.generation().0, cluster.cases().len()), (1, 0));
    let view = &cluster.state.status(cluster.now).jobs[0];
    assert_eq!((view.reason.as_deref(), view.step), (Some("reports no steps"), None));
    // Four of its commit intervals.
    cluster.wait(Duration::from_secs(235));
    assert_eq!(cluster.cases().len(), 0);
    cluster.wait(Duration::from_secs(10));
    assert_eq!(cluster.cases().len(), 1, "it hangs");
}

#[test]
fn signs_of_life_are_believed_as_far_as_they_go() {
    let mut cluster = unmarked();
    cluster.activity(3, "output");
    assert_eq!(cluster.job().state(), JobState::Running);
    cluster.wait(Duration::from_secs(2_000));
    assert_eq!(cluster.cases().len(), 0, "its output grows");
    for rank in 0..4 {
        cluster.activity(rank, "busy");
    }
    cluster.wait(Duration::from_secs(790));
    assert_eq!(
        cluster.cases().len(),
        0,
        "processors are believed for four times the limit"
    );
    cluster.wait(Duration::from_secs(20));
    assert_eq!(cluster.cases().len(), 1);
}

#[test]
fn a_job_that_makes_step_marks_is_judged_by_them_although_its_ranks_are_busy() {
    let mut cluster = Cluster::checkpointed(policy(), CheckpointTiers::default());
    cluster.kill(1);
    let generation = cluster.generation();
    for rank in 0..4 {
        cluster.activity(rank, "busy");
    }
    assert!(matches!(cluster.job().phase(), JobPhase::Starting));
    cluster.wait(Duration::from_secs(105));
    assert!(cluster.generation() > generation, "it is started anew");
}

#[test]
fn a_recovered_job_without_steps_gets_no_invented_first_step() {
    let mut cluster = unmarked();
    cluster.wait(Duration::from_secs(10));
    cluster.checkpoint(1);
    cluster.kill(1);
    assert_eq!(cluster.job().state(), JobState::Recovering);
    cluster.checkpoint(2);
    assert_eq!(cluster.job().state(), JobState::Running);
    let delays = &cluster.cases()[0].delays;
    assert_eq!(delays.first_step_ms, None);
}

/// A node leaves and returns.
fn shrunk() -> Cluster {
    let mut cluster = Cluster::checkpointed(policy(), CheckpointTiers::default());
    cluster.checkpoint(50);
    lose(&mut cluster);
    cluster.restarts_from_empty_store();
    cluster.progress(0, 51);
    assert_eq!(cluster.job().nodes().len(), 3);
    cluster.tell(Event::NodeJoined {
        info: agent_info(&node(3), "2"),
    });
    cluster.restarts_from_empty_store();
    cluster
}

fn lose(cluster: &mut Cluster) {
    let last_heard = cluster.now;
    cluster.tell(Event::NodeFellSilent {
        node: node(3),
        last_heard,
    });
    cluster.wait(Duration::from_secs(10));
}

#[test]
fn a_job_is_checkpointed_before_it_grows() {
    let mut cluster = shrunk();
    cluster.wait(Duration::from_secs(31));
    let generation = cluster.generation();
    let called = cluster
        .orders
        .iter()
        .any(|(_, order)| matches!(order, AgentOrder::Checkpoint { .. }));
    assert!(called && cluster.job().nodes().len() == 3);
    // The commit is late: the job continues at its size.
    cluster.wait(Duration::from_secs(90));
    cluster.progress(0, 60);
    assert_eq!(cluster.generation(), generation);
    cluster.checkpoint(70);
    assert_eq!(cluster.job().nodes().len(), 4);
    assert_eq!(
        cluster.job().checkpoints.newest().map(|newest| newest.step),
        Some(Step(70))
    );
}

#[test]
fn a_shrunk_job_states_why_it_is_small_and_when_it_grows() {
    let check = |cluster: &Cluster, expect: &str| {
        let reason = cluster.state.status(cluster.now).jobs[0].reason.clone();
        let reason = reason.unwrap_or_default();
        assert!(reason.contains(expect), "{expect:?} is not in {reason:?}");
    };
    let mut cluster = Cluster::checkpointed(policy(), CheckpointTiers::default());
    cluster.checkpoint(50);
    assert_eq!(cluster.state.status(cluster.now).jobs[0].reason, None);
    lose(&mut cluster);
    cluster.restarts_from_empty_store();
    cluster.progress(0, 51);
    check(&cluster, "runs on 3 of at most 4 nodes: node-3 is lost");
    cluster.tell(Event::NodeJoined {
        info: agent_info(&node(3), "2"),
    });
    cluster.restarts_from_empty_store();
    check(&cluster, "it is called to checkpoint at ");
    check(&cluster, ", and takes in node-3 after that checkpoint");
    let cordon = Event::NodeCordoned {
        node: node(3),
        reason: "held".to_owned(),
    };
    cluster.tell(cordon);
    check(&cluster, "runs on 3 of at most 4 nodes: node-3 is cordoned");
    cluster.tell(Event::NodeUncordoned { node: node(3) });
    cluster.wait(Duration::from_secs(31));
    check(&cluster, "it takes in node-3 after the checkpoint of step ");
    cluster.wait(Duration::from_secs(90));
    check(&cluster, "it takes in node-3 after its next checkpoint");
    cluster.progress(0, 60);
    cluster.checkpoint(70);
    assert_eq!(cluster.job().nodes().len(), 4);
}

#[test]
fn a_shrunk_job_without_checkpoints_states_when_it_starts_again_with_more_nodes() {
    let reason = |cluster: &Cluster| {
        cluster.state.status(cluster.now).jobs[0]
            .reason
            .clone()
            .unwrap_or_default()
    };
    let mut cluster = Cluster::new(policy());
    cluster.submit(3);
    cluster.restarts_from_empty_store();
    lose(&mut cluster);
    cluster.restarts_from_empty_store();
    for rank in 0..6 {
        cluster.activity(rank, "output");
    }
    cluster.tell(Event::NodeJoined {
        info: agent_info(&node(3), "2"),
    });
    cluster.restarts_from_empty_store();
    let due = reason(&cluster);
    assert!(due.contains("it takes in node-3 at "), "{due}");
    assert!(due.contains("its ranks then start from the beginning"), "{due}");
    // The time that is stated is the one at which it grows.
    while cluster.job().nodes().len() < 4 {
        let now = reason(&cluster);
        assert!(
            now == due || now.contains("at the earliest") && now.split(" at ").nth(1) == due.split(" at ").nth(1),
            "{now}"
        );
        cluster.wait(Duration::from_secs(1));
    }
}

/// Returns the number of nodes of a job that lost one and commits five times per growth check, some time after the node
/// returned.
fn nodes_after_frequent_commits(rules: u32) -> usize {
    let mut cluster = Cluster::unmarked(Policy { rules, ..policy() });
    cluster.checkpoint(1);
    lose(&mut cluster);
    cluster.restarts_from_empty_store();
    cluster.checkpoint(2);
    assert_eq!(cluster.job().nodes().len(), 3);
    cluster.tell(Event::NodeJoined {
        info: agent_info(&node(3), "2"),
    });
    cluster.restarts_from_empty_store();
    let every = Duration::from_millis(policy().grow_ms / 5);
    for step in 3..60 {
        if cluster.job().nodes().len() > 3 {
            break;
        }
        cluster.wait(every);
        cluster.checkpoint(step);
    }
    cluster.job().nodes().len()
}

#[test]
fn a_job_that_commits_more_often_than_it_looks_for_nodes_grows() {
    assert_eq!(nodes_after_frequent_commits(rankguard_core::RULES), 4);
    assert_eq!(nodes_after_frequent_commits(3), 3, "older journals replay as they were");
}

#[test]
fn nothing_is_placed_on_a_node_without_a_session() {
    let mut cluster = Cluster::checkpointed(policy(), CheckpointTiers::default());
    cluster.checkpoint(50);
    let generation = cluster.generation();
    cluster.tell(Event::SessionEnded {
        node: node(3),
        last_heard: None,
    });
    let exit = ProcessExit::Code(1);
    cluster.rank_says(
        0,
        EvidenceBody::RankExited {
            pid: 0,
            exit,
            ended_by_agent: false,
        },
        Vec::new(),
    );
    cluster.wait(Duration::from_millis(900));
    assert_eq!(cluster.generation(), generation, "the fate of the node is awaited");
    lose(&mut cluster);
    assert_eq!((cluster.generation(), cluster.cases().len()), (generation.next(), 1));
    assert_eq!(cluster.job().nodes(), [node(0), node(1), node(2)]);
}

#[test]
fn a_node_without_a_session_is_waited_for_within_bounds() {
    let mut cluster = Cluster::checkpointed(policy(), CheckpointTiers::default());
    let generation = cluster.generation();
    cluster.tell(Event::SessionEnded {
        node: node(3),
        last_heard: None,
    });
    let exit = ProcessExit::Code(1);
    cluster.rank_says(
        0,
        EvidenceBody::RankExited {
            pid: 0,
            exit,
            ended_by_agent: false,
        },
        Vec::new(),
    );
    cluster.wait(Duration::from_secs(11));
    assert_eq!(cluster.generation(), generation.next());
    assert_eq!(cluster.job().nodes().len(), 3);
}

#[test]
fn void_checkpoints_are_counted_once_with_their_reason() {
    let mut cluster = Cluster::checkpointed(policy(), CheckpointTiers::default());
    cluster.checkpoint(50);
    for step in [60, 70] {
        for rank in 0..8 {
            let reason = "no space left on device".to_owned();
            let step = Step(step);
            cluster.rank_says(rank, EvidenceBody::ShardFailed { step, reason }, Vec::new());
        }
    }
    for rank in 0..8 {
        let exit = ProcessExit::Code(0);
        cluster.rank_says(
            rank,
            EvidenceBody::RankExited {
                pid: rank,
                exit,
                ended_by_agent: false,
            },
            Vec::new(),
        );
    }
    let view = &cluster.state.status(cluster.now).jobs[0];
    assert_eq!((view.state, view.checkpoint_counts.void), (JobState::Finished, 2));
    let reason = "last commit step 50 of 40: no space left on device; 2 checkpoints since are void";
    assert_eq!(view.reason.as_deref(), Some(reason));
}

/// A job with neither steps nor checkpoints, on all nodes, with ranks that are active.
fn plain(policy: Policy) -> Cluster {
    let mut cluster = Cluster::new(policy);
    cluster.submit(4);
    cluster.obey();
    cluster.obey();
    for rank in 0..8 {
        cluster.activity(rank, "output");
    }
    assert_eq!(cluster.job().state(), JobState::Running);
    cluster
}

#[test]
fn an_idle_job_without_checkpoints_is_a_case_that_life_closes() {
    let mut cluster = plain(policy());
    cluster.wait(Duration::from_secs(1_000));
    for rank in 0..8 {
        cluster.activity(rank, "idle");
    }
    let since = cluster.now;
    let view = cluster.state.status(cluster.now).jobs[0].clone();
    let reason = view.reason.expect("a reason");
    assert!(
        reason.contains(&format!("no output or use of a processor has been seen since {since}")),
        "{reason}"
    );
    cluster.wait(Duration::from_millis(policy().stall_ms - 10_000));
    assert_eq!(cluster.cases().len(), 0);
    cluster.wait(Duration::from_secs(30));
    let cases = cluster.cases();
    assert_eq!(
        (cases.len(), cases[0].state),
        (1, CaseState::FaultPresent),
        "{cases:#?}"
    );
    assert_eq!(cases[0].first_at, since);
    assert_eq!(cases[0].clears, "a rank writes output or uses processor time");
    assert_eq!(cluster.job().state(), JobState::Running);
    assert_eq!(cluster.generation().0, 1, "nothing is restarted");
    cluster.activity(3, "busy");
    let cases = cluster.cases();
    assert_eq!(
        (cases[0].state, cluster.job().state()),
        (CaseState::Closed, JobState::Running)
    );
    let outcome = cases[0].outcome.clone().expect("an outcome");
    assert!(
        outcome.contains("no checkpoints; its ranks worked again at"),
        "{outcome}"
    );
    assert_eq!(
        cluster.state.status(cluster.now).jobs[0].reason.as_deref(),
        Some("reports no steps")
    );
}

#[test]
fn an_idle_job_of_an_older_journal_is_no_case() {
    let mut cluster = plain(Policy { rules: 4, ..policy() });
    for rank in 0..8 {
        cluster.activity(rank, "idle");
    }
    cluster.wait(Duration::from_millis(policy().stall_ms * 3));
    assert_eq!(cluster.cases().len(), 0);
}

#[test]
fn the_status_of_a_job_counts_its_ranks_that_have_ended() {
    let mut cluster = plain(policy());
    for rank in [0, 2, 3] {
        let exit = EvidenceBody::RankExited {
            pid: rank,
            exit: ProcessExit::Code(0),
            ended_by_agent: false,
        };
        cluster.rank_says(rank, exit, Vec::new());
    }
    let view = cluster.state.status(cluster.now).jobs[0].clone();
    assert_eq!(view.state, JobState::Running);
    let reason = view.reason.expect("a reason");
    assert_eq!(reason, "reports no steps; 3 of its 8 ranks have ended with exit code 0");
}

/// The last output of a rank that ended at once is in its log only.
#[test]
fn the_status_of_a_quiet_start_speaks_of_ranks_that_run() {
    for (ended, part) in [
        (false, "use of a processor has been"),
        (true, "use of a processor of those that run has been"),
    ] {
        let mut cluster = Cluster::new(policy());
        cluster.submit(4);
        cluster.obey();
        cluster.obey();
        if ended {
            let exit = EvidenceBody::RankExited {
                pid: 1,
                exit: ProcessExit::Code(0),
                ended_by_agent: false,
            };
            cluster.rank_says(0, exit, Vec::new());
        }
        let view = cluster.state.status(cluster.now).jobs[0].clone();
        let reason = view.reason.expect("a reason");
        assert!(reason.contains(part), "{reason}");
    }
}

#[test]
fn the_status_of_a_restarted_job_without_a_step_states_it() {
    let mut cluster = Cluster::running(policy());
    let exit = EvidenceBody::RankExited {
        pid: 4,
        exit: ProcessExit::Signal(9),
        ended_by_agent: false,
    };
    cluster.rank_says(4, exit, Vec::new());
    cluster.wait(Duration::from_secs(10));
    cluster.obey();
    cluster.obey();
    let view = |cluster: &Cluster| cluster.state.status(cluster.now).jobs[0].clone();
    let restarted = view(&cluster);
    assert_eq!(restarted.state, JobState::Recovering, "{restarted:#?}");
    let reason = restarted.reason.unwrap_or_default();
    assert!(reason.contains("have started after case 1"), "{reason}");
    assert!(reason.contains("have reported no step yet"), "{reason}");
    for rank in 0..8 {
        cluster.progress(rank, 50);
    }
    assert_eq!(view(&cluster).reason, None);
}

#[test]
fn the_status_of_a_job_states_the_rank_that_cannot_read_its_checkpoint() {
    let mut cluster = Cluster::new(policy());
    cluster.submit(4);
    cluster.obey();
    cluster.obey();
    let mark = Classification {
        class: ClassId::from("none"),
        role: Role::Noise,
        confidence: 0.9,
        signature: "checkpoint-restore-retry".into(),
        fields: [("step", "340".to_owned())].into(),
    };
    let problem = "read the checkpoint: /ck/340/MANIFEST is missing";
    let body = EvidenceBody::Line {
        text: problem.to_owned(),
        context: Vec::new(),
        repeats: 1,
    };
    cluster.rank_says(5, body, vec![mark]);
    let view = |cluster: &Cluster| cluster.state.status(cluster.now).jobs[0].clone();
    let reason = view(&cluster).reason.unwrap_or_default();
    assert!(
        reason.starts_with("rank 5 on node node-2 cannot read the checkpoint of step 340"),
        "{reason}"
    );
    assert!(reason.ends_with(problem), "{reason}");
    assert!(cluster.cases().is_empty(), "{:#?}", cluster.cases());
    for rank in 0..8 {
        cluster.progress(rank, 341);
    }
    assert_eq!(view(&cluster).reason, None);
}

/// The watch for steps fires, the job goes on before the verdict, and stands still for good later.
#[test]
fn a_job_that_makes_a_step_before_the_verdict_about_its_silence_is_left_alone() {
    let mut cluster = Cluster::running(policy());
    let stepped_at = cluster.now;
    let stall = Duration::from_millis(policy().stall_ms);
    cluster.wait(stall);
    assert_eq!(cluster.cases()[0].state, CaseState::Open);
    cluster.wait(Duration::from_millis(100));
    cluster.progress(1, 41);
    cluster.wait(Duration::from_secs(10));
    let case = cluster.cases()[0].clone();
    assert_eq!(
        case.outcome.as_deref(),
        Some("the job made step 41 meanwhile; nothing was restarted")
    );
    let text = format!("job llm has completed no step since {stepped_at}");
    assert!(
        case.findings
            .iter()
            .any(|finding| finding.text.ends_with(&format!(", {text}"))),
        "{:?}",
        case.findings
    );
    assert_eq!(cluster.job().generation().0, 1);
    cluster.wait(stall + Duration::from_secs(5));
    assert_eq!(cluster.cases().len(), 2);
    assert_eq!(cluster.job().generation().0, 2, "it stands still");
}

/// The job would lose the steps since the last commit.
#[test]
fn a_job_that_cannot_leave_a_drained_node_for_failed_checkpoints_states_that() {
    let mut cluster = Cluster::checkpointed(policy(), CheckpointTiers::default());
    cluster.checkpoint(50);
    cluster.tell(Event::NodeDrained {
        node: node(1),
        reason: "upgrade".to_owned(),
    });
    let reason = |cluster: &Cluster| cluster.state.status(cluster.now).jobs[0].reason.clone();
    let wanted = "it leaves node-1, which an operator drains, after its next checkpoint";
    assert_eq!(reason(&cluster).as_deref(), Some(wanted));
    for step in [60, 70] {
        let reason = "no space left on device".to_owned();
        let step = Step(step);
        cluster.rank_says(3, EvidenceBody::ShardFailed { step, reason }, Vec::new());
    }
    let wanted = "it leaves node-1, which an operator drains, after its next checkpoint, and the last 2 failed: no space left \
                  on device";
    assert_eq!(reason(&cluster).as_deref(), Some(wanted));
    assert!(cluster.job().nodes().contains(&node(1)));
}

#[test]
fn a_drained_job_without_enough_free_nodes_states_how_many_there_are() {
    let mut cluster = Cluster::checkpointed(policy(), CheckpointTiers::default());
    for number in [1, 2] {
        cluster.tell(Event::NodeDrained {
            node: node(number),
            reason: "upgrade".to_owned(),
        });
    }
    let view = cluster.state.status(cluster.now).jobs.remove(0);
    let wanted = "it leaves node-1 node-2, which an operator drains, after a checkpoint with enough free nodes; it needs at \
                  least 3 free healthy nodes with 2 slots each, and there are 2, its own nodes included";
    assert_eq!(view.drain.as_deref(), Some(wanted));
    assert_eq!(view.reason.as_deref(), Some(wanted));
    cluster.checkpoint(50);
    assert_eq!(cluster.generation(), Generation(1), "it has not moved");
    cluster.tell(Event::NodeUncordoned { node: node(2) });
    let drain = cluster.state.status(cluster.now).jobs.remove(0).drain;
    let wanted = "it leaves node-1, which an operator drains, after its next checkpoint";
    assert_eq!(drain.as_deref(), Some(wanted));
}

#[test]
fn a_drained_node_that_is_lost_shows_both() {
    let mut cluster = Cluster::new(policy());
    cluster.falls_silent(3);
    cluster.tell(Event::NodeDrained {
        node: node(3),
        reason: "upgrade".to_owned(),
    });
    assert_eq!(cluster.node_state(3), NodeState::Lost);
    let status = cluster.state.status(cluster.now);
    let view = status
        .nodes
        .iter()
        .find(|view| view.node == node(3))
        .expect("it is known");
    let reason = view.reason.clone().unwrap_or_default();
    assert!(
        reason.starts_with("declared lost at") && reason.ends_with("; drained: upgrade"),
        "{reason}"
    );
}

#[test]
fn the_restart_of_a_drained_job_names_the_drain() {
    let mut cluster = Cluster::checkpointed(policy(), CheckpointTiers::default());
    cluster.tell(Event::NodeDrained {
        node: node(1),
        reason: "upgrade".to_owned(),
    });
    cluster.checkpoint(50);
    let view = cluster.state.status(cluster.now).jobs.remove(0);
    assert_eq!((view.state, view.generation), (JobState::Starting, Generation(2)));
    assert_eq!(view.reason.as_deref(), Some("an operator drains node-1"));
}

#[test]
fn a_job_without_checkpoints_states_that_it_stays_on_a_drained_node() {
    let mut cluster = Cluster::running(policy());
    cluster.tell(Event::NodeDrained {
        node: node(1),
        reason: "upgrade".to_owned(),
    });
    let reason = cluster.state.status(cluster.now).jobs[0].reason.clone();
    let wanted = "an operator drains node-1; the job has no checkpoints and does not move";
    assert_eq!(reason.as_deref(), Some(wanted));
}

/// Rank 0 stands, and the others save steps that never become checkpoints.
#[test]
fn saves_that_a_stopped_job_leaves_uncommitted_count_as_failed() {
    let mut cluster = Cluster::checkpointed(policy(), CheckpointTiers::default());
    cluster.checkpoint(40);
    for step in (50..=160).step_by(10) {
        for rank in 1..8 {
            let seal = ShardSeal {
                rank: Rank(rank),
                step: Step(step),
                world_size: 8,
                index: "0".repeat(64),
                bytes: 1,
                ledger: None,
                schema: String::new(),
            };
            cluster.rank_says(rank, EvidenceBody::ShardDurable { seal }, Vec::new());
        }
    }
    cluster.tell(Event::JobCancelled { job: job(), by: None });
    let counts = cluster.state.status(cluster.now).jobs[0].checkpoint_counts.clone();
    assert_eq!((counts.committed, counts.void), (1, 12), "{counts:#?}");
    let newest = counts.newest_void.expect("counted");
    assert_eq!(
        (newest.step, newest.reason.as_str()),
        (Step(160), "the job was stopped before rank 0 had saved it")
    );
}

#[test]
fn attempts_of_a_stopped_job_are_dead_and_those_of_a_running_one_are_not() {
    let mut cluster = Cluster::checkpointed(policy(), CheckpointTiers::default());
    cluster.checkpoint(50);
    let generation = cluster.generation();
    let has = |cluster: &Cluster, step: u64| cluster.job().dead_attempts().has(generation, Step(step));
    assert!(!has(&cluster, 60));
    cluster.tell(Event::JobCancelled { job: job(), by: None });
    assert!(has(&cluster, 60));
    assert!(!has(&cluster, 50), "it is committed");
}

#[test]
fn the_step_of_a_restarted_job_is_that_of_its_generation() {
    let mut cluster = Cluster::checkpointed(policy(), CheckpointTiers::default());
    cluster.checkpoint(50);
    cluster.progress(0, 64);
    cluster.kill(1);
    cluster.progress(0, 51);
    let summary = cluster.state.job_summaries(cluster.now).remove(0);
    assert_eq!((summary.step, summary.furthest_step), (Some(Step(51)), Some(Step(64))));
    let view = cluster.state.status(cluster.now).jobs.remove(0);
    assert_eq!(view.current_step(), summary.step);
}

#[test]
fn a_kill_by_an_unknown_sender_is_of_no_known_layer() {
    let mut cluster = Cluster::checkpointed(policy(), CheckpointTiers::default());
    cluster.kill(1);
    let verdict = &cluster.cases()[0].verdict;
    assert_eq!(
        (verdict.class.as_str(), verdict.layer.as_str()),
        ("killed-by-signal", "unknown")
    );
}
