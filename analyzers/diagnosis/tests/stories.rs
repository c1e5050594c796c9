//! Stories: reports of a cluster in order of arrival, and the conclusion.

use std::time::Duration;

use crate::world::{World, gpu, line, mark, node, on_node, rank_of, with};
use rankguard_diagnosis::{CallerFact, Diagnosis, DraftChange, DraftPolicy};
use rankguard_model::{
    Classification, Entity, EvidenceBody, EvidenceSource, Generation, JobId, LAST_OUTPUT, OUTPUT_AGE_FIELD,
    ProcessExit, Rank, Role, Step, Timestamp,
};

fn lost_peer() -> Classification {
    mark("remote-worker-lost", Role::Cascade, 0.85)
}

fn off_the_bus() -> Classification {
    mark("gpu-fallen-off-bus", Role::Root, 0.97)
}

fn gpu_lost(world: &mut World) {
    world.kernel(
        1_000,
        gpu(2),
        "NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.",
        off_the_bus(),
    );
    for burst in 0..16 {
        let teardown = mark("gpu-channel-teardown", Role::Cascade, 0.9);
        world.kernel(
            1_050 + burst,
            gpu(2),
            "NVRM: Xid (PCI:0000:9b:00): 45, Ch 00000008",
            teardown,
        );
    }
    world
        .exits(1_300, 2, ProcessExit::Signal(6))
        .exits(1_320, 3, ProcessExit::Signal(6));
    for rank in [0, 1, 4, 5] {
        world.says(1_400, rank, "NCCL error: remote process exited", lost_peer());
        world.exits(1_500, rank, ProcessExit::Code(1));
    }
}

#[test]
fn a_lost_gpu_is_one_case_that_blames_the_device_and_no_survivor_rg_7() {
    let mut world = World::new();
    gpu_lost(&mut world);
    let case = world.settle();
    assert_eq!(world.opened(), 1);
    assert_eq!(case.verdict.class.as_str(), "gpu-fallen-off-bus");
    assert_eq!(case.verdict.blamed, gpu(2));
    assert_eq!(case.verdict.root_rank, Some(Rank(2)));
    assert!(case.verdict.confidence > 0.9, "{}", case.verdict.confidence);
    assert_eq!(case.first_at, Timestamp::from_millis(1_000));
    assert_eq!(case.verdict.taxonomies.len(), 5, "{:?}", case.verdict.taxonomies);
    assert!(case.failed && !case.node_silent);
    let survivors = case
        .findings
        .iter()
        .filter(|finding| finding.entity.node() != Some(&node(2)));
    assert!(survivors.clone().count() > 0);
    assert!(survivors.clone().all(|finding| finding.role == Role::Cascade));
    let note: Vec<_> = case.reasoning.iter().map(|reason| reason.text.as_str()).collect();
    assert!(
        note[0].starts_with("The first cause is of 1970-01-01T00:00:01.000Z"),
        "{note:#?}"
    );
    assert!(
        note.iter().any(|text| text.contains("ranks 2, 3 on node n2 ended")),
        "{note:#?}"
    );
    assert!(note.iter().all(|text| text.ends_with('.')), "{note:#?}");
}

#[test]
fn a_root_that_arrives_after_its_cascade_is_waited_for_rg_7() {
    let mut world = World::new();
    for rank in [0, 1, 4, 5] {
        world.says(1_400, rank, "NCCL error: remote process exited", lost_peer());
        world.exits(1_500, rank, ProcessExit::Code(1));
    }
    let due = world.diagnosis.due().unwrap();
    assert_eq!(
        due,
        Timestamp::from_millis(1_500 + 4_500),
        "survivors alone wait until the cap"
    );
    world.late(
        1_000,
        5_000,
        EvidenceSource::KernelLog,
        gpu(2),
        line("Xid 79"),
        vec![off_the_bus()],
    );
    let case = world.settle();
    assert_eq!(case.verdict.blamed, gpu(2));
    assert_eq!(case.findings[0].role, Role::Root);
}

#[test]
fn a_root_that_arrives_after_the_conclusion_revises_it() {
    let mut world = World::new();
    world.exits(1_000, 2, ProcessExit::Signal(9));
    assert_eq!(world.settle().verdict.class.as_str(), "killed-by-signal");
    world.late(
        900,
        9_000,
        EvidenceSource::KernelLog,
        gpu(2),
        line("Xid 79"),
        vec![off_the_bus()],
    );
    let revised = world.changes.iter().find_map(|change| match change {
        DraftChange::Revised(case) => Some(case),
        _ => None,
    });
    assert_eq!(revised.expect("a revision").verdict.blamed, gpu(2));
    assert_eq!(world.opened(), 1);
}

#[test]
fn a_silent_node_is_blamed_and_its_peers_are_not() {
    let mut world = World::new();
    for rank in [0, 1, 4, 5] {
        world.says(1_100, rank, "Connection closed by remote peer", lost_peer());
        world.exits(1_200, rank, ProcessExit::Code(1));
    }
    world.silent(1_000, 2);
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "node-crash");
    assert_eq!(case.verdict.blamed, on_node(2));
    assert!(case.node_silent);
}

#[test]
fn a_node_that_falls_silent_after_the_conclusion_revises_it() {
    let mut world = World::new();
    world.exits(1_200, 0, ProcessExit::Code(1));
    assert_eq!(world.settle().verdict.class.as_str(), "rank-exit-unknown");
    world.silent(6_500, 2);
    let revised = world.changes.iter().any(|change| match change {
        DraftChange::Revised(case) => case.verdict.blamed == on_node(2) && case.node_silent,
        _ => false,
    });
    assert!(revised, "{:?}", world.changes.last());
}

#[test]
fn an_oom_kill_is_confirmed_by_the_process_id_and_blames_the_rank() {
    let mut world = World::new();
    let killed = with(mark("host-oom-kill", Role::Root, 0.95), &[("pid", "1004")]);
    world.exits(1_000, 4, ProcessExit::Signal(9));
    world.kernel(1_010, on_node(3), "Out of memory: Killed process 1004 (python)", killed);
    world.says(
        1_100,
        0,
        "Connection reset by peer",
        mark("connection-reset", Role::Cascade, 0.8),
    );
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "host-oom-kill");
    assert_eq!(case.verdict.blamed, rank_of(4));
    assert_eq!(case.verdict.root_rank, Some(Rank(4)));
    let exit = case
        .findings
        .iter()
        .find(|finding| finding.source == EvidenceSource::Ranks)
        .unwrap();
    assert_eq!(exit.role, Role::Confirmation);
}

#[test]
fn an_oom_kill_of_a_stranger_does_not_explain_a_rank_that_ended_by_itself() {
    let mut world = World::new();
    let killed = with(mark("host-oom-kill", Role::Root, 0.95), &[("pid", "77")]);
    world.kernel(900, on_node(3), "Out of memory: Killed process 77 (backup)", killed);
    world.says(
        1_000,
        4,
        "TypeError: unsupported operand",
        mark("type-error", Role::Root, 0.85),
    );
    world.exits(1_010, 4, ProcessExit::Code(1));
    assert_eq!(world.settle().verdict.class.as_str(), "type-error");
}

fn shape_bug() -> Classification {
    let place = [
        ("file", "train.py"),
        ("line", "41"),
        ("message", "shapes (32x64) and (128x10)"),
    ];
    with(mark("tensor-shape-mismatch", Role::Root, 0.9), &place)
}

#[test]
fn an_exception_of_one_rank_is_the_cause_of_what_the_others_lost() {
    let mut world = World::new();
    world.says(
        1_000,
        3,
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied",
        shape_bug(),
    );
    world.exits(1_020, 3, ProcessExit::Code(1));
    for rank in [0, 1, 2, 4, 5] {
        world.says(1_100, rank, "Connection closed by peer", lost_peer());
        world.exits(1_150, rank, ProcessExit::Code(1));
    }
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "tensor-shape-mismatch");
    assert_eq!(case.verdict.blamed, rank_of(3));
    assert_eq!(case.verdict.layer, "user-code");
    assert!(
        case.headline.starts_with("train.py:41: RuntimeError"),
        "{}",
        case.headline
    );
}

#[test]
fn the_same_exception_of_many_ranks_blames_the_job_and_has_one_signature() {
    let mut signatures = Vec::new();
    for message in ["shapes (32x64) and (128x10)", "shapes (16x64) and (128x10)"] {
        let mut world = World::new();
        for rank in [2, 0, 4] {
            let bug = with(shape_bug(), &[("message", message)]);
            world.says(1_000 + i64::from(rank != 2), rank, "RuntimeError: shapes", bug);
            world.exits(1_020, rank, ProcessExit::Code(1));
        }
        let case = world.settle();
        assert_eq!(
            case.verdict.blamed,
            Entity::Job {
                job: JobId::from("train")
            }
        );
        assert_eq!(case.verdict.root_rank, Some(Rank(2)), "the earliest is the root rank");
        signatures.push(case.signature);
    }
    assert_eq!(
        signatures[0], signatures[1],
        "a bug that comes back is the same failure"
    );
}

#[test]
fn evidence_of_a_fenced_generation_never_opens_a_case_rg_3() {
    let mut world = World::new();
    gpu_lost(&mut world);
    let concluded = world.settle();
    world.job(|job| job.generation = Generation(2));
    world.exits(4_000, 0, ProcessExit::Signal(9));
    assert_eq!(world.opened(), 1);
    assert!(matches!(world.changes.last(), Some(DraftChange::Late { draft, .. }) if *draft == concluded.draft));
    world.diagnosis = Diagnosis::new(DraftPolicy::default());
    world.exits(5_000, 1, ProcessExit::Signal(9));
    assert!(matches!(world.changes.last(), Some(DraftChange::Dropped { .. })));
    assert_eq!(world.diagnosis.due(), None);
}

#[test]
fn ranks_of_a_job_that_is_stopped_on_purpose_are_no_failure() {
    let mut world = World::new();
    world.job(|job| job.stopping = true);
    world
        .exits(1_000, 0, ProcessExit::Signal(15))
        .exits(1_001, 1, ProcessExit::Signal(15));
    assert_eq!(world.opened(), 0);
}

#[test]
fn words_after_which_nothing_failed_are_no_case() {
    let mut world = World::new();
    world.says(1_000, 0, "RuntimeError: shapes", shape_bug());
    world.says(1_100, 1, "retrying", mark("connection-reset", Role::Cascade, 0.8));
    world.kernel(
        1_200,
        gpu(1),
        "Xid 63",
        mark("gpu-row-remap-pending", Role::Confirmation, 0.9),
    );
    world.exits(2_000, 0, ProcessExit::Code(0));
    assert_eq!((world.opened(), world.diagnosis.due()), (0, None));
}

#[test]
fn a_complaint_after_which_the_rank_made_steps_is_not_the_cause() {
    let mut world = World::new();
    world.says(1_000, 3, "RuntimeError: shapes", shape_bug());
    world.at(
        9_000,
        EvidenceSource::Ranks,
        rank_of(3),
        EvidenceBody::Progress {
            step: Step(7),
            loss: None,
            step_ms: 5.0,
            own_ms: None,
        },
        Vec::new(),
    );
    world.exits(10_000, 3, ProcessExit::Signal(9));
    assert_eq!(world.settle().verdict.class.as_str(), "killed-by-signal");
}

#[test]
fn only_an_exit_gives_an_honest_verdict_with_little_confidence() {
    for (exit, class) in [
        (ProcessExit::Signal(9), "killed-by-signal"),
        (ProcessExit::Signal(11), "segfault"),
        (ProcessExit::Code(3), "rank-exit-unknown"),
    ] {
        let mut world = World::new();
        world.exits(1_000, 3, exit);
        let case = world.settle();
        assert_eq!(case.verdict.class.as_str(), class);
        assert!(case.verdict.confidence <= 0.4, "{class} {}", case.verdict.confidence);
    }
}

#[test]
fn of_two_kills_the_one_that_names_the_rank_s_process_is_its_own() {
    let mut world = World::new();
    for (ms, pid) in [(1_000, "77"), (30_000, "1003")] {
        let text = format!("Memory cgroup out of memory: Killed process {pid} (python3)");
        let killed = with(mark("host-oom-kill", Role::Root, 0.9), &[("pid", pid)]);
        world.kernel(ms, on_node(2), &text, killed);
    }
    let case = world.exits(30_050, 3, ProcessExit::Signal(9)).settle();
    assert_eq!(
        (case.verdict.class.as_str(), case.verdict.root_rank),
        ("host-oom-kill", Some(Rank(3)))
    );
    assert!(case.findings[0].text.contains("process 1003"), "{:?}", case.findings[0]);
}

#[test]
fn a_worker_that_the_kernel_killed_and_its_rank_does_not_wait_for_is_that_ranks() {
    let mut world = World::new();
    let killed = with(mark("host-oom-kill", Role::Root, 0.9), &[("pid", "4711")]);
    let text = "Out of memory: Killed process 4711 (pt_data_worker)";
    world.kernel(1_000, on_node(2), text, killed);
    let dead = with(
        mark("dataloader-worker-crash", Role::Confirmation, 0.5),
        &[("pid", "4711")],
    );
    let text = "1 of the rank's children have ended and it does not wait for them";
    world.at(11_000, EvidenceSource::Ranks, rank_of(3), line(text), vec![dead]);
    let case = world.stalls(900, 40_000).settle();
    assert_eq!(
        (case.verdict.class.as_str(), case.verdict.root_rank),
        ("host-oom-kill", Some(Rank(3)))
    );
}

#[test]
fn a_program_that_does_not_exist_is_told_as_such() {
    let mut world = World::new();
    let order = rankguard_model::OrderId(1);
    let reason = "spawn ./trian: No such file or directory".to_owned();
    let body = EvidenceBody::OrderFailed {
        order,
        job: JobId::from("train"),
        generation: Generation(1),
        reason,
        newest: None,
    };
    world.at(
        1_000,
        EvidenceSource::Agent,
        Entity::Job {
            job: JobId::from("train"),
        },
        body,
        Vec::new(),
    );
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "invalid-job-spec");
    assert!(case.order_failed);
}

/// The start of the ranks fails on a node.
fn start_fails(world: &mut World, ms: i64, on: u32, reason: &str) {
    let job = JobId::from("train");
    let body = EvidenceBody::OrderFailed {
        order: rankguard_model::OrderId(u64::from(on)),
        job: job.clone(),
        generation: Generation(1),
        reason: reason.to_owned(),
        newest: None,
    };
    world.of_node(ms, on, EvidenceSource::Agent, Entity::Job { job }, body);
}

/// Ranks of the job start on another node than the one on which their start failed.
fn starts_elsewhere(world: &mut World, ms: i64, failed: u32, on: u32) -> Option<DraftChange> {
    let now = Timestamp::from_millis(ms);
    let fact = CallerFact::StartsElsewhere {
        job: JobId::from("train"),
        node: node(failed),
        on: node(on),
        since: now,
    };
    let catalogue = rankguard_faults::Catalogue::builtin();
    world.diagnosis.starts_elsewhere(now, Generation(1), &fact, catalogue)
}

const NO_WORKDIR: &str = "the working directory /mnt/x does not exist on node n3";

#[test]
fn a_start_that_fails_on_one_node_and_works_on_others_blames_the_node() {
    let mut world = World::new();
    start_fails(&mut world, 1_000, 3, NO_WORKDIR);
    assert!(starts_elsewhere(&mut world, 1_100, 3, 1).is_none(), "not concluded yet");
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "filesystem-mount-missing");
    assert_eq!(case.verdict.blamed, on_node(3));
    assert_eq!(
        (case.verdict.layer.as_str(), case.headline.as_str()),
        ("storage", NO_WORKDIR)
    );
    assert!(
        case.findings.iter().all(|it| it.class.as_str() != "invalid-job-spec"),
        "{:#?}",
        case.findings
    );
}

#[test]
fn a_start_that_is_known_to_work_elsewhere_later_revises_the_blame() {
    let mut world = World::new();
    start_fails(&mut world, 1_000, 3, NO_WORKDIR);
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "invalid-job-spec");
    assert!(
        case.verdict.confidence <= 0.7,
        "one node alone: {}",
        case.verdict.confidence
    );
    let revised = starts_elsewhere(&mut world, 9_000, 3, 1);
    let Some(DraftChange::Revised(case)) = revised else {
        panic!("{revised:?}");
    };
    assert_eq!(case.verdict.blamed, on_node(3));
}

#[test]
fn a_start_that_fails_on_all_nodes_blames_the_job() {
    let mut world = World::new();
    for on in 1..=3 {
        start_fails(
            &mut world,
            1_000 + i64::from(on),
            on,
            "the command `x` was not found on node n1 (PATH is /bin)",
        );
    }
    let case = world.settle();
    let job = Entity::Job {
        job: JobId::from("train"),
    };
    assert_eq!(
        (case.verdict.class.as_str(), case.verdict.blamed),
        ("invalid-job-spec", job)
    );
    assert!(case.verdict.confidence > 0.85, "{}", case.verdict.confidence);
}

#[test]
fn a_user_of_the_agents_configuration_is_no_mistake_of_the_job() {
    let mut world = World::new();
    let reason = "cannot run ranks as user ghost (agent.rank_user) on node n3: there is no user ghost";
    start_fails(&mut world, 1_000, 3, reason);
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "scheduler-misconfigured");
    assert_eq!(case.verdict.blamed, on_node(3));
}

/// A rank prints a traceback at 1 s and is ended by a signal; the age of its last output is known then.
fn killed_after_traceback(
    ended_ms: i64,
    output_age_ms: Option<i64>,
    signal: i32,
) -> rankguard_diagnosis::ConcludedDraft {
    let mut world = World::new();
    world.says(1_000, 2, "KeyError: 'lr'", mark("key-error", Role::Root, 0.8));
    let age = output_age_ms.map(|age| {
        let mark = mark("none", Role::Noise, 0.0);
        let mark = Classification {
            signature: LAST_OUTPUT.into(),
            ..mark
        };
        with(mark, &[(OUTPUT_AGE_FIELD, &age.to_string())])
    });
    let body = EvidenceBody::RankExited {
        pid: 1002,
        exit: ProcessExit::Signal(signal),
        ended_by_agent: false,
    };
    world.at(
        ended_ms,
        EvidenceSource::Ranks,
        rank_of(2),
        body,
        age.into_iter().collect(),
    );
    world.settle()
}

#[test]
fn a_rank_that_went_on_after_a_traceback_did_not_die_of_it() {
    let case = killed_after_traceback(9_000, Some(400), 9);
    assert_eq!(case.verdict.class.as_str(), "killed-by-signal", "{:#?}", case.reasoning);
    let exit = case.findings.iter().find(|it| it.class.as_str() == "killed-by-signal");
    assert_eq!(exit.map(|it| it.role), Some(Role::Root));
}

#[test]
fn a_rank_that_stood_still_after_a_traceback_died_of_it_and_a_kill_is_no_confirmation() {
    let case = killed_after_traceback(9_000, Some(7_900), 9);
    assert_eq!(case.verdict.class.as_str(), "key-error");
    let exit = case.findings.iter().find(|it| it.class.as_str() == "killed-by-signal");
    assert_eq!(exit.map(|it| it.role), Some(Role::Cascade), "{:#?}", case.findings);
    // A program that hangs in its end is silent for longer.
    let soon = killed_after_traceback(4_000, Some(2_900), 9);
    assert_eq!(soon.verdict.class.as_str(), "killed-by-signal");
    let at_once = killed_after_traceback(1_500, Some(400), 6);
    assert_eq!(at_once.verdict.class.as_str(), "key-error");
}

#[test]
fn a_fault_on_a_spare_node_is_a_case_without_a_job() {
    let mut world = World::new();
    world.kernel(1_000, gpu(9), "Xid 79", off_the_bus());
    let case = world.settle();
    assert_eq!((case.job, case.verdict.blamed), (None, gpu(9)));
    assert!(!case.failed);
}

#[test]
fn a_draft_never_waits_longer_than_its_cap_rg_9() {
    let mut world = World::new();
    let policy = DraftPolicy::default();
    for tick in 0..100 {
        world.exits(1_000 + tick * 1_000, (tick % 6) as u32, ProcessExit::Signal(6));
        let due = world.diagnosis.due().unwrap();
        assert!(due <= Timestamp::from_millis(1_000).after(policy.cap));
    }
}

#[test]
fn a_flood_of_cascades_does_not_push_the_root_out() {
    let mut world = World::new();
    world.exits(1_000, 2, ProcessExit::Signal(6));
    for flood in 0..2_000 {
        let text = format!("lost peer {}", "x".repeat(flood as usize));
        world.says(1_001 + flood / 100, 0, &text, lost_peer());
    }
    world.late(
        900,
        1_100,
        EvidenceSource::KernelLog,
        gpu(2),
        line("Xid 79"),
        vec![off_the_bus()],
    );
    let case = world.settle();
    assert_eq!(case.verdict.blamed, gpu(2));
    assert!(case.findings.len() <= DraftPolicy::default().draft_signs);
    assert!(
        case.reasoning
            .iter()
            .any(|reason| reason.text.contains("found no room"))
    );
}

#[test]
fn what_is_said_again_and_again_is_counted_and_leaves_room_for_the_cause() {
    let mut world = World::new();
    world.kernel(1_000, gpu(1), "Xid 79", off_the_bus());
    for again in 1..5_000 {
        world.kernel(1_000 + again / 10, gpu(1), "Xid 79", off_the_bus());
    }
    world.exits(1_600, 2, ProcessExit::Signal(6));
    let case = world.settle();
    assert_eq!(case.verdict.blamed, gpu(1));
    assert!(case.failed, "the end of a rank found room");
    assert!(case.findings.len() < 20, "{} findings", case.findings.len());
    let told = case.reasoning.iter().any(|reason| {
        let counted = reason.text.starts_with("4984 further signs repeat what is in the case");
        counted && reason.text.contains("00:00:01.499Z")
    });
    assert!(told, "{:?}", case.reasoning);
}

#[test]
fn a_complaint_that_comes_back_after_it_was_overcome_is_still_known() {
    let mut world = World::new();
    for again in 0..40 {
        world.says(1_000 + again * 1_000, 3, "RuntimeError: shapes", shape_bug());
        let step = EvidenceBody::Progress {
            step: Step(again as u64),
            loss: None,
            step_ms: 100.0,
            own_ms: None,
        };
        world.at(
            1_900 + again * 1_000,
            EvidenceSource::Ranks,
            rank_of(3),
            step,
            Vec::new(),
        );
    }
    world.says(41_000, 3, "RuntimeError: shapes", shape_bug());
    world.exits(41_020, 3, ProcessExit::Code(1));
    assert_eq!(world.settle().verdict.class.as_str(), "tensor-shape-mismatch");
}

#[test]
fn memory_survives_a_restart_of_the_controller() {
    let mut world = World::new();
    world.says(1_000, 3, "RuntimeError: shapes", shape_bug());
    let text = serde_json::to_string(&world.diagnosis).unwrap();
    world.diagnosis = serde_json::from_str(&text).unwrap();
    world.exits(1_020, 3, ProcessExit::Code(1));
    let text = serde_json::to_string(&world.diagnosis).unwrap();
    world.diagnosis = serde_json::from_str(&text).unwrap();
    assert_eq!(world.settle().verdict.class.as_str(), "tensor-shape-mismatch");
}

#[test]
fn two_failures_of_one_job_far_apart_are_two_cases() {
    let mut world = World::new();
    world.exits(1_000, 3, ProcessExit::Signal(9));
    world.settle();
    world.job(|job| job.generation = Generation(2));
    let entity = match rank_of(4) {
        Entity::Rank { job, rank, node, .. } => Entity::Rank {
            job,
            generation: Generation(2),
            rank,
            node,
        },
        other => other,
    };
    let body = EvidenceBody::RankExited {
        pid: 9,
        exit: ProcessExit::Signal(11),
        ended_by_agent: false,
    };
    world.at(8_000, EvidenceSource::Ranks, entity, body, Vec::new());
    assert_eq!(world.opened(), 2);
    assert!(Duration::from_secs(1) < DraftPolicy::default().cap);
}
