//! Start of a failure, and verdicts about nodes whose agent returns on the same boot. Journals of older rules replay
//! as they were decided.

mod cluster;

use std::time::Duration;

use cluster::{Cluster, job, node};
use rankguard_core::{Event, JobPhase, Policy, RULES};
use rankguard_model::{
    CaseState, CheckpointTiers, Classification, Device, DeviceKind, Entity, EvidenceBody, EvidenceSource, FieldValues,
    Generation, JobSpec, NodeInfo, ProcessExit, Rank, RankRef, Role, RunningRank, Timestamp,
};

const BOOT: &str = "5e4a3f52-4b8e-4f4e-8a2e-0d3b6f2f8a11";

fn policy(rules: u32) -> Policy {
    Policy {
        rules,
        ..Policy::default()
    }
}

fn mark(class: &str, role: Role) -> Classification {
    Classification {
        class: class.into(),
        role,
        confidence: 0.9,
        signature: class.into(),
        fields: FieldValues::new(),
    }
}

fn text(text: &str) -> EvidenceBody {
    EvidenceBody::Line {
        text: text.to_owned(),
        context: Vec::new(),
        repeats: 1,
    }
}

impl Cluster {
    /// Joins a node, with its ranks or without.
    fn joins(&mut self, number: u32, incarnation: &str, boot_id: &str, has_ranks: bool) {
        let generation = self.generation();
        let ranks = (number * 2..number * 2 + 2).filter(|_| has_ranks);
        let running = ranks.map(|rank| RunningRank {
            rank: RankRef {
                job: job(),
                generation,
                rank: Rank(rank),
            },
            pid: rank,
            step: None,
        });
        let known = self.state.fleet().get(&node(number)).expect("it joined").info.clone();
        let info = NodeInfo {
            incarnation: incarnation.to_owned(),
            boot_id: boot_id.to_owned(),
            running: running.collect(),
            ..known
        };
        self.tell(Event::NodeJoined { info });
    }

    fn falls_silent(&mut self, number: u32) {
        let last_heard = self.now;
        self.wait(Duration::from_secs(5));
        self.tell(Event::NodeFellSilent {
            node: node(number),
            last_heard,
        });
    }

    fn class_of(&self, case: usize) -> String {
        self.cases()[case].verdict.class.to_string()
    }
}

/// Writes noise, ends a rank 10 s later, and returns the start of the case and the end of the rank.
fn start_after_noise(rules: u32) -> (Timestamp, Timestamp) {
    let mut cluster = Cluster::running(policy(rules));
    cluster.rank_says(3, text("the rank writes output"), vec![mark("none", Role::Noise)]);
    cluster.wait(Duration::from_secs(10));
    for rank in 0..8 {
        cluster.progress(rank, 41);
    }
    let failed_at = cluster.now;
    let exit = EvidenceBody::RankExited {
        pid: 1,
        exit: ProcessExit::Signal(9),
        ended_by_agent: false,
    };
    cluster.rank_says(1, exit, Vec::new());
    cluster.wait(Duration::from_secs(8));
    let case = cluster.cases()[0];
    let plan_ms = case.delays.plan_ms.expect("a plan was made");
    assert_eq!(case.actions[0].at.millis_since(case.first_at), plan_ms);
    (case.first_at, failed_at)
}

#[test]
fn a_case_and_its_delays_begin_with_the_failure() {
    let (first_at, failed_at) = start_after_noise(RULES);
    assert_eq!(first_at, failed_at);
}

#[test]
fn journals_of_older_rules_begin_cases_with_the_earliest_evidence() {
    let (first_at, failed_at) = start_after_noise(4);
    assert!(first_at < failed_at);
}

/// Ends the agent of node 1 by a signal, starts it again on a boot, and returns the class of the case.
fn class_after_restart(rules: u32, boot: &str) -> String {
    let mut cluster = Cluster::running(policy(rules));
    cluster.joins(1, "1", BOOT, true);
    cluster.wait(Duration::from_millis(500));
    let last_heard = Some(cluster.now);
    cluster.tell(Event::SessionEnded {
        node: node(1),
        last_heard,
    });
    cluster.wait(Duration::from_secs(1));
    cluster.joins(1, "2", boot, false);
    cluster.wait(Duration::from_secs(8));
    cluster.class_of(0)
}

#[test]
fn an_agent_that_was_started_again_on_the_same_boot_is_no_crashed_node() {
    assert_eq!(class_after_restart(RULES, BOOT), "node-agent-silent");
    assert_eq!(class_after_restart(RULES, "another"), "node-crash");
    // Without a known boot, only the silence is known.
    assert_eq!(class_after_restart(RULES, ""), "node-agent-silent");
    assert_eq!(class_after_restart(7, ""), "node-crash");
    assert_eq!(class_after_restart(4, BOOT), "node-crash");
}

/// While only the silence of a node is known, its class is that of a silent agent: the agent may be stopped and the node
/// may run on. A new boot shows that the node had stopped.
#[test]
fn the_boot_of_a_silent_node_that_returns_revises_its_case() {
    for (rules, boot, silent, returned, layer) in [
        (RULES, BOOT, "node-agent-silent", "node-agent-silent", "platform"),
        (RULES, "another", "node-agent-silent", "node-crash", "hardware"),
        (7, BOOT, "node-crash", "node-agent-silent", "platform"),
        (7, "another", "node-crash", "node-crash", "hardware"),
    ] {
        let mut cluster = Cluster::running(policy(rules));
        cluster.joins(1, "1", BOOT, true);
        cluster.falls_silent(1);
        cluster.wait(Duration::from_secs(8));
        assert_eq!(cluster.class_of(0), silent, "{rules} {boot}");
        cluster.joins(1, "1", boot, true);
        assert_eq!(cluster.class_of(0), returned, "{rules} {boot}");
        assert_eq!(cluster.cases()[0].verdict.layer, layer, "{rules} {boot}");
        let entry = cluster.state.fleet().get(&node(1));
        assert_eq!(entry.and_then(|node| node.cordon.clone()), None);
    }
}

#[test]
fn an_agent_whose_connection_was_closed_is_no_crashed_node() {
    for (rules, has_closed, expected) in [
        (RULES, true, ("node-agent-silent", "platform")),
        (RULES, false, ("node-agent-silent", "hardware")),
        (7, false, ("node-crash", "hardware")),
        (5, true, ("node-crash", "hardware")),
    ] {
        let mut cluster = Cluster::running(policy(rules));
        if has_closed {
            let last_heard = Some(cluster.now);
            cluster.tell(Event::SessionEnded {
                node: node(1),
                last_heard,
            });
        }
        cluster.falls_silent(1);
        cluster.wait(Duration::from_secs(8));
        let verdict = &cluster.cases()[0].verdict;
        assert_eq!((verdict.class.as_str(), verdict.layer.as_str()), expected, "{rules}");
    }
}

#[test]
fn an_event_on_an_idle_node_is_no_cause_of_the_next_job() {
    let mut cluster = Cluster::new(policy(RULES));
    let entity = Entity::Node { node: node(2) };
    let xid = mark("gpu-engine-exception", Role::Root);
    cluster.report(
        node(2),
        EvidenceSource::KernelLog,
        entity,
        text("NVRM: Xid 13"),
        vec![xid],
    );
    cluster.wait(Duration::from_secs(4));
    cluster.submit(4);
    cluster.wait(Duration::from_secs(1));
    cluster.obey();
    cluster.obey();
    cluster.rank_says(0, text("KeyError: 'loss'"), vec![mark("key-error", Role::Root)]);
    let exit = EvidenceBody::RankExited {
        pid: 0,
        exit: ProcessExit::Code(1),
        ended_by_agent: false,
    };
    cluster.rank_says(0, exit, Vec::new());
    cluster.wait(Duration::from_secs(8));
    let case = cluster.cases()[0];
    assert_eq!(case.verdict.class.as_str(), "key-error");
    assert_eq!(case.job, Some(job()));
    assert!(
        case.findings
            .iter()
            .all(|finding| finding.class.as_str() == "key-error" || finding.entity.rank().is_some())
    );
}

impl Cluster {
    /// Reports a lost GPU of a node and ends its first rank.
    fn loses_gpu(&mut self, number: u32) {
        let gpu = Entity::Device {
            node: node(number),
            device: Device {
                kind: DeviceKind::Gpu,
                address: "0000:9b:00".to_owned(),
            },
        };
        let marks = vec![mark("gpu-fallen-off-bus", Role::Root)];
        self.report(
            node(number),
            EvidenceSource::KernelLog,
            gpu,
            text("NVRM: Xid 79"),
            marks,
        );
    }

    fn exits(&mut self, rank: u32, exit: ProcessExit) {
        let exit = EvidenceBody::RankExited {
            pid: rank,
            exit,
            ended_by_agent: false,
        };
        self.rank_says(rank, exit, Vec::new());
    }

    fn steps(&mut self, step: u64) {
        for rank in 0..6 {
            self.progress(rank, step);
        }
    }
}

/// Loses a GPU of node 3, which is cordoned, and one of node 1, which stays in use. The job runs on nodes 0 to 2.
fn beyond_cordon_limit(rules: u32) -> Cluster {
    let mut cluster = Cluster::new(policy(rules));
    cluster.submit(3);
    cluster.obey();
    cluster.obey();
    (0..8).for_each(|rank| cluster.progress(rank, 40));
    cluster.loses_gpu(3);
    cluster.exits(6, ProcessExit::Signal(6));
    cluster.wait(Duration::from_secs(8));
    cluster.obey();
    cluster.obey();
    cluster.steps(41);
    cluster.wait(Duration::from_secs(20));
    cluster.loses_gpu(1);
    cluster.exits(2, ProcessExit::Signal(6));
    cluster.wait(Duration::from_secs(8));
    cluster.obey();
    cluster.obey();
    let nodes = cluster.state.jobs()[&job()].nodes().to_vec();
    assert_eq!(nodes, [node(0), node(1), node(2)]);
    cluster.wait(Duration::from_secs(5));
    cluster
}

/// Returns the class of a KeyError after the steps of the restarted job.
fn class_after_steps(rules: u32) -> String {
    let mut cluster = beyond_cordon_limit(rules);
    cluster.steps(42);
    cluster.wait(Duration::from_secs(3));
    cluster.rank_says(0, text("KeyError: 'loss'"), vec![mark("key-error", Role::Root)]);
    cluster.exits(0, ProcessExit::Code(1));
    cluster.wait(Duration::from_secs(8));
    let case = cluster.cases().len() - 1;
    cluster.class_of(case)
}

#[test]
fn a_fault_of_a_node_that_stays_in_use_is_not_blamed_for_later_failures() {
    assert_eq!(class_after_steps(RULES), "key-error");
    assert_eq!(class_after_steps(5), "gpu-fallen-off-bus");
}

#[test]
fn a_fault_of_a_node_that_stays_in_use_is_blamed_until_its_ranks_make_steps() {
    let mut cluster = beyond_cordon_limit(RULES);
    cluster.exits(2, ProcessExit::Signal(6));
    cluster.wait(Duration::from_secs(8));
    let case = cluster.cases().len() - 1;
    assert_eq!(cluster.class_of(case), "gpu-fallen-off-bus");
}

/// Loses GPUs of nodes 1 and 2 within a second; returns true if node 2 is cordoned or marked as faulty, too.
fn takes_second_node_out_of_use(rules: u32) -> bool {
    let mut cluster = Cluster::running(policy(rules));
    cluster.loses_gpu(1);
    cluster.exits(2, ProcessExit::Signal(6));
    cluster.wait(Duration::from_millis(700));
    cluster.loses_gpu(2);
    cluster.wait(Duration::from_secs(8));
    let node_of = |number| cluster.state.fleet().get(&node(number)).expect("it joined");
    assert!(node_of(1).cordon.is_some());
    node_of(2).cordon.is_some() || node_of(2).uncordoned_fault.is_some()
}

#[test]
fn every_node_that_lost_a_gpu_is_taken_out_of_use() {
    assert!(takes_second_node_out_of_use(RULES));
    assert!(!takes_second_node_out_of_use(5));
}

#[test]
fn a_case_beyond_the_cordon_limit_ends_with_the_node_in_use() {
    let mut cluster = Cluster::new(policy(RULES));
    cluster.loses_gpu(3);
    cluster.wait(Duration::from_secs(8));
    cluster.loses_gpu(1);
    cluster.wait(Duration::from_secs(8));
    let outcomes: Vec<String> = cluster.cases().iter().filter_map(|case| case.outcome.clone()).collect();
    assert_eq!(
        outcomes,
        [
            "node node-3 was taken out of use",
            "node node-1 stayed in use, because the cordon limit was reached",
        ]
    );
}

#[test]
fn a_case_of_a_running_job_beyond_the_cordon_limit_names_the_node_in_use() {
    let mut cluster = Cluster::new(policy(RULES));
    cluster.loses_gpu(3);
    cluster.wait(Duration::from_secs(8));
    cluster.submit(3);
    // The job waits for a fourth node first.
    cluster.wait(Duration::from_secs(10));
    cluster.obey();
    cluster.obey();
    cluster.steps(41);
    cluster.loses_gpu(1);
    cluster.wait(Duration::from_secs(8));
    let outcome = cluster.cases()[1].outcome.clone();
    let expected = "node node-1 stayed in use, because the cordon limit was reached; every rank of the job was alive, so \
                    nothing was restarted";
    assert_eq!(outcome.as_deref(), Some(expected));
}

#[test]
fn a_case_records_that_an_operator_returned_its_node_to_use() {
    let outcome_after_uncordon = |rules: u32| {
        let mut cluster = Cluster::new(policy(rules));
        cluster.loses_gpu(3);
        cluster.wait(Duration::from_secs(8));
        cluster.tell(Event::NodeUncordoned { node: node(3) });
        let returned_at = cluster.now;
        cluster.wait(Duration::from_secs(60));
        let case = cluster.cases()[0];
        let last = case.actions.last().map(|action| action.text.clone());
        (case.outcome.clone().expect("an outcome"), last, returned_at)
    };
    let (outcome, last, returned_at) = outcome_after_uncordon(RULES);
    let expected = format!("node node-3 was taken out of use; an operator returned it to use at {returned_at}");
    assert_eq!(outcome, expected);
    assert_eq!(last.as_deref(), Some("an operator returned node node-3 to use"));
    let (outcome, last, _) = outcome_after_uncordon(5);
    assert_eq!(outcome, "node node-3 was taken out of use");
    assert_eq!(last.as_deref(), Some("node node-3 cordoned"));
}

#[test]
fn a_gpu_that_is_lost_just_after_a_job_takes_its_node_out_of_use() {
    for rules in [RULES, 5] {
        let mut cluster = Cluster::running(policy(rules));
        cluster.tell(Event::JobCancelled { job: job(), by: None });
        cluster.obey();
        cluster.wait(Duration::from_millis(700));
        cluster.loses_gpu(2);
        cluster.wait(Duration::from_secs(8));
        let cordon = cluster.state.fleet().get(&node(2)).and_then(|node| node.cordon.clone());
        assert_eq!(cordon.is_some(), rules == RULES, "{:?}", cluster.cases());
    }
}

#[test]
fn a_gpu_that_is_lost_after_the_verdict_takes_its_node_out_of_use() {
    let mut cluster = Cluster::running(policy(RULES));
    cluster.rank_says(0, text("KeyError: 'loss'"), vec![mark("key-error", Role::Root)]);
    cluster.exits(0, ProcessExit::Code(1));
    while cluster.cases()[0].state == CaseState::Open {
        cluster.wait(Duration::from_millis(100));
    }
    assert_eq!(cluster.class_of(0), "key-error");
    cluster.loses_gpu(2);
    assert_eq!(cluster.class_of(0), "key-error");
    cluster.wait(Duration::from_secs(8));
    let cordon = cluster.state.fleet().get(&node(2)).and_then(|node| node.cordon.clone());
    let cordon = cordon.expect("it is out of use");
    assert_eq!(cordon.case, Some(cluster.cases()[1].id));
    assert_eq!(cluster.class_of(1), "gpu-fallen-off-bus");
    // The job needs four nodes.
    let phase = cluster.state.jobs()[&job()].phase();
    assert!(matches!(phase, JobPhase::Pending { .. }), "{phase:?}");
}

#[test]
fn a_second_fault_of_another_node_is_a_case_of_its_own() {
    let mut policy = policy(RULES);
    policy.cordon_share.0 = 100;
    let mut cluster = Cluster::running(policy);
    cluster.loses_gpu(1);
    cluster.loses_gpu(2);
    cluster.exits(2, ProcessExit::Signal(6));
    cluster.exits(4, ProcessExit::Signal(6));
    cluster.wait(Duration::from_secs(8));
    let blamed: Vec<_> = cluster
        .cases()
        .iter()
        .map(|case| case.verdict.blamed.node().cloned())
        .collect();
    assert_eq!(blamed, [Some(node(1)), Some(node(2))]);
    let second = cluster.cases()[1];
    assert_eq!((second.state, second.job.clone()), (CaseState::Closed, Some(job())));
    assert_eq!(second.outcome.as_deref(), Some("node node-2 was taken out of use"));
    for number in [1, 2] {
        let cordon = cluster
            .state
            .fleet()
            .get(&node(number))
            .and_then(|node| node.cordon.clone());
        let case = cordon.and_then(|cordon| cordon.case);
        assert_eq!(case.map(|case| case.0), Some(u64::from(number)));
    }
    cluster.tell(Event::NodeUncordoned { node: node(2) });
    let outcome = cluster.cases()[1].outcome.clone().expect("it has one");
    assert!(outcome.contains("an operator returned it to use"), "{outcome}");
}

/// Loses a GPU of one node while a rank of another one is killed; returns the cases.
fn killed_beside_a_lost_gpu(rules: u32) -> (Vec<String>, Option<String>) {
    let mut cluster = Cluster::running(policy(rules));
    cluster.loses_gpu(1);
    cluster.exits(2, ProcessExit::Signal(6));
    cluster.exits(6, ProcessExit::Signal(9));
    cluster.wait(Duration::from_secs(8));
    let cases = cluster.cases();
    let outcome = cases.last().and_then(|case| case.outcome.clone());
    let classes = (0..cases.len()).map(|case| cluster.class_of(case)).collect();
    (classes, outcome)
}

#[test]
fn a_rank_that_is_killed_beside_a_fault_of_another_node_is_a_case_of_its_own() {
    let (classes, outcome) = killed_beside_a_lost_gpu(RULES);
    assert_eq!(classes, ["gpu-fallen-off-bus", "killed-by-signal"]);
    assert_eq!(outcome.as_deref(), Some("what is done for the job is in case 1"));
}

/// No exception of a rank kills a rank of another node.
#[test]
fn a_rank_that_is_killed_beside_an_exception_is_a_case_of_its_own() {
    for (rules, expected) in [(RULES, &["key-error", "killed-by-signal"][..]), (7, &["key-error"])] {
        let mut cluster = Cluster::running(policy(rules));
        cluster.rank_says(0, text("KeyError: 'lr'"), vec![mark("key-error", Role::Root)]);
        cluster.exits(0, ProcessExit::Code(1));
        cluster.exits(6, ProcessExit::Signal(9));
        cluster.wait(Duration::from_secs(8));
        let classes: Vec<String> = (0..cluster.cases().len()).map(|case| cluster.class_of(case)).collect();
        assert_eq!(classes, expected, "{rules}");
    }
}

/// The order of two ends is not known within the difference of two clocks.
#[test]
fn ranks_that_one_signal_ended_together_blame_none_of_them() {
    for (rules, rank) in [(RULES, None), (7, Some(Rank(0)))] {
        let mut cluster = Cluster::running(policy(rules));
        for rank in [0, 2, 6] {
            cluster.exits(rank, ProcessExit::Signal(15));
        }
        cluster.wait(Duration::from_secs(8));
        assert_eq!(cluster.cases().len(), 1, "{rules}");
        let verdict = &cluster.cases()[0].verdict;
        assert_eq!((verdict.root_rank, verdict.blamed.rank()), (rank, rank), "{rules}");
    }
}

#[test]
fn journals_of_older_rules_keep_the_numbers_of_their_cases() {
    let (classes, _) = killed_beside_a_lost_gpu(6);
    assert_eq!(classes, ["gpu-fallen-off-bus"]);
}

#[test]
fn the_case_of_a_cancelled_job_names_the_node_that_it_took_out_of_use() {
    let mut cluster = Cluster::running(policy(RULES));
    cluster.loses_gpu(1);
    cluster.exits(2, ProcessExit::Signal(6));
    cluster.wait(Duration::from_secs(8));
    cluster.tell(Event::JobCancelled { job: job(), by: None });
    let outcome = cluster.cases()[0].outcome.clone().expect("it has one");
    assert_eq!(
        outcome,
        "the job was stopped: cancelled by an operator's request; node node-1 was taken out of use"
    );
    cluster.tell(Event::NodeUncordoned { node: node(1) });
    let outcome = cluster.cases()[0].outcome.clone().expect("it has one");
    assert!(outcome.contains("an operator returned it to use"), "{outcome}");
}

#[test]
fn a_job_that_waits_for_nodes_shows_no_ranks_that_have_ended() {
    let mut cluster = Cluster::running(policy(RULES));
    cluster.loses_gpu(1);
    cluster.exits(2, ProcessExit::Signal(6));
    cluster.wait(Duration::from_secs(8));
    let view = cluster.state.status(cluster.now).jobs.remove(0);
    assert_eq!(view.state, rankguard_model::JobState::Pending);
    let ranks: Vec<u32> = view.placements.iter().map(|place| place.rank.0).collect();
    assert!(!ranks.contains(&2) && ranks.contains(&0), "{ranks:?}");
    (0..8)
        .filter(|rank| *rank != 2)
        .for_each(|rank| cluster.exits(rank, ProcessExit::Code(1)));
    let status = cluster.state.status(cluster.now);
    assert_eq!(status.jobs[0].placements, []);
    assert!(status.nodes.iter().all(|node| node.job.is_none()), "{:?}", status.nodes);
}

#[test]
fn a_node_of_a_waiting_job_belongs_to_it_while_ranks_run_there() {
    let mut cluster = Cluster::running(policy(RULES));
    let nodes = |cluster: &Cluster| {
        let status = cluster.state.status(cluster.now);
        let with_job = status.nodes.into_iter().filter(|node| node.job.is_some());
        with_job.map(|node| node.node.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(nodes(&cluster).len(), 4);
    cluster.loses_gpu(1);
    cluster.exits(2, ProcessExit::Signal(6));
    cluster.wait(Duration::from_secs(8));
    // Ranks 2 and 3 are those of the node with the fault; rank 2 has ended.
    assert_eq!(nodes(&cluster), ["node-0", "node-1", "node-2", "node-3"]);
    cluster.exits(3, ProcessExit::Code(1));
    assert_eq!(nodes(&cluster), ["node-0", "node-2", "node-3"]);
}

#[test]
fn a_case_names_the_ranks_that_had_ended_well_before() {
    let reasoning = |rules: u32| {
        let mut cluster = Cluster::running(policy(rules));
        cluster.exits(5, ProcessExit::Code(0));
        cluster.wait(Duration::from_secs(1));
        cluster.rank_says(
            2,
            text("BrokenPipeError: [Errno 32] Broken pipe"),
            vec![mark("connection-reset", Role::Cascade)],
        );
        cluster.exits(2, ProcessExit::Code(1));
        cluster.wait(Duration::from_secs(8));
        let cases = cluster.cases();
        let reasons = cases[0].reasoning.iter().map(|entry| entry.text.clone());
        reasons.collect::<Vec<_>>().join("\n")
    };
    let told = "Rank 5 had ended with exit code 0 before, while other ranks of the generation ran.";
    let shown = reasoning(RULES);
    assert!(shown.contains(told), "{shown}");
    assert!(!reasoning(7).contains("exit code 0"));
}

#[test]
fn a_link_that_is_down_is_shown_until_it_is_up_again() {
    let mut cluster = Cluster::new(policy(RULES));
    let nic = Entity::Device {
        node: node(1),
        device: Device {
            kind: DeviceKind::Nic,
            address: "mlx5_0".to_owned(),
        },
    };
    let reason = |cluster: &Cluster| cluster.state.status(cluster.now).nodes[1].reason.clone();
    let down = vec![mark("nic-link-down", Role::Root)];
    cluster.report(node(1), EvidenceSource::KernelLog, nic.clone(), text("Link down"), down);
    cluster.wait(Duration::from_secs(8));
    let shown = reason(&cluster).expect("the link is down");
    assert!(
        shown.contains("the link of node node-1, nic mlx5_0 has been down since"),
        "{shown}"
    );
    let mut up = mark("none", Role::Noise);
    up.signature = "nic-link-up".into();
    cluster.report(node(1), EvidenceSource::KernelLog, nic, text("Link up"), vec![up]);
    assert_eq!(reason(&cluster), None);
    let outcome = cluster.cases()[0].outcome.clone().expect("it has one");
    assert!(outcome.contains("; the link was up again at "), "{outcome}");
}

#[test]
fn a_case_records_that_its_link_came_up_before_the_verdict() {
    let mut cluster = Cluster::new(policy(RULES));
    let nic = Entity::Device {
        node: node(1),
        device: Device {
            kind: DeviceKind::Nic,
            address: "mlx5_0".to_owned(),
        },
    };
    let down = vec![mark("nic-link-down", Role::Root)];
    cluster.report(node(1), EvidenceSource::KernelLog, nic.clone(), text("Link down"), down);
    cluster.wait(Duration::from_secs(1));
    let mut up = mark("none", Role::Noise);
    up.signature = "nic-link-up".into();
    cluster.report(node(1), EvidenceSource::KernelLog, nic, text("Link up"), vec![up]);
    cluster.wait(Duration::from_secs(8));
    let actions = &cluster.cases()[0].actions;
    let is_noted = actions
        .iter()
        .any(|action| action.text.starts_with("the link was up again at "));
    assert!(is_noted, "{actions:?}");
}

/// Returns the advice of the case that stops a job for a segmentation fault, with this number of restarts.
fn advice_at_stop(restarts: u32) -> String {
    let mut cluster = Cluster::new(policy(RULES));
    let spec = JobSpec {
        max_restarts: restarts,
        ..cluster.spec(4, None)
    };
    cluster.tell(Event::JobSubmitted { spec, claim: None });
    cluster.obey();
    for _ in 0..=restarts {
        cluster.exits(2, ProcessExit::Signal(11));
        cluster.wait(Duration::from_secs(10));
        cluster.obey();
    }
    let phase = cluster.state.jobs()[&job()].phase();
    assert!(matches!(phase, JobPhase::Stopped { .. }), "{phase:?}");
    let cases = cluster.cases();
    cases.last().expect("it failed").verdict.mitigation.advice.clone()
}

#[test]
fn a_restart_that_was_tried_is_not_advised_again() {
    let first = advice_at_stop(0);
    assert!(first.starts_with("Restart once; "), "{first}");
    let again = advice_at_stop(1);
    assert!(again.starts_with("Read the native stack"), "{again}");
}

#[test]
fn a_case_of_a_node_that_was_out_of_use_names_the_earlier_cordon() {
    let outcome_of = |rules: u32| {
        let mut cluster = Cluster::new(policy(rules));
        cluster.tell(Event::NodeCordoned {
            node: node(3),
            reason: "hold".to_owned(),
        });
        cluster.loses_gpu(3);
        cluster.wait(Duration::from_secs(8));
        cluster.cases()[0].outcome.clone().expect("an outcome")
    };
    assert_eq!(outcome_of(RULES), "node node-3 was already out of use by an operator");
    assert_eq!(outcome_of(7), "node node-3 was taken out of use");
}

/// Returns the reason of a job with one restart that stops after two exits of ranks.
fn reason_after(first: (u32, i32), second: (u32, i32)) -> String {
    let mut cluster = Cluster::new(policy(RULES));
    let spec = JobSpec {
        max_restarts: 1,
        ..cluster.spec(4, None)
    };
    cluster.tell(Event::JobSubmitted { spec, claim: None });
    cluster.obey();
    for (rank, signal) in [first, second] {
        cluster.obey();
        cluster.exits(rank, ProcessExit::Signal(signal));
        cluster.wait(Duration::from_secs(10));
        cluster.obey();
    }
    match cluster.state.jobs()[&job()].phase() {
        JobPhase::Stopped { reason } => reason.clone(),
        phase => panic!("{phase:?}"),
    }
}

#[test]
fn a_failure_is_the_same_if_rank_and_signal_are() {
    for (second, is_same) in [((2, 9), true), ((2, 15), false), ((5, 9), false)] {
        let reason = reason_after((2, 9), second);
        let wanted = if is_same {
            "; the same failure came back"
        } else {
            "; a failure of the same class came back"
        };
        assert!(reason.contains(wanted), "{second:?}: {reason}");
    }
}

/// A fault of the same node is in use by the cordon limit, and a fault of another node follows.
#[test]
fn a_fault_that_awaits_a_decision_is_no_part_of_the_case_of_another_node() {
    for (rules, count) in [(RULES, 3), (7, 4)] {
        let mut cluster = Cluster::checkpointed(policy(rules), CheckpointTiers::default());
        for number in 0..3 {
            let entity = Entity::Device {
                node: node(number),
                device: Device {
                    kind: DeviceKind::Gpu,
                    address: "0000:9b:00".to_owned(),
                },
            };
            let lost = vec![mark("gpu-fallen-off-bus", Role::Root)];
            cluster.report(node(number), EvidenceSource::KernelLog, entity, text("Xid 79"), lost);
            cluster.wait(Duration::from_secs(8));
            cluster.obey();
            cluster.obey();
            (0..6).for_each(|rank| cluster.progress(rank, 41));
        }
        let blamed: Vec<_> = cluster
            .cases()
            .iter()
            .filter_map(|case| case.verdict.blamed.node().cloned())
            .collect();
        assert_eq!(blamed.len(), count, "rules {rules}: {blamed:?}");
        if rules == RULES {
            assert_eq!(blamed, [node(0), node(1), node(2)]);
        }
    }
}

/// Reports an error that the hardware confined to one process of node 3, and the end of rank 6 there if it was that process.
fn contained_error(rules: u32, is_rank: bool, delay: Duration) -> Cluster {
    let mut cluster = Cluster::checkpointed(policy(rules), CheckpointTiers::default());
    let entity = Entity::Device {
        node: node(3),
        device: Device {
            kind: DeviceKind::Gpu,
            address: "0000:9b:00".to_owned(),
        },
    };
    let line = "NVRM: Xid (PCI:0000:9b:00): 94, pid=4411, name=python3, Contained: SM (0x1). RST: No, D-RST: No";
    let contained = vec![mark("gpu-ecc-contained", Role::Root)];
    cluster.report(node(3), EvidenceSource::KernelLog, entity, text(line), contained);
    cluster.wait(delay);
    if is_rank {
        cluster.exits(6, ProcessExit::Signal(6));
    }
    cluster.wait(Duration::from_secs(20));
    cluster
}

#[test]
fn an_error_that_is_confined_to_another_process_restarts_no_job() {
    let cluster = contained_error(RULES, false, Duration::ZERO);
    assert_eq!(cluster.generation(), Generation(1));
    let cordon = cluster.state.fleet().get(&node(3)).and_then(|node| node.cordon.clone());
    assert!(cordon.is_some(), "no further job is placed beside the faulty memory");
    let outcome = cluster.cases()[0].outcome.clone().expect("an outcome");
    let wanted = "node node-3 was taken out of use; the error is confined to the process that used the memory, and no rank \
                  of the job had failed, so nothing was restarted";
    assert_eq!(outcome, wanted);
    assert_eq!(contained_error(7, false, Duration::ZERO).generation(), Generation(2));
}

#[test]
fn an_error_that_is_confined_to_a_rank_restarts_its_job_elsewhere() {
    for delay in [Duration::ZERO, Duration::from_secs(15)] {
        let cluster = contained_error(RULES, true, delay);
        assert_eq!(cluster.generation(), Generation(2), "{delay:?}");
        assert!(!cluster.state.jobs()[&job()].nodes().contains(&node(3)));
    }
}

/// Reports lines of the kernel of node 3 about one GPU, each with its class, and the end of rank 6 there if it was the named
/// process.
fn named_process(rules: u32, lines: &[(&str, &str)], is_rank: bool) -> Cluster {
    let mut cluster = Cluster::checkpointed(policy(rules), CheckpointTiers::default());
    for (line, class) in lines {
        let entity = Entity::Device {
            node: node(3),
            device: Device {
                kind: DeviceKind::Gpu,
                address: "0000:9b:00".to_owned(),
            },
        };
        let marks = vec![mark(class, Role::Root)];
        cluster.report(node(3), EvidenceSource::KernelLog, entity, text(line), marks);
    }
    if is_rank {
        cluster.exits(6, ProcessExit::Signal(6));
    }
    cluster.wait(Duration::from_secs(20));
    cluster
}

const COPY_ENGINE: &str = "NVRM: Xid (PCI:0000:9b:00): 39, pid=4411, name=python3, Ch 00000008";

#[test]
fn an_error_for_which_the_vendor_restarts_the_program_restarts_no_job_of_another_one() {
    let lines = [(COPY_ENGINE, "gpu-internal-fault")];
    let cluster = named_process(RULES, &lines, false);
    assert_eq!(cluster.generation(), Generation(1));
    let outcome = cluster.cases()[0].outcome.clone().expect("an outcome");
    let wanted = "node node-3 was taken out of use; the error ends only the process that the driver names, and no rank of \
                  the job had failed, so nothing was restarted";
    assert_eq!(outcome, wanted);
    assert_eq!(named_process(7, &lines, false).generation(), Generation(2));
    // The process is a rank.
    let cluster = named_process(RULES, &lines, true);
    assert_eq!(cluster.generation(), Generation(2));
    assert!(!cluster.state.jobs()[&job()].nodes().contains(&node(3)));
}

#[test]
fn an_error_that_may_reach_further_than_its_process_restarts_the_job() {
    let unnamed = COPY_ENGINE.replace("pid=4411, name=python3", "pid='<unknown>', name=<unknown>");
    let reset = "NVRM: Xid (PCI:0000:9b:00): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed from 0x0 (None) \
                 to 0x1 (GPU Reset Required)";
    let timeout =
        "NVRM: Xid (PCI:0000:9b:00): 109, pid=4411, name=python3, Ch 00000008, errorString CTX SWITCH TIMEOUT";
    for lines in [
        vec![(unnamed.as_str(), "gpu-internal-fault")],
        vec![(timeout, "gpu-internal-fault")],
        vec![(COPY_ENGINE, "gpu-internal-fault"), (reset, "gpu-recovery-action")],
        vec![(COPY_ENGINE, "gpu-internal-fault"), (timeout, "gpu-internal-fault")],
    ] {
        assert_eq!(
            named_process(RULES, &lines, false).generation(),
            Generation(2),
            "{lines:?}"
        );
    }
}
