//! Failures of a rank beside an earlier finding of another machine, and lost connections beside the end of a rank.

use crate::world::{World, mark, node, on_node, rank_of, with};
use rankguard_diagnosis::ConcludedDraft;
use rankguard_model::{Classification, Device, DeviceKind, Entity, ProcessExit, Role};

const ERROR: ProcessExit = ProcessExit::Code(1);

fn class(case: &ConcludedDraft) -> &str {
    case.verdict.class.as_str()
}

fn nic(on: u32) -> Entity {
    Entity::Device {
        node: node(on),
        device: Device {
            kind: DeviceKind::Nic,
            address: "ens1f0np0".to_owned(),
        },
    }
}

fn link_is_down(world: &mut World, ms: i64, on: u32) {
    world.kernel(
        ms,
        nic(on),
        "mlx5_core ens1f0np0: Link down",
        mark("nic-link-down", Role::Root, 0.9),
    );
}

fn link_is_up(world: &mut World, ms: i64, on: u32) {
    let mut up = mark("none", Role::Noise, 0.9);
    up.signature = "nic-link-up".into();
    world.kernel(ms, nic(on), "mlx5_core ens1f0np0: Link up", up);
}

fn illegal_access() -> Classification {
    mark("cuda-illegal-memory-access", Role::Root, 0.8)
}

/// A program's own text of a lost connection names no cause: the peer that was killed is the cause.
#[test]
fn connections_that_a_killed_rank_severs_follow_from_its_end() {
    let mut world = World::new();
    world.exits(1_000, 0, ProcessExit::Signal(9));
    for (ms, rank) in [(1_028, 2), (1_036, 4)] {
        let text = "ConnectionResetError: [Errno 104] Connection reset by peer";
        world.says(ms, rank, text, mark("connection-reset", Role::Root, 0.8));
        world.exits(ms, rank, ERROR);
    }
    let case = world.settle();
    assert_eq!(class(&case), "killed-by-signal");
    assert_eq!(case.verdict.blamed, rank_of(0));
    assert!(case.separate.is_empty(), "{:?}", case.separate);
}

/// A crash severs them as a kill does.
#[test]
fn connections_that_a_crashed_rank_severs_follow_from_its_end() {
    let mut world = World::new();
    world.exits(1_000, 1, ProcessExit::Signal(11));
    for (ms, rank) in [(1_012, 0), (1_140, 4)] {
        let text = "BrokenPipeError: [Errno 32] Broken pipe";
        world.says(ms, rank, text, mark("connection-reset", Role::Root, 0.8));
        world.exits(ms, rank, ERROR);
    }
    let case = world.settle();
    assert_eq!(class(&case), "segfault");
    assert_eq!(case.verdict.root_rank, rank_of(1).rank());
}

/// A node that falls silent crashes no process of another node, and no program of another one fails of it by itself.
#[test]
fn a_failure_beside_a_silent_node_is_one_of_its_own() {
    for (is_crash, expected) in [(true, "segfault"), (false, "key-error")] {
        let mut world = World::new();
        if is_crash {
            world.exits(1_000, 2, ProcessExit::Signal(11));
        } else {
            world.says(990, 2, "KeyError: 'lr'", mark("key-error", Role::Root, 0.9));
            world.exits(1_000, 2, ERROR);
        }
        world.silent(1_400, 3);
        let case = world.settle();
        let others = case.separate.iter().map(|other| other.verdict.class.as_str());
        let mut all: Vec<&str> = others.chain([class(&case)]).collect();
        all.sort_unstable();
        let mut wanted = ["node-agent-silent", expected];
        wanted.sort_unstable();
        assert_eq!(all, wanted);
    }
}

/// So do exceptions about a peer that have no class of their own.
#[test]
fn exceptions_about_a_killed_peer_follow_from_its_end() {
    let mut world = World::new();
    world.exits(1_000, 1, ProcessExit::Signal(9));
    for (ms, rank) in [(1_035, 0), (1_040, 4)] {
        world.says(ms, rank, "EOFError", mark("uncaught-exception", Role::Root, 0.7));
        world.exits(ms, rank, ERROR);
    }
    let case = world.settle();
    assert_eq!(class(&case), "killed-by-signal");
    assert_eq!(case.verdict.blamed, rank_of(1));
}

/// Why the rank exited is unknown, but its peers lost their connections because of it.
#[test]
fn connections_that_are_lost_after_an_exit_without_words_follow_from_it() {
    let mut world = World::new();
    world.exits(1_000, 1, ProcessExit::Code(3));
    for (ms, rank) in [(1_137, 0), (1_150, 4)] {
        let text = "ConnectionRefusedError: [Errno 111] Connection refused";
        world.says(ms, rank, text, mark("connection-refused", Role::Root, 0.85));
        world.exits(ms, rank, ERROR);
    }
    let case = world.settle();
    assert_eq!(class(&case), "rank-exit-unknown");
    assert_eq!(case.verdict.blamed, rank_of(1));
}

/// Without such an end, a lost connection is all that is known.
#[test]
fn a_lost_connection_without_an_end_before_it_remains_the_class() {
    let mut world = World::new();
    let text = "ConnectionResetError: [Errno 104] Connection reset by peer";
    world.says(1_000, 2, text, mark("connection-reset", Role::Root, 0.8));
    world.exits(1_010, 2, ERROR).exits(1_500, 0, ERROR);
    assert_eq!(class(&world.settle()), "connection-reset");
}

#[test]
fn a_link_that_came_up_while_its_loss_was_examined_explains_no_later_generation() {
    let mut world = World::new();
    link_is_down(&mut world, 1_000, 1);
    link_is_up(&mut world, 2_000, 1);
    assert_eq!(class(&world.settle()), "nic-link-down");
    world.restarts(13_000);
    world.says(
        20_000,
        4,
        "CUDA error: an illegal memory access was encountered",
        illegal_access(),
    );
    world.exits(20_050, 4, ERROR);
    let case = world.settle();
    assert_eq!(class(&case), "cuda-illegal-memory-access");
    let named = case
        .findings
        .iter()
        .any(|finding| finding.class.as_str() == "nic-link-down");
    assert!(!named, "{:?}", case.findings);
}

/// The loss of a link of one node ends no process of another one with an error of its GPU or of its program.
#[test]
fn an_error_of_a_rank_follows_from_no_finding_of_another_machine() {
    let errors = [
        (
            "cuda-illegal-memory-access",
            "CUDA error: an illegal memory access was encountered",
        ),
        (
            "cublas-failure",
            "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED",
        ),
        ("assertion-error", "AssertionError: vocab size 5 != 6"),
    ];
    for (found, text) in errors {
        for lockup in [false, true] {
            let mut world = World::new();
            if lockup {
                let text = "watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [kworker]";
                world.kernel(1_000, on_node(2), text, mark("cpu-lockup", Role::Root, 0.93));
            } else {
                link_is_down(&mut world, 1_000, 2);
                link_is_up(&mut world, 2_000, 2);
            }
            world.settle();
            world.says(16_000, 4, text, mark(found, Role::Root, 0.8));
            world.exits(16_040, 4, ERROR);
            let case = world.settle();
            assert_eq!(class(&case), found, "{lockup}");
            assert_eq!(case.verdict.root_rank, rank_of(4).rank(), "{lockup}");
        }
    }
}

/// What a lost link does cause on other nodes: lost connections.
#[test]
fn lost_connections_follow_from_a_lost_link_of_another_machine() {
    let mut world = World::new();
    link_is_down(&mut world, 1_000, 2);
    world.settle();
    let text = "NCCL WARN NET/IB : Got completion from peer with status=12";
    world.says(12_000, 4, text, mark("nccl-remote-error", Role::Root, 0.7));
    world.exits(12_040, 4, ERROR);
    assert_eq!(class(&world.settle()), "nic-link-down");
}

#[test]
fn a_lost_link_does_not_follow_from_a_kill_of_a_foreign_process() {
    let mut world = World::new();
    let kill = with(
        mark("host-oom-kill", Role::Root, 0.9),
        &[("pid", "999999"), ("comm", "java")],
    );
    world.kernel(1_000, on_node(2), "Out of memory: Killed process 999999 (java)", kill);
    link_is_down(&mut world, 18_000, 1);
    let case = world.settle();
    assert_eq!(class(&case), "nic-link-down");
    assert_eq!(case.verdict.blamed, nic(1));
}
