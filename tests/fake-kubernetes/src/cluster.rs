//! Objects of the cluster, and what people and other controllers do to them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::merge::record_owner;
use crate::rules::AccessRules;
use crate::server::RecordedRequest;

/// State of the server. Tests change it as people and other controllers would.
#[derive(Debug, Default)]
pub struct FakeCluster {
    /// Version of the newest change.
    pub(crate) version: u64,
    /// Versions below are forgotten.
    pub(crate) oldest: u64,
    /// Nodes by name.
    pub(crate) nodes: BTreeMap<String, Value>,
    /// Pods by namespace and name.
    pub(crate) pods: BTreeMap<(String, String), Value>,
    /// Leases by namespace and name.
    pub(crate) leases: BTreeMap<(String, String), Value>,
    /// Changes of nodes: version, kind, node.
    pub(crate) history: Vec<(u64, &'static str, Value)>,
    /// Tokens that are accepted; without one, every request is.
    pub(crate) tokens: BTreeSet<String>,
    /// Rights; without any, every request is permitted.
    pub(crate) rules: Option<AccessRules>,
    /// Recorded requests.
    pub(crate) requests: Vec<RecordedRequest>,
    /// Pods that a disruption budget protects.
    pub(crate) protected: BTreeSet<(String, String)>,
    /// Number of tokens of further pages that are answered with 410.
    pub(crate) expired_pages: u32,
    /// Number of conditional updates of nodes that find a change in between.
    pub(crate) interposed: u32,
    /// True while connections are closed without an answer.
    pub(crate) is_down: bool,
    /// Watches that began before this number end.
    pub(crate) watch_epoch: u64,
    /// Time of the server minus that of this machine, seconds.
    pub(crate) clock_offset: i64,
}

impl FakeCluster {
    /// Adds a node that accepts pods and has a condition of its kubelet.
    pub fn add_node(&mut self, name: &str) {
        self.version += 1;
        let version = self.version;
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "uid": format!("uid-{version}"),
                "resourceVersion": version.to_string(),
                "labels": { "kubernetes.io/hostname": name },
            },
            "spec": { "providerID": format!("fake://{name}"), "taints": [
                { "key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule", "timeAdded": "2026-11-30T00:00:00Z" },
            ] },
            "status": { "conditions": [
                { "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status" },
            ] },
        });
        self.history.push((version, "ADDED", node.clone()));
        self.nodes.insert(name.to_owned(), node);
    }

    /// Deletes a node.
    pub fn delete_node(&mut self, name: &str) {
        self.version += 1;
        let mut node = self.nodes.remove(name).expect("a node");
        node["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.history.push((self.version, "DELETED", node));
    }

    /// Changes a node as `manager` does.
    pub fn change_node(&mut self, name: &str, manager: &str, change: impl FnOnce(&mut Value)) {
        let before = self.nodes[name].clone();
        let mut node = before.clone();
        change(&mut node);
        record_owner(&mut node, &before, manager, "2026-11-30T12:00:00Z");
        self.store_node(name, node);
    }

    /// Cordons a node as `kubectl cordon` does.
    pub fn cordon(&mut self, name: &str, manager: &str) {
        self.change_node(name, manager, |node| node["spec"]["unschedulable"] = json!(true));
    }

    /// Uncordons a node as `kubectl uncordon` does.
    pub fn uncordon(&mut self, name: &str, manager: &str) {
        self.change_node(name, manager, |node| {
            node["spec"].as_object_mut().expect("a spec").remove("unschedulable");
        });
    }

    /// Removes an annotation as `kubectl annotate NODE KEY-` does.
    pub fn remove_annotation(&mut self, name: &str, key: &str) {
        self.change_node(name, "kubectl-annotate", |node| {
            if let Some(annotations) = node["metadata"]["annotations"].as_object_mut() {
                annotations.remove(key);
            }
        });
    }

    /// Returns a node; `Null` if there is none.
    pub fn node(&self, name: &str) -> Value {
        self.nodes.get(name).cloned().unwrap_or_default()
    }

    /// Returns a condition of a node; `Null` if there is none.
    pub fn condition(&self, name: &str, kind: &str) -> Value {
        let node = self.node(name);
        let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        conditions
            .find(|condition| condition["type"] == kind)
            .cloned()
            .unwrap_or_default()
    }

    /// Adds a running pod on a node.
    pub fn add_pod(&mut self, namespace: &str, name: &str, node: &str, metadata: Value) {
        self.version += 1;
        let mut pod = json!({
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": format!("uid-{}", self.version),
                "resourceVersion": self.version.to_string(),
            },
            "spec": { "nodeName": node },
            "status": { "phase": "Running" },
        });
        crate::merge::merge(&mut pod["metadata"], &metadata);
        self.pods.insert((namespace.to_owned(), name.to_owned()), pod);
    }

    /// Names of the pods.
    pub fn pod_names(&self) -> Vec<&str> {
        self.pods.keys().map(|(_, name)| name.as_str()).collect()
    }

    /// Protects a pod by a disruption budget, or no longer.
    pub fn protect(&mut self, namespace: &str, name: &str, is_protected: bool) {
        let pod = (namespace.to_owned(), name.to_owned());
        if is_protected {
            self.protected.insert(pod);
        } else {
            self.protected.remove(&pod);
        }
    }

    /// Replaces the tokens that are accepted.
    pub fn set_tokens(&mut self, tokens: &[&str]) {
        self.tokens = tokens.iter().map(|token| (*token).to_owned()).collect();
    }

    /// Sets the rights of all tokens.
    pub fn set_rules(&mut self, rules: AccessRules) {
        self.rules = Some(rules);
    }

    /// Forgets all versions and ends all watches: the next ones get 410.
    pub fn expire_history(&mut self) {
        self.version += 1;
        self.oldest = self.version;
        self.history.clear();
        self.watch_epoch += 1;
    }

    /// Answers this many tokens of further pages with 410.
    pub fn expire_pages(&mut self, pages: u32) {
        self.expired_pages = pages;
    }

    /// Lets this many updates of nodes find a change of the kubelet in between.
    pub fn interpose(&mut self, updates: u32) {
        self.interposed = updates;
    }

    /// Closes connections without an answer, and ends watches, or works again.
    pub fn set_down(&mut self, is_down: bool) {
        self.is_down = is_down;
        self.watch_epoch += 1;
    }

    /// Moves the clock of the server, seconds.
    pub fn set_clock_offset(&mut self, seconds: i64) {
        self.clock_offset = seconds;
    }

    /// Replaces the holder of a lease, as another program does.
    pub fn hold_lease(&mut self, namespace: &str, name: &str, holder: &str, seconds: u32) {
        self.version += 1;
        let lease = json!({
            "metadata": { "name": name, "namespace": namespace, "resourceVersion": self.version.to_string() },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": seconds, "leaseTransitions": 0 },
        });
        self.leases.insert((namespace.to_owned(), name.to_owned()), lease);
    }

    /// Holder of a lease; empty without one.
    pub fn lease_holder(&self, namespace: &str, name: &str) -> String {
        let lease = self.leases.get(&(namespace.to_owned(), name.to_owned()));
        let holder = lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str());
        holder.unwrap_or_default().to_owned()
    }

    /// Number of recorded watches since the requests were last taken.
    pub fn watches(&self) -> usize {
        self.requests.iter().filter(|request| request.verb == "watch").count()
    }

    /// Recorded requests since the last call.
    pub fn take_requests(&mut self) -> Vec<RecordedRequest> {
        std::mem::take(&mut self.requests)
    }

    pub(crate) fn store_node(&mut self, name: &str, mut node: Value) {
        self.version += 1;
        node["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.history.push((self.version, "MODIFIED", node.clone()));
        self.nodes.insert(name.to_owned(), node);
    }
}
