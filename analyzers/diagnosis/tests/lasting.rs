//! Limits of faults: how long one explains failures, and what a failure beside it is.

use crate::world::{World, class, gpu, key_error, line, mark, off_the_bus, on_node, rank_of, reasons, role_of};
use rankguard_faults::Catalogue;
use rankguard_model::{
    Classification, Entity, EvidenceBody, EvidenceSource, JobId, OrderId, ProcessExit, Rank, Role, Timestamp,
};

/// Loses a GPU of node n1 in generation 1, and begins generation 2 on the same nodes at 10 s.
fn restarted_after_lost_gpu() -> World {
    let mut world = World::new();
    world.kernel(1_000, gpu(1), "NVRM: Xid 79", off_the_bus());
    world.exits(1_100, 0, ProcessExit::Signal(6));
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "gpu-fallen-off-bus");
    world.restarts(10_000);
    world
}

/// Completes a step on all ranks.
fn step_all(world: &mut World, ms: i64) {
    for rank in 0..6 {
        world.steps(ms, rank, 41);
    }
}

#[test]
fn a_lasting_fault_still_explains_a_failure_of_the_next_generation() {
    let mut world = restarted_after_lost_gpu();
    let case = world.exits(11_000, 0, ProcessExit::Signal(6)).settle();
    assert_eq!(class(&case), "gpu-fallen-off-bus");
}

#[test]
fn steps_of_a_later_generation_end_a_lasting_fault() {
    let mut world = restarted_after_lost_gpu();
    step_all(&mut world, 15_000);
    let case = world.exits(20_000, 0, ProcessExit::Signal(9)).settle();
    assert_eq!(class(&case), "killed-by-signal");
    // Also for the generation after it, which made no step.
    world.restarts(30_000);
    let case = world.exits(31_000, 1, ProcessExit::Signal(9)).settle();
    assert_eq!(class(&case), "killed-by-signal");
}

#[test]
fn steps_of_some_ranks_of_the_node_do_not_end_a_lasting_fault() {
    let mut world = restarted_after_lost_gpu();
    world.steps(15_000, 1, 41).steps(15_000, 2, 41);
    let case = world.exits(20_000, 0, ProcessExit::Signal(6)).settle();
    assert_eq!(class(&case), "gpu-fallen-off-bus");
}

#[test]
fn a_fault_that_is_read_after_later_steps_concerns_no_later_generation() {
    let mut world = World::new();
    world.restarts(10_000);
    step_all(&mut world, 15_000);
    world.exits(20_000, 0, ProcessExit::Signal(9));
    world.late(
        1_000,
        20_100,
        EvidenceSource::KernelLog,
        gpu(1),
        line("NVRM: Xid 79"),
        vec![off_the_bus()],
    );
    let due = world.diagnosis.due().unwrap();
    let mut cases = world.diagnosis.conclude(due, Catalogue::builtin());
    cases.extend(
        world
            .diagnosis
            .conclude(Timestamp::from_millis(60_000), Catalogue::builtin()),
    );
    let of_job = cases.iter().find(|case| case.job.is_some()).unwrap();
    assert_eq!(class(of_job), "killed-by-signal");
}

#[test]
fn an_older_fault_explains_no_exit_without_an_effect_of_it() {
    // The first rank to end is on another node, or another process killed it.
    for (rank, exit, expected) in [
        (2, ProcessExit::Code(3), "rank-exit-unknown"),
        (0, ProcessExit::Signal(9), "killed-by-signal"),
        (0, ProcessExit::Signal(6), "gpu-fallen-off-bus"),
    ] {
        let mut world = restarted_after_lost_gpu();
        let case = world.exits(11_000, rank, exit).settle();
        assert_eq!(class(&case), expected, "rank {rank}: {exit}");
    }
    // A rank reports that it lost the rank of the faulty node.
    let mut world = restarted_after_lost_gpu();
    world.says(11_000, 2, "it failed", mark("remote-worker-lost", Role::Cascade, 0.8));
    let case = world.exits(11_100, 2, ProcessExit::Code(1)).settle();
    assert_eq!(class(&case), "gpu-fallen-off-bus");
}

#[test]
fn a_failure_of_the_program_is_not_set_aside_for_an_older_fault() {
    for name in ["key-error", "cuda-oom", "argparse-error", "file-not-found"] {
        let mut world = restarted_after_lost_gpu();
        world.says(11_000, 0, "it failed", mark(name, Role::Root, 0.85));
        let case = world.exits(11_100, 0, ProcessExit::Code(1)).settle();
        assert_eq!(class(&case), name);
        assert_eq!(role_of(&case, &gpu(1)).role, Role::Noise);
    }
}

#[test]
fn a_command_that_does_not_exist_is_not_set_aside_for_an_older_fault() {
    let mut world = restarted_after_lost_gpu();
    let job = JobId::from("train");
    let body = EvidenceBody::OrderFailed {
        order: OrderId(1),
        job: job.clone(),
        generation: world.generation,
        reason: "spawn ./trian: No such file or directory".to_owned(),
        newest: None,
    };
    world.of_node(10_500, 1, EvidenceSource::Agent, Entity::Job { job }, body);
    let case = world.settle();
    assert_eq!(class(&case), "invalid-job-spec");
    assert_eq!(role_of(&case, &gpu(1)).role, Role::Noise);
}

#[test]
fn a_silent_node_is_the_cause_beside_the_last_words_of_a_survivor() {
    let mut world = World::new();
    world.restarts(500);
    world.says(
        1_000,
        4,
        "Connection closed",
        mark("uncaught-exception", Role::Root, 0.6),
    );
    world.exits(1_010, 4, ProcessExit::Code(1));
    world.silent(990, 1);
    let case = world.settle();
    assert_eq!(class(&case), "node-crash");
    assert_eq!(case.verdict.blamed, on_node(1));
}

#[test]
fn an_error_that_a_lost_gpu_causes_does_not_hide_it() {
    let mut world = restarted_after_lost_gpu();
    world.says(11_000, 0, "CUDA error", mark("cuda-launch-failure", Role::Root, 0.85));
    let case = world.exits(11_100, 0, ProcessExit::Code(1)).settle();
    assert_eq!(class(&case), "gpu-fallen-off-bus");
}

#[test]
fn a_lasting_fault_limits_no_decision_of_older_rules() {
    let mut world = World::new();
    world.diagnosis.set_fault_limits(false);
    world.kernel(1_000, gpu(1), "NVRM: Xid 79", off_the_bus());
    world.exits(1_100, 0, ProcessExit::Signal(6));
    world.settle();
    world.restarts(10_000);
    step_all(&mut world, 15_000);
    world.says(20_000, 0, "KeyError: 'loss'", mark("key-error", Role::Root, 0.85));
    let case = world.exits(20_100, 0, ProcessExit::Code(1)).settle();
    assert_eq!(class(&case), "gpu-fallen-off-bus");
}

#[test]
fn every_signal_has_a_class_and_a_name() {
    for (number, class_is, name) in [
        (1, "killed-by-signal", Some("SIGHUP")),
        (2, "killed-by-signal", Some("SIGINT")),
        (3, "killed-by-signal", Some("SIGQUIT")),
        (4, "killed-by-signal", Some("SIGILL")),
        (5, "killed-by-signal", Some("SIGTRAP")),
        (6, "process-aborted", None),
        (7, "segfault", Some("SIGBUS")),
        (8, "process-aborted", Some("SIGFPE")),
        (9, "killed-by-signal", None),
        (11, "segfault", None),
        (13, "killed-by-signal", Some("SIGPIPE")),
        (15, "killed-by-signal", None),
        (24, "killed-by-signal", Some("SIGXCPU")),
        (31, "killed-by-signal", Some("SIGSYS")),
        (34, "killed-by-signal", None),
    ] {
        let case = World::new().exits(1_000, 3, ProcessExit::Signal(number)).settle();
        assert_eq!(class(&case), class_is, "signal {number}");
        assert_eq!(case.findings[0].class.as_str(), class_is);
        assert_eq!(case.verdict.root_rank.or(case.verdict.blamed.rank()), Some(Rank(3)));
        if let Some(name) = name {
            assert!(reasons(&case).contains(name), "{}", reasons(&case));
        }
    }
    let case = World::new().exits(1_000, 3, ProcessExit::Code(3)).settle();
    assert_eq!(class(&case), "rank-exit-unknown");
}

fn lost_peer() -> Classification {
    mark("connection-reset", Role::Cascade, 0.8)
}

#[test]
fn a_rank_that_left_before_its_peers_lost_it_is_no_consequence_of_their_loss() {
    let mut world = World::new();
    world.exits(1_000, 2, ProcessExit::Code(3));
    world.says(1_050, 0, "Connection reset by peer", lost_peer());
    let case = world.exits(1_200, 0, ProcessExit::Code(1)).settle();
    assert_eq!(class(&case), "rank-exit-unknown");
    assert_eq!(
        (case.verdict.blamed.clone(), case.verdict.root_rank),
        (rank_of(2), Some(Rank(2)))
    );
    assert_eq!(case.findings[0].entity, rank_of(2));
    assert_eq!(case.findings[0].role, Role::Root);
}

#[test]
fn a_survivor_that_left_without_a_message_is_not_the_cause() {
    let mut world = World::new();
    world.says(1_000, 0, "Connection reset by peer", lost_peer());
    let case = world.exits(8_000, 2, ProcessExit::Code(1)).settle();
    assert_eq!(class(&case), "connection-reset");
}

#[test]
fn nodes_with_noise_alone_are_not_counted() {
    let mut world = World::new();
    world.says(900, 5, "the rank writes output", mark("none", Role::Noise, 0.9));
    world.exits(1_000, 0, ProcessExit::Signal(9));
    let case = world.settle();
    assert_eq!(case.findings.len(), 2);
    assert!(!reasons(&case).contains("nodes speak"), "{}", reasons(&case));
}

#[test]
fn a_line_with_two_meanings_is_one_finding() {
    let mut world = World::new();
    let case = world.exits(1_000, 0, ProcessExit::Signal(9)).settle();
    assert_eq!(class(&case), "killed-by-signal");
    let entity = world.rank(2);
    let marks = vec![mark("none", Role::Noise, 0.9), lost_peer()];
    world.at(2_600, EvidenceSource::JobLog, entity, line("reset"), marks);
    let changes: Vec<String> = world.changes.iter().map(|change| format!("{change:?}")).collect();
    let late: Vec<&String> = changes.iter().filter(|change| change.starts_with("Late")).collect();
    assert_eq!(late.len(), 1, "{late:?}");
    assert!(late[0].contains("role: Cascade"), "{late:?}");
}

#[test]
fn a_message_of_the_program_in_a_log_of_the_scheduler_is_the_programs() {
    let mut world = World::new();
    let entity = world.rank(0);
    let marks = vec![mark("key-error", Role::Root, 0.9)];
    world.at(
        1_000,
        EvidenceSource::Scheduler,
        entity,
        line("KeyError: 'loss'"),
        marks,
    );
    let case = world.exits(1_100, 0, ProcessExit::Code(1)).settle();
    assert!(
        reasons(&case).contains("the log of rank 0 says \"KeyError"),
        "{}",
        reasons(&case)
    );
}

#[test]
fn no_rank_is_said_to_have_ended_after_a_fault_that_came_later() {
    for (fault_at, expected) in [
        (900, "ended after it"),
        (1_300, "just before it was reported"),
        (2_600, "had ended before it"),
    ] {
        let mut world = World::new();
        if fault_at < 1_000 {
            world.kernel(fault_at, gpu(1), "NVRM: Xid 79", off_the_bus());
        }
        world.exits(1_000, 0, ProcessExit::Code(3));
        if fault_at > 1_000 {
            world.kernel(fault_at, gpu(1), "NVRM: Xid 79", off_the_bus());
        }
        let case = world.settle();
        assert_eq!(class(&case), "gpu-fallen-off-bus");
        assert!(reasons(&case).contains(expected), "{fault_at}: {}", reasons(&case));
    }
}

#[test]
fn a_fault_that_ended_no_rank_is_not_said_to_end_ranks() {
    let mut world = World::new();
    world.kernel(1_000, gpu(1), "NVRM: Xid 79", off_the_bus());
    let case = world.settle();
    let text = reasons(&case);
    assert!(
        !text.contains("it would end ranks") && text.contains("no rank had failed"),
        "{text}"
    );
}

#[test]
fn the_last_line_of_a_rank_comes_before_its_end() {
    let mut world = World::new();
    world.exits(1_000, 1, ProcessExit::Code(1));
    world.says(1_001, 1, "KeyError: 'loss'", key_error());
    let case = world.settle();
    assert_eq!(class(&case), "key-error");
    assert!(reasons(&case).contains("Right after it, rank 1"), "{}", reasons(&case));
}

#[test]
fn a_killed_rank_is_the_root_rank_of_its_case() {
    let mut world = World::new();
    let case = world.exits(1_000, 1, ProcessExit::Signal(9)).settle();
    assert_eq!(class(&case), "killed-by-signal");
    assert_eq!(case.verdict.root_rank, Some(Rank(1)));
}

#[test]
fn a_line_with_two_meanings_is_described_once() {
    let mut world = World::new();
    for (at, rank) in [(1_000, 0), (1_200, 1)] {
        let marks = vec![
            mark("config-error", Role::Root, 0.8),
            mark("python-value-error", Role::Root, 0.6),
        ];
        let entity = world.rank(rank);
        let text = line("ValueError: bad batch 17");
        world.at(at, EvidenceSource::JobLog, entity, text, marks);
    }
    world.exits(1_300, 0, ProcessExit::Code(1));
    let case = world.exits(1_310, 1, ProcessExit::Code(1)).settle();
    let lines = reasons(&case);
    assert_eq!(lines.matches("the log of rank 1").count(), 1, "{lines}");
}
