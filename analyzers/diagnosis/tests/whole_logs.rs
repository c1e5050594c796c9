//! Logs that were read as a whole: names of nodes and ranks in them.

use std::collections::BTreeMap;

use crate::world::{gpu, line, mark, node, off_the_bus, on_node, rank_of, with};
use rankguard_diagnosis::{FailureScene, SceneVerdict, Signal, diagnose};
use rankguard_faults::Catalogue;
use rankguard_model::{
    Classification, Entity, Evidence, EvidenceId, EvidenceSource, Generation, JobId, NodeId, Rank, Role, Sequence,
    SharedValue, Timestamp,
};

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
    assert_eq!(opinion.verdict.class.as_str(), "killed-by-signal");
    opinion.verdict.root_rank
}

#[test]
fn a_local_rank_is_no_global_rank_in_a_job_of_several_nodes() {
    assert_eq!(first_rank_of_local_1(on_node(3)), Some(Rank(5)));
    let job = JobId::from("train");
    assert_eq!(first_rank_of_local_1(Entity::Job { job }), None);
}
