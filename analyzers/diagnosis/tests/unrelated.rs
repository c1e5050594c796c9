//! Findings that were over, or concern something else, explain no later failure.

use crate::world::{World, gpu, mark, node, on_node, with};
use rankguard_diagnosis::ConcludedDraft;
use rankguard_faults::Catalogue;
use rankguard_model::{Classification, Device, DeviceKind, Entity, ProcessExit, Role, Timestamp};

const NFS: &str = "nfs: server nas01 not responding, still trying";

fn silent_server() -> Classification {
    let mut mark = with(mark("filesystem-hang", Role::Root, 0.94), &[("server", "nas01")]);
    mark.signature = "nfs-not-responding".into();
    mark
}

fn answer() -> Classification {
    let mut mark = with(mark("none", Role::Noise, 0.95), &[("server", "nas01")]);
    mark.signature = "nfs-ok".into();
    mark
}

fn off_the_bus() -> Classification {
    mark("gpu-fallen-off-bus", Role::Root, 0.97)
}

fn nic(on: u32) -> Entity {
    Entity::Device {
        node: node(on),
        device: Device {
            kind: DeviceKind::Nic,
            address: "mlx5_0".to_owned(),
        },
    }
}

fn class(case: &ConcludedDraft) -> &str {
    case.verdict.class.as_str()
}

/// Reports a server of node 1 that does not answer at 1 s and answers at 2 s.
fn after_a_hiccup() -> World {
    let mut world = World::new();
    world.kernel(1_000, on_node(1), NFS, silent_server());
    world.kernel(2_000, on_node(1), "nfs: server nas01 OK", answer());
    world
}

#[test]
fn a_server_that_had_answered_explains_no_failure_of_a_later_generation() {
    let mut world = after_a_hiccup();
    world.restarts(3_000);
    let case = world.exits(4_000, 0, ProcessExit::Signal(15)).settle();
    assert_ne!(class(&case), "filesystem-hang");
    let mut world = after_a_hiccup();
    world.restarts(3_000);
    world.says(
        4_000,
        0,
        "OSError: [Errno 28] No space left",
        mark("disk-full", Role::Root, 0.8),
    );
    let case = world.exits(4_100, 0, ProcessExit::Code(1)).settle();
    assert_eq!(class(&case), "disk-full");
}

/// What an older journal decided is decided again.
#[test]
fn journals_of_older_rules_replay_as_they_were_decided() {
    let mut world = after_a_hiccup();
    world.diagnosis.set_fault_ends(false);
    world.restarts(3_000);
    let case = world.exits(4_000, 0, ProcessExit::Signal(15)).settle();
    assert_eq!(class(&case), "filesystem-hang");
}

/// Operations that waited for the server return with its answer, and may fail then.
#[test]
fn a_server_that_answered_explains_failures_of_that_moment_only() {
    for (ms, expected) in [(4_000, true), (12_000, false)] {
        let mut world = after_a_hiccup();
        let case = world.exits(ms, 0, ProcessExit::Code(1)).settle();
        assert_eq!(class(&case) == "filesystem-hang", expected, "{ms}: {}", class(&case));
    }
}

/// A server that stays silent explains what follows.
#[test]
fn a_server_that_does_not_answer_explains_a_later_failure() {
    let mut world = World::new();
    world.kernel(1_000, on_node(1), NFS, silent_server());
    world.restarts(3_000);
    let case = world.exits(30_000, 0, ProcessExit::Code(1)).settle();
    assert_eq!(class(&case), "filesystem-hang");
}

#[test]
fn a_lost_gpu_of_an_idle_node_follows_from_no_kill_and_no_wait_there() {
    let killed = mark("host-oom-kill", Role::Root, 0.9);
    for (text, first) in [
        ("Out of memory: Killed process 999 (backup.sh)", killed),
        (NFS, silent_server()),
    ] {
        let mut world = World::new();
        world.kernel(1_000, on_node(9), text, first);
        world.kernel(11_000, gpu(9), "NVRM: Xid 79", off_the_bus());
        let case = world.settle();
        assert_eq!(class(&case), "gpu-fallen-off-bus", "{text}");
        assert_eq!(case.verdict.blamed.node(), Some(&node(9)));
        assert_eq!(case.findings.len(), 1, "{:?}", case.findings);
    }
}

/// The finding of such a kill states that it explains nothing.
#[test]
fn a_kill_on_another_node_that_ended_no_rank_is_no_alternative() {
    let mut world = World::new();
    let kill = mark("host-oom-kill", Role::Root, 0.9);
    world.kernel(
        1_000,
        on_node(2),
        "Out of memory: Killed process 999999 (postgres)",
        kill,
    );
    let case = world.exits(9_000, 0, ProcessExit::Code(1)).settle();
    let kill = case
        .findings
        .iter()
        .find(|finding| finding.class.as_str() == "host-oom-kill");
    assert_eq!(kill.map(|kill| kill.role), Some(Role::Noise), "{:?}", case.findings);
    let mut others = case.verdict.alternatives.iter();
    assert!(
        others.all(|(class, _)| class.as_str() != "host-oom-kill"),
        "{:?}",
        case.verdict.alternatives
    );
}

#[test]
fn a_second_fault_of_an_idle_node_is_a_failure_of_its_own() {
    let mut world = World::new();
    world.kernel(1_000, gpu(9), "NVRM: Xid 79", off_the_bus());
    assert_eq!(class(&world.settle()), "gpu-fallen-off-bus");
    world.kernel(
        9_000,
        nic(9),
        "mlx5_0: Link down",
        mark("nic-link-down", Role::Root, 0.9),
    );
    let case = world.settle();
    assert_eq!(class(&case), "nic-link-down");
    assert_eq!(case.verdict.blamed, nic(9));
}

fn panics(world: &mut World) {
    let text = "Kernel panic - not syncing: Fatal exception";
    world.kernel(1_000, on_node(1), text, mark("kernel-crash", Role::Root, 0.95));
    world.settle();
}

/// A kernel that panicked runs nothing.
#[test]
fn a_panic_explains_no_failure_of_ranks_that_started_after_it() {
    let mut world = World::new();
    panics(&mut world);
    world.restarts(20_000);
    let case = world.exits(30_000, 0, ProcessExit::Signal(9)).settle();
    assert_eq!(class(&case), "killed-by-signal");
}

#[test]
fn what_was_reported_before_a_boot_explains_no_failure_after_it() {
    for (boots, expected) in [(true, false), (false, true)] {
        let mut world = World::new();
        world.kernel(1_000, on_node(1), NFS, silent_server());
        if boots {
            let now = Timestamp::from_millis(10_000);
            world.diagnosis.node_booted(now, &node(1), Catalogue::builtin());
        }
        world.restarts(20_000);
        let case = world.exits(30_000, 0, ProcessExit::Code(1)).settle();
        assert_eq!(class(&case) == "filesystem-hang", expected, "{boots}: {}", class(&case));
    }
}
