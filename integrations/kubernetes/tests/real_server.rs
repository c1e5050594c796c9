//! The client against a real kube-apiserver, which `tests/kubernetes.sh` builds and starts.
//!
//! `RANKGUARD_TEST_KUBERNETES` is a folder with `url`, `ca.crt`, `admin-token` (system:masters) and `sync-token` (the user
//! `sync`, without rights of its own).

#![allow(clippy::print_stderr, reason = "a test that cannot run reports it")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use rankguard_kubernetes::mark::{CORDON_ANNOTATION, CordonMark, TAINT_KEY};
use rankguard_kubernetes::{
    ApiClient, ControllerCordon, EvictionOutcome, LeaseClaim, NodeRecord, NodeUse, NodeWatch, NodeWriter, ServerAccess,
    SyncAction, WantedCondition, WriteOutcome, reconcile,
};
use rankguard_scheduler_nodes::NodeLimit;
use rankguard_web_client::{Deadlines, WebClient};
use serde_json::{Value, json};

use crate::conditions::view;
use crate::support::{block_on, pair, until};

const CASE: &str = "case 12: gpu-fallen-off-bus on node r0, gpu 0000:9b:00";

/// Requests of an administrator.
struct Administrator {
    client: WebClient,
    url: String,
    token: String,
}

impl Administrator {
    fn new(folder: &Path) -> Self {
        let deadlines = Deadlines {
            connect: Duration::from_secs(5),
            request: Duration::from_secs(20),
        };
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a file of the folder");
        Self {
            client: WebClient::new(Some(&folder.join("ca.crt")), deadlines).expect("a client"),
            url: read("url").trim().to_owned(),
            token: read("admin-token").trim().to_owned(),
        }
    }

    async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let url = format!("{}{path}", self.url).parse().expect("an address");
        let request = self.client.request(method.parse().expect("a method"), url);
        let request = request.bearer_auth(&self.token).header("content-type", kind);
        let answer = request.body(body.to_string()).send().await.expect("an answer");
        let code = answer.status().as_u16();
        let text = answer.text().await.expect("a body");
        (code, serde_json::from_str(&text).unwrap_or_default())
    }

    async fn create(&self, path: &str, body: Value) {
        let (code, answer) = self.send("POST", path, "application/json", &body).await;
        assert!(code == 201 || code == 409, "{code} {answer}");
    }

    /// Changes a node as `manager` does.
    async fn change(&self, node: &str, manager: &str, patch: Value) {
        let path = format!("/api/v1/nodes/{node}?fieldManager={manager}");
        let (code, answer) = self.send("PATCH", &path, "application/merge-patch+json", &patch).await;
        assert_eq!(code, 200, "{answer}");
    }

    async fn node(&self, name: &str) -> Value {
        let path = format!("/api/v1/nodes/{name}");
        self.send("GET", &path, "application/json", &Value::Null).await.1
    }

    /// Creates all objects of the shipped manifests; the rights of the program go to the user `sync`.
    async fn install(&self) {
        for mut document in crate::manifests::documents() {
            let rights = "/apis/rbac.authorization.k8s.io/v1";
            let path = match document["kind"].as_str() {
                Some("Namespace") => "/api/v1/namespaces".to_owned(),
                Some("ClusterRole") => format!("{rights}/clusterroles"),
                Some("ClusterRoleBinding") => format!("{rights}/clusterrolebindings"),
                Some("Role") => format!("{rights}/namespaces/rankguard/roles"),
                Some("RoleBinding") => format!("{rights}/namespaces/rankguard/rolebindings"),
                Some("Deployment") => "/apis/apps/v1/namespaces/rankguard/deployments".to_owned(),
                Some("DaemonSet") => "/apis/apps/v1/namespaces/rankguard/daemonsets".to_owned(),
                Some("ServiceAccount") => "/api/v1/namespaces/rankguard/serviceaccounts".to_owned(),
                Some("Service") => "/api/v1/namespaces/rankguard/services".to_owned(),
                Some("PersistentVolumeClaim") => "/api/v1/namespaces/rankguard/persistentvolumeclaims".to_owned(),
                kind => panic!("{kind:?} has no path"),
            };
            if document["subjects"].is_array() {
                let user = json!({ "kind": "User", "name": "sync", "apiGroup": "rbac.authorization.k8s.io" });
                document["subjects"] = json!([user]);
            }
            self.create(&path, document).await;
        }
    }

    async fn add_pod(&self, name: &str) {
        let pod = json!({
            "metadata": { "name": name, "labels": { "app": name, "jobset.sigs.k8s.io/jobset-name": "llama" } },
            "spec": {
                "nodeName": "r0",
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": false,
                "containers": [{ "name": "main", "image": "none" }],
            },
        });
        self.create("/api/v1/namespaces/default/pods", pod).await;
        // Budgets protect no pod that is pending.
        let path = format!("/api/v1/namespaces/default/pods/{name}/status");
        let running = json!({ "status": { "phase": "Running" } });
        let (code, answer) = self
            .send("PATCH", &path, "application/merge-patch+json", &running)
            .await;
        assert_eq!(code, 200, "{answer}");
    }
}

/// Client of the program with the token of the user `sync`.
struct RealBench {
    admin: Administrator,
    api: ApiClient,
    watch: NodeWatch,
    writer: NodeWriter,
}

impl RealBench {
    async fn start(folder: &Path) -> Self {
        let admin = Administrator::new(folder);
        admin.install().await;
        // What an earlier run left.
        admin
            .send("DELETE", "/api/v1/nodes/r0", "application/json", &json!({}))
            .await;
        for number in 0..600 {
            let node = json!({ "metadata": { "name": format!("r{number}") }, "spec": { "taints": [
                { "key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule" },
            ] } });
            admin.create("/api/v1/nodes", node).await;
        }
        let (token, ca) = (folder.join("sync-token"), folder.join("ca.crt"));
        let access = ServerAccess::of_address(&admin.url, Some(token), Some(ca)).expect("an address");
        let api = ApiClient::new(access).expect("a client");
        let watch = NodeWatch::new(api.clone(), None);
        Self {
            writer: NodeWriter::new(api.clone(), watch.clone()),
            watch,
            api,
            admin,
        }
    }

    async fn node(&self, name: &str) -> NodeRecord {
        self.watch.read(name).await.expect("an answer").expect("a node")
    }

    async fn action(&self, name: &str, reasons: &[&str]) -> SyncAction {
        let pair = pair(name, self.node(name).await.node_use(), reasons);
        let mut plan = reconcile(&[pair], NodeLimit::Percent(100));
        assert_eq!(plan.actions.len(), 1, "{plan:?}");
        plan.actions.remove(0)
    }

    async fn write(&self, name: &str, reasons: &[&str]) {
        let action = self.action(name, reasons).await;
        assert_eq!(
            self.writer.write(&action).await.expect("an answer"),
            WriteOutcome::Written
        );
    }
}

#[test]
fn a_real_server_answers_as_the_client_expects() {
    let Some(folder) = std::env::var_os("RANKGUARD_TEST_KUBERNETES").map(PathBuf::from) else {
        eprintln!("SKIPPED: RANKGUARD_TEST_KUBERNETES is not set (tests/kubernetes.sh sets it)");
        return;
    };
    block_on(async {
        let bench = RealBench::start(&folder).await;
        nodes_are_followed(&bench).await;
        marks_and_conflicts(&bench).await;
        conditions_beside_others(&bench).await;
        evictions_and_budgets(&bench).await;
        leases_and_rights(&bench).await;
    });
}

async fn nodes_are_followed(bench: &RealBench) {
    let watch = bench.watch.clone();
    let follower = tokio::spawn(async move { watch.run().await });
    let nodes = || bench.watch.nodes().ok().flatten().unwrap_or_default();
    until("two pages of nodes", || nodes().len() >= 600).await;
    bench
        .admin
        .change("r1", "kubectl-cordon", json!({ "spec": { "unschedulable": true } }))
        .await;
    let closed = NodeUse::Closed {
        manager: Some("kubectl-cordon".to_owned()),
    };
    until("the cordon of a person", || {
        nodes()
            .iter()
            .any(|node| node.name == "r1" && node.node_use() == closed)
    })
    .await;
    bench
        .admin
        .change("r1", "kubectl-uncordon", json!({ "spec": { "unschedulable": null } }))
        .await;
    bench
        .admin
        .create("/api/v1/nodes", json!({ "metadata": { "name": "short-lived" } }))
        .await;
    until("a new node", || nodes().iter().any(|node| node.name == "short-lived")).await;
    bench
        .admin
        .send("DELETE", "/api/v1/nodes/short-lived", "application/json", &json!({}))
        .await;
    until("a deletion", || !nodes().iter().any(|node| node.name == "short-lived")).await;
    assert_eq!(bench.node("r1").await.node_use(), NodeUse::Open);
    follower.abort();
    // A version of before the compaction, as far as a young server has one, is an error and no silence.
    let problem = bench.api.watch_nodes("no-version").await.expect_err("no version");
    assert!(problem.code() >= 400, "{problem}");
}

async fn marks_and_conflicts(bench: &RealBench) {
    bench.write("r0", &[CASE]).await;
    let node = bench.admin.node("r0").await;
    assert_eq!(node["metadata"]["annotations"][CORDON_ANNOTATION], CASE);
    assert_eq!(node["spec"]["unschedulable"], true);
    assert_eq!(node["spec"]["taints"][0]["key"], "nvidia.com/gpu");
    assert_eq!(node["spec"]["taints"][1]["key"], TAINT_KEY);
    // A patch that rests on an older version.
    let stale = bench.node("r0").await;
    bench
        .admin
        .change(
            "r0",
            "kubelet",
            json!({ "metadata": { "labels": { "changed": stale.resource_version } } }),
        )
        .await;
    let refused = bench
        .api
        .patch_node("r0", &stale.cordon_patch(&CordonMark::default()))
        .await;
    assert!(refused.expect_err("an older version").is_conflict());
    bench
        .admin
        .change("r0", "kubectl-uncordon", json!({ "spec": { "unschedulable": null } }))
        .await;
    assert!(matches!(bench.node("r0").await.node_use(), NodeUse::Reopened(_)));
    bench.write("r0", &[CASE]).await;
    assert!(matches!(bench.node("r0").await.node_use(), NodeUse::Mirrored(mark) if mark.repeats == 1));
    bench.write("r0", &[]).await;
    let node = bench.admin.node("r0").await;
    assert!(
        node["spec"]["unschedulable"].is_null() && node["metadata"]["annotations"].is_null(),
        "{node}"
    );
    assert_eq!(node["spec"]["taints"].as_array().map(Vec::len), Some(1));
}

async fn conditions_beside_others(bench: &RealBench) {
    let ready =
        json!({ "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady" }] } });
    let path = "/api/v1/nodes/r0/status?fieldManager=kubelet";
    let kind = "application/strategic-merge-patch+json";
    assert_eq!(bench.admin.send("PATCH", path, kind, &ready).await.0, 200);
    for reasons in [vec![], vec![CASE.to_owned()]] {
        let cordon = ControllerCordon {
            reasons,
            class: Some("gpu-fallen-off-bus".to_owned()),
        };
        let wanted = WantedCondition::of(&view(rankguard_model::NodeState::Healthy), &cordon, None);
        let found = bench.node("r0").await.condition;
        let condition = wanted.at(found.as_ref(), bench.api.server_time());
        assert!(bench.writer.report("r0", &condition).await.expect("written"));
        assert_eq!(bench.node("r0").await.condition, Some(condition));
    }
    let node = bench.admin.node("r0").await;
    assert_eq!(node["status"]["conditions"].as_array().map(Vec::len), Some(2), "{node}");
    assert_eq!(node["status"]["conditions"][0]["type"], "Ready");
    let wanted = WantedCondition::of(
        &view(rankguard_model::NodeState::Healthy),
        &ControllerCordon::default(),
        None,
    );
    let condition = wanted.at(None, bench.api.server_time());
    assert!(!bench.writer.report("r-none", &condition).await.expect("an answer"));
}

async fn evictions_and_budgets(bench: &RealBench) {
    bench.admin.add_pod("free").await;
    bench.admin.add_pod("protected").await;
    let budget = |version: &str| {
        json!({
            "apiVersion": version,
            "kind": "PodDisruptionBudget",
            "metadata": { "name": "protected" },
            "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "protected" } } },
        })
    };
    for version in ["policy/v1", "policy/v1beta1"] {
        let path = format!("/apis/{version}/namespaces/default/poddisruptionbudgets");
        bench
            .admin
            .send("POST", &path, "application/json", &budget(version))
            .await;
    }
    let pods = bench.api.pods_on("r0").await.expect("listed");
    let pod = |name: &str| pods.iter().find(|pod| pod.metadata.name == name).expect("a pod");
    assert_eq!(
        rankguard_kubernetes::disturbed_jobs(&pods)[0].to_string(),
        "JobSet default/llama"
    );
    let held = bench.api.evict(pod("protected")).await.expect("an answer");
    assert!(matches!(held, EvictionOutcome::Held { .. }), "{held:?}");
    let mut other = pod("free").clone();
    other.metadata.uid = "of-another-pod".to_owned();
    assert_eq!(bench.api.evict(&other).await.expect("an answer"), EvictionOutcome::Gone);
    assert_eq!(
        bench.api.evict(pod("free")).await.expect("an answer"),
        EvictionOutcome::Evicted
    );
    assert_eq!(
        bench.api.evict(pod("free")).await.expect("an answer"),
        EvictionOutcome::Gone
    );
}

async fn leases_and_rights(bench: &RealBench) {
    let claim = |namespace: &str, identity: &str| {
        LeaseClaim::new(bench.api.clone(), namespace, "rankguard-sync", identity.to_owned())
    };
    let (mut one, mut two) = (claim("rankguard", "one"), claim("rankguard", "two"));
    assert!(one.refresh().await.expect("created"));
    assert!(!two.refresh().await.expect("read"));
    one.release().await.expect("released");
    let mut three = claim("rankguard", "three");
    assert!(three.refresh().await.expect("taken"));
    three.release().await.expect("released");
    assert_eq!(
        claim("default", "one").refresh().await.expect_err("no right").code(),
        403
    );
}
