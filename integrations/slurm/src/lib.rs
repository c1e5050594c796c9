//! Slurm beside Rankguard: node states that agree, and host lists.
//!
//! Both sides can take a node out of use: Slurm drains it, Rankguard cordons it. The rule is symmetric. Each side owns the
//! reasons that were given there; a node is out of use as long as one side has a reason of its own; the other side has
//! a *mirror* of it, which is marked in its text ([`reason`]). [`reconcile()`] compares the two and returns the actions that
//! are missing. It keeps no state: after a restart, a lost answer or a partition the next comparison completes what is
//! left, and two programs that do this at a time agree.
//!
//! Invariants: a drain or a cordon without the mark is never lifted, and its reason is never replaced. A node that one side
//! does not know, or cannot describe, causes no action. The number of nodes that are drained here is limited
//! ([`NodeLimit`]).
//!
//! [`Scontrol`] runs Slurm's own program with an argument vector, never through a shell. Reasons and names of either side are
//! foreign text: they are bounded and reduced to plain characters before they pass to the other side.
//!
//! Absent: jobs, partitions, reservations and accounting of Slurm.

mod host_list;
pub mod reason;
mod reconcile;
mod scontrol;
mod slurm_node;

pub use host_list::host_list;
pub use rankguard_scheduler_nodes::{NameMap, NameMapError, NamePairs, NodeLimit};
pub use reconcile::{ControllerNode, NodePair, SyncAction, SyncPlan, reconcile};
pub use scontrol::{Scontrol, ScontrolError};
pub use slurm_node::{NodeAvailability, NodeListing, SlurmNode};
