//! Faults around the end of their job.

use crate::world::{World, class, gpu, line, off_the_bus};
use rankguard_model::{EvidenceSource, ProcessExit, Timestamp};

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
