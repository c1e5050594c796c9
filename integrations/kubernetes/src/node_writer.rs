//! Writes to nodes, each on the condition that the node still is as it was read.

use rankguard_model::NodeId;

use crate::api_client::ApiClient;
use crate::api_error::ApiError;
use crate::mark::CordonMark;
use crate::node_record::NodeRecord;
use crate::node_watch::NodeWatch;
use crate::objects::KubernetesCondition;
use crate::reconcile::SyncAction;

/// Writer of nodes of one cluster.
#[derive(Debug, Clone)]
pub struct NodeWriter {
    client: ApiClient,
    watch: NodeWatch,
}

/// Change of Rankguard that an action demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControllerChange {
    /// Cordon a node for this reason.
    Cordon(NodeId, String),
    /// Lift the cordon of a node if it has exactly these reasons.
    Uncordon(NodeId, Vec<String>),
}

/// Result of the part of an action that concerns Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The node was changed.
    Written,
    /// The node has changed since it was read, or is gone; the next comparison decides again.
    Outdated,
    /// The node is as it was read; Rankguard is to be changed.
    Due(ControllerChange),
}

impl NodeWriter {
    /// Makes a writer that records its changes in `watch`.
    pub fn new(client: ApiClient, watch: NodeWatch) -> Self {
        Self { client, watch }
    }

    /// Reads the node of an action and carries the action out if the node is as it was.
    ///
    /// # Errors
    /// A request fails for another reason than a change in between.
    pub async fn write(&self, action: &SyncAction) -> Result<WriteOutcome, ApiError> {
        let (name, before) = action.basis();
        let Some(node) = self.watch.read(name).await? else {
            return Ok(WriteOutcome::Outdated);
        };
        if node.node_use() != *before {
            return Ok(WriteOutcome::Outdated);
        }
        match action {
            SyncAction::Cordon { mark, .. } => self.cordon(&node, mark).await,
            SyncAction::Lift { .. } => self.patch(&node, &node.lift_patch()).await,
            SyncAction::MirrorCordon {
                controller_name,
                reason,
                ..
            } => {
                let node = NodeId::from(controller_name.as_str());
                Ok(WriteOutcome::Due(ControllerChange::Cordon(node, reason.clone())))
            }
            SyncAction::LiftMirror {
                controller_name,
                reasons,
                ..
            } => {
                let node = NodeId::from(controller_name.as_str());
                Ok(WriteOutcome::Due(ControllerChange::Uncordon(node, reasons.clone())))
            }
        }
    }

    /// Writes the condition of a node. Returns false if the node is gone.
    ///
    /// # Errors
    /// The request fails for another reason.
    pub async fn report(&self, node: &str, condition: &KubernetesCondition) -> Result<bool, ApiError> {
        match self.client.apply_condition(node, condition).await {
            Ok(node) => {
                self.watch.record(node);
                Ok(true)
            }
            Err(problem) if problem.is_not_found() => Ok(false),
            Err(problem) => Err(problem),
        }
    }

    async fn cordon(&self, node: &NodeRecord, mark: &CordonMark) -> Result<WriteOutcome, ApiError> {
        self.patch(node, &node.cordon_patch(mark)).await
    }

    async fn patch(&self, node: &NodeRecord, patch: &serde_json::Value) -> Result<WriteOutcome, ApiError> {
        match self.client.patch_node(&node.name, patch).await {
            Ok(node) => {
                self.watch.record(node);
                Ok(WriteOutcome::Written)
            }
            Err(problem) if problem.is_conflict() || problem.is_not_found() => Ok(WriteOutcome::Outdated),
            Err(problem) => Err(problem),
        }
    }
}
