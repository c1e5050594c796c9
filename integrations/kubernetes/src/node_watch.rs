//! Nodes of the cluster in memory: a list in pages, then a watch from its version.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::api_client::ApiClient;
use crate::api_error::ApiError;
use crate::node_record::NodeRecord;
use crate::node_stream::NodeEvent;
use crate::objects::NodeObject;

/// Shortest and longest wait before a failed request is repeated; it doubles.
const WAITS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));
/// Attempts of one list with a token that expires between pages.
const LIST_ATTEMPTS: u32 = 3;

/// Nodes as the server last described them.
#[derive(Debug, Clone, Default)]
struct WatchState {
    nodes: BTreeMap<String, NodeRecord>,
    /// Problem of the newest request; the nodes are of before. Initially no request was made.
    problem: Option<String>,
    /// True after the first whole list.
    is_complete: bool,
}

/// Nodes of the cluster, shared between the task that follows them and its readers.
#[derive(Debug, Clone)]
pub struct NodeWatch {
    client: ApiClient,
    /// Label with the name in Rankguard.
    name_label: Option<String>,
    state: Arc<Mutex<WatchState>>,
}

impl NodeWatch {
    /// Makes a watch without connecting.
    pub fn new(client: ApiClient, name_label: Option<String>) -> Self {
        Self {
            client,
            name_label,
            state: Arc::default(),
        }
    }

    /// Returns the nodes, sorted by name; `None` before the first whole list.
    ///
    /// # Errors
    /// The server does not answer: the nodes would be of before.
    pub fn nodes(&self) -> Result<Option<Vec<NodeRecord>>, String> {
        let state = self.locked();
        match &state.problem {
            Some(problem) => Err(problem.clone()),
            None => Ok(state.is_complete.then(|| state.nodes.values().cloned().collect())),
        }
    }

    /// Lists all nodes once.
    ///
    /// # Errors
    /// A request fails.
    pub async fn list(&self) -> Result<String, ApiError> {
        let mut attempt = 1;
        loop {
            match self.list_pages().await {
                Err(problem) if problem.is_expired() && attempt < LIST_ATTEMPTS => attempt += 1,
                result => return result,
            }
        }
    }

    /// Follows the nodes until the task ends. Failures are repeated with growing waits.
    pub async fn run(&self) {
        let mut version = None;
        let mut wait = WAITS.0;
        loop {
            let began = Instant::now();
            let result = match &mut version {
                None => self.list().await.map(|listed| version = Some(listed)),
                Some(version) => self.follow(version).await,
            };
            match result {
                Ok(()) if began.elapsed() >= WAITS.0 => wait = WAITS.0,
                // A server that ends each watch at once is not asked without a pause.
                Ok(()) => sleep(WAITS.0).await,
                // The server has forgotten the version: only a list shows what happened since.
                Err(problem) if problem.is_expired() => {
                    version = None;
                    sleep(WAITS.0).await;
                }
                Err(problem) => {
                    if !matches!(problem, ApiError::Unreachable(_)) {
                        version = None;
                    }
                    self.locked().problem = Some(problem.to_string());
                    sleep(wait).await;
                    wait = (wait * 2).min(WAITS.1);
                }
            }
        }
    }

    /// Records a node as an answer to a change describes it.
    pub fn record(&self, node: NodeObject) {
        let record = NodeRecord::new(node, self.name_label.as_deref());
        let mut state = self.locked();
        if let Some(known) = state.nodes.get_mut(&record.name)
            && is_newer(&record.resource_version, &known.resource_version)
        {
            *known = record;
        }
    }

    /// Reads a node now; `None` if it does not exist.
    ///
    /// # Errors
    /// The request fails.
    pub async fn read(&self, name: &str) -> Result<Option<NodeRecord>, ApiError> {
        match self.client.node(name).await {
            Ok(node) => Ok(Some(NodeRecord::new(node, self.name_label.as_deref()))),
            Err(problem) if problem.is_not_found() => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    async fn list_pages(&self) -> Result<String, ApiError> {
        let mut nodes = BTreeMap::new();
        let mut token = String::new();
        loop {
            let page = self.client.node_page(&token).await?;
            for node in page.items {
                let record = NodeRecord::new(node, self.name_label.as_deref());
                nodes.insert(record.name.clone(), record);
            }
            token = page.metadata.continue_token;
            if token.is_empty() {
                let mut state = self.locked();
                *state = WatchState {
                    nodes,
                    problem: None,
                    is_complete: true,
                };
                return Ok(page.metadata.resource_version);
            }
        }
    }

    /// Follows one watch to its end; `version` is where the next one continues, after a failure, too.
    async fn follow(&self, version: &mut String) -> Result<(), ApiError> {
        let mut stream = self.client.watch_nodes(version).await?;
        self.locked().problem = None;
        while let Some(event) = stream.next().await? {
            match event {
                NodeEvent::Applied(node) => {
                    let record = NodeRecord::new(*node, self.name_label.as_deref());
                    version.clone_from(&record.resource_version);
                    self.locked().nodes.insert(record.name.clone(), record);
                }
                NodeEvent::Deleted { name, resource_version } => {
                    *version = resource_version;
                    self.locked().nodes.remove(&name);
                }
                NodeEvent::Bookmark { resource_version } => *version = resource_version,
            }
        }
        Ok(())
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compares versions as the API server counts them; versions that are no numbers count as newer.
fn is_newer(version: &str, known: &str) -> bool {
    match (version.parse::<u64>(), known.parse::<u64>()) {
        (Ok(version), Ok(known)) => version > known,
        _ => true,
    }
}
