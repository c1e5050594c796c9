//! Rights of RBAC, read from the manifests that are shipped.

use std::collections::BTreeSet;

use serde_json::Value;

/// Right to one verb on one resource: verb, API group, resource with its subresource.
type AccessRight = (String, String, String);

/// Rights of roles.
#[derive(Debug, Clone, Default)]
pub struct AccessRules {
    /// Rights in all namespaces.
    cluster: BTreeSet<AccessRight>,
    /// Rights in one namespace.
    namespaced: BTreeSet<(String, AccessRight)>,
}

impl AccessRules {
    /// Returns the rules of the roles among these documents.
    pub fn of_documents(documents: &[Value]) -> Self {
        let mut rules = Self::default();
        for document in documents {
            let is_cluster = document["kind"] == "ClusterRole";
            if !is_cluster && document["kind"] != "Role" {
                continue;
            }
            let namespace = document["metadata"]["namespace"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            for rule in document["rules"].as_array().into_iter().flatten() {
                for right in rights(rule) {
                    if is_cluster {
                        rules.cluster.insert(right);
                    } else {
                        rules.namespaced.insert((namespace.clone(), right));
                    }
                }
            }
        }
        rules
    }

    pub(crate) fn permit(&self, verb: &str, group: &str, resource: &str, namespace: &str) -> bool {
        let right = (verb.to_owned(), group.to_owned(), resource.to_owned());
        self.cluster.contains(&right) || self.namespaced.contains(&(namespace.to_owned(), right))
    }

    /// Returns all rights as `VERB GROUP/RESOURCE`.
    pub fn texts(&self) -> BTreeSet<String> {
        let text = |(verb, group, resource): &AccessRight| format!("{verb} {group}/{resource}");
        let namespaced = self.namespaced.iter().map(|(_, right)| right);
        self.cluster.iter().chain(namespaced).map(text).collect()
    }
}

fn rights(rule: &Value) -> Vec<AccessRight> {
    let texts = |name: &str| -> Vec<String> {
        let values = rule[name].as_array().into_iter().flatten();
        values.filter_map(|value| Some(value.as_str()?.to_owned())).collect()
    };
    let (groups, resources, verbs) = (texts("apiGroups"), texts("resources"), texts("verbs"));
    let mut rights = Vec::new();
    for group in &groups {
        for resource in &resources {
            for verb in &verbs {
                rights.push((verb.clone(), group.clone(), resource.clone()));
            }
        }
    }
    rights
}
