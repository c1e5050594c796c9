//! Rendezvous of torchrun processes: the decision which of them form the next round of a run.
//!
//! A *run* is one job of torchrun (`--rdzv-id`); a *member* is one torchrun process of it; a *round* is a world of
//! members with a number and group ranks. A member without a place in the current round that waits for one is a *spare*.
//!
//! [`RunTable`] is a pure state machine: it takes the time as a value, does no I/O, and returns a [`RoundNotice`] for each
//! member that has to act. It is not journalled: after a restart of the controller the members state their round, and
//! it is adopted without a change.
//!
//! Rules:
//! - The first round begins when the maximum of nodes is there, or `last_call` after the minimum was.
//! - A round is over when one of its members is lost or fails, when its node is cordoned and the others with the spares
//!   reach the minimum, or `last_call` after a node arrived for which there is room. The next round begins as soon as
//!   all remaining members have stopped their workers, at most `restart_timeout` later.
//! - A member with a lost connection has [`LOSS_GRACE`] to return; after a restart of the controller, [`RETURN_GRACE`].
//! - A member that finished is neither awaited nor replaced, and the others go on. If they need a further round and
//!   cannot reach the minimum any more, the run is closed; so it is if members gave up.
//! - A request that waits for the minimum ends after `join_timeout` (RG-9). A spare waits as long as its run lasts.

mod notice;
mod round;
mod run;
#[cfg(test)]
mod stories;
mod table;
#[cfg(test)]
mod walk;

pub(crate) use notice::{MemberDeparture, NodeCondition, NodeConditions, RefusalKind, RoundNotice, RoundRefusal};
pub(crate) use round::{MemberId, MemberProfile, RoundMember, RunTerms, TorchrunRound};
pub(crate) use table::{JoinRequest, MEMBERS_MAX, RunNotice, RunTable};
