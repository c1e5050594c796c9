//! Lighthouse of torchft: the decision which replicas form the next quorum.
//!
//! A *replica* is one replica group of a torchft job, represented by its manager. It sends heartbeats at all times, and one
//! quorum request for each step. A *quorum* is a set of replicas that take the next step together; its id changes when the
//! process groups of the replicas have to be set up again.
//!
//! [`QuorumMachine`] is a pure state machine: it takes the time as a value and does no I/O. The rules are those of torchft's
//! own lighthouse:
//! - A replica is healthy if its newest heartbeat, or request, is younger than `heartbeat_timeout`.
//! - A quorum begins at once when all members of the previous one requested it again (*fast quorum*).
//! - Otherwise it begins when the minimum of replicas and more than half of the healthy ones requested it, and all healthy
//!   ones did, or `join_timeout` passed since the first request.
//! - If a member of the previous quorum requests `shrink_only`, only members of that quorum take part. They may be fewer than
//!   the minimum while newcomers wait; a manager has a minimum of its own for its commits.
//! - The id changes with the members, and when a member reports that a commit failed.
//!
//! Additions:
//! - Replicas with the manager on a cordoned node are left out, unless the minimum is not healthy without them.
//! - A newcomer that requests `shrink_only` does not keep the quorum from growing, which it would do for as long as it waits.
//! - The id grows over restarts of the controller ([`crate::quorum_ids`]), so a store never has two groups of one id. After a
//!   restart, and after a standstill of the controller, no quorum begins before live replicas had time for a heartbeat.
//! - The id changes with the address of a member, too.

mod machine;
mod quorum;
#[cfg(test)]
mod stories;
#[cfg(test)]
mod walk;

pub(crate) use machine::{QuorumMachine, REPLICAS_MAX};
pub(crate) use quorum::{LighthouseTerms, ReplicaId, ReplicaMember, ReplicaQuorum};
