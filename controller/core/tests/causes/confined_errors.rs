//! Errors of a GPU that the hardware confined to one process.

use std::time::Duration;

use rankguard_core::RULES;
use rankguard_model::{CheckpointTiers, Device, DeviceKind, Entity, EvidenceSource, Generation, ProcessExit, Role};

use super::{mark, policy, text};
use crate::cluster::{Cluster, job, node};

/// Reports an error that the hardware confined to one process of node 3, and the end of rank 6 there if it was that process.
fn contained_error(rules: u32, is_rank: bool, delay: Duration) -> Cluster {
    let mut cluster = Cluster::checkpointed(policy(rules), CheckpointTiers::default());
    let entity = Entity::Device {
        node: node(3),
        device: Device {
            kind: DeviceKind::Gpu,
            address: "0000:9b:00".to_owned(),
        },
    };
    let line = "NVRM: Xid (PCI:0000:9b:00): 94, pid=4411, name=python3, Contained: SM (0x1). RST: No, D-RST: No";
    let contained = vec![mark("gpu-ecc-contained", Role::Root)];
    cluster.report(node(3), EvidenceSource::KernelLog, entity, text(line), contained);
    cluster.wait(delay);
    if is_rank {
        cluster.exits(6, ProcessExit::Signal(6), false);
    }
    cluster.wait(Duration::from_secs(20));
    cluster
}

#[test]
fn an_error_that_is_confined_to_another_process_restarts_no_job() {
    let cluster = contained_error(RULES, false, Duration::ZERO);
    assert_eq!(cluster.generation(), Generation(1));
    let cordon = cluster.state.fleet().get(&node(3)).and_then(|node| node.cordon.clone());
    assert!(cordon.is_some(), "no further job is placed beside the faulty memory");
    let outcome = cluster.cases()[0].outcome.clone().expect("an outcome");
    let wanted = "node node-3 was taken out of use; the error is confined to the process that used the memory, and no rank \
                  of the job had failed, so nothing was restarted";
    assert_eq!(outcome, wanted);
    assert_eq!(contained_error(7, false, Duration::ZERO).generation(), Generation(2));
}

#[test]
fn an_error_that_is_confined_to_a_rank_restarts_its_job_elsewhere() {
    for delay in [Duration::ZERO, Duration::from_secs(15)] {
        let cluster = contained_error(RULES, true, delay);
        assert_eq!(cluster.generation(), Generation(2), "{delay:?}");
        assert!(!cluster.state.jobs()[&job()].nodes().contains(&node(3)));
    }
}

/// Reports lines of the kernel of node 3 about one GPU, each with its class, and the end of rank 6 there if it was the named
/// process.
fn named_process(rules: u32, lines: &[(&str, &str)], is_rank: bool) -> Cluster {
    let mut cluster = Cluster::checkpointed(policy(rules), CheckpointTiers::default());
    for (line, class) in lines {
        let entity = Entity::Device {
            node: node(3),
            device: Device {
                kind: DeviceKind::Gpu,
                address: "0000:9b:00".to_owned(),
            },
        };
        let marks = vec![mark(class, Role::Root)];
        cluster.report(node(3), EvidenceSource::KernelLog, entity, text(line), marks);
    }
    if is_rank {
        cluster.exits(6, ProcessExit::Signal(6), false);
    }
    cluster.wait(Duration::from_secs(20));
    cluster
}

const COPY_ENGINE: &str = "NVRM: Xid (PCI:0000:9b:00): 39, pid=4411, name=python3, Ch 00000008";

#[test]
fn an_error_for_which_the_vendor_restarts_the_program_restarts_no_job_of_another_one() {
    let lines = [(COPY_ENGINE, "gpu-internal-fault")];
    let cluster = named_process(RULES, &lines, false);
    assert_eq!(cluster.generation(), Generation(1));
    let outcome = cluster.cases()[0].outcome.clone().expect("an outcome");
    let wanted = "node node-3 was taken out of use; the error ends only the process that the driver names, and no rank of \
                  the job had failed, so nothing was restarted";
    assert_eq!(outcome, wanted);
    assert_eq!(named_process(7, &lines, false).generation(), Generation(2));
    // The process is a rank.
    let cluster = named_process(RULES, &lines, true);
    assert_eq!(cluster.generation(), Generation(2));
    assert!(!cluster.state.jobs()[&job()].nodes().contains(&node(3)));
}

#[test]
fn an_error_that_may_reach_further_than_its_process_restarts_the_job() {
    let unnamed = COPY_ENGINE.replace("pid=4411, name=python3", "pid='<unknown>', name=<unknown>");
    let reset = "NVRM: Xid (PCI:0000:9b:00): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed from 0x0 (None) \
                 to 0x1 (GPU Reset Required)";
    let timeout =
        "NVRM: Xid (PCI:0000:9b:00): 109, pid=4411, name=python3, Ch 00000008, errorString CTX SWITCH TIMEOUT";
    for lines in [
        vec![(unnamed.as_str(), "gpu-internal-fault")],
        vec![(timeout, "gpu-internal-fault")],
        vec![(COPY_ENGINE, "gpu-internal-fault"), (reset, "gpu-recovery-action")],
        vec![(COPY_ENGINE, "gpu-internal-fault"), (timeout, "gpu-internal-fault")],
    ] {
        assert_eq!(
            named_process(RULES, &lines, false).generation(),
            Generation(2),
            "{lines:?}"
        );
    }
}
