//! Fields of Kubernetes objects that this crate reads or writes. Other fields are ignored when read, and are never
//! written. The names are those of the Kubernetes API reference.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// Metadata of an object.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Name within the namespace.
    pub name: String,
    /// Namespace; empty for nodes.
    pub namespace: String,
    /// Identity of this object; a node that was deleted and created again has another one.
    pub uid: String,
    /// Version for conditional updates.
    pub resource_version: String,
    /// Labels by key.
    #[serde(deserialize_with = "null_as_default")]
    pub labels: BTreeMap<String, String>,
    /// Annotations by key.
    #[serde(deserialize_with = "null_as_default")]
    pub annotations: BTreeMap<String, String>,
    /// Objects that own this one.
    #[serde(deserialize_with = "null_as_default")]
    pub owner_references: Vec<OwnerReference>,
    /// Time at which a graceful deletion began.
    pub deletion_timestamp: Option<String>,
    /// Owners of fields.
    #[serde(deserialize_with = "null_as_default")]
    pub managed_fields: Vec<FieldOwner>,
}

/// Object that owns another.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct OwnerReference {
    /// Kind of the owner.
    pub kind: String,
    /// Name of the owner.
    pub name: String,
    /// True for the controller of the object.
    pub controller: bool,
}

/// Owner of fields, as of `metadata.managedFields`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FieldOwner {
    /// Name of the field manager.
    pub manager: String,
    /// Time of its last change.
    pub time: Option<String>,
    /// Fields that it owns.
    pub fields_v1: OwnedFields,
}

/// Fields of a node that a manager owns, as far as they matter here.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct OwnedFields {
    /// Fields of `spec`.
    #[serde(rename = "f:spec")]
    pub spec: OwnedSpec,
}

/// Fields of the spec of a node that a manager owns.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct OwnedSpec {
    /// Present if the manager owns `spec.unschedulable`.
    #[serde(rename = "f:unschedulable")]
    pub unschedulable: Option<Map<String, Value>>,
}

/// Node of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeObject {
    /// Metadata of the node.
    pub metadata: ObjectMeta,
    /// Wanted state of the node.
    pub spec: NodeSpec,
    /// Reported state of the node.
    pub status: NodeStatus,
}

/// Wanted state of a node.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// True if the scheduler places no pods on it (`kubectl cordon`).
    pub unschedulable: bool,
    /// Taints of the node.
    #[serde(deserialize_with = "null_as_default")]
    pub taints: Vec<NodeTaint>,
}

/// Taint of a node; fields that are not known here are preserved.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeTaint {
    /// Key of the taint.
    pub key: String,
    /// Value of the taint.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Reported state of a node.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Conditions of the node.
    #[serde(deserialize_with = "null_as_default")]
    pub conditions: Vec<KubernetesCondition>,
}

/// Condition of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubernetesCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// CamelCase word or failure class.
    pub reason: String,
    /// Text for people.
    pub message: String,
    /// Time of the newest report, RFC 3339.
    pub last_heartbeat_time: Option<String>,
    /// Time at which `status` changed, RFC 3339.
    pub last_transition_time: Option<String>,
}

/// Pod of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodObject {
    /// Metadata of the pod.
    pub metadata: ObjectMeta,
    /// Reported state of the pod.
    pub status: PodStatus,
}

/// Reported state of a pod.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: String,
}

/// Lease of `coordination.k8s.io/v1`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct LeaseObject {
    /// Metadata of the lease.
    pub metadata: ObjectMeta,
    /// State of the lease.
    pub spec: LeaseSpec,
}

/// State of a lease.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    /// Identity of the holder; empty after a release.
    #[serde(deserialize_with = "null_as_default")]
    pub holder_identity: String,
    /// Time without a renewal after which the lease ends, seconds.
    #[serde(deserialize_with = "null_as_default")]
    pub lease_duration_seconds: u32,
    /// Time at which the holder took it, RFC 3339 with microseconds.
    pub acquire_time: Option<String>,
    /// Time of the newest renewal, RFC 3339 with microseconds.
    pub renew_time: Option<String>,
    /// Number of changes of the holder.
    #[serde(deserialize_with = "null_as_default")]
    pub lease_transitions: u32,
}

/// Page of a list.
#[derive(Debug, Clone, Deserialize)]
pub struct ObjectList<T> {
    /// Metadata of the list.
    pub metadata: ListMeta,
    /// Objects of the page.
    #[serde(
        default = "Vec::new",
        deserialize_with = "null_as_default",
        bound(deserialize = "T: Deserialize<'de>")
    )]
    pub items: Vec<T>,
}

/// Metadata of a list.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListMeta {
    /// Version from which a watch continues.
    pub resource_version: String,
    /// Token of the next page; empty on the last one.
    #[serde(rename = "continue")]
    pub continue_token: String,
}

/// Line of a watch.
#[derive(Debug, Clone, Deserialize)]
pub struct WatchLine {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Object of the event; a `Status` for `ERROR`.
    pub object: Value,
}

/// Answer to a request that was refused.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct StatusObject {
    /// HTTP status of the answer.
    pub code: u16,
    /// CamelCase word such as `Conflict`.
    pub reason: String,
    /// Text for people.
    pub message: String,
}

/// The API writes empty lists and maps as `null` in some versions.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
