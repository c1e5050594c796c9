//! Changes of nodes against a server: marks, conflicts, other managers.

use rankguard_kubernetes::mark::{CORDON_ANNOTATION, REPEATS_ANNOTATION, REPEATS_MAX, TAINT_KEY};
use rankguard_kubernetes::{ControllerChange, NodeUse, WriteOutcome};
use rankguard_model::NodeId;
use serde_json::{Value, json};

use crate::support::{Bench, block_on};

const CASE: &str = "case 12: gpu-fallen-off-bus on node n0";

fn taint_keys(node: &Value) -> Vec<&str> {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints.filter_map(|taint| taint["key"].as_str()).collect()
}

#[test]
fn a_cordon_has_its_mark_and_its_end_leaves_the_node_as_it_was() {
    block_on(async {
        let bench = Bench::start(1);
        let mut before = bench.server.cluster().node("n0");
        let action = bench.action("n0", &[CASE]).await;
        assert_eq!(
            bench.writer.write(&action).await.expect("an answer"),
            WriteOutcome::Written
        );
        let node = bench.server.cluster().node("n0");
        assert_eq!(node["spec"]["unschedulable"], true);
        assert_eq!(node["metadata"]["annotations"][CORDON_ANNOTATION], CASE);
        assert_eq!(taint_keys(&node), ["nvidia.com/gpu", TAINT_KEY]);
        // Taints of others are written back as they are.
        assert_eq!(node["spec"]["taints"][0], before["spec"]["taints"][0]);
        assert!(bench.plan("n0", &[CASE]).await.actions.is_empty());

        let action = bench.action("n0", &[]).await;
        assert_eq!(
            bench.writer.write(&action).await.expect("an answer"),
            WriteOutcome::Written
        );
        let mut after = bench.server.cluster().node("n0");
        for node in [&mut before, &mut after] {
            let metadata = node["metadata"].as_object_mut().expect("metadata");
            metadata.remove("resourceVersion");
            metadata.remove("managedFields");
            if metadata.get("annotations") == Some(&json!({})) {
                metadata.remove("annotations");
            }
        }
        assert_eq!(after, before);
    });
}

#[test]
fn a_change_in_between_leaves_the_node_to_the_next_comparison() {
    block_on(async {
        let bench = Bench::start(2);
        let action = bench.action("n0", &[CASE]).await;
        // The kubelet writes between the read and the patch.
        bench.server.cluster().interpose(1);
        assert_eq!(
            bench.writer.write(&action).await.expect("an answer"),
            WriteOutcome::Outdated
        );
        assert!(taint_keys(&bench.server.cluster().node("n0")) == ["nvidia.com/gpu"]);
        assert_eq!(
            bench.writer.write(&action).await.expect("an answer"),
            WriteOutcome::Written
        );
        // A plan of before: a person has taken the cordon over.
        let lift = bench.action("n0", &[]).await;
        bench.server.cluster().remove_annotation("n0", CORDON_ANNOTATION);
        assert_eq!(
            bench.writer.write(&lift).await.expect("an answer"),
            WriteOutcome::Outdated
        );
        assert_eq!(bench.server.cluster().node("n0")["spec"]["unschedulable"], true);
        // A node that is gone, and one that was created again.
        let action = bench.action("n1", &[CASE]).await;
        bench.server.cluster().delete_node("n1");
        assert_eq!(
            bench.writer.write(&action).await.expect("an answer"),
            WriteOutcome::Outdated
        );
        assert!(bench.server.cluster().node("n1").is_null());
    });
}

#[test]
fn the_cordon_of_a_person_is_mirrored_by_its_manager_and_its_end_ends_the_mirror() {
    block_on(async {
        let bench = Bench::start(1);
        let node = NodeId::from("n0");
        bench.server.cluster().cordon("n0", "kubectl-cordon");
        let reason = "cordoned in Kubernetes by kubectl-cordon".to_owned();
        let action = bench.action("n0", &[]).await;
        let due = WriteOutcome::Due(ControllerChange::Cordon(node.clone(), reason.clone()));
        assert_eq!(bench.writer.write(&action).await.expect("an answer"), due);
        // The person was faster than the program.
        bench.server.cluster().uncordon("n0", "kubectl-uncordon");
        assert_eq!(
            bench.writer.write(&action).await.expect("an answer"),
            WriteOutcome::Outdated
        );
        let action = bench.action("n0", &[&reason]).await;
        let due = WriteOutcome::Due(ControllerChange::Uncordon(node, vec![reason]));
        assert_eq!(bench.writer.write(&action).await.expect("an answer"), due);
        let requests = bench.server.cluster().take_requests();
        assert!(!requests.iter().any(|request| request.is_write()), "{requests:?}");
    });
}

#[test]
fn a_person_who_uncordons_again_and_again_has_their_way_in_the_end() {
    block_on(async {
        let bench = Bench::start(1);
        for repeats in 0..=REPEATS_MAX {
            let action = bench.action("n0", &[CASE]).await;
            assert_eq!(
                bench.writer.write(&action).await.expect("an answer"),
                WriteOutcome::Written
            );
            let node = bench.server.cluster().node("n0");
            let written = node["metadata"]["annotations"][REPEATS_ANNOTATION].as_str();
            assert_eq!(written.unwrap_or("0"), repeats.to_string());
            bench.server.cluster().uncordon("n0", "kubectl-uncordon");
        }
        let plan = bench.plan("n0", &[CASE]).await;
        assert!(plan.actions.is_empty(), "{plan:?}");
        assert_eq!(plan.overruled, ["n0"]);
        // The end of the case removes the mark, and the node stays in use.
        let action = bench.action("n0", &[]).await;
        assert_eq!(
            bench.writer.write(&action).await.expect("an answer"),
            WriteOutcome::Written
        );
        let node = bench.server.cluster().node("n0");
        assert_eq!(taint_keys(&node), ["nvidia.com/gpu"]);
        assert_eq!(bench.node("n0").await.node_use(), NodeUse::Open);
    });
}

#[test]
fn a_cordon_that_a_person_took_over_outlives_its_case_and_loses_its_taint_with_it() {
    block_on(async {
        let bench = Bench::start(1);
        let action = bench.action("n0", &[CASE]).await;
        bench.writer.write(&action).await.expect("written");
        bench.server.cluster().remove_annotation("n0", CORDON_ANNOTATION);
        assert!(matches!(bench.node("n0").await.node_use(), NodeUse::Closed { .. }));
        assert!(bench.plan("n0", &[CASE]).await.actions.is_empty());
        let patch = bench.node("n0").await.lift_patch();
        assert!(patch["spec"].get("unschedulable").is_none(), "{patch}");
        bench.server.cluster().uncordon("n0", "kubectl-uncordon");
        // What is left of the mark is removed.
        let action = bench.action("n0", &[]).await;
        assert_eq!(
            bench.writer.write(&action).await.expect("an answer"),
            WriteOutcome::Written
        );
        assert_eq!(taint_keys(&bench.server.cluster().node("n0")), ["nvidia.com/gpu"]);
        assert_eq!(bench.node("n0").await.node_use(), NodeUse::Open);
    });
}
