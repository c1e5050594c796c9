//! The process that a kill or an exception names, and the ranks that it explains.

use crate::world::{World, class, gpu, key_error, mark, on_node, rank_of, role_of, with};
use rankguard_model::{Classification, Entity, ProcessExit, Rank, Role};

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

/// No driver and no kernel ends a process by SIGKILL for an error of another one, on the same node either.
#[test]
fn an_error_of_another_process_kills_no_rank() {
    let contained = with(mark("gpu-ecc-contained", Role::Root, 0.95), &[("pid", "4242")]);
    let exception = with(mark("gpu-engine-exception", Role::Root, 0.95), &[("pid", "4242")]);
    let crash = with(mark("segfault", Role::Root, 0.6), &[("pid", "4242")]);
    let segfault = "jupyter[4242]: segfault at 0 ip 00007f0000000000 sp 00007ffc00000000 error 4 in libc.so.6";
    for (entity, text, mark) in [
        (gpu(1), "NVRM: Xid 31", exception),
        (gpu(1), "NVRM: Xid 94", contained),
        (on_node(1), segfault, crash),
    ] {
        let mut world = World::new();
        world.kernel(1_000, entity, text, mark);
        let case = world.exits(3_000, 1, ProcessExit::Signal(9)).settle();
        assert_eq!(class(&case), "killed-by-signal", "{text}");
        assert_eq!(case.verdict.blamed, rank_of(1), "{text}");
    }
}

/// The driver names a process of which no rank is known, and a rank of another node ends for itself.
#[test]
fn an_error_of_an_unknown_process_ends_no_rank_of_another_node() {
    for (error, text, role) in [
        ("gpu-engine-exception", "NVRM: Xid 31", Role::Noise),
        // A fault of the hardware is a case of its own.
        ("gpu-ecc-contained", "NVRM: Xid 94", Role::Root),
    ] {
        let named = |pid: &str| with(mark(error, Role::Root, 0.95), &[("pid", pid)]);
        for (exit, expected) in [
            (ProcessExit::Signal(9), "killed-by-signal"),
            (ProcessExit::Code(3), "rank-exit-unknown"),
        ] {
            let mut world = World::new();
            world.kernel(1_000, gpu(1), text, named("4242"));
            let case = world.exits(4_778, 3, exit).settle();
            assert_eq!(class(&case), expected, "{text}");
            assert_eq!(case.verdict.blamed, rank_of(3), "{text}");
            assert_eq!(role_of(&case, &gpu(1)).role, role, "{text}");
            assert_eq!(case.separate.len(), usize::from(role == Role::Root), "{text}");
        }
        // The process may be the child of a rank, which ends first.
        let mut world = World::new();
        world.kernel(1_000, gpu(1), text, named("4242"));
        world.exits(1_100, 1, ProcessExit::Code(134));
        let case = world.exits(4_778, 3, ProcessExit::Signal(9)).settle();
        assert_eq!(class(&case), error);
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
