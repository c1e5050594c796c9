//! Attribution of evidence to failures. The only place of this rule, for live evidence, simulation, replay and `cases
//! --local`.
//!
//! 1. Evidence of a rank belongs to the generation that it names, evidence of a job to the generation that acted when
//!    it happened.
//! 2. Evidence of a machine (node, device) belongs to the jobs that used the machine when it happened. A job that has
//!    ended uses nothing; evidence from around its end may be reported up to `settle` later, and belongs to a failure of
//!    the job if there is one, otherwise to the machine. A generation uses nothing before it was placed; of older
//!    evidence, only outright faults and storage failures concern it, because they last.
//!    Such a fault concerns no later failure once all ranks of the job on the node have completed steps in a generation
//!    that began after it, and it gives way to a failure of the program itself ([`crate::FailureScene`]).
//! 3. A concluded failure takes in evidence of its own generation. Of machines it takes in evidence that happened
//!    until `settle` after the conclusion (a silence counts from the node's last report), and later reports of the
//!    blamed device with the class of the verdict, because the episode continues. Everything else is another failure.
//! 4. A drill joins no failure that was concluded without one: real cases do not become synthetic.
//! 5. Clearing a node (uncordon) ends its earlier evidence: older evidence of the node and its devices explains no
//!    later failure, and later evidence joins no failure that was concluded before. Evidence that arrives after the
//!    clearing is older only beyond the resolution of the stamps of system logs ([`STAMP_RESOLUTION`]).
//! 6. Evidence in a concluded failure of a generation explains no second failure of it, except outright faults and
//!    storage failures.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_faults::{Catalogue, classes};
use rankguard_model::{Classification, Entity, EvidenceId, NodeId, Role, Timestamp};
use serde::{Deserialize, Serialize};

use crate::draft::Draft;
use crate::knowledge::ClassEntry;
use crate::scope::ScopeRef;
use crate::signal_ref::SignalRef;
use crate::{DraftPolicy, JobContext};

/// Maximum number of nodes with a recorded clearing; the oldest is removed first.
const CLEARED_MAX: usize = 4_096;

/// Resolution of the times of a system log that prints whole seconds: a fault reported after the clearing of its node may
/// have happened after it, although its time is earlier by less than this.
pub const STAMP_RESOLUTION: Duration = Duration::from_secs(1);

/// Time of the last clearing of each node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct NodeClearings(BTreeMap<NodeId, Timestamp>);

impl NodeClearings {
    pub(crate) fn clear(&mut self, node: &NodeId, at: Timestamp) {
        self.0.insert(node.clone(), at);
        if self.0.len() > CLEARED_MAX
            && let Some(oldest) = self.0.iter().min_by_key(|(_, at)| **at).map(|(node, _)| node.clone())
        {
            self.0.remove(&oldest);
        }
    }

    pub(crate) fn of(&self, node: &NodeId) -> Option<Timestamp> {
        self.0.get(node).copied()
    }

    /// Returns true if a machine's evidence is older than the clearing of its node by `resolution` or more.
    pub(crate) fn has_cleared(&self, glimpse: &SignalRef<'_>, resolution: Duration) -> bool {
        let machine = machine_of(glimpse.entity, glimpse.evidence).filter(|_| glimpse.mark().is_some());
        machine
            .and_then(|node| self.of(node))
            .is_some_and(|cleared| glimpse.at.after(resolution) <= cleared)
    }
}

/// Returns the node of machine evidence.
pub(crate) fn machine_of<'a>(entity: &'a Entity, evidence: &'a EvidenceId) -> Option<&'a NodeId> {
    match entity {
        Entity::Node { node } | Entity::Device { node, .. } => Some(node),
        Entity::Unknown => Some(&evidence.node),
        Entity::Rank { .. } | Entity::Job { .. } => None,
    }
}

/// Returns true if a job used its machines at a time, as far as its end decides.
pub(crate) fn is_in_use(job: &JobContext, at: Timestamp, policy: &DraftPolicy) -> bool {
    job.ended_at.is_none_or(|ended| at <= ended.after(policy.settle))
}

/// Returns true if evidence of a machine may concern a generation that was placed on it (rule 2): it happened
/// afterwards, it is a fact of the caller, or the fault `lasts`.
pub(crate) fn concerns(job: &JobContext, glimpse: &SignalRef<'_>, lasts: bool) -> bool {
    let is_fact = glimpse.mark().is_none() || glimpse.evidence.seq.0 == 0;
    is_fact || job.since.is_none_or(|since| glimpse.at >= since) || lasts
}

/// Returns true if a fault lasts until it is repaired, so that it concerns every later user of the machine. A drill
/// ends with its own failure, and a crash of a kernel with the next boot if faults have ends
/// ([`crate::Diagnosis::set_fault_ends`]).
pub(crate) fn lasts(glimpse: &SignalRef<'_>, has_fault_ends: bool, catalogue: &Catalogue) -> bool {
    let is_lasting = |mark: &Classification| {
        let known = ClassEntry::of(catalogue, &mark.class);
        let is_over = has_fault_ends && mark.class.as_str() == classes::KERNEL_CRASH;
        let is_fault = known.is_outright_fault() && !is_over;
        is_fault || mark.role == Role::Root && known.layer() == "storage"
    };
    !glimpse.synthetic && glimpse.mark().is_some_and(is_lasting)
}

/// Returns true if a concluded failure takes in a sign.
pub(crate) fn joins_concluded(
    glimpse: &SignalRef<'_>,
    draft: &Draft,
    policy: &DraftPolicy,
    clearings: &NodeClearings,
) -> bool {
    let Some(before) = &draft.concluded else { return true };
    if draft.over_since.is_some_and(|over| glimpse.at > over) {
        return false;
    }
    if glimpse.synthetic && !before.synthetic.unwrap_or_else(|| draft.is_synthetic()) {
        return false;
    }
    match glimpse.entity {
        Entity::Rank { job, generation, .. } => return ScopeRef::Job(job, *generation) == draft.scope,
        Entity::Job { job } => return Some(job) == draft.scope.job(),
        Entity::Node { .. } | Entity::Device { .. } | Entity::Unknown => {}
    }
    let Some(node) = machine_of(glimpse.entity, glimpse.evidence) else {
        return true;
    };
    if clearings.of(node).is_some_and(|cleared| before.at <= cleared) {
        return false;
    }
    let is_same_episode = *glimpse.entity == before.blamed && glimpse.class() == Some(&before.class);
    glimpse.at <= before.at.after(policy.settle) || is_same_episode
}
