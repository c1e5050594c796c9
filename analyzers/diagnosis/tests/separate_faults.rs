//! Faults of several devices, disks, links and nodes at a time.

use crate::world::{World, class, gpu, mark, node, off_the_bus, on_node, rank_of, reasons, role_of, second_gpu, with};
use rankguard_diagnosis::DraftChange;
use rankguard_model::{Device, DeviceKind, Entity, JobId, ProcessExit, Role, Timestamp};

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
fn a_killed_rank_beside_a_silent_node_may_have_ended_with_a_lease() {
    let mut world = World::new();
    world.silent(1_000, 2);
    let case = world.exits(1_400, 0, ProcessExit::Signal(9)).settle();
    assert_eq!(case.verdict.blamed, on_node(2));
    assert_eq!(case.separate, []);
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
