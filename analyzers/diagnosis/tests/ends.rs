//! Ends of ranks that do not follow from each other: kills, drills, equal ends, and what several nodes share.

use crate::world::{World, class, gpu, line, mark, node, on_node, oom_kills, rank_of, reasons, with};
use rankguard_diagnosis::{CallerFact, ConcludedDraft, DraftChange, SeparateFailure};
use rankguard_faults::Catalogue;
use rankguard_model::{
    Classification, Device, DeviceKind, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, Generation,
    OrderId, ProcessExit, Role, Sequence, Step, Timestamp,
};

const KILL: ProcessExit = ProcessExit::Signal(9);
const TERM: ProcessExit = ProcessExit::Signal(15);

fn separate_reasons(case: &SeparateFailure) -> String {
    let lines: Vec<&str> = case.reasoning.iter().map(|entry| entry.text.as_str()).collect();
    lines.join("\n")
}

fn drills(world: &mut World, act: impl FnOnce(&mut World)) {
    world.is_drill = true;
    act(world);
    world.is_drill = false;
}

fn oom_beside(ms: i64, is_drill: bool) -> ConcludedDraft {
    let mut world = World::new();
    let kill = |world: &mut World| {
        world.is_drill = is_drill;
        world.exits(ms, 1, KILL);
        world.is_drill = false;
    };
    if ms < 1_000 {
        kill(&mut world);
    }
    oom_kills(&mut world, 1_000, 3);
    if ms >= 1_000 {
        kill(&mut world);
    }
    world.settle()
}

fn lost_shard() -> Classification {
    Classification {
        signature: "checkpoint-store".into(),
        ..mark("disk-full", Role::Root, 0.95)
    }
}

/// A full disk voids each checkpoint, and the job goes on.
#[test]
fn a_failure_that_goes_on_after_its_verdict_is_one_failure() {
    let mut world = World::new();
    let full = |world: &mut World, ms: i64, rank: u32| {
        let mark = lost_shard();
        let body = EvidenceBody::ShardFailed {
            step: Step(u64::try_from(ms).expect("positive")),
            reason: "no space left on device".to_owned(),
        };
        world.at(ms, EvidenceSource::Checkpoint, rank_of(rank), body, vec![mark]);
    };
    full(&mut world, 1_000, 0);
    let case = world.settle();
    assert_eq!(class(&case), "disk-full");
    for round in 1..100 {
        let ms = 1_000 + round * 10_000;
        full(&mut world, ms, u32::from(round % 2 == 0));
        let now = Timestamp::from_millis(ms);
        assert_eq!(world.diagnosis.conclude(now, Catalogue::builtin()), []);
    }
    assert_eq!(world.opened(), 1);
    // Another failure of the same job is another case, with a cause of its own.
    world.exits(1_001_000, 1, KILL);
    assert_eq!(world.opened(), 2);
    let case = world.settle();
    assert_eq!((class(&case), &case.verdict.blamed), ("killed-by-signal", &rank_of(1)));
}

/// A full store silences no agent.
#[test]
fn a_failed_save_explains_no_silent_node() {
    let mut world = World::new();
    let full = lost_shard();
    let body = EvidenceBody::ShardFailed {
        step: Step(10),
        reason: "no space left on device".to_owned(),
    };
    world.at(1_000, EvidenceSource::Checkpoint, rank_of(0), body, vec![full]);
    assert_eq!(class(&world.settle()), "disk-full");
    world.silent(52_000, 2);
    let case = world.settle();
    assert_eq!(case.verdict.blamed, on_node(2), "{}", reasons(&case));
}

/// Ranks that train over a lost link do not need it.
#[test]
fn a_lost_link_that_ranks_trained_over_explains_no_later_kill() {
    // A step that was under way may have had its collectives behind it.
    for (last_step, step_ms, expected) in [
        (9_000, 150.0, "killed-by-signal"),
        (9_000, 30_000.0, "nic-link-down"),
        (1_500, 150.0, "nic-link-down"),
    ] {
        let mut world = World::new();
        world.step_ms = step_ms;
        world.kernel(1_000, on_node(1), "Link DOWN", mark("nic-link-down", Role::Root, 0.9));
        assert_eq!(class(&world.settle()), "nic-link-down");
        for rank in 0..6 {
            world.steps(last_step, rank, 41);
        }
        world.exits(9_200, 4, KILL);
        for rank in [0, 1] {
            world.says(
                9_250,
                rank,
                "connection reset",
                mark("remote-worker-lost", Role::Cascade, 0.78),
            );
            world.exits(9_300, rank, ProcessExit::Code(1));
        }
        let case = world.settle();
        assert_eq!(class(&case), expected, "{}", reasons(&case));
    }
}

/// A rank that could not read its checkpoint ends of it.
#[test]
fn a_failed_restore_explains_the_end_of_its_rank() {
    let mut world = World::new();
    let unread = Classification {
        signature: "checkpoint-restore".into(),
        ..mark("storage-io-error", Role::Root, 0.95)
    };
    let body = line("the checkpoint of step 5 cannot be loaded");
    world.at(1_000, EvidenceSource::Checkpoint, rank_of(0), body, vec![unread]);
    world.exits(1_100, 0, ProcessExit::Code(1));
    assert_eq!(class(&world.settle()), "storage-io-error");
}

/// A rank that stands later does not do so because of a checkpoint that failed before.
#[test]
fn a_rank_that_stands_later_joins_no_concluded_failure() {
    let mut world = World::new();
    let full = lost_shard();
    let body = EvidenceBody::ShardFailed {
        step: Step(10),
        reason: "no space left on device".to_owned(),
    };
    world.at(1_000, EvidenceSource::Checkpoint, rank_of(0), body, vec![full]);
    let before = world.settle();
    let stands = mark("hang-no-error", Role::Confirmation, 0.6);
    let body = line("no step for 8.7 s after step 183");
    world.at(31_000, EvidenceSource::Ranks, rank_of(1), body, vec![stands]);
    let joined = world
        .changes
        .iter()
        .any(|change| matches!(change, DraftChange::Late { draft, .. } if *draft == before.draft));
    assert!(!joined, "{:?}", world.changes);
}

/// 50,576 and 51,092 are parts of one uneven all-gather.
#[test]
fn uneven_parts_of_one_collective_are_no_mismatch() {
    for (op, is_mismatch) in [("ALLGATHER", false), ("ALLREDUCE", true)] {
        let mut world = World::new();
        for (rank, elements) in [(0, 50_576), (1, 51_092), (3, 51_092)] {
            let text = format!(
                "[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=93, OpType={op}, \
                 NumelIn={elements}, NumelOut=12773, Timeout(ms)=30028) ran for 30028 milliseconds before timing out."
            );
            world.says(31_000, rank, &text, mark("nccl-timeout", Role::Cascade, 0.9));
            world.exits(31_010, rank, ProcessExit::Code(1));
        }
        let case = world.settle();
        assert_eq!(class(&case) == "collective-mismatch", is_mismatch, "{op}: {case:#?}");
        assert_eq!(reasons(&case).contains("of 50576 elements"), is_mismatch, "{op}");
    }
}

/// Another program's memory has no part in an abort half a minute later.
#[test]
fn a_kill_of_another_program_long_before_explains_no_abort() {
    for (ms, expected) in [(31_000, "process-aborted"), (5_000, "host-oom-kill")] {
        let mut world = World::new();
        let kill = with(mark("host-oom-kill", Role::Root, 0.9), &[("pid", "999999")]);
        world.kernel(
            1_000,
            on_node(1),
            "Out of memory: Killed process 999999 (prometheus)",
            kill,
        );
        world.exits(ms, 0, ProcessExit::Signal(6));
        assert_eq!(class(&world.settle()), expected, "{ms}");
    }
}

#[test]
fn ranks_that_end_themselves_with_one_code_at_one_time_blame_no_rank() {
    for (second, is_shared) in [(1_009, true), (1_200, true), (1_400, false)] {
        let mut world = World::new();
        world.exits(1_000, 0, ProcessExit::Code(4));
        world.exits(second, 2, ProcessExit::Code(4));
        let case = world.settle();
        let text = reasons(&case);
        assert_eq!(case.verdict.root_rank.is_none(), is_shared, "{second}: {text}");
        assert_eq!(
            text.contains("ended themselves with exit code 4 within"),
            is_shared,
            "{text}"
        );
        assert_eq!(text.contains("as survivors do"), !is_shared, "{text}");
    }
}

#[test]
fn a_rank_that_was_killed_is_no_survivor_of_a_kill_on_another_node() {
    for (ms, is_drill) in [(700, false), (1_300, false), (700, true), (1_300, true)] {
        let case = oom_beside(ms, is_drill);
        assert_eq!(class(&case), "host-oom-kill", "{ms} {is_drill}");
        assert_eq!(case.verdict.root_rank, rank_of(3).rank());
        let [other] = case.separate.as_slice() else {
            panic!("one separate failure: {:?}", case.separate);
        };
        assert_eq!(other.verdict.class.as_str(), "killed-by-signal");
        assert_eq!(other.verdict.blamed, rank_of(1));
        assert!(other.findings.iter().all(|finding| finding.synthetic == is_drill));
        let text = reasons(&case);
        let expected = "rank 1 on node n1 ended (signal 9 (exit code 137)), which is a failure of its own.";
        assert!(text.contains(expected), "{text}");
        let end = case.findings.iter().find(|finding| finding.entity == rank_of(1));
        assert_ne!(end.unwrap().role, Role::Cascade, "{end:?}");
    }
}

#[test]
fn a_rank_with_a_shell_that_reports_the_kill_of_its_child_ended_first() {
    let mut world = World::new();
    let killed = mark("killed-by-signal", Role::Confirmation, 0.64);
    world.says(
        1_000,
        3,
        "run.sh: line 7:  4411 Killed                  python3 train.py",
        killed,
    );
    world.exits(1_010, 3, ProcessExit::Code(137));
    let case = world.settle();
    assert_eq!(class(&case), "killed-by-signal");
    assert_eq!(case.verdict.blamed, rank_of(3));
    assert_eq!(case.verdict.root_rank, rank_of(3).rank());
}

/// An error that one rank raises kills no rank of another node.
#[test]
fn a_rank_that_was_killed_is_no_survivor_of_an_exception() {
    let mut world = World::new();
    world.says(1_000, 0, "KeyError: 'lr'", mark("key-error", Role::Root, 0.9));
    world
        .exits(1_010, 0, ProcessExit::Code(1))
        .exits(1_400, 4, KILL)
        .exits(1_500, 2, ProcessExit::Code(1));
    let case = world.settle();
    assert_eq!(class(&case), "key-error");
    let blamed: Vec<&Entity> = case.separate.iter().map(|other| &other.verdict.blamed).collect();
    assert_eq!(blamed, [&rank_of(4)]);
    assert!(
        reasons(&case).contains("rank 2 on node n2 ended (exit code 1), as survivors do."),
        "{}",
        reasons(&case)
    );
}

/// A scheduler, a limit of memory of a whole node and a silent node end ranks by SIGKILL as well.
#[test]
fn kills_that_the_first_cause_sends_follow_from_it() {
    let mut world = World::new();
    world.says(
        1_000,
        0,
        "JOB 7 CANCELLED DUE TO PREEMPTION",
        mark("preempted", Role::Root, 0.95),
    );
    world.exits(1_500, 0, KILL).exits(1_510, 2, KILL);
    let case = world.settle();
    assert_eq!(class(&case), "preempted");
    assert!(case.separate.is_empty(), "{:?}", case.separate);
    let mut world = World::new();
    oom_kills(&mut world, 1_000, 3);
    world.exits(1_020, 2, KILL);
    assert!(world.settle().separate.is_empty());
    let mut world = World::new();
    world.exits(1_000, 2, KILL);
    world.silent(1_000, 1);
    assert!(world.settle().separate.is_empty());
}

/// Rankguard may have ended the rank that the kernel names before.
#[test]
fn a_kill_on_a_node_of_which_no_rank_ended_explains_no_end_elsewhere() {
    let mut world = World::new();
    world.exits(1_000, 1, KILL);
    let kill = with(mark("host-oom-kill", Role::Root, 0.9), &[("pid", "1003")]);
    world.kernel(1_300, on_node(2), "Out of memory: Killed process 1003 (python)", kill);
    let case = world.settle();
    assert_eq!(class(&case), "killed-by-signal", "{}", reasons(&case));
    assert_eq!(case.verdict.blamed, rank_of(1));
    let text = reasons(&case);
    assert!(
        text.contains("reports host-oom-kill, which does not explain it."),
        "{text}"
    );
}

/// What an older journal decided is decided again.
#[test]
fn kills_beside_a_failure_are_described_as_before_under_older_rules() {
    let mut world = World::new();
    world.diagnosis.set_fault_ends(false);
    oom_kills(&mut world, 1_000, 3);
    world.exits(1_300, 1, KILL);
    let case = world.settle();
    assert!(case.separate.is_empty());
    assert!(reasons(&case).contains("rank 1 on node n1 ended (signal 9 (exit code 137)), as survivors do."));
}

#[test]
fn ranks_that_one_signal_ended_at_one_time_blame_none_of_them() {
    for exit in [TERM, KILL, ProcessExit::Signal(11)] {
        let mut world = World::new();
        for (ms, rank) in [(1_000, 2), (1_004, 0), (1_009, 1), (1_015, 3)] {
            world.exits(ms, rank, exit);
        }
        let case = world.settle();
        assert!(
            matches!(case.verdict.blamed, Entity::Job { .. }),
            "{:?}",
            case.verdict.blamed
        );
        assert_eq!(case.verdict.root_rank, None);
        assert!(case.separate.is_empty(), "{:?}", case.separate);
        let text = reasons(&case);
        assert!(text.contains("Ranks 0, 1, 2, 3 were ended by SIG"), "{text}");
        assert!(text.contains("within 15 ms on 2 nodes"), "{text}");
        assert!(!text.contains("survivors"), "{text}");
    }
}

/// A program that exits with 137 was ended by no signal, as far as agents see it.
#[test]
fn exit_codes_of_shells_are_stated_as_exit_codes() {
    let mut world = World::new();
    for (ms, rank) in [(1_000, 2), (1_004, 0), (1_009, 1), (1_015, 3)] {
        world.exits(ms, rank, ProcessExit::Code(137));
    }
    let case = world.settle();
    let text = reasons(&case);
    let stated =
        "Ranks 0, 1, 2, 3 ended with exit code 137, by which shells and containers report SIGKILL, within 15 ms";
    assert!(text.contains(stated), "{text}");
    let whys: Vec<&str> = case.findings.iter().map(|finding| finding.why.as_str()).collect();
    assert!(whys.iter().all(|why| !why.contains("signal")), "{whys:#?}");
}

/// One rank of several: a class of signals, and no signal was seen.
#[test]
fn the_exit_code_of_a_shell_is_stated_as_one_for_a_single_rank_too() {
    for (code, name) in [(137, "SIGKILL"), (129, "SIGHUP")] {
        let mut world = World::new();
        world.exits(1_000, 1, ProcessExit::Code(code));
        let case = world.settle();
        assert_eq!(case.verdict.class.as_str(), "killed-by-signal");
        let text = reasons(&case);
        let stated = format!(
            "Rank 1 ended with exit code {code}, by which shells and containers report {name}, and nothing shows whether a \
             signal was sent, or by whom."
        );
        assert!(text.contains(&stated), "{text}");
        assert!(
            !text.contains("who sent the signal") && !text.contains("was ended by"),
            "{text}"
        );
    }
}

/// The kernel of one node reports both ends with one clock.
#[test]
fn kills_far_apart_on_one_node_are_in_a_known_order() {
    let mut world = World::new();
    world.exits(1_000, 1, KILL).exits(1_928, 0, KILL);
    let case = world.settle();
    assert_eq!(case.verdict.root_rank, None);
    let text = reasons(&case);
    assert!(
        text.contains("Ranks 0, 1 were ended by SIGKILL within 928 ms, rank 1 first: nothing shows who sent"),
        "{text}"
    );
    let later = "928 ms later, rank 0 on node n1 ended (signal 9 (exit code 137)), and nothing shows that they ended because of";
    assert!(text.contains(later), "{text}");
    for false_words in ["moment", "order that proves nothing", "which was first"] {
        assert!(!text.contains(false_words), "{text}");
    }
    let why = &case
        .findings
        .iter()
        .find(|finding| finding.entity == rank_of(0))
        .unwrap()
        .why;
    assert_eq!(
        why,
        "The same signal ended it; nothing shows that it ended because of the first."
    );
}

/// A killed rank is no survivor, and its peers end one after the other.
#[test]
fn survivors_are_described_apart_from_the_rank_that_ended_first() {
    let mut world = World::new();
    world.exits(1_000, 1, KILL);
    for (ms, rank) in [(1_127, 0), (1_023, 2), (1_123, 3)] {
        world.exits(ms, rank, ProcessExit::Code(1));
    }
    let case = world.settle();
    assert_eq!(case.verdict.root_rank, rank_of(1).rank());
    let text = reasons(&case);
    assert!(
        text.contains("127 ms later, rank 0 on node n1 ended (exit code 1), on the node of"),
        "{text}"
    );
    assert!(
        text.contains("23 ms later to 123 ms later, ranks 2, 3 on node n2 ended (exit code 1), as survivors do."),
        "{text}"
    );
    assert!(!text.contains("same moment"), "{text}");
}

#[test]
fn an_end_after_the_verdict_has_the_class_of_its_exit() {
    for (exit, class) in [(ProcessExit::Code(1), "rank-exit-unknown"), (KILL, "killed-by-signal")] {
        let mut world = World::new();
        world.exits(1_000, 1, KILL);
        let case = world.settle();
        assert_eq!(case.verdict.root_rank, rank_of(1).rank());
        world.exits(1_400, 2, exit);
        let late = world.changes.iter().find_map(|change| match change {
            DraftChange::Late { finding, .. } => Some(finding.class.as_str().to_owned()),
            _ => None,
        });
        assert_eq!(late.as_deref(), Some(class), "{:?}", world.changes);
    }
}

/// Clocks of two nodes may differ by as much.
#[test]
fn kills_on_two_nodes_are_in_no_known_order() {
    let mut world = World::new();
    world.exits(1_000, 1, KILL).exits(1_928, 2, KILL);
    let text = reasons(&world.settle());
    assert!(text.contains("The end that was noticed first is of "), "{text}");
    assert!(!text.contains("first cause"), "{text}");
    assert!(
        text.contains("within 928 ms on 2 nodes: nothing shows which was first"),
        "{text}"
    );
    assert!(
        text.contains("928 ms later, rank 2 on node n2 ended (signal 9 (exit code 137)), in an order"),
        "{text}"
    );
}

#[test]
fn equal_exit_codes_are_no_signal() {
    let mut world = World::new();
    let code = ProcessExit::Code(4);
    world.exits(1_000, 0, code).exits(1_009, 2, code);
    let case = world.settle();
    let why = &case
        .findings
        .iter()
        .find(|finding| finding.entity == rank_of(2))
        .unwrap()
        .why;
    assert!(why.starts_with("It ended with the same exit code"), "{why}");
}

/// An order that clocks can prove is used, and so is the signal.
#[test]
fn a_rank_that_ended_first_by_a_crash_is_blamed() {
    for (ms, exit) in [(1_300, ProcessExit::Signal(11)), (1_001, TERM)] {
        let mut world = World::new();
        world.exits(1_000, 0, ProcessExit::Signal(11)).exits(ms, 1, exit);
        assert_eq!(world.settle().verdict.blamed, rank_of(0), "{exit:?}");
    }
}

#[test]
fn a_cuda_error_follows_from_the_gpu_of_its_own_node() {
    let mut world = World::new();
    let lost = mark("gpu-fallen-off-bus", Role::Root, 0.97);
    world.kernel(1_000, gpu(1), "NVRM: Xid 79", lost);
    let other = mark("gpu-fallen-off-bus", Role::Root, 0.7);
    world.kernel(1_100, gpu(2), "NVRM: Xid 79", other);
    let error = mark("cuda-launch-failure", Role::Cascade, 0.8);
    world.says(1_200, 2, "CUDA error: unspecified launch failure", error);
    world.exits(1_250, 2, ProcessExit::Code(1));
    let case = world.settle();
    assert_eq!(case.verdict.blamed, gpu(1));
    let text = reasons(&case);
    let expected = "reports cuda-launch-failure, which follows from a fault of its own node.";
    assert!(text.contains(expected), "{text}");
    let [other] = case.separate.as_slice() else {
        panic!("one separate failure: {:?}", case.separate);
    };
    assert_eq!(other.verdict.blamed, gpu(2));
    let text = separate_reasons(other);
    assert!(
        text.contains("A program on the same node reports an error of a GPU, without naming the device."),
        "{text}"
    );
    assert!(
        other
            .findings
            .iter()
            .any(|finding| finding.class.as_str() == "cuda-launch-failure")
    );
}

fn retry() -> Classification {
    mark("rendezvous-failure", Role::Root, 0.72)
}

const RETRY: &str = "[W1129 02:08:14.75 socket.cpp:752] [c10d] The client socket has failed to connect to [n1]:29500 (errno: \
                     111 - Connection refused).";

/// Such warnings are usual at the start, and their stamps may be of another clock.
#[test]
fn a_warning_of_an_attempt_to_connect_explains_no_crash() {
    for stamp in [1_000, 80_000] {
        let mut world = World::new();
        world.says(stamp, 0, RETRY, retry());
        let case = world.exits(5_000, 0, ProcessExit::Signal(11)).settle();
        assert_eq!(class(&case), "segfault", "{}", reasons(&case));
        assert_eq!(case.verdict.blamed, rank_of(0));
        let text = reasons(&case);
        assert!(
            text.contains("reports rendezvous-failure, which does not explain it."),
            "{text}"
        );
        assert!(!text.contains("lost their connections"), "{text}");
        let is_ahead = text.contains("Before its rank ended, the log of rank 0 reports");
        assert_eq!(is_ahead, stamp > 5_000, "{text}");
    }
}

/// Without an error of its own, the warning is the best evidence, and no cause that is named.
#[test]
fn a_warning_of_an_attempt_to_connect_is_a_symptom_of_a_rank_that_exits() {
    let mut world = World::new();
    world.says(1_000, 0, RETRY, retry());
    let case = world.exits(5_000, 0, ProcessExit::Code(1)).settle();
    assert_eq!(class(&case), "rendezvous-failure");
    assert!(
        reasons(&case).contains("the cause itself was not seen"),
        "{}",
        reasons(&case)
    );
}

#[test]
fn a_line_of_a_drill_ends_no_rank() {
    let mut world = World::new();
    let lost = || mark("gpu-fallen-off-bus", Role::Root, 0.97);
    let real = Entity::Device {
        node: node(1),
        device: Device {
            kind: DeviceKind::Gpu,
            address: "0000:1b:00".to_owned(),
        },
    };
    drills(&mut world, |world| {
        world.kernel(1_000, gpu(1), "NVRM: Xid 79", lost());
    });
    world.kernel(1_100, real.clone(), "NVRM: Xid 79", lost());
    world.exits(1_200, 0, ProcessExit::Code(1));
    let case = world.settle();
    assert_eq!(case.verdict.blamed, real);
    let [drill] = case.separate.as_slice() else {
        panic!("one separate failure: {:?}", case.separate);
    };
    assert_eq!(drill.verdict.blamed, gpu(1));
    assert_eq!(drill.verdict.root_rank, None);
    assert_eq!(drill.findings.len(), 1, "{:?}", drill.findings);
    let text = separate_reasons(drill);
    assert!(!text.contains("ended"), "{text}");
    assert!(text.contains("it would end ranks if it were no drill"), "{text}");
}

#[test]
fn what_several_nodes_share_blames_none_of_them() {
    let mut world = World::new();
    let silent = || with(mark("filesystem-hang", Role::Root, 0.94), &[("server", "nas01")]);
    for on in 1..=3 {
        let text = "nfs: server nas01 not responding, still trying";
        world.kernel(1_000 + i64::from(on) * 10, on_node(on), text, silent());
    }
    let case = world.exits(30_000, 0, ProcessExit::Code(1)).settle();
    assert_eq!(class(&case), "filesystem-hang");
    assert_eq!(case.verdict.blamed, Entity::Unknown);
    let text = reasons(&case);
    assert!(text.contains("The blame is on server nas01"), "{text}");
    assert!(!text.contains("which follows from it"), "{text}");
}

/// While only silence is known, the agent may be stopped and the node may run on.
#[test]
fn a_node_is_a_crashed_one_once_something_but_its_silence_shows_it() {
    let mut world = World::new();
    world.silent(1_000, 1);
    let case = world.settle();
    assert_eq!(class(&case), "node-agent-silent");
    assert!(case.node_silent);
    assert!(
        reasons(&case).contains("the ranks there may run on"),
        "{}",
        reasons(&case)
    );
    let now = Timestamp::from_millis(30_000);
    let changes = world.diagnosis.node_booted(now, &node(1), Catalogue::builtin());
    let [DraftChange::Revised(revised)] = changes.as_slice() else {
        panic!("one revision: {changes:?}");
    };
    assert_eq!(class(revised), "node-crash");
    assert!(
        reasons(revised).contains("The node reports again on another boot"),
        "{}",
        reasons(revised)
    );
    let mut world = World::new();
    world.diagnosis.set_fault_ends(false);
    world.silent(1_000, 1);
    assert_eq!(class(&world.settle()), "node-crash");
}

/// A node that lacks a file is refused, the case is concluded, and the agent of the node falls silent later.
#[test]
fn the_silence_of_a_node_explains_no_start_that_it_had_refused_before() {
    let refused_check = |world: &mut World| {
        let fact = CallerFact::CheckFailed {
            node: node(1),
            class: "path-not-found".into(),
            text: "preflight of path /data: it is not there".to_owned(),
            since: Timestamp::from_millis(1_000),
        };
        let now = Timestamp::from_millis(1_000);
        let changes = world
            .diagnosis
            .observe_fact(now, &fact, &world.context, Catalogue::builtin());
        world.changes.extend(changes);
    };
    let refused_order = |world: &mut World| {
        let body = EvidenceBody::OrderFailed {
            order: OrderId(1),
            job: "train".into(),
            generation: Generation(1),
            reason: "cannot enter the working directory /data: No such file or directory".to_owned(),
            newest: None,
        };
        world.of_node(1_000, 1, EvidenceSource::Agent, on_node(1), body);
    };
    for refuse in [&refused_check as &dyn Fn(&mut World), &refused_order] {
        let mut world = World::new();
        refuse(&mut world);
        let first = world.settle();
        world.silent(2_200, 1);
        let revised = |change: &DraftChange| matches!(change, DraftChange::Revised(_) | DraftChange::Late { .. });
        assert!(!world.changes.iter().any(revised), "{:?}", world.changes);
        let second = world.settle();
        assert_ne!(class(&first), "node-agent-silent");
        assert_eq!(class(&second), "node-agent-silent", "{}", reasons(&second));
    }
}

/// The stamps of a system log are whole seconds: a fault a moment after an uncordon has an earlier time.
#[test]
fn a_fault_that_is_reported_after_the_clearing_of_its_node_is_not_lost_to_a_coarse_stamp() {
    let reported = |stamp_ms: i64, arrives_ms: i64| {
        let mut world = World::new();
        world.diagnosis.clear_node(Timestamp::from_millis(24_468), &node(3));
        let evidence = Evidence {
            id: EvidenceId {
                node: node(3),
                seq: Sequence(1),
            },
            at: Timestamp::from_millis(stamp_ms),
            source: EvidenceSource::KernelLog,
            entity: gpu(3),
            body: line("NVRM: Xid (PCI:0000:9b:00): 48, pid=4242, Double Bit ECC Error"),
            marks: vec![mark("gpu-ecc-uncorrectable", Role::Root, 0.9)],
            synthetic: false,
        };
        let now = Timestamp::from_millis(arrives_ms);
        let changes = world
            .diagnosis
            .observe(now, &evidence, &world.context, Catalogue::builtin());
        changes
            .iter()
            .any(|change| matches!(change, DraftChange::Opened { .. }))
    };
    assert!(reported(24_000, 24_573));
    assert!(reported(24_500, 24_573));
    // Its time is before the clearing at any resolution.
    assert!(!reported(23_000, 24_573));
}
