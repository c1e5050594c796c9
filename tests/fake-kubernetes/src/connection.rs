//! Requests of one connection.

use serde_json::{Value, json};

use crate::cluster::FakeCluster;
use crate::http::{HttpAnswer, HttpRequest};
use crate::merge::{apply_conditions, merge, record_owner};
use crate::server::RecordedRequest;

/// Request as RBAC names it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResourceRequest {
    pub(crate) verb: &'static str,
    pub(crate) group: String,
    /// Resource with its subresource: `nodes/status`.
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ResourceRequest {
    /// Reads the path of a request; `None` if it is none of the API.
    pub(crate) fn of(request: &HttpRequest) -> Option<Self> {
        let path: Vec<&str> = request.url.path_segments()?.collect();
        let (group, rest) = match path[..] {
            ["api", "v1", ref rest @ ..] => ("", rest),
            ["apis", group, "v1", ref rest @ ..] => (group, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            rest => ("", rest),
        };
        let (resource, name) = match *rest {
            [resource] => (resource.to_owned(), ""),
            [resource, name] => (resource.to_owned(), name),
            [resource, name, subresource] => (format!("{resource}/{subresource}"), name),
            _ => return None,
        };
        let is_watch = request
            .parameter("watch")
            .is_some_and(|text| text == "1" || text == "true");
        let verb = match (request.method.as_str(), name.is_empty()) {
            ("GET", true) if is_watch => "watch",
            ("GET", true) => "list",
            ("GET", false) => "get",
            ("POST", _) => "create",
            ("PUT", false) => "update",
            ("PATCH", false) => "patch",
            ("DELETE", false) => "delete",
            _ => return None,
        };
        Some(Self {
            verb,
            group: group.to_owned(),
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl FakeCluster {
    /// Answers a request, except a watch, and records it.
    pub(crate) fn answer(&mut self, request: &HttpRequest) -> HttpAnswer {
        let Some(wanted) = ResourceRequest::of(request) else {
            return HttpAnswer::refused(404, "NotFound", "the server could not find the requested resource");
        };
        let answer = self
            .permit(request, &wanted)
            .unwrap_or_else(|| self.dispatch(request, &wanted));
        self.requests.push(RecordedRequest {
            verb: wanted.verb.to_owned(),
            group: wanted.group,
            resource: wanted.resource,
            namespace: wanted.namespace,
            name: wanted.name,
            code: answer.code,
            body: request.json().unwrap_or_default(),
        });
        answer
    }

    /// Returns the refusal of a request by its token or its rights.
    pub(crate) fn permit(&self, request: &HttpRequest, wanted: &ResourceRequest) -> Option<HttpAnswer> {
        let token = request.token.as_deref().unwrap_or_default();
        if !self.tokens.is_empty() && !self.tokens.contains(token) {
            return Some(HttpAnswer::refused(401, "Unauthorized", "Unauthorized"));
        }
        let rules = self.rules.as_ref()?;
        if rules.permit(wanted.verb, &wanted.group, &wanted.resource, &wanted.namespace) {
            return None;
        }
        let text = format!("cannot {} resource {}", wanted.verb, wanted.resource);
        Some(HttpAnswer::refused(403, "Forbidden", &text))
    }

    fn dispatch(&mut self, request: &HttpRequest, wanted: &ResourceRequest) -> HttpAnswer {
        match (wanted.verb, wanted.resource.as_str()) {
            ("list", "nodes") => self.list_nodes(request),
            ("get", "nodes") => found(self.nodes.get(&wanted.name)),
            ("patch", "nodes") => self.patch_node(request, &wanted.name),
            ("patch", "nodes/status") => self.apply_status(request, &wanted.name),
            ("list", "pods") => self.list_pods(request),
            ("create", "pods/eviction") => self.evict(request, wanted),
            ("get", "leases") => found(self.leases.get(&(wanted.namespace.clone(), wanted.name.clone()))),
            ("create" | "update", "leases") => self.write_lease(request, wanted),
            _ => HttpAnswer::refused(405, "MethodNotAllowed", "the server does not allow this method"),
        }
    }

    fn list_nodes(&mut self, request: &HttpRequest) -> HttpAnswer {
        let limit = request.parameter("limit").and_then(|text| text.parse::<usize>().ok());
        let limit = limit.unwrap_or(usize::MAX);
        let token = request.parameter("continue");
        // A token has the version of the first page and the last name.
        let (version, after) = match token.as_deref().and_then(|token| token.split_once(':')) {
            Some((version, after)) => (version.parse().unwrap_or_default(), after.to_owned()),
            None => (self.version, String::new()),
        };
        if token.is_some() && (self.expired_pages > 0 || version < self.oldest) {
            self.expired_pages = self.expired_pages.saturating_sub(1);
            return HttpAnswer::refused(410, "Expired", "The provided continue parameter is too old");
        }
        let rest: Vec<&Value> = self
            .nodes
            .iter()
            .filter(|(name, _)| **name > after)
            .map(|(_, node)| node)
            .collect();
        let page: Vec<&Value> = rest.iter().take(limit).copied().collect();
        let mut metadata = json!({ "resourceVersion": version.to_string() });
        if rest.len() > page.len() {
            let last = page.last().and_then(|node| node["metadata"]["name"].as_str());
            metadata["continue"] = json!(format!("{version}:{}", last.unwrap_or_default()));
        }
        let items = if page.is_empty() { Value::Null } else { json!(page) };
        HttpAnswer::ok(json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": items }))
    }

    fn patch_node(&mut self, request: &HttpRequest, name: &str) -> HttpAnswer {
        if request.content_type != "application/merge-patch+json" {
            return HttpAnswer::refused(415, "UnsupportedMediaType", "only merge patches");
        }
        if self.interposed > 0 && self.nodes.contains_key(name) {
            self.interposed -= 1;
            self.change_node(name, "kubelet", |node| {
                node["status"]["nodeInfo"] = json!({ "bootID": "another" })
            });
        }
        let (Some(before), Some(patch)) = (self.nodes.get(name).cloned(), request.json()) else {
            return not_found();
        };
        let version = &patch["metadata"]["resourceVersion"];
        if !version.is_null() && *version != before["metadata"]["resourceVersion"] {
            return HttpAnswer::refused(
                409,
                "Conflict",
                "the object has been modified; please apply your changes to the latest version",
            );
        }
        let mut node = before.clone();
        merge(&mut node, &patch);
        node["status"] = before["status"].clone();
        if let Some(problem) = taint_problem(&node) {
            return HttpAnswer::refused(422, "Invalid", &problem);
        }
        let manager = request
            .parameter("fieldManager")
            .unwrap_or_else(|| "unknown".to_owned());
        record_owner(&mut node, &before, &manager, "2026-11-30T13:00:00Z");
        self.store_node(name, node);
        HttpAnswer::ok(self.node(name))
    }

    fn apply_status(&mut self, request: &HttpRequest, name: &str) -> HttpAnswer {
        if request.content_type != "application/apply-patch+yaml" {
            return HttpAnswer::refused(415, "UnsupportedMediaType", "only server-side apply");
        }
        let Some(manager) = request.parameter("fieldManager") else {
            return HttpAnswer::refused(
                422,
                "Invalid",
                "fieldManager: Required value: is required for apply patch",
            );
        };
        let (Some(mut node), Some(document)) = (self.nodes.get(name).cloned(), request.json()) else {
            return not_found();
        };
        let is_whole =
            document["apiVersion"] == "v1" && document["kind"] == "Node" && document["metadata"]["name"] == name;
        let times = document["status"]["conditions"].as_array().into_iter().flatten();
        let has_times = times
            .clone()
            .all(|it| it["lastTransitionTime"].is_string() && it["lastHeartbeatTime"].is_string());
        if !is_whole || !has_times || times.count() == 0 {
            return HttpAnswer::refused(400, "BadRequest", "the document is no node with conditions");
        }
        let is_forced = request.parameter("force").is_some_and(|text| text == "true");
        if let Err(kind) = apply_conditions(&mut node, &document, &manager, is_forced) {
            return HttpAnswer::refused(409, "Conflict", &format!("conflict with another manager: {kind}"));
        }
        self.store_node(name, node);
        HttpAnswer::ok(self.node(name))
    }

    fn list_pods(&self, request: &HttpRequest) -> HttpAnswer {
        let selector = request.parameter("fieldSelector").unwrap_or_default();
        let node = selector.strip_prefix("spec.nodeName=").unwrap_or_default();
        let pods: Vec<&Value> = self
            .pods
            .values()
            .filter(|pod| pod["spec"]["nodeName"] == node)
            .collect();
        HttpAnswer::ok(json!({ "metadata": { "resourceVersion": self.version.to_string() }, "items": pods }))
    }

    fn evict(&mut self, request: &HttpRequest, wanted: &ResourceRequest) -> HttpAnswer {
        let key = (wanted.namespace.clone(), wanted.name.clone());
        let (Some(pod), Some(body)) = (self.pods.get(&key), request.json()) else {
            return not_found();
        };
        if body["kind"] != "Eviction" || body["metadata"]["name"] != wanted.name.as_str() {
            return HttpAnswer::refused(400, "BadRequest", "the name in the URL does not match the eviction");
        }
        let uid = &body["deleteOptions"]["preconditions"]["uid"];
        if !uid.is_null() && *uid != pod["metadata"]["uid"] {
            return HttpAnswer::refused(409, "Conflict", "the UID in the precondition does not match");
        }
        if self.protected.contains(&key) {
            let text = "Cannot evict pod as it would violate the pod's disruption budget.";
            return HttpAnswer {
                retry_after: Some(1),
                ..HttpAnswer::refused(429, "TooManyRequests", text)
            };
        }
        self.pods.remove(&key);
        HttpAnswer::created(json!({ "kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201 }))
    }

    fn write_lease(&mut self, request: &HttpRequest, wanted: &ResourceRequest) -> HttpAnswer {
        let Some(mut lease) = request.json() else {
            return HttpAnswer::refused(400, "BadRequest", "no lease");
        };
        let name = lease["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let key = (wanted.namespace.clone(), name);
        let found = self.leases.get(&key);
        let conflict = match (wanted.verb, found) {
            ("create", Some(_)) => Some(HttpAnswer::refused(409, "AlreadyExists", "the lease exists")),
            ("update", None) => Some(not_found()),
            ("update", Some(found)) => {
                let is_same = found["metadata"]["resourceVersion"] == lease["metadata"]["resourceVersion"];
                (!is_same).then(|| HttpAnswer::refused(409, "Conflict", "the object has been modified"))
            }
            _ => None,
        };
        if let Some(answer) = conflict {
            return answer;
        }
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.leases.insert(key, lease.clone());
        HttpAnswer::ok(lease)
    }
}

fn found(object: Option<&Value>) -> HttpAnswer {
    object.map_or_else(not_found, |object| HttpAnswer::ok(object.clone()))
}

fn not_found() -> HttpAnswer {
    HttpAnswer::refused(404, "NotFound", "not found")
}

/// Checks the taints of a node as Kubernetes validates them.
fn taint_problem(node: &Value) -> Option<String> {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let is_valid = |taint: &Value| {
        let value = taint["value"].as_str().unwrap_or_default();
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let ends = |text: &str| {
            text.is_empty()
                || text.starts_with(|c: char| c.is_ascii_alphanumeric())
                    && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        };
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        value.len() <= 63
            && value.chars().all(is_letter)
            && ends(value)
            && effects.iter().any(|effect| taint["effect"] == *effect)
    };
    let mut wrong = taints.filter(|taint| !is_valid(taint));
    wrong.next().map(|taint| format!("spec.taints: Invalid value: {taint}"))
}
