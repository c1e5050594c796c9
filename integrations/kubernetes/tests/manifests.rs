//! Manifests of `deploy/kubernetes`: every field is one that Kubernetes defines, and the documents refer to each other.
//!
//! `schema.json` has the names and types of the fields of Kubernetes 1.20.2, from its own OpenAPI document.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rankguard_fake_kubernetes::yaml_documents;
use serde_json::{Map, Value};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap_or_else(|problem| panic!("{name}: {problem}"))
}

/// Names of the resources of the kustomization.
fn resources() -> Vec<String> {
    let kustomization = &yaml_documents(&read("kustomization.yaml"))[0];
    let names = kustomization["resources"].as_array().expect("resources").iter();
    names.map(|name| name.as_str().expect("a name").to_owned()).collect()
}

/// Documents of all resources.
pub(crate) fn documents() -> Vec<Value> {
    resources()
        .iter()
        .flat_map(|name| yaml_documents(&read(name)))
        .collect()
}

/// Field names and types of Kubernetes.
struct ApiSchema(Value);

impl ApiSchema {
    fn load() -> Self {
        Self(serde_json::from_str(include_str!("schema.json")).expect("JSON"))
    }

    /// Returns the mistakes of a document.
    fn mistakes(&self, document: &Value) -> Vec<String> {
        let kind = document["kind"].as_str().unwrap_or_default();
        let Some(root) = self.0["kinds"][kind].as_str() else {
            return vec![format!("kind {kind:?} is not known")];
        };
        let mut mistakes = Vec::new();
        self.check(&format!("@{root}"), document, kind, &mut mistakes);
        mistakes
    }

    fn check(&self, wanted: &str, value: &Value, path: &str, mistakes: &mut Vec<String>) {
        let is_fit = if let Some(name) = wanted.strip_prefix('@') {
            match &self.0["types"][name] {
                Value::Object(fields) => return self.check_object(fields, value, path, mistakes),
                Value::String(kind) => match kind.as_str() {
                    "int-or-string" => value.is_i64() || value.is_string(),
                    _ => value.is_string() || value.is_number(),
                },
                _ => false,
            }
        } else if let Some(items) = wanted.strip_prefix('[') {
            let list = value.as_array().into_iter().flatten();
            list.enumerate()
                .for_each(|(at, item)| self.check(items, item, &format!("{path}[{at}]"), mistakes));
            value.is_array()
        } else if let Some(values) = wanted.strip_prefix('{') {
            let map = value.as_object().into_iter().flatten();
            map.for_each(|(name, item)| self.check(values, item, &format!("{path}.{name}"), mistakes));
            value.is_object()
        } else {
            match wanted {
                "string" => value.is_string(),
                "integer" => value.is_i64(),
                "boolean" => value.is_boolean(),
                "number" => value.is_number(),
                _ => true,
            }
        };
        if !is_fit {
            mistakes.push(format!("{path}: {value} is no {wanted}"));
        }
    }

    fn check_object(&self, fields: &Map<String, Value>, value: &Value, path: &str, mistakes: &mut Vec<String>) {
        let Some(object) = value.as_object() else {
            return mistakes.push(format!("{path}: {value} is no object"));
        };
        for (name, item) in object {
            match fields.get(name).and_then(Value::as_str).filter(|_| name != "!") {
                Some(wanted) => self.check(wanted, item, &format!("{path}.{name}"), mistakes),
                None => mistakes.push(format!("{path}: Kubernetes has no field {name}")),
            }
        }
        let required = fields.get("!").and_then(Value::as_str).unwrap_or_default();
        for name in required.split_whitespace().filter(|name| !object.contains_key(*name)) {
            mistakes.push(format!("{path}: {name} is missing"));
        }
    }
}

#[test]
fn every_field_of_the_manifests_is_one_of_kubernetes() {
    let schema = ApiSchema::load();
    let documents = documents();
    assert!(documents.len() >= 12, "{} documents", documents.len());
    for document in &documents {
        assert_eq!(schema.mistakes(document), Vec::<String>::new());
        let is_cluster_wide = matches!(
            document["kind"].as_str(),
            Some("Namespace" | "ClusterRole" | "ClusterRoleBinding")
        );
        assert_eq!(
            document["metadata"]["namespace"].is_null(),
            is_cluster_wide,
            "{document}"
        );
    }
    // The check finds what it is for.
    let deployment = documents
        .iter()
        .find(|document| document["kind"] == "Deployment")
        .expect("one");
    let planted = |change: &dyn Fn(&mut Value)| {
        let mut wrong = deployment.clone();
        change(&mut wrong["spec"]["template"]["spec"]);
        schema.mistakes(&wrong).join("; ")
    };
    assert!(planted(&|spec| spec["hostPid"] = Value::from(true)).contains("no field hostPid"));
    assert!(planted(&|spec| spec["hostPID"] = Value::from("yes")).contains("is no boolean"));
    assert!(
        planted(&|spec| drop(spec["containers"][0].as_object_mut().map(|it| it.remove("name"))))
            .contains("name is missing")
    );
}

#[test]
fn the_manifests_refer_to_each_other() {
    let documents = documents();
    let names = |kind: &str| -> BTreeSet<String> {
        let of_kind = documents.iter().filter(|document| document["kind"] == kind);
        of_kind
            .map(|document| document["metadata"]["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (accounts, claims) = (names("ServiceAccount"), names("PersistentVolumeClaim"));
    for document in documents
        .iter()
        .filter(|document| document["spec"]["template"].is_object())
    {
        let (spec, template) = (&document["spec"], &document["spec"]["template"]);
        assert_eq!(
            spec["selector"]["matchLabels"]["app.kubernetes.io/name"],
            template["metadata"]["labels"]["app.kubernetes.io/name"]
        );
        assert!(accounts.contains(&text(&template["spec"]["serviceAccountName"])));
        let volumes = template["spec"]["volumes"].as_array().expect("volumes");
        let volume_names: BTreeSet<String> = volumes.iter().map(|volume| text(&volume["name"])).collect();
        let container = &template["spec"]["containers"][0];
        assert_eq!(container["image"], "rankguard", "kustomization.yaml sets the image");
        let mounts = container["volumeMounts"].as_array().expect("mounts");
        let mounted: BTreeSet<String> = mounts.iter().map(|mount| text(&mount["name"])).collect();
        assert_eq!(mounted, volume_names);
        for volume in volumes {
            let claim = &volume["persistentVolumeClaim"]["claimName"];
            assert!(claim.is_null() || claims.contains(&text(claim)));
            let config = &volume["configMap"]["name"];
            assert!(
                config.is_null() || config == "rankguard",
                "kustomization.yaml makes one map"
            );
            // A key that others can read is refused.
            let secret = &volume["secret"];
            assert!(secret.is_null() || secret["defaultMode"] == 0o400, "{secret}");
        }
    }
    for binding in documents.iter().filter(|document| document["roleRef"].is_object()) {
        assert!(names(&text(&binding["roleRef"]["kind"])).contains(&text(&binding["roleRef"]["name"])));
        assert!(accounts.contains(&text(&binding["subjects"][0]["name"])));
    }
    // Only one of the three programs has rights, and the others have no token.
    for account in documents.iter().filter(|document| document["kind"] == "ServiceAccount") {
        let is_sync = account["metadata"]["name"] == "rankguard-sync";
        assert_eq!(account["automountServiceAccountToken"] == false, !is_sync, "{account}");
    }
    let service = documents
        .iter()
        .find(|document| document["kind"] == "Service")
        .expect("a service");
    let address = format!("{}.rankguard.svc:7700", text(&service["metadata"]["name"]));
    assert_eq!(read("rankguard.toml").matches(&address).count(), 2);
}

#[test]
fn the_agent_sees_the_kernel_log_the_gpus_and_tainted_nodes() {
    let documents = documents();
    let agent = documents
        .iter()
        .find(|document| document["kind"] == "DaemonSet")
        .expect("the agent");
    let spec = &agent["spec"]["template"]["spec"];
    assert_eq!(spec["hostPID"], true);
    assert_eq!(spec["tolerations"], serde_json::json!([{ "operator": "Exists" }]));
    let container = &spec["containers"][0];
    let environment = container["env"].as_array().expect("variables");
    let value = |name: &str| {
        environment
            .iter()
            .find(|variable| variable["name"] == name)
            .expect("a variable")
    };
    assert_eq!(value("NVIDIA_VISIBLE_DEVICES")["value"], "all");
    assert_eq!(value("NVIDIA_DRIVER_CAPABILITIES")["value"], "utility");
    let volumes = spec["volumes"].as_array().expect("volumes");
    assert!(volumes.iter().any(|volume| volume["hostPath"]["path"] == "/dev/kmsg"));
    // No secret with the keys of all nodes.
    assert!(volumes.iter().all(|volume| volume["secret"].is_null()));
}
