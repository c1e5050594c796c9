//! Evictions of the pods of nodes that a case cordoned.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rankguard_kubernetes::objects::PodObject;
use rankguard_kubernetes::{ApiClient, ApiError, EvictionOutcome, eviction_exemption, pod_job};
use tracing::{info, warn};

/// Wait after a pass in which pods remained: a budget refused them, or they are ending.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Wait after a pass that found nothing to evict: a pod that tolerates the taint may come later.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Longest wait that a server may request.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// Queue of nodes to be emptied of their pods.
#[derive(Debug, Default)]
pub(super) struct EvictionQueue {
    nodes: BTreeMap<String, NodeEviction>,
}

/// Eviction of the pods of one node.
#[derive(Debug)]
struct NodeEviction {
    /// Time of the next pass.
    due_at: Instant,
    /// Pods that wait for a disruption budget, as reported.
    held: BTreeSet<String>,
}

impl EvictionQueue {
    /// Evicts pods of those nodes that are due for a pass. A node that is not among them any more is left alone from then on.
    pub(super) async fn run(&mut self, api: &ApiClient, wanted: BTreeSet<&str>) -> Result<(), ApiError> {
        self.nodes.retain(|node, _| wanted.contains(node.as_str()));
        for node in wanted {
            let now = Instant::now();
            let eviction = self.nodes.entry(node.to_owned()).or_insert_with(|| NodeEviction {
                due_at: now,
                held: BTreeSet::new(),
            });
            if eviction.due_at <= now {
                let wait = eviction.pass(api, node).await?;
                eviction.due_at = Instant::now() + wait;
            }
        }
        Ok(())
    }
}

impl NodeEviction {
    /// Evicts the pods of a node and returns the wait until the next pass.
    async fn pass(&mut self, api: &ApiClient, node: &str) -> Result<Duration, ApiError> {
        let mut wait = LOOK_AGAIN_AFTER;
        for pod in api.pods_on(node).await? {
            if eviction_exemption(&pod).is_some() {
                continue;
            }
            wait = wait.min(RETRY_AFTER);
            match api.evict(&pod).await? {
                EvictionOutcome::Evicted => info!("done: evict {} from {node}", pod_text(&pod)),
                EvictionOutcome::Gone => {}
                EvictionOutcome::Held { why, retry_after } => {
                    if self.held.insert(pod.metadata.uid.clone()) {
                        warn!("{} stays on {node} for now: {why}", pod_text(&pod));
                    }
                    wait = wait.max(retry_after.unwrap_or_default().min(WAIT_MAX));
                }
            }
        }
        Ok(wait)
    }
}

/// Returns a pod with its job as text.
pub(super) fn pod_text(pod: &PodObject) -> String {
    let name = format!("pod {}/{}", pod.metadata.namespace, pod.metadata.name);
    match pod_job(pod) {
        Some(job) => format!("{name} of {job}"),
        None => name,
    }
}
