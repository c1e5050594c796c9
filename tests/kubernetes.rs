//! Node states beside an API server of Kubernetes: a controller, two agents, and the server of `tests/fake-kubernetes` with
//! the rights of the shipped manifest.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rankguard_fake_kubernetes::{AccessRules, FakeServer, yaml_documents};
use serde_json::{Value, json};

use crate::support::cluster::text_of;
use crate::support::{Daemon, Ran, nodes, rankguard, until};

const LIMIT: Duration = Duration::from_secs(60);
const XID: &str = "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.";
const TAINT: &str = "rankguard.io/unhealthy";

/// Kubernetes and Rankguard side by side, with the nodes n1 and n2.
struct BothSides {
    server: FakeServer,
    rankguard: nodes::Cluster,
}

impl BothSides {
    /// Starts both sides; n1 reads this file as its kernel log.
    fn start(kernel: &Path) -> Self {
        let settings = "[controller.policy]\ngather_ms = 200\nsettle_ms = 300\n";
        let mut cluster = nodes::Cluster::start_kernel_log(settings, kernel);
        let agent = nodes::Cluster::agent(cluster.dir.path(), &cluster.address, "n2");
        cluster.agents.push(agent);
        cluster.joined(2);
        let server = FakeServer::start();
        fs::write(cluster.dir.path().join("ca.crt"), &server.ca_pem).expect("written");
        fs::write(cluster.dir.path().join("token"), "secret").expect("written");
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/kubernetes/sync.yaml");
        let manifest = fs::read_to_string(manifest).expect("the manifest");
        {
            let mut state = server.cluster();
            state.set_tokens(&["secret"]);
            state.set_rules(AccessRules::of_documents(&yaml_documents(&manifest)));
            ["n1", "n2", "n3"].iter().for_each(|name| state.add_node(name));
        }
        Self {
            server,
            rankguard: cluster,
        }
    }

    /// Words of a command with the server.
    fn words(&self, command: &[&str]) -> Vec<String> {
        let dir = self.rankguard.dir.path();
        let (ca, token) = (dir.join("ca.crt"), dir.join("token"));
        let server = [
            "--kubernetes",
            &self.server.url,
            "--kubernetes-ca",
            text_of(&ca),
            "--token-file",
            text_of(&token),
        ];
        [&["kubernetes"], command, &server[..]]
            .concat()
            .iter()
            .map(|word| (*word).to_owned())
            .collect()
    }

    fn run(&self, command: &[&str]) -> Ran {
        let words = self.words(command);
        rankguard(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn start_sync(&self, more: &[&str], log: &str) -> Daemon {
        let sync = ["sync", "--interval", "1", "--controller", &self.rankguard.address];
        let words = self.words(&[&sync[..], more].concat());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Daemon::start(&words, &self.rankguard.dir.path().join(log))
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.rankguard.dir.path().join(name)).unwrap_or_default()
    }

    fn await_log(&self, name: &str, text: &str) {
        until(&format!("{text:?} in {name}"), LIMIT, || {
            self.log(name).contains(text).then_some(())
        });
    }

    fn await_node(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) {
        until(&format!("node {name} {what}"), LIMIT, || {
            wanted(&self.server.cluster().node(name)).then_some(())
        });
    }

    fn await_condition(&self, node: &str, status: &str, reason: &str) {
        until(&format!("condition {status} ({reason}) of {node}"), LIMIT, || {
            let condition = self.server.cluster().condition(node, "RankguardHealthy");
            (condition["status"] == status && condition["reason"] == reason).then_some(())
        });
    }

    fn await_reasons(&self, node: &str, wanted: &[&str]) {
        until(&format!("the cordon of {node}: {wanted:?}"), LIMIT, || {
            let nodes = self.rankguard.ask(&["status", "nodes", "--format", "json"]);
            let view = nodes.as_array()?.iter().find(|view| view["node"] == *node)?.clone();
            let reasons = view["cordon"]["reasons"].as_array().cloned().unwrap_or_default();
            (reasons == wanted).then_some(())
        });
    }
}

fn is_cordoned(node: &Value) -> bool {
    node["spec"]["unschedulable"] == true
}

fn taint_value(node: &Value) -> Option<String> {
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let taint = taints.find(|taint| taint["key"] == TAINT)?;
    Some(taint["value"].as_str()?.to_owned())
}

#[test]
fn kubernetes_and_rankguard_agree_and_nothing_is_written_before_a_person_permits_it() {
    let kernel = tempfile::NamedTempFile::new().expect("a file");
    let sides = BothSides::start(kernel.path());
    let fault = || fs::write(kernel.path(), format!("{XID}\n")).expect("written");
    nothing_is_written_by_dry_and_shadow_runs(&sides, fault);
    let sync = a_case_cordons_taints_and_evicts(&sides);
    cordons_of_people_and_a_server_that_is_away(&sides, sync);
}

fn nothing_is_written_by_dry_and_shadow_runs(sides: &BothSides, fault: impl Fn()) {
    {
        let mut state = sides.server.cluster();
        let labels = json!({ "labels": { "jobset.sigs.k8s.io/jobset-name": "llama" } });
        state.add_pod("train", "llama-0", "n1", labels);
        state.add_pod("train", "web-0", "n1", json!({}));
        state.protect("train", "web-0", true);
        let owner = json!({ "kind": "DaemonSet", "name": "rankguard-agent", "controller": true });
        state.add_pod("rankguard", "agent-0", "n1", json!({ "ownerReferences": [owner] }));
    }
    let dry = ["sync", "--dry-run", "--evict", "--controller", &sides.rankguard.address];
    let shadow = sides.start_sync(&["--shadow"], "shadow.log");
    fault();
    sides.await_log(
        "shadow.log",
        "would have: cordon n1 in Kubernetes: case 1: gpu-fallen-off-bus",
    );
    drop(shadow);
    let ran = sides.run(&dry).expect(1);
    assert!(
        ran.stdout
            .contains("cordon n1 in Kubernetes: case 1: gpu-fallen-off-bus"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stderr.contains("by rule: condition: 2, cordon: 1, evict: 2"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("nodes of one side only: n3 (Kubernetes)"),
        "{}",
        ran.stderr
    );
    let requests = sides.server.cluster().take_requests();
    let writes: Vec<_> = requests.iter().filter(|request| request.is_write()).collect();
    assert!(!requests.is_empty() && writes.is_empty(), "{writes:?}");
}

/// Begins with a case about n1; the limit of two nodes is one.
fn a_case_cordons_taints_and_evicts(sides: &BothSides) -> Daemon {
    let pods = sides.run(&["pods", "n1"]).expect(0).stdout;
    assert!(
        pods.contains("JobSet llama") && pods.contains("of a DaemonSet"),
        "{pods}"
    );
    let first = sides.start_sync(&["--evict"], "first.log");
    sides.await_condition("n1", "False", "gpu-fallen-off-bus");
    sides.await_condition("n2", "True", "healthy");
    let node = sides.server.cluster().node("n1");
    assert!(is_cordoned(&node), "{node}");
    assert_eq!(taint_value(&node).as_deref(), Some("gpu-fallen-off-bus"));
    sides.await_log("first.log", "jobs with pods on n1: JobSet train/llama");
    until("the eviction", LIMIT, || {
        (sides.server.cluster().pod_names() == ["agent-0", "web-0"]).then_some(())
    });
    sides.await_log("first.log", "pod train/web-0 stays on n1 for now");
    sides.server.cluster().protect("train", "web-0", false);
    until("the second eviction", LIMIT, || {
        (sides.server.cluster().pod_names() == ["agent-0"]).then_some(())
    });
    first
}

/// Begins with n1 cordoned by a case, and a program that holds the lease.
fn cordons_of_people_and_a_server_that_is_away(sides: &BothSides, mut first: Daemon) {
    // A second program waits for the lease, and acts when the first one ends.
    let _second = sides.start_sync(&[], "second.log");
    sides.await_log("second.log", "another program holds the lease");
    assert_eq!(first.terminate(LIMIT), Some(0));
    sides.await_log("second.log", "this program holds the lease");
    // The cordon of Rankguard stands although a person uncordons.
    sides.server.cluster().uncordon("n1", "kubectl-uncordon");
    sides.await_node("n1", "cordoned again", is_cordoned);
    // The limit holds for a second node.
    let cordon = [
        "node",
        "cordon",
        "n2",
        "--reason",
        "ticket 1",
        "--controller",
        &sides.rankguard.address,
    ];
    rankguard(&cordon).expect(0);
    sides.await_log("second.log", "LIMIT REACHED");
    assert!(!is_cordoned(&sides.server.cluster().node("n2")));
    // In this order: where n1 is in use again, n2 may be cordoned within the limit.
    for node in ["n2", "n1"] {
        rankguard(&["node", "uncordon", node, "--controller", &sides.rankguard.address]).expect(0);
    }
    sides.await_node("n1", "in use", |node| !is_cordoned(node) && taint_value(node).is_none());
    sides.await_condition("n1", "True", "healthy");
    // A person's cordon, made while the server was away for the program.
    {
        let mut state = sides.server.cluster();
        state.set_down(true);
        state.cordon("n2", "kubectl-cordon");
    }
    sides.await_log("second.log", "Kubernetes does not answer");
    sides.server.cluster().set_down(false);
    sides.await_reasons("n2", &["cordoned in Kubernetes by kubectl-cordon"]);
    assert!(taint_value(&sides.server.cluster().node("n2")).is_none());
    sides.server.cluster().uncordon("n2", "kubectl-uncordon");
    sides.await_reasons("n2", &[]);
    let refused = sides
        .server
        .cluster()
        .take_requests()
        .into_iter()
        .filter(|request| request.code == 403);
    assert_eq!(refused.count(), 0);
}

/// Words of the containers of the manifests that are shipped.
fn container_words() -> Vec<Vec<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes");
    let files = ["controller.yaml", "agent.yaml", "sync.yaml"];
    let text = |name: &str| fs::read_to_string(folder.join(name)).expect("a manifest");
    let documents = files.iter().flat_map(|name| yaml_documents(&text(name)));
    let words = documents.filter_map(|document| {
        let words = document["spec"]["template"]["spec"]["containers"][0]["args"]
            .as_array()?
            .clone();
        Some(
            words
                .iter()
                .map(|word| word.as_str().expect("a word").to_owned())
                .collect(),
        )
    });
    words.collect()
}

#[test]
fn manifests_start_commands_that_there_are_with_settings_that_there_are() {
    let all = container_words();
    assert_eq!(all.len(), 3, "controller, agent and sync");
    for words in &all {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ran = rankguard(&[&words[..], &["--help"]].concat()).expect(0);
        for flag in words.iter().filter(|word| word.starts_with("--")) {
            assert!(ran.stdout.contains(flag), "{flag} is no flag of {words:?}");
        }
    }
    let settings = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/kubernetes/rankguard.toml");
    let shown = rankguard(&["--config", settings, "config", "show"]).expect(0).stdout;
    assert!(shown.contains("rankguard-controller.rankguard.svc:7700"), "{shown}");
}
