//! Kubernetes beside Rankguard: node conditions, cordons that agree, evictions, job names.
//!
//! Both sides can take a node out of use: Kubernetes and Rankguard cordon it. The rule is symmetric. Each side owns the
//! reasons that were given there; a node is out of use as long as one side has a reason of its own; the other side has a
//! *mirror* of it, which is marked ([`mark`]). [`reconcile()`] compares the two and returns the actions that are missing.
//! It keeps no state: after a restart, a lost answer or a partition the next comparison completes what is left, and two
//! programs that do this at a time agree.
//!
//! Invariants: a cordon without the mark is never lifted, and taints, annotations and conditions of others are never
//! changed. All changes of nodes are conditional on the version that was read directly before. A node that one side does
//! not know causes no action. The number of nodes that are cordoned here is limited (RG-6), and a cordon that another
//! manager lifts is set again a limited number of times.
//!
//! [`ApiClient`] makes the requests over the API of Kubernetes with a bearer token; [`NodeWatch`] holds the nodes in memory
//! by a list and a watch. Objects are a typed subset of the API ([`objects`]).
//!
//! Absent: kubeconfig files, client certificates, exec plug-ins; jobs are neither submitted nor restarted.

mod access;
mod api_client;
mod api_error;
mod condition;
mod lease_claim;
pub mod mark;
mod node_record;
mod node_stream;
mod node_watch;
mod node_writer;
pub mod objects;
mod reconcile;
mod workload;

pub use access::{AccessError, ServerAccess};
pub use api_client::{ApiClient, EvictionOutcome};
pub use api_error::ApiError;
pub use condition::{WantedCondition, condition_document, is_heartbeat_due};
pub use lease_claim::{LEASE_DURATION, LeaseClaim};
pub use node_record::{NodeRecord, NodeUse};
pub use node_stream::{NodeEvent, NodeStream};
pub use node_watch::NodeWatch;
pub use node_writer::{ControllerChange, NodeWriter, WriteOutcome};
pub use reconcile::{ComparedNode, ControllerCordon, SyncAction, SyncPlan, reconcile};
pub use workload::{EvictionExemption, PodJob, disturbed_jobs, eviction_exemption, pod_job};
