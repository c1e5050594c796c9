//! Limits of causes: evidence of another time or another job explains no failure, and noise neither begins nor
//! confirms one.

use crate::world::{World, gpu, line, mark, node, on_node, rank_of};
use rankguard_diagnosis::{CallerFact, ConcludedDraft, Diagnosis, DraftChange};
use rankguard_faults::Catalogue;
use rankguard_model::{Classification, EvidenceSource, JobId, ProcessExit, Role, Timestamp, rests_on_drill};

fn key_error() -> Classification {
    mark("key-error", Role::Root, 0.9)
}

fn engine_exception() -> Classification {
    mark("gpu-engine-exception", Role::Root, 0.75)
}

fn off_the_bus() -> Classification {
    mark("gpu-fallen-off-bus", Role::Root, 0.97)
}

/// Fails rank 0 on node n1 with a KeyError.
fn key_error_at(world: &mut World, ms: i64) {
    world.says(ms, 0, "KeyError: 'loss'", key_error());
    world.exits(ms + 100, 0, ProcessExit::Code(1));
}

fn reasons(case: &ConcludedDraft) -> String {
    let texts = case.reasoning.iter().map(|reason| reason.text.as_str());
    texts.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_failure_begins_with_its_first_effect_and_not_with_noise() {
    let mut world = World::new();
    world.at(
        1_000,
        EvidenceSource::Ranks,
        rank_of(3),
        line("the rank reports no steps and writes output"),
        vec![mark("rank-quiet", Role::Noise, 0.9)],
    );
    world.exits(9_000, 0, ProcessExit::Signal(9));
    let opened = world.changes.iter().find_map(|change| match change {
        DraftChange::Opened { first_at, .. } => Some(*first_at),
        _ => None,
    });
    assert_eq!(opened, Some(Timestamp::from_millis(9_000)));
    assert_eq!(world.settle().first_at, Timestamp::from_millis(9_000));
}

#[test]
fn evidence_that_turns_out_to_be_noise_does_not_begin_a_failure() {
    let mut world = World::new();
    world.says(1_000, 4, "KeyError: 'x'", mark("uncaught-exception", Role::Root, 0.4));
    world.kernel(30_000, gpu(1), "NVRM: Xid 79", off_the_bus());
    world.exits(30_100, 0, ProcessExit::Signal(9));
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "gpu-fallen-off-bus");
    assert_eq!(case.first_at, Timestamp::from_millis(30_000));
}

#[test]
fn under_older_rules_a_failure_begins_with_its_first_cause() {
    let mut world = World::new();
    world.diagnosis.set_cause_limits(false);
    world.exits(9_000, 0, ProcessExit::Signal(9));
    assert!(!world.settle().has_cause_limits);
}

#[test]
fn noise_of_another_node_is_no_lost_peer() {
    let mut world = World::new();
    world.at(
        9_500,
        EvidenceSource::Ranks,
        rank_of(0),
        line("the rank reports no steps and writes output"),
        vec![mark("rank-quiet", Role::Noise, 0.9)],
    );
    world.silent(10_000, 2);
    let case = world.settle();
    assert!(
        (case.verdict.confidence - 0.8).abs() < 0.001,
        "{}",
        case.verdict.confidence
    );
    assert!(!reasons(&case).contains("lost their peers"), "{}", reasons(&case));
}

#[test]
fn a_complaint_long_before_the_silence_is_no_lost_peer() {
    let mut world = World::new();
    world.says(
        1_000,
        0,
        "NCCL watchdog timeout",
        mark("nccl-timeout", Role::Cascade, 0.9),
    );
    world.silent(40_000, 2);
    assert!(!reasons(&world.settle()).contains("lost their peers"));
}

#[test]
fn a_complaint_of_a_peer_confirms_a_silence() {
    let mut world = World::new();
    world.says(
        10_200,
        0,
        "Connection reset by peer",
        mark("remote-worker-lost", Role::Cascade, 0.9),
    );
    world.silent(10_000, 2);
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "node-crash");
    assert!(reasons(&case).contains("lost their peers"), "{}", reasons(&case));
}

#[test]
fn an_event_of_a_machine_before_its_job_began_explains_no_failure_of_the_job() {
    let mut world = World::new();
    world.job(|job| job.since = Some(Timestamp::from_millis(5_000)));
    world.kernel(1_000, gpu(2), "NVRM: Xid 13", engine_exception());
    key_error_at(&mut world, 9_000);
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "key-error");
    assert_eq!(case.findings.len(), 2, "{:?}", case.findings);
    assert_eq!(case.first_at, Timestamp::from_millis(9_000));
}

#[test]
fn an_event_of_a_machine_while_its_job_runs_explains_a_failure_of_the_job() {
    let mut world = World::new();
    world.job(|job| job.since = Some(Timestamp::from_millis(500)));
    world.kernel(1_000, gpu(1), "NVRM: Xid 13", engine_exception());
    world.exits(1_400, 0, ProcessExit::Signal(9));
    assert_eq!(world.settle().verdict.class.as_str(), "gpu-engine-exception");
}

#[test]
fn an_event_of_a_machine_that_is_reported_late_joins_no_later_job() {
    let mut world = World::new();
    world.job(|job| job.since = Some(Timestamp::from_millis(5_000)));
    world.exits(9_000, 0, ProcessExit::Signal(9));
    world.late(
        1_000,
        9_200,
        EvidenceSource::KernelLog,
        gpu(1),
        line("NVRM: Xid 13"),
        vec![engine_exception()],
    );
    assert_eq!(world.settle().verdict.class.as_str(), "killed-by-signal");
}

#[test]
fn a_fault_that_lasts_explains_a_failure_of_a_later_job() {
    for (class, source) in [
        ("gpu-fallen-off-bus", EvidenceSource::KernelLog),
        ("filesystem-hang", EvidenceSource::KernelLog),
    ] {
        let mut world = World::new();
        world.context.remove(&JobId::from("train"));
        world.at(
            1_000,
            source,
            on_node(1),
            line("it fails"),
            vec![mark(class, Role::Root, 0.95)],
        );
        let mut later = World::new();
        later.diagnosis = world.diagnosis;
        later.seq = world.seq;
        later.job(|job| job.since = Some(Timestamp::from_millis(5_000)));
        later.exits(9_000, 0, ProcessExit::Signal(6));
        let concluded = later
            .diagnosis
            .conclude(Timestamp::from_millis(60_000), Catalogue::builtin());
        let of_job = concluded.iter().find(|case| case.job.is_some()).unwrap();
        assert_eq!(of_job.verdict.class.as_str(), class);
    }
}

#[test]
fn a_silence_since_before_the_placement_is_a_failure_of_the_job() {
    let mut world = World::new();
    world.job(|job| job.since = Some(Timestamp::from_millis(5_000)));
    world.silent(4_500, 1);
    assert_eq!(world.settle().job, Some(JobId::from("train")));
}

#[test]
fn evidence_of_one_failure_explains_no_second_one_of_the_same_generation() {
    let mut world = World::new();
    world.kernel(1_000, gpu(1), "NVRM: Xid 13", engine_exception());
    world.exits(1_200, 0, ProcessExit::Signal(9));
    assert_eq!(world.settle().verdict.class.as_str(), "gpu-engine-exception");
    // The silence is no evidence of the failure that was concluded before.
    world.silent(30_000, 3);
    let second = world.settle();
    assert!(
        second
            .findings
            .iter()
            .all(|finding| finding.class.as_str() != "gpu-engine-exception")
    );
}

#[test]
fn a_drill_before_the_job_began_makes_no_failure_synthetic() {
    let mut world = World::new();
    world.context.remove(&JobId::from("train"));
    world.is_drill = true;
    world.kernel(1_000, gpu(1), "NVRM: Xid 79", off_the_bus());
    let drill = world.settle();
    assert!(rests_on_drill(&drill.findings));
    let mut later = World::new();
    later.diagnosis = world.diagnosis;
    later.seq = world.seq;
    later.job(|job| job.since = Some(Timestamp::from_millis(50_000)));
    key_error_at(&mut later, 67_000);
    let case = later.settle();
    assert_eq!(case.verdict.class.as_str(), "key-error");
    assert!(!rests_on_drill(&case.findings));
}

#[test]
fn a_drill_that_explains_nothing_makes_no_failure_synthetic() {
    let mut world = World::new();
    world.is_drill = true;
    world.kernel(
        1_000,
        gpu(3),
        "NVRM: Xid 13",
        mark("gpu-engine-exception", Role::Noise, 0.5),
    );
    world.is_drill = false;
    key_error_at(&mut world, 9_000);
    let case = world.settle();
    assert!(!rests_on_drill(&case.findings));
}

#[test]
fn a_fact_before_the_first_cause_is_not_told_as_later() {
    let mut world = World::new();
    world.stalls(1_000, 31_000);
    world.says(30_500, 3, "KeyError: 'x'", key_error());
    world.exits(30_400, 2, ProcessExit::Signal(9));
    world.exits(30_600, 3, ProcessExit::Code(1));
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "key-error");
    assert_eq!(case.first_at, Timestamp::from_millis(1_000));
    let first = case
        .findings
        .iter()
        .find(|finding| finding.role == Role::Root)
        .unwrap()
        .at;
    for finding in case.findings.iter().filter(|finding| finding.at < first) {
        assert!(!finding.why.contains("after the first cause"), "{finding:?}");
    }
}

#[test]
fn a_rank_that_ended_before_its_report_was_read_did_not_end_after_it() {
    let mut world = World::new();
    world.exits(9_000, 0, ProcessExit::Code(1));
    world.says(9_003, 0, "KeyError: 'x'", key_error());
    let text = reasons(&world.settle());
    assert!(text.contains("Rank 0 ended with its own report."), "{text}");
}

#[test]
fn another_rank_of_the_node_is_not_where_the_cause_sits() {
    let mut world = World::new();
    world.says(30_500, 3, "KeyError: 'x'", key_error());
    world.exits(30_600, 2, ProcessExit::Signal(9));
    let case = world.settle();
    let text = reasons(&case);
    assert!(
        text.contains("rank 2 on node n2 ended (signal 9 (exit code 137)), on the node of the blamed rank"),
        "{text}"
    );
}

#[test]
fn ranks_of_a_blamed_job_are_no_survivors() {
    let mut world = World::new();
    for rank in 0..6 {
        world.says(1_000, rank, "KeyError: 'x'", key_error());
        world.exits(1_100, rank, ProcessExit::Code(1));
    }
    let text = reasons(&world.settle());
    assert!(!text.contains("as survivors do"), "{text}");
}

fn farewell(world: &mut World, ms: i64, on: u32) {
    world.at(
        ms,
        EvidenceSource::Agent,
        on_node(on),
        line("the agent was asked to end and takes its ranks along"),
        vec![mark("maintenance", Role::Confirmation, 0.9)],
    );
}

#[test]
fn a_node_that_reported_its_end_is_in_maintenance() {
    let mut world = World::new();
    farewell(&mut world, 1_000, 1);
    world.says(
        1_500,
        4,
        "Connection reset by peer",
        mark("remote-worker-lost", Role::Cascade, 0.9),
    );
    world.silent(1_400, 1);
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "maintenance");
    assert_eq!(case.verdict.blamed, on_node(1));
    assert_eq!(case.findings[0].class.as_str(), "maintenance");
    assert_eq!(case.findings[0].role, Role::Root);
    let text = reasons(&case);
    assert!(text.contains("the agent of node n1 says"), "{text}");
    assert!(case.node_silent);
}

#[test]
fn the_end_of_another_node_explains_no_silence() {
    let mut world = World::new();
    farewell(&mut world, 1_000, 2);
    world.silent(1_400, 1);
    assert_eq!(world.settle().verdict.class.as_str(), "node-agent-silent");
}

fn returns_on_boot(world: &mut World, since: i64, now: i64) {
    let fact = CallerFact::AgentReturned {
        node: node(1),
        since: Timestamp::from_millis(since),
    };
    let now = Timestamp::from_millis(now);
    let changes = world
        .diagnosis
        .observe_fact(now, &fact, &world.context, Catalogue::builtin());
    world.changes.extend(changes);
}

#[test]
fn an_agent_that_was_started_again_on_the_same_boot_is_no_crash() {
    let mut world = World::new();
    returns_on_boot(&mut world, 1_000, 2_000);
    world.says(
        1_100,
        4,
        "Connection reset by peer",
        mark("remote-worker-lost", Role::Cascade, 0.9),
    );
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "node-agent-silent");
    assert!(case.node_silent);
    assert_eq!(case.first_at, Timestamp::from_millis(1_000));
    let complaint = case
        .findings
        .iter()
        .find(|finding| finding.class.as_str() == "remote-worker-lost");
    assert_eq!(complaint.unwrap().role, Role::Cascade);
}

#[test]
fn a_silent_agent_that_returns_on_the_same_boot_revises_its_failure() {
    let mut world = World::new();
    world.silent(1_000, 1);
    assert_eq!(world.settle().verdict.class.as_str(), "node-agent-silent");
    let written = serde_json::to_string(&world.diagnosis).unwrap();
    let mut read: Diagnosis = serde_json::from_str(&written).unwrap();
    let now = Timestamp::from_millis(30_000);
    let changes = read.agent_returned(now, &node(1), Catalogue::builtin());
    let [DraftChange::Revised(revised)] = changes.as_slice() else {
        panic!("one revision: {changes:?}");
    };
    assert_eq!(revised.verdict.class.as_str(), "node-agent-silent");
    assert!(revised.node_silent);
    assert_eq!(revised.verdict.layer, "platform");
    assert_eq!(revised.clears, "the agent registers again");
    let roles: Vec<Role> = revised.findings.iter().map(|finding| finding.role).collect();
    assert_eq!(roles, [Role::Root, Role::Confirmation], "{:?}", revised.findings);
    assert!(read.agent_returned(now, &node(1), Catalogue::builtin()).is_empty());
}
