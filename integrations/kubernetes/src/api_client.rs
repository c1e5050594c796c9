//! Client of the API server: the few requests that this crate makes, each with a deadline and a bounded answer.
//!
//! | request | verb of RBAC | resource |
//! |---|---|---|
//! | list and watch nodes | list, watch | nodes |
//! | read a node | get | nodes |
//! | cordon, taint, annotate | patch | nodes |
//! | report a condition | patch | nodes/status |
//! | list the pods of a node | list | pods |
//! | evict a pod | create | pods/eviction |
//! | hold a lease | get, create, update | leases (coordination.k8s.io) |

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use rankguard_web_client::{Deadlines, WebClient, WebClientError, read_body, shown_answer};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, RETRY_AFTER};
use reqwest::{Method, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::Url;

use crate::access::ServerAccess;
use crate::api_error::ApiError;
use crate::condition::condition_document;
use crate::mark::FIELD_MANAGER;
use crate::node_stream::NodeStream;
use crate::objects::{KubernetesCondition, LeaseObject, LeaseSpec, NodeObject, ObjectList, PodObject, StatusObject};

/// Deadlines of a request.
const DEADLINES: Deadlines = Deadlines {
    connect: Duration::from_secs(5),
    request: Duration::from_secs(20),
};
/// Objects of one page of a list.
const PAGE_OBJECTS: u32 = 500;
/// Largest answer, bytes: a page of nodes with many images and labels has some 20 MiB.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Longest duration that the server lets a watch run, seconds; it ends with a normal end of the answer.
const WATCH_SECONDS: u64 = 290;
/// Content type of a JSON merge patch.
const MERGE_PATCH: &str = "application/merge-patch+json";
/// Content type of server-side apply; JSON is YAML.
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// Versions of the eviction, newest first; servers before 1.22 know the second one only.
const EVICTION_VERSIONS: [&str; 2] = ["policy/v1", "policy/v1beta1"];

/// Result of an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvictionOutcome {
    /// The pod ends.
    Evicted,
    /// The pod is gone, or another of its name has replaced it.
    Gone,
    /// A PodDisruptionBudget permits no eviction now.
    Held {
        /// Text of the server.
        why: String,
        /// Wait that the server requests.
        retry_after: Option<Duration>,
    },
}

/// Client of one API server; clones share the connections.
#[derive(Debug, Clone)]
pub struct ApiClient {
    access: ServerAccess,
    client: WebClient,
    /// Time of the server minus time of this machine, seconds.
    clock_offset: Arc<AtomicI64>,
}

impl ApiClient {
    /// Makes a client without connecting.
    ///
    /// # Errors
    /// The authorities cannot be read.
    pub fn new(access: ServerAccess) -> Result<Self, WebClientError> {
        Ok(Self {
            client: WebClient::new(access.ca.as_deref(), DEADLINES)?,
            access,
            clock_offset: Arc::default(),
        })
    }

    /// Address of the server.
    pub fn address(&self) -> &str {
        self.access.server.as_str().trim_end_matches('/')
    }

    /// Returns the time of the server in whole seconds, as of its newest answer; before one, the time of this machine.
    pub fn server_time(&self) -> Timestamp {
        let seconds = Timestamp::now().as_second();
        let seconds = seconds.saturating_add(self.clock_offset.load(Ordering::Relaxed));
        Timestamp::from_second(seconds).unwrap_or_default()
    }

    /// Fetches a page of the nodes; an empty token begins a list.
    ///
    /// # Errors
    /// The request fails; 410 if the token has expired.
    pub async fn node_page(&self, continue_token: &str) -> Result<ObjectList<NodeObject>, ApiError> {
        let mut url = self.url(&["api", "v1", "nodes"]);
        url.query_pairs_mut().append_pair("limit", &PAGE_OBJECTS.to_string());
        if !continue_token.is_empty() {
            url.query_pairs_mut().append_pair("continue", continue_token);
        }
        self.object(Method::GET, url, None).await
    }

    /// Begins a watch of the nodes behind a version.
    ///
    /// # Errors
    /// The request fails; 410 if the version has expired.
    pub async fn watch_nodes(&self, resource_version: &str) -> Result<NodeStream, ApiError> {
        let mut url = self.url(&["api", "v1", "nodes"]);
        url.query_pairs_mut()
            .append_pair("watch", "1")
            .append_pair("allowWatchBookmarks", "true")
            .append_pair("timeoutSeconds", &WATCH_SECONDS.to_string())
            .append_pair("resourceVersion", resource_version);
        let request = self.request(Method::GET, url, None)?;
        let request = request.timeout(Duration::from_secs(WATCH_SECONDS) + DEADLINES.request);
        let response = request.send().await.map_err(|problem| self.unreachable(problem))?;
        self.note_time(response.headers());
        if response.status().is_success() {
            Ok(NodeStream::new(response))
        } else {
            Err(self.refusal(response).await)
        }
    }

    /// Reads one node by name.
    ///
    /// # Errors
    /// The request fails; 404 if there is no such node.
    pub async fn node(&self, name: &str) -> Result<NodeObject, ApiError> {
        self.object(Method::GET, self.url(&["api", "v1", "nodes", name]), None)
            .await
    }

    /// Changes a node by a merge patch with the version that it rests on.
    ///
    /// # Errors
    /// The request fails; 409 if the node has changed.
    pub async fn patch_node(&self, name: &str, patch: &Value) -> Result<NodeObject, ApiError> {
        let mut url = self.url(&["api", "v1", "nodes", name]);
        url.query_pairs_mut().append_pair("fieldManager", FIELD_MANAGER);
        self.object(Method::PATCH, url, Some((MERGE_PATCH, patch))).await
    }

    /// Writes the condition of Rankguard by server-side apply to the status of a node.
    ///
    /// # Errors
    /// The request fails; 404 if there is no such node.
    pub async fn apply_condition(&self, node: &str, condition: &KubernetesCondition) -> Result<NodeObject, ApiError> {
        let mut url = self.url(&["api", "v1", "nodes", node, "status"]);
        url.query_pairs_mut()
            .append_pair("fieldManager", FIELD_MANAGER)
            // Another owner of this condition can only be an earlier version of this program.
            .append_pair("force", "true");
        let document = condition_document(node, condition);
        self.object(Method::PATCH, url, Some((APPLY_PATCH, &document))).await
    }

    /// Lists the pods of a node in all namespaces.
    ///
    /// # Errors
    /// A request fails.
    pub async fn pods_on(&self, node: &str) -> Result<Vec<PodObject>, ApiError> {
        let mut pods = Vec::new();
        let mut token = String::new();
        loop {
            let mut url = self.url(&["api", "v1", "pods"]);
            url.query_pairs_mut()
                .append_pair("fieldSelector", &format!("spec.nodeName={node}"))
                .append_pair("limit", &PAGE_OBJECTS.to_string());
            if !token.is_empty() {
                url.query_pairs_mut().append_pair("continue", &token);
            }
            let page: ObjectList<PodObject> = self.object(Method::GET, url, None).await?;
            pods.extend(page.items);
            token = page.metadata.continue_token;
            if token.is_empty() {
                return Ok(pods);
            }
        }
    }

    /// Evicts a pod; disruption budgets are obeyed by the server.
    ///
    /// # Errors
    /// The request fails for another reason than a budget or a pod that is gone.
    pub async fn evict(&self, pod: &PodObject) -> Result<EvictionOutcome, ApiError> {
        let mut result = Err(ApiError::Answer("no version of the eviction".to_owned()));
        for version in EVICTION_VERSIONS {
            result = self.evict_as(pod, version).await;
            // 400: the server does not know this version.
            if !matches!(&result, Err(problem) if problem.code() == 400) {
                break;
            }
        }
        result
    }

    async fn evict_as(&self, pod: &PodObject, version: &str) -> Result<EvictionOutcome, ApiError> {
        let (namespace, name) = (pod.metadata.namespace.as_str(), pod.metadata.name.as_str());
        let url = self.url(&["api", "v1", "namespaces", namespace, "pods", name, "eviction"]);
        let body = json!({
            "apiVersion": version,
            "kind": "Eviction",
            "metadata": { "name": name, "namespace": namespace },
            "deleteOptions": { "preconditions": { "uid": pod.metadata.uid } },
        });
        let answer = self.object::<Value>(Method::POST, url, Some(("application/json", &body)));
        match answer.await {
            Ok(_) => Ok(EvictionOutcome::Evicted),
            Err(problem) if problem.is_not_found() || problem.is_conflict() => Ok(EvictionOutcome::Gone),
            Err(ApiError::Refused {
                code: 429,
                message,
                retry_after,
                ..
            }) => Ok(EvictionOutcome::Held {
                why: message,
                retry_after,
            }),
            Err(problem) => Err(problem),
        }
    }

    /// Reads a lease; `None` if there is no such lease.
    ///
    /// # Errors
    /// The request fails for another reason.
    pub async fn lease(&self, namespace: &str, name: &str) -> Result<Option<LeaseObject>, ApiError> {
        match self
            .object(Method::GET, self.lease_url(namespace, Some(name)), None)
            .await
        {
            Ok(lease) => Ok(Some(lease)),
            Err(problem) if problem.is_not_found() => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// Creates a lease, or replaces it if it still has this version.
    ///
    /// # Errors
    /// The request fails; 409 if another program was faster.
    pub async fn write_lease(
        &self,
        namespace: &str,
        name: &str,
        resource_version: Option<&str>,
        spec: &LeaseSpec,
    ) -> Result<LeaseObject, ApiError> {
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": name, "namespace": namespace, "resourceVersion": resource_version },
            "spec": spec,
        });
        let (method, at) = if resource_version.is_some() {
            (Method::PUT, Some(name))
        } else {
            (Method::POST, None)
        };
        let url = self.lease_url(namespace, at);
        self.object(method, url, Some(("application/json", &body))).await
    }

    fn lease_url(&self, namespace: &str, name: Option<&str>) -> Url {
        let path = ["apis", "coordination.k8s.io", "v1", "namespaces", namespace, "leases"];
        let path: Vec<&str> = path.into_iter().chain(name).collect();
        self.url(&path)
    }

    /// Appends path segments, which are escaped, to the address.
    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.access.server.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    fn request(
        &self,
        method: Method,
        url: Url,
        body: Option<(&str, &Value)>,
    ) -> Result<reqwest::RequestBuilder, ApiError> {
        let mut request = self.client.request(method, url);
        if let Some(path) = &self.access.token {
            let failed = |problem| ApiError::Token(format!("{}: {problem}", path.display()));
            let token = fs::read_to_string(path).map_err(failed)?;
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.trim()));
        }
        if let Some((kind, body)) = body {
            request = request.header(CONTENT_TYPE, kind).body(text_of(body)?);
        }
        Ok(request)
    }

    async fn object<T: DeserializeOwned>(
        &self,
        method: Method,
        url: Url,
        body: Option<(&str, &Value)>,
    ) -> Result<T, ApiError> {
        let request = self.request(method, url, body)?;
        let mut response = request.send().await.map_err(|problem| self.unreachable(problem))?;
        self.note_time(response.headers());
        if !response.status().is_success() {
            return Err(self.refusal(response).await);
        }
        let mut bytes = Vec::new();
        let read = read_body(&mut response, &mut bytes, ANSWER_BYTES_MAX).await;
        read.map_err(|problem| self.unreachable(problem))?;
        if bytes.len() >= ANSWER_BYTES_MAX {
            return Err(ApiError::Answer(format!("it has more than {ANSWER_BYTES_MAX} bytes")));
        }
        serde_json::from_slice(&bytes).map_err(|problem| ApiError::Answer(problem.to_string()))
    }

    async fn refusal(&self, mut response: Response) -> ApiError {
        let code = response.status().as_u16();
        let retry_after = seconds_of(response.headers());
        let mut bytes = Vec::new();
        // Without the text, the status is the answer.
        let _ = read_body(&mut response, &mut bytes, 64 << 10).await;
        let status = serde_json::from_slice::<StatusObject>(&bytes).ok();
        let status = status.filter(|status| !status.message.is_empty());
        ApiError::Refused {
            code,
            reason: status
                .as_ref()
                .map(|status| shown_answer(status.reason.as_bytes()))
                .unwrap_or_default(),
            message: status.map_or_else(
                || shown_answer(&bytes),
                |status| shown_answer(status.message.as_bytes()),
            ),
            retry_after,
        }
    }

    fn unreachable(&self, problem: reqwest::Error) -> ApiError {
        ApiError::Unreachable(self.client.problem_text(problem))
    }

    fn note_time(&self, headers: &HeaderMap) {
        let text = headers.get(DATE).and_then(|value| value.to_str().ok());
        let Some(time) = text.and_then(|text| DateTimeParser::new().parse_timestamp(text).ok()) else {
            return;
        };
        let offset = time.as_second().saturating_sub(Timestamp::now().as_second());
        // The header has whole seconds and was written a moment ago: a second is no offset.
        let offset = if offset.abs() <= 1 { 0 } else { offset };
        self.clock_offset.store(offset, Ordering::Relaxed);
    }
}

fn text_of(body: &impl Serialize) -> Result<String, ApiError> {
    serde_json::to_string(body).map_err(|problem| ApiError::Answer(problem.to_string()))
}

fn seconds_of(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    text.parse().ok().map(Duration::from_secs)
}
