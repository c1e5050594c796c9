//! Limits of faults: how long one explains failures, which process a kill explains, and faults beside the first cause.

use std::collections::BTreeMap;

use crate::world::{World, gpu, line, mark, node, on_node, rank_of, with};
use rankguard_diagnosis::{ConcludedDraft, DraftChange, FailureScene, SceneVerdict, Signal, diagnose};
use rankguard_faults::Catalogue;
use rankguard_model::{
    CaseFinding, Classification, Device, DeviceKind, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource,
    Generation, JobId, NodeId, OrderId, ProcessExit, Rank, Role, Sequence, SharedValue, Timestamp, rests_on_drill,
};

fn off_the_bus() -> Classification {
    mark("gpu-fallen-off-bus", Role::Root, 0.97)
}

fn second_gpu(on: u32) -> Entity {
    Entity::Device {
        node: node(on),
        device: Device {
            kind: DeviceKind::Gpu,
            address: "0000:dd:00".to_owned(),
        },
    }
}

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

fn class(case: &ConcludedDraft) -> &str {
    case.verdict.class.as_str()
}

fn role_of<'c>(case: &'c ConcludedDraft, entity: &Entity) -> &'c CaseFinding {
    case.findings.iter().find(|finding| finding.entity == *entity).unwrap()
}

fn reasons(case: &ConcludedDraft) -> String {
    let texts = case.reasoning.iter().map(|reason| reason.text.as_str());
    texts.collect::<Vec<_>>().join("\n")
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

/// Returns the class of a failure that was read from logs as a whole.
fn class_of_logs(lines: &[(i64, Entity, Classification)]) -> String {
    verdict_of_logs(lines).verdict.class.to_string()
}

/// Diagnoses logs that were read as a whole: time in milliseconds, entity, classification.
fn verdict_of_logs(lines: &[(i64, Entity, Classification)]) -> SceneVerdict {
    let mut signs = Vec::new();
    for (number, (ms, entity, mark)) in (1..).zip(lines) {
        let evidence = Evidence {
            id: EvidenceId {
                node: node(1),
                seq: Sequence(number),
            },
            at: Timestamp::from_millis(*ms),
            source: match entity {
                Entity::Rank { .. } | Entity::Job { .. } => EvidenceSource::JobLog,
                _ => EvidenceSource::KernelLog,
            },
            entity: entity.clone(),
            body: line("it failed"),
            marks: vec![mark.clone()],
            synthetic: false,
        };
        signs.extend(Signal::of(&evidence).into_iter().map(SharedValue::from));
    }
    let placements: BTreeMap<Rank, NodeId> = BTreeMap::new();
    let scene = FailureScene::new(&signs, None, Generation(1), &placements, Catalogue::builtin());
    diagnose(&scene, Timestamp::from_millis(10_000_000))
}

#[test]
fn a_lost_node_is_blamed_by_the_name_that_the_scheduler_gives() {
    let lost = |field: &str, name: &str| with(mark("slurm-node-fail", Role::Root, 0.94), &[(field, name)]);
    for (field, name, expected) in [
        ("node", "gpu-04", Some("gpu-04")),
        ("nodes", "gpu-04,", Some("gpu-04")),
        ("nodes", "gpu-[04-07]", None),
    ] {
        let opinion = verdict_of_logs(&[(1_000, Entity::Unknown, lost(field, name))]);
        assert_eq!(opinion.verdict.class.as_str(), "slurm-node-fail");
        let blamed = opinion.verdict.blamed.node().map(NodeId::as_str);
        assert_eq!(blamed, expected, "{name}");
    }
}

#[test]
fn a_second_source_is_on_the_same_node_only_if_it_names_that_node() {
    let error = || mark("cuda-launch-failure", Role::Root, 0.8);
    let reasons_with = |entity: Entity| {
        let opinion = verdict_of_logs(&[(1_000, gpu(1), off_the_bus()), (1_200, entity, error())]);
        let texts = opinion.reasoning.iter().map(|reason| reason.text.as_str());
        texts.collect::<Vec<_>>().join("\n")
    };
    let of_rank = reasons_with(rank_of(0));
    assert!(
        of_rank.contains("A program on the same node reports an error of a GPU"),
        "{of_rank}"
    );
    let job = JobId::from("train");
    let unnamed = reasons_with(Entity::Job { job });
    assert!(unnamed.contains("A second log, which names no node"), "{unnamed}");
}

#[test]
fn a_fault_explains_no_failure_of_a_program_that_ran_on_after_it() {
    let bug = || mark("attribute-error", Role::Root, 0.85);
    let oom = || mark("host-oom-kill", Role::Root, 0.95);
    let link = || mark("nic-link-down", Role::Root, 0.9);
    for (entity, fault) in [(gpu(1), off_the_bus()), (on_node(1), oom()), (on_node(1), link())] {
        let name = fault.class.clone();
        let unclear = || mark("assertion-error", Role::Root, 0.85);
        for (failed_ms, failure, expected) in [
            (1_500, bug(), "attribute-error"),
            (1_500, unclear(), name.as_str()),
            (3_600_000, unclear(), "assertion-error"),
        ] {
            let lines = [(1_000, entity.clone(), fault.clone()), (failed_ms, rank_of(0), failure)];
            assert_eq!(class_of_logs(&lines), expected, "{name}, {failed_ms} ms");
        }
        let reversed = [(1_000, rank_of(0), bug()), (21_000, entity.clone(), fault.clone())];
        assert_eq!(class_of_logs(&reversed), "attribute-error", "{name}");
    }
    // An error of the device or of a collective leads from the fault to the failure of the program.
    for error in ["cuda-launch-failure", "nccl-timeout"] {
        let lines = [
            (1_000, gpu(1), off_the_bus()),
            (601_000, rank_of(0), mark(error, Role::Cascade, 0.8)),
            (602_000, rank_of(0), bug()),
        ];
        assert_eq!(class_of_logs(&lines), "gpu-fallen-off-bus", "{error}");
    }
}

#[test]
fn a_kill_for_memory_of_a_rank_is_no_consequence_of_a_drill_elsewhere() {
    let mut world = World::new();
    world.is_drill = true;
    world.kernel(1_000, gpu(1), "NVRM: Xid 79", off_the_bus());
    world.is_drill = false;
    let killed = with(mark("host-oom-kill", Role::Root, 0.95), &[("pid", "1002")]);
    world.kernel(1_500, on_node(2), "Out of memory: Killed process 1002 (python)", killed);
    let case = world.exits(1_600, 2, ProcessExit::Signal(9)).settle();
    assert_eq!(class(&case), "host-oom-kill");
    assert!(!rests_on_drill(&case.findings));
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

fn oom_of(pid: &str) -> Classification {
    with(mark("host-oom-kill", Role::Root, 0.95), &[("pid", pid)])
}

#[test]
fn an_oom_kill_of_another_process_does_not_explain_a_killed_rank() {
    let mut world = World::new();
    let invoked = mark("host-oom-kill", Role::Root, 0.85);
    world.kernel(980, on_node(3), "backup invoked oom-killer: gfp_mask=0x140cca", invoked);
    world.kernel(
        1_000,
        on_node(3),
        "Out of memory: Killed process 77 (backup)",
        oom_of("77"),
    );
    let case = world.exits(9_000, 4, ProcessExit::Signal(9)).settle();
    assert_eq!(class(&case), "killed-by-signal");
    assert_eq!(case.verdict.blamed, rank_of(4));
}

#[test]
fn an_oom_kill_of_the_child_of_a_shell_explains_its_exit_code() {
    let mut world = World::new();
    world.kernel(
        1_000,
        on_node(3),
        "Out of memory: Killed process 77 (python3)",
        oom_of("77"),
    );
    let case = world.exits(1_100, 4, ProcessExit::Code(137)).settle();
    assert_eq!(class(&case), "host-oom-kill");
    assert_eq!(case.verdict.blamed, rank_of(4));
}

#[test]
fn the_limit_of_a_control_group_is_no_fault_of_its_node() {
    let mut world = World::new();
    let text = "Memory cgroup out of memory: Killed process 77 (pt_data_worker)";
    world.kernel(1_000, on_node(3), text, oom_of("77"));
    world.silent(1_500, 3);
    let all = world.settle();
    assert_eq!(class(&all), "node-agent-silent");
    let oom = all
        .verdict
        .alternatives
        .iter()
        .find(|(class, _)| class.as_str() == "host-oom-kill");
    assert!(oom.is_some(), "{:?}", all.verdict);
    let mut world = World::new();
    world.kernel(1_000, on_node(3), text, oom_of("77"));
    world.says(
        1_100,
        4,
        "DataLoader worker exited",
        mark("dataloader-worker-crash", Role::Root, 0.5),
    );
    let case = world.exits(1_200, 4, ProcessExit::Code(1)).settle();
    assert!(
        !matches!(case.verdict.blamed, Entity::Node { .. }),
        "{:?}",
        case.verdict
    );
    let mut world = World::new();
    world.kernel(1_000, on_node(3), text, oom_of("77"));
    let case = world.stalls(900, 40_000).settle();
    assert_eq!(class(&case), "host-oom-kill");
    assert!(matches!(case.verdict.blamed, Entity::Job { .. }), "{:?}", case.verdict);
}

#[test]
fn a_second_lost_gpu_is_no_consequence_of_the_first() {
    let mut world = World::new();
    world.kernel(1_000, gpu(1), "NVRM: Xid 79", off_the_bus());
    world.kernel(1_300, second_gpu(1), "NVRM: Xid 79", off_the_bus());
    let link = mark("gpu-nvlink-error", Role::Root, 0.9);
    world.kernel(1_400, second_gpu(2), "NVRM: Xid 74", link);
    let case = world.exits(1_500, 0, ProcessExit::Signal(6)).settle();
    assert_eq!(case.verdict.blamed, gpu(1));
    assert_eq!(role_of(&case, &second_gpu(1)).role, Role::Root);
    assert_eq!(role_of(&case, &second_gpu(2)).role, Role::Cascade);
    assert!(
        reasons(&case).contains("which is a fault of its own"),
        "{}",
        reasons(&case)
    );
    assert_eq!(case.findings[0].entity, gpu(1));
}

#[test]
fn a_second_lost_gpu_that_is_read_late_is_no_consequence_either() {
    let mut world = World::new();
    world.kernel(1_000, gpu(1), "NVRM: Xid 79", off_the_bus());
    let case = world.exits(1_500, 0, ProcessExit::Signal(6)).settle();
    assert_eq!(case.verdict.blamed, gpu(1));
    world.kernel(3_100, second_gpu(1), "NVRM: Xid 79", off_the_bus());
    let change = format!("{:?}", world.changes.last());
    assert!(change.contains("role: Root"), "{change}");
}

#[test]
fn a_real_fault_behind_a_drill_is_the_cause() {
    let mut world = World::new();
    world.is_drill = true;
    world.kernel(1_000, gpu(1), "NVRM: Xid 79", off_the_bus());
    world.is_drill = false;
    world.kernel(1_300, second_gpu(2), "NVRM: Xid 79", off_the_bus());
    let case = world.exits(1_500, 0, ProcessExit::Signal(6)).settle();
    assert_eq!(case.verdict.blamed, second_gpu(2));
    assert!(!rests_on_drill(&case.findings), "{:?}", case.findings);
}

#[test]
fn a_gpu_that_falls_off_the_bus_after_an_exception_is_at_fault_itself() {
    for lag in [1_000, 20_000] {
        let mut world = World::new();
        let exception = mark("gpu-engine-exception", Role::Root, 0.75);
        world.kernel(1_000, gpu(1), "NVRM: Xid 31", exception);
        world.kernel(1_000 + lag, gpu(1), "NVRM: Xid 79", off_the_bus());
        let case = world.exits(1_100 + lag, 0, ProcessExit::Signal(6)).settle();
        assert_eq!(class(&case), "gpu-fallen-off-bus");
        assert_eq!(case.verdict.layer, "hardware");
        assert_eq!(case.verdict.blamed, gpu(1));
    }
}

#[test]
fn an_exception_of_another_gpu_does_not_foretell_a_fault() {
    let mut world = World::new();
    let exception = mark("gpu-engine-exception", Role::Root, 0.75);
    world.kernel(1_000, second_gpu(1), "NVRM: Xid 31", exception);
    world.kernel(21_000, gpu(1), "NVRM: Xid 79", off_the_bus());
    let case = world.exits(21_100, 0, ProcessExit::Signal(6)).settle();
    assert_eq!(class(&case), "gpu-fallen-off-bus");
    assert_eq!(case.verdict.blamed, gpu(1));
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

/// Returns the first rank of a kill that a launcher reports by its local rank 1, in a job over three nodes.
fn first_rank_of_local_1(entity: Entity) -> Option<Rank> {
    let killed = mark("host-oom-kill", Role::Confirmation, 0.5);
    let child = with(
        mark("launcher-child-failed", Role::Confirmation, 0.8),
        &[("local_rank", "1"), ("exitcode", "-9")],
    );
    let evidence = Evidence {
        id: EvidenceId {
            node: node(3),
            seq: Sequence(1),
        },
        at: Timestamp::from_millis(1_000),
        source: EvidenceSource::Launcher,
        entity,
        body: line("failed (exitcode: -9) local_rank: 1"),
        marks: vec![killed, child],
        synthetic: false,
    };
    let signs: Vec<_> = Signal::of(&evidence).into_iter().map(SharedValue::from).collect();
    let placements: BTreeMap<Rank, NodeId> = (0..6).map(|rank| (Rank(rank), node(rank / 2 + 1))).collect();
    let job = JobId::from("train");
    let scene = FailureScene::new(&signs, Some(&job), Generation(1), &placements, Catalogue::builtin());
    let opinion = diagnose(&scene, Timestamp::from_millis(2_000));
    assert_eq!(opinion.verdict.class.as_str(), "host-oom-kill");
    opinion.verdict.root_rank
}

#[test]
fn a_local_rank_is_no_global_rank_in_a_job_of_several_nodes() {
    assert_eq!(first_rank_of_local_1(on_node(3)), Some(Rank(5)));
    let job = JobId::from("train");
    assert_eq!(first_rank_of_local_1(Entity::Job { job }), None);
}

/// Ends the job on purpose at `ms`: it finished, or it was cancelled.
fn end_job(world: &mut World, ms: i64) {
    world.job(|job| {
        job.stopping = true;
        job.ended_at = Some(Timestamp::from_millis(ms));
    });
}

#[test]
fn a_fault_just_after_the_end_of_a_job_is_a_failure_of_its_node() {
    for (failed_at, name) in [
        (900, "before"),
        (1_000, "at"),
        (1_200, "soon"),
        (2_499, "late"),
        (9_000, "long"),
    ] {
        let mut world = World::new();
        end_job(&mut world, 1_000);
        let reported_at = failed_at.max(1_100);
        let marks = vec![off_the_bus()];
        world.late(
            failed_at,
            reported_at,
            EvidenceSource::KernelLog,
            gpu(1),
            line("Xid 79"),
            marks,
        );
        assert_eq!(world.opened(), 1, "{name}: {:?}", world.changes);
        let case = world.settle();
        assert_eq!(case.job, None, "{name}");
        assert_eq!(
            (class(&case), &case.verdict.blamed),
            ("gpu-fallen-off-bus", &gpu(1)),
            "{name}"
        );
    }
}

#[test]
fn a_fault_that_is_reported_after_its_job_was_stopped_for_it_remains_the_cause() {
    let mut world = World::new();
    let case = world.exits(1_000, 0, ProcessExit::Code(3)).settle();
    assert_eq!(class(&case), "rank-exit-unknown");
    end_job(&mut world, 2_600);
    world.kernel(2_700, gpu(1), "NVRM: Xid 79", off_the_bus());
    assert_eq!(world.opened(), 1, "{:?}", world.changes);
    let change = format!("{:?}", world.changes.last());
    assert!(
        change.starts_with("Some(Revised") && change.contains("gpu-fallen-off-bus"),
        "{change}"
    );
}

#[test]
fn a_fault_after_the_end_of_a_job_is_dropped_under_older_rules() {
    let mut world = World::new();
    world.diagnosis.set_fault_limits(false);
    end_job(&mut world, 1_000);
    world.kernel(1_200, gpu(1), "NVRM: Xid 79", off_the_bus());
    assert_eq!(world.opened(), 0, "{:?}", world.changes);
}

#[test]
fn a_lost_gpu_is_no_consequence_of_a_fault_of_another_node() {
    for (on, expected) in [(2, Role::Root), (1, Role::Cascade)] {
        let mut world = World::new();
        world.kernel(
            1_000,
            on_node(1),
            "Machine check",
            mark("host-memory-fault", Role::Root, 0.98),
        );
        let lost = mark("gpu-fallen-off-bus", Role::Root, 0.8);
        world.kernel(1_300, gpu(on), "NVRM: Xid 79", lost);
        let case = world.exits(1_500, 0, ProcessExit::Signal(6)).settle();
        assert_eq!(case.verdict.blamed, on_node(1));
        assert_eq!(role_of(&case, &gpu(on)).role, expected, "node {on}");
    }
}

#[test]
fn an_error_of_a_local_disk_is_no_consequence_of_a_lost_link() {
    for (disk, expected) in [("sda1", Role::Root), ("nvme0n1", Role::Root), ("rbd0", Role::Cascade)] {
        let mut world = World::new();
        world.kernel(1_000, on_node(1), "Link DOWN", mark("nic-link-down", Role::Root, 0.9));
        let error = with(mark("storage-io-error", Role::Root, 0.9), &[("disk", disk)]);
        let case = world.kernel(1_500, second_gpu(1), "EXT4-fs error", error).settle();
        assert_eq!(class(&case), "nic-link-down");
        assert_eq!(role_of(&case, &second_gpu(1)).role, expected, "{disk}");
    }
}

fn key_error() -> Classification {
    mark("key-error", Role::Root, 0.9)
}

#[test]
fn a_handled_error_did_not_end_a_rank_that_was_killed() {
    for (later, exit, expected) in [
        (3_000, ProcessExit::Signal(9), "killed-by-signal"),
        (300, ProcessExit::Signal(9), "killed-by-signal"),
        (3_000, ProcessExit::Signal(15), "killed-by-signal"),
        // A shell reports the end of its child.
        (3_000, ProcessExit::Code(137), "killed-by-signal"),
        // A program may crash while an error ends it.
        (300, ProcessExit::Signal(11), "key-error"),
        (300, ProcessExit::Code(1), "key-error"),
        (3_000, ProcessExit::Code(1), "key-error"),
        (3_000, ProcessExit::Signal(6), "key-error"),
    ] {
        let mut world = World::new();
        world.says(1_000, 1, "KeyError: 'loss'", key_error());
        let case = world.exits(1_000 + later, 1, exit).settle();
        assert_eq!(class(&case), expected, "{later} ms, {exit}");
        let rank = case.verdict.root_rank.or(case.verdict.blamed.rank());
        assert_eq!(rank, Some(Rank(1)), "{later} ms, {exit}");
    }
}

#[test]
fn an_error_of_a_rank_that_was_killed_for_the_end_of_another_remains_the_cause() {
    let mut world = World::new();
    world.says(1_000, 1, "KeyError: 'loss'", key_error());
    world.says(1_010, 2, "KeyError: 'loss'", key_error());
    world.exits(1_100, 1, ProcessExit::Code(1));
    let case = world.exits(1_400, 2, ProcessExit::Signal(9)).settle();
    assert_eq!(class(&case), "key-error");
}

#[test]
fn an_exception_of_another_process_is_no_cause_of_a_plain_error() {
    let exception = |pid: &str| with(mark("gpu-engine-exception", Role::Root, 0.95), &[("pid", pid)]);
    for (xid_at, pid, expected) in [
        (1_300, "4711", "key-error"),
        (800, "4711", "key-error"),
        // The process of rank 1.
        (800, "1001", "gpu-engine-exception"),
    ] {
        let mut world = World::new();
        if xid_at < 1_000 {
            world.kernel(xid_at, gpu(1), "NVRM: Xid 31", exception(pid));
        }
        world.says(1_000, 1, "KeyError: 'loss'", key_error());
        world.exits(1_050, 1, ProcessExit::Code(1));
        if xid_at > 1_000 {
            world.kernel(xid_at, gpu(1), "NVRM: Xid 31", exception(pid));
        }
        let case = world.settle();
        assert_eq!(class(&case), expected, "{xid_at} {pid}");
        if pid == "4711" {
            assert_eq!(role_of(&case, &gpu(1)).role, Role::Noise, "{xid_at}");
            assert_eq!(case.verdict.root_rank, Some(Rank(1)));
        }
    }
}

#[test]
fn an_exception_of_a_process_outside_the_job_explains_no_exit() {
    for (field, expected) in [
        ("foreign_process", "rank-exit-unknown"),
        ("engine", "gpu-engine-exception"),
    ] {
        let mut world = World::new();
        let fields = [("pid", "4711"), (field, "yes")];
        let exception = with(mark("gpu-engine-exception", Role::Root, 0.95), &fields);
        world.kernel(900, gpu(1), "NVRM: Xid 31", exception);
        let case = world.exits(1_000, 1, ProcessExit::Code(3)).settle();
        assert_eq!(class(&case), expected);
    }
}

#[test]
fn a_real_failure_beside_a_drill_is_its_own_case() {
    let oom = with(mark("host-oom-kill", Role::Root, 0.95), &[("pid", "1002")]);
    for (expected, drill_at) in [
        ("key-error", 1_000),
        ("key-error", 1_400),
        ("host-oom-kill", 1_000),
        ("gpu-fallen-off-bus", 1_000),
    ] {
        let mut world = World::new();
        let drill = |world: &mut World| {
            world.is_drill = true;
            world.kernel(drill_at, gpu(1), "NVRM: Xid 79", off_the_bus());
            world.is_drill = false;
        };
        if drill_at < 1_200 {
            drill(&mut world);
        }
        match expected {
            "key-error" => {
                world.says(1_200, 2, "KeyError: 'loss'", key_error());
                world.exits(1_250, 2, ProcessExit::Code(1));
            }
            "host-oom-kill" => {
                world.kernel(1_200, on_node(2), "Out of memory: Killed process 1002", oom.clone());
                world.exits(1_250, 2, ProcessExit::Signal(9));
            }
            _ => {
                world.kernel(1_200, second_gpu(2), "NVRM: Xid 79", off_the_bus());
                world.exits(1_250, 2, ProcessExit::Signal(6));
            }
        }
        if drill_at > 1_200 {
            drill(&mut world);
        }
        let case = world.settle();
        assert_eq!(class(&case), expected, "{drill_at}");
        assert_eq!(case.verdict.blamed.node(), Some(&node(2)), "{expected} {drill_at}");
        assert!(
            !rests_on_drill(&case.findings),
            "{expected} {drill_at}: {:?}",
            case.findings
        );
    }
}

/// Loses a GPU of node 2 at 1 s, as a drill or for real, and ends a rank of node 1 at a time. Returns the case.
fn beside_a_lost_gpu(is_drill: bool, ended_at: i64, exit: ProcessExit) -> ConcludedDraft {
    let mut world = World::new();
    if ended_at < 1_000 {
        world.exits(ended_at, 0, exit);
    }
    world.is_drill = is_drill;
    world.kernel(1_000, gpu(2), "NVRM: Xid 79", off_the_bus());
    world.is_drill = false;
    if ended_at >= 1_000 {
        world.exits(ended_at, 0, exit);
    }
    world.settle()
}

#[test]
fn a_killed_rank_is_no_consequence_of_a_drill_on_another_node() {
    for ended_at in [130, 1_400] {
        let case = beside_a_lost_gpu(true, ended_at, ProcessExit::Signal(9));
        assert_eq!(class(&case), "killed-by-signal", "{ended_at}");
        assert_eq!(case.verdict.blamed, rank_of(0), "{ended_at}");
        assert!(!rests_on_drill(&case.findings), "{ended_at}: {:?}", case.findings);
        assert!(!reasons(&case).contains("as survivors do"), "{}", reasons(&case));
        assert_eq!(role_of(&case, &gpu(2)).role, Role::Noise, "{ended_at}");
        let [drill] = case.separate.as_slice() else {
            panic!("{:?}", case.separate)
        };
        assert_eq!(drill.verdict.class.as_str(), "gpu-fallen-off-bus");
        assert_eq!(drill.verdict.blamed, gpu(2));
        assert!(rests_on_drill(&drill.findings));
    }
}

#[test]
fn a_survivor_may_abort_because_of_a_drill() {
    for exit in [ProcessExit::Signal(6), ProcessExit::Code(1), ProcessExit::Signal(15)] {
        let case = beside_a_lost_gpu(true, 1_400, exit);
        assert_eq!(class(&case), "gpu-fallen-off-bus", "{exit}");
        assert!(rests_on_drill(&case.findings), "{exit}");
        assert_eq!(case.separate, [], "{exit}");
    }
    // A rank that reports a lost peer was ended for it.
    let mut world = World::new();
    world.is_drill = true;
    world.kernel(1_000, gpu(2), "NVRM: Xid 79", off_the_bus());
    world.is_drill = false;
    world.says(
        1_300,
        0,
        "Connection reset by peer",
        mark("remote-worker-lost", Role::Cascade, 0.8),
    );
    let case = world.exits(1_400, 0, ProcessExit::Signal(9)).settle();
    assert_eq!(class(&case), "gpu-fallen-off-bus");
    assert_eq!(case.separate, []);
}

#[test]
fn a_drill_does_not_reach_into_the_past() {
    let mut world = World::new();
    world.exits(1_000, 0, ProcessExit::Code(3));
    world.is_drill = true;
    world.kernel(4_000, gpu(2), "NVRM: Xid 79", off_the_bus());
    let case = world.settle();
    assert_eq!(class(&case), "rank-exit-unknown");
    assert!(!rests_on_drill(&case.findings));
}

#[test]
fn a_killed_rank_beside_a_real_fault_of_another_node_is_a_failure_of_its_own() {
    for ended_at in [130, 1_400] {
        let case = beside_a_lost_gpu(false, ended_at, ProcessExit::Signal(9));
        assert_eq!(case.verdict.blamed, gpu(2), "{ended_at}");
        assert_eq!(role_of(&case, &rank_of(0)).role, Role::Root, "{ended_at}");
        assert!(
            reasons(&case).contains("which is a failure of its own"),
            "{}",
            reasons(&case)
        );
        let [killed] = case.separate.as_slice() else {
            panic!("{:?}", case.separate)
        };
        assert_eq!(killed.verdict.class.as_str(), "killed-by-signal");
        assert_eq!(killed.verdict.blamed, rank_of(0));
    }
    let case = beside_a_lost_gpu(false, 1_400, ProcessExit::Signal(6));
    assert_eq!(case.separate, []);
}

#[test]
fn faults_of_two_nodes_are_two_failures_in_either_order() {
    for (one, other) in [(1_000, 1_040), (1_040, 1_000)] {
        let mut world = World::new();
        let ecc = mark("gpu-ecc-uncorrectable", Role::Root, 0.9);
        let mut lines = [(one, gpu(1), off_the_bus()), (other, gpu(2), ecc)];
        lines.sort_by_key(|(at, ..)| *at);
        for (at, entity, fault) in lines {
            world.kernel(at, entity, "NVRM: Xid", fault);
        }
        world.exits(1_400, 0, ProcessExit::Signal(6));
        let case = world.exits(1_410, 2, ProcessExit::Signal(6)).settle();
        assert_eq!(case.verdict.blamed, gpu(1));
        let [second] = case.separate.as_slice() else {
            panic!("{:?}", case.separate)
        };
        assert_eq!(second.verdict.class.as_str(), "gpu-ecc-uncorrectable");
        assert_eq!(second.verdict.blamed, gpu(2));
        assert!(!reasons(&case).contains("as survivors do"), "{}", reasons(&case));
        let end = role_of(&case, &rank_of(2));
        assert!(end.why.contains("fault of its own node"), "{}", end.why);
    }
}

#[test]
fn an_oom_kill_of_another_process_does_not_explain_a_rank_that_was_asked_to_end() {
    let mut world = World::new();
    let java = "Out of memory: Killed process 1234567 (java)";
    world.kernel(1_000, on_node(1), java, oom_of("1234567"));
    let case = world.exits(5_000, 0, ProcessExit::Signal(15)).settle();
    assert_eq!(class(&case), "killed-by-signal");
    assert_eq!(case.verdict.blamed, rank_of(0));
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
        !text.contains("it would end ranks") && text.contains("no rank had ended"),
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
fn a_killed_rank_beside_a_silent_node_may_have_ended_with_a_lease() {
    let mut world = World::new();
    world.silent(1_000, 2);
    let case = world.exits(1_400, 0, ProcessExit::Signal(9)).settle();
    assert_eq!(case.verdict.blamed, on_node(2));
    assert_eq!(case.separate, []);
}

#[test]
fn a_killed_rank_is_the_root_rank_of_its_case() {
    let mut world = World::new();
    let case = world.exits(1_000, 1, ProcessExit::Signal(9)).settle();
    assert_eq!(class(&case), "killed-by-signal");
    assert_eq!(case.verdict.root_rank, Some(Rank(1)));
}

#[test]
fn a_fault_of_another_node_that_is_read_late_is_a_failure_of_its_own() {
    let mut world = World::new();
    world.kernel(1_000, gpu(1), "NVRM: Xid 79", off_the_bus());
    let case = world.exits(1_500, 0, ProcessExit::Signal(6)).settle();
    assert_eq!(case.verdict.blamed, gpu(1));
    world.kernel(3_100, second_gpu(1), "NVRM: Xid 79", off_the_bus());
    world.kernel(3_200, gpu(2), "NVRM: Xid 79", off_the_bus());
    let separate = world.changes.iter().filter_map(|change| match change {
        DraftChange::Late { separate, .. } => Some(separate.as_deref().map(|failure| &failure.verdict.blamed)),
        _ => None,
    });
    assert_eq!(separate.collect::<Vec<_>>(), [None, Some(&gpu(2))]);
}

#[test]
fn a_link_that_was_up_when_the_generation_began_explains_no_failure_of_it() {
    let nic = || Entity::Device {
        node: node(1),
        device: Device {
            kind: DeviceKind::Nic,
            address: "ens1f0np0".to_owned(),
        },
    };
    for (up_at, expected) in [(Some(5_000), None), (None, Some(Role::Noise))] {
        let mut world = World::new();
        world.context.remove(&JobId::from("train"));
        let down = mark("nic-link-down", Role::Root, 0.8);
        world.kernel(1_000, nic(), "Link down", down);
        world.settle();
        if let Some(up_at) = up_at {
            let mut up = mark("none", Role::Noise, 0.9);
            up.signature = "nic-link-up".into();
            world.kernel(up_at, nic(), "Link up", up);
        }
        let mut later = World::new();
        later.diagnosis = world.diagnosis;
        later.seq = world.seq;
        later.job(|job| job.since = Some(Timestamp::from_millis(20_000)));
        let case = later.exits(60_000, 0, ProcessExit::Signal(9)).settle();
        assert_eq!(class(&case), "killed-by-signal");
        let link = case
            .findings
            .iter()
            .find(|finding| finding.class.as_str() == "nic-link-down");
        assert_eq!(link.map(|finding| finding.role), expected);
    }
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
