//! Drills beside real faults: neither explains the other across nodes or time.

use crate::world::{
    World, class, gpu, key_error, mark, node, off_the_bus, on_node, rank_of, reasons, role_of, second_gpu, with,
};
use rankguard_diagnosis::ConcludedDraft;
use rankguard_model::{ProcessExit, Role, rests_on_drill};

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
