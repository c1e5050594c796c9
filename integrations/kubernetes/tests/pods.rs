//! Pods: jobs by labels, evictions, disruption budgets.

use rankguard_kubernetes::objects::PodObject;
use rankguard_kubernetes::{EvictionExemption, EvictionOutcome, disturbed_jobs, eviction_exemption, pod_job};
use serde_json::{Value, json};

use crate::support::{Bench, block_on};

fn pod(metadata: Value, phase: &str) -> PodObject {
    let mut metadata = metadata;
    metadata["namespace"] = json!("train");
    serde_json::from_value(json!({ "metadata": metadata, "status": { "phase": phase } })).expect("a pod")
}

#[track_caller]
fn check_job(labels: Value, wanted: Option<&str>) {
    let found = pod_job(&pod(json!({ "name": "p", "labels": labels }), "Running"));
    assert_eq!(found.map(|job| job.to_string()).as_deref(), wanted);
}

#[test]
fn the_job_of_a_pod_follows_from_the_labels_of_its_operator() {
    let job_set = json!({
        "jobset.sigs.k8s.io/jobset-name": "llama",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "batch.kubernetes.io/job-name": "llama-node-0",
        "job-name": "llama-node-0",
    });
    check_job(job_set.clone(), Some("JobSet train/llama"));
    let mut train_job = job_set;
    train_job["trainer.kubeflow.org/trainjob-ancestor-step"] = json!("trainer");
    check_job(train_job, Some("TrainJob train/llama"));
    let training = json!({
        "training.kubeflow.org/job-name": "bert",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-type": "worker",
    });
    check_job(training, Some("PyTorchJob train/bert"));
    check_job(
        json!({ "training.kubeflow.org/job-name": "bert" }),
        Some("training job train/bert"),
    );
    check_job(json!({ "ray.io/cluster": "tune" }), Some("RayCluster train/tune"));
    check_job(json!({ "job-name": "once" }), Some("Job train/once"));
    check_job(json!({ "app": "web" }), None);
    check_job(Value::Null, None);
}

#[test]
fn pods_that_an_eviction_would_not_help_are_left_alone() {
    let owned = |kind: &str, controller| {
        let owner = json!({ "kind": kind, "name": "x", "controller": controller });
        json!({ "name": "p", "ownerReferences": [owner] })
    };
    let check = |metadata, phase: &str, wanted| assert_eq!(eviction_exemption(&pod(metadata, phase)), wanted);
    check(owned("DaemonSet", true), "Running", Some(EvictionExemption::DaemonSet));
    check(owned("ReplicaSet", true), "Running", None);
    let mirror = json!({ "name": "p", "annotations": { "kubernetes.io/config.mirror": "x" } });
    check(mirror, "Running", Some(EvictionExemption::MirrorPod));
    check(json!({ "name": "p" }), "Succeeded", Some(EvictionExemption::Ended));
    let ending = json!({ "name": "p", "deletionTimestamp": "2026-11-30T12:00:00Z" });
    check(ending, "Running", Some(EvictionExemption::Ending));
    check(json!({ "name": "p" }), "Pending", None);
    // A job is named once, and not for pods that have ended.
    let of = |name: &str, phase| pod(json!({ "name": "p", "labels": { "job-name": name } }), phase);
    let jobs = disturbed_jobs(&[
        of("b", "Running"),
        of("a", "Running"),
        of("b", "Pending"),
        of("c", "Failed"),
    ]);
    let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
    assert_eq!(jobs, ["Job train/a", "Job train/b"]);
}

#[test]
fn an_eviction_obeys_budgets_and_ends_no_pod_that_replaced_the_one_it_means() {
    block_on(async {
        let bench = Bench::start(2);
        {
            let mut cluster = bench.server.cluster();
            cluster.add_pod("train", "worker-0", "n0", json!({}));
            cluster.add_pod("train", "worker-1", "n0", json!({}));
            cluster.add_pod("train", "worker-2", "n1", json!({}));
            cluster.protect("train", "worker-0", true);
        }
        let pods = bench.api.pods_on("n0").await.expect("listed");
        assert_eq!(pods.len(), 2);
        let held = bench.api.evict(&pods[0]).await.expect("an answer");
        assert!(
            matches!(&held, EvictionOutcome::Held { why, retry_after: Some(_) } if why.contains("disruption budget")),
            "{held:?}"
        );
        assert_eq!(
            bench.api.evict(&pods[1]).await.expect("an answer"),
            EvictionOutcome::Evicted
        );
        assert_eq!(
            bench.api.evict(&pods[1]).await.expect("an answer"),
            EvictionOutcome::Gone
        );
        // A pod of the same name that came later.
        {
            let mut cluster = bench.server.cluster();
            cluster.add_pod("train", "worker-0", "n0", json!({}));
            cluster.protect("train", "worker-0", false);
        }
        assert_eq!(
            bench.api.evict(&pods[0]).await.expect("an answer"),
            EvictionOutcome::Gone
        );
        assert_eq!(bench.server.cluster().pod_names(), ["worker-0", "worker-2"]);
    });
}
