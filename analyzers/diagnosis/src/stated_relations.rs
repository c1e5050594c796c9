//! Relations to the first cause that a message states itself, so that no order of times decides them.

use rankguard_model::Role;

use crate::own_fault::is_same_device;
use crate::torn_channels::earlier_xid;
use crate::{FailureScene, Signal, job_numbers};

/// Relation that a message states.
pub(crate) struct StatedRelation {
    pub role: Role,
    /// Reason, a full sentence.
    pub why: String,
    /// The same as a clause.
    pub meaning: String,
}

/// Returns the relation of a message to the first cause, if the message states one: the job that it is about, or the
/// earlier event that caused it.
pub(crate) fn stated_relation(scene: &FailureScene<'_>, first: &Signal, sign: &Signal) -> Option<StatedRelation> {
    if !scene.has_fault_ends {
        return None;
    }
    if job_numbers::are_of_different_jobs(first, sign) {
        let number = job_numbers::job_number(sign)?;
        return Some(StatedRelation {
            role: Role::Noise,
            why: format!("It is about another job, {number}."),
            meaning: format!("which is about another job, {number}"),
        });
    }
    let xid = earlier_xid(sign).filter(|_| !is_same_device(&sign.entity, &first.entity))?;
    Some(StatedRelation {
        role: Role::Cascade,
        why: format!("It names XID {xid} of its own GPU as its cause."),
        meaning: format!("which names XID {xid} of its own GPU as its cause"),
    })
}
