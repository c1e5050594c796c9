//! Diagnosis of a running cluster: signs become drafts, drafts become conclusions.

mod intake;
mod late;
mod serialized;

use std::collections::BTreeMap;

use rankguard_faults::Catalogue;
use rankguard_model::{Entity, Evidence, EvidenceSource, Generation, JobId, NodeId, Rank, Timestamp};
use serde::{Deserialize, Serialize};

use crate::attribution::NodeClearings;
use crate::conclude::conclude;
use crate::draft::Draft;
use crate::drafts::DraftTable;
use crate::flight::JobDumps;
use crate::memory::SignalMemory;
use crate::scope::ScopeRef;
use crate::signal_ref::SignalRef;
use crate::steps::StepTimes;
use crate::storage::is_lost_shard;
use crate::{
    CallerFact, ConcludedDraft, DraftChange, DraftId, DraftPolicy, DraftScope, PlacementIndex, Signal, SignalMeaning,
};

use serialized::SerializedState;

/// Maximum number of jobs in `made_up`.
const MADE_UP_MAX: usize = 1_000;

/// Complete state of diagnosis; serialisable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "SerializedState", into = "SerializedState")]
pub struct Diagnosis {
    policy: DraftPolicy,
    opened: u64,
    drafts: DraftTable,
    /// Signs that may belong to a failure that appears later.
    memory: SignalMemory,
    steps: StepTimes,
    flight: JobDumps,
    /// Generations of jobs with synthetic evidence of their ranks: if such a job stalls, the stall is synthetic too.
    made_up: BTreeMap<JobId, Generation>,
    clearings: NodeClearings,
    /// True if concluded failures end ([`crate::attribution`], rules 3 and 4); journals older than that rule replay
    /// with false.
    has_case_ends: bool,
    /// True if the causes of a failure are limited to its own time ([`Self::set_cause_limits`]).
    has_cause_limits: bool,
    /// True if faults are limited to what they affect ([`Self::set_fault_limits`]).
    has_fault_limits: bool,
    /// True if findings that were over explain no later failure ([`Self::set_fault_ends`]). It is not stored: the owner
    /// sets it after reading.
    has_fault_ends: bool,
    /// True if causes lie where their effects are ([`Self::set_local_causes`]). It is not stored: the owner sets it.
    has_local_causes: bool,
}

impl Diagnosis {
    /// Creates an empty diagnosis.
    pub fn new(policy: DraftPolicy) -> Self {
        Self {
            policy,
            opened: 0,
            drafts: DraftTable::default(),
            memory: SignalMemory::default(),
            steps: StepTimes::default(),
            flight: JobDumps::default(),
            made_up: BTreeMap::new(),
            clearings: NodeClearings::default(),
            has_case_ends: true,
            has_cause_limits: true,
            has_fault_limits: true,
            has_fault_ends: true,
            has_local_causes: true,
        }
    }

    /// Replaces the settings; the deadlines of open drafts follow the new ones.
    pub fn set_policy(&mut self, policy: DraftPolicy) {
        let drafts = std::mem::take(&mut self.drafts).into_all();
        self.drafts = DraftTable::of(drafts, &policy);
        self.policy = policy;
    }

    /// Sets whether concluded failures end; a journal that was begun under older rules replays with false.
    pub fn set_case_ends(&mut self, has_case_ends: bool) {
        self.has_case_ends = has_case_ends;
    }

    /// Sets whether the causes of a failure are limited to its own time ([`crate::attribution`], rules 2 and 6), a
    /// failure begins with its first effect, and the end of a node is classified by what its agent reported. A journal
    /// that was begun under older rules replays with false.
    pub fn set_cause_limits(&mut self, has_cause_limits: bool) {
        self.has_cause_limits = has_cause_limits;
    }

    /// Sets whether faults are limited to what they affect: a fault that lasts ends with later work on its machine and
    /// gives way to failures of the program ([`crate::attribution`], rule 2), and an out-of-memory kill explains the
    /// end of the process that it names. A journal that was begun under older rules replays with false.
    pub fn set_fault_limits(&mut self, has_fault_limits: bool) {
        self.has_fault_limits = has_fault_limits;
    }

    /// Sets whether findings that were over explain no later failure: a wait for a file system that answered, a crash of a
    /// kernel, findings of an idle node that are no failure by themselves or belong to an earlier one. With it, the ends of
    /// ranks are distinguished: a rank that was killed is no survivor, ends by one signal at one time blame no rank, and a
    /// drill has a case of its own beside a real failure. The message of a rank's end is no second fact beside the same line
    /// of its log. A journal that was begun under older rules replays with false.
    pub fn set_fault_ends(&mut self, has_fault_ends: bool) {
        self.has_fault_ends = has_fault_ends;
    }

    /// Sets whether causes lie where their effects are: an error of a GPU that ends one unknown process explains no end on
    /// another node, and of nodes that were silent together the earliest is the root. With it, exit codes are not stated as
    /// signals, and drills are stated as such. A journal that was begun under older rules replays with false.
    pub fn set_local_causes(&mut self, has_local_causes: bool) {
        self.has_local_causes = has_local_causes;
    }

    /// Records that a person cleared a node: earlier evidence of it and its devices explains no later failure.
    pub fn clear_node(&mut self, now: Timestamp, node: &NodeId) {
        if self.has_case_ends {
            self.memory.clear_node(node);
            self.clearings.clear(node, now);
        }
    }

    /// Returns the time at which a node was last cleared.
    pub fn cleared_at(&self, node: &NodeId) -> Option<Timestamp> {
        self.clearings.of(node)
    }

    /// Takes in evidence. The caller must pass the same evidence only once: the journal deduplicates.
    pub fn observe(
        &mut self,
        now: Timestamp,
        evidence: &Evidence,
        context: &PlacementIndex,
        catalogue: &Catalogue,
    ) -> Vec<DraftChange> {
        self.forget(now);
        self.steps.take(evidence);
        if let (true, Entity::Rank { job, generation, .. }) = (evidence.synthetic, &evidence.entity) {
            self.made_up.insert(job.clone(), *generation);
            if self.made_up.len() > MADE_UP_MAX {
                self.made_up.pop_first();
            }
        }
        let mut changes = Vec::new();
        if let Some(scope) = self.flight.take(evidence, self.policy.dump_bytes) {
            self.dumped(now, &scope, catalogue, &mut changes);
        }
        for glimpse in SignalRef::all(evidence) {
            self.take(now, &glimpse, context, catalogue, &mut changes);
        }
        changes
    }

    /// Takes in a fact that the caller knows and no node reports.
    pub fn observe_fact(
        &mut self,
        now: Timestamp,
        fact: &CallerFact,
        context: &PlacementIndex,
        catalogue: &Catalogue,
    ) -> Vec<DraftChange> {
        self.forget(now);
        let mut changes = Vec::new();
        let mut sign = Signal::of_fact(fact);
        if let CallerFact::JobStalled { job, generation, .. }
        | CallerFact::JobIdle { job, generation, .. }
        | CallerFact::RankStands { job, generation, .. } = fact
        {
            sign.synthetic = self.made_up.get(job) == Some(generation);
            // Ranks may go on before the conclusion.
            if self.has_fault_ends {
                sign.text = format!("as of {now}, {}", sign.text);
            }
        }
        self.take(now, &SignalRef::of(&sign.into()), context, catalogue, &mut changes);
        changes
    }

    /// Records that a node was started again: what was reported of it before explains no later failure. Failures that were
    /// concluded from its silence are weighed again, because the node had stopped.
    pub fn node_booted(&mut self, now: Timestamp, node: &NodeId, catalogue: &Catalogue) -> Vec<DraftChange> {
        self.memory.clear_node(node);
        let silences = self.drafts.silences_of(node).into_iter();
        let reboot = |since| CallerFact::NodeRebooted {
            node: node.clone(),
            since,
        };
        silences
            .filter_map(|(id, since)| self.weigh_fact(now, id, &reboot(since), catalogue))
            .collect()
    }

    /// Records that a node reports again: its earlier silence explains no later failure.
    pub fn node_returned(&mut self, node: &NodeId) {
        self.memory.forget_silence(node);
    }

    /// Records that the store of a job kept a later checkpoint than those that failed: the shards that it did not keep
    /// explain no later failure.
    pub fn store_works(&mut self, job: &JobId, generation: Generation) {
        if self.has_fault_ends {
            let scope = ScopeRef::Job(job, generation);
            self.memory.forget_where(scope, is_lost_shard);
        }
    }

    /// Records that a rank that made no steps makes them again: that it stood, and that the job did, explains no later
    /// failure.
    pub fn rank_moves(&mut self, now: Timestamp, job: &JobId, generation: Generation, rank: Rank) {
        if !self.has_fault_ends {
            return;
        }
        let is_over = |sign: &Signal| {
            let is_of_rank = matches!(&sign.entity, Entity::Rank { rank: of, .. } if *of == rank);
            sign.what == SignalMeaning::Stalled || is_of_rank && sign.is_standing()
        };
        let scope = ScopeRef::Job(job, generation);
        self.memory.forget_where(scope, is_over);
        let newest = self.drafts.of_scope(scope).and_then(|of| of.newest_done());
        let is_stall = |draft: &Draft| draft.holds(&SignalMeaning::Stalled) && draft.over_since.is_none();
        if let Some(id) = newest.filter(|id| self.drafts.get(*id).is_some_and(is_stall)) {
            self.drafts
                .change(id, &self.policy, |draft| draft.over_since = Some(now));
        }
    }

    /// Records that a value that an agent measures is within its limits again: its earlier reports explain no later failure.
    pub fn value_recovered(&mut self, node: &NodeId, metric: &str) {
        let is_report = |sign: &Signal| {
            let rest = sign.text.strip_prefix(metric);
            sign.source == EvidenceSource::Host && rest.is_some_and(|rest| rest.starts_with(" is "))
        };
        if self.has_fault_ends {
            self.memory.forget_where(ScopeRef::Node(node), is_report);
        }
    }

    /// Records that the agent of a silent node returned on the same boot: failures that were concluded from the silence
    /// are weighed again, because the node did not crash.
    pub fn agent_returned(&mut self, now: Timestamp, node: &NodeId, catalogue: &Catalogue) -> Vec<DraftChange> {
        self.drafts
            .silences_of(node)
            .into_iter()
            .filter_map(|(id, since)| self.weigh_return(now, id, node, since, catalogue))
            .collect()
    }

    fn weigh_return(
        &mut self,
        now: Timestamp,
        id: DraftId,
        node: &NodeId,
        since: Timestamp,
        catalogue: &Catalogue,
    ) -> Option<DraftChange> {
        let node = node.clone();
        self.weigh_fact(now, id, &CallerFact::AgentReturned { node, since }, catalogue)
    }

    /// Adds the fact that a job's ranks start elsewhere to the failure of a generation in which a start failed, and
    /// weighs it again if it is concluded.
    pub fn starts_elsewhere(
        &mut self,
        now: Timestamp,
        generation: Generation,
        fact: &CallerFact,
        catalogue: &Catalogue,
    ) -> Option<DraftChange> {
        let CallerFact::StartsElsewhere { job, .. } = fact else {
            return None;
        };
        let of = self.drafts.of_scope(ScopeRef::Job(job, generation))?;
        let id = of.open.or(of.newest_done())?;
        self.weigh_fact(now, id, fact, catalogue)
    }

    /// Adds a fact to a draft. A concluded draft is weighed again.
    fn weigh_fact(
        &mut self,
        now: Timestamp,
        id: DraftId,
        fact: &CallerFact,
        catalogue: &Catalogue,
    ) -> Option<DraftChange> {
        let sign = Signal::of_fact(fact);
        let is_return = self.has_fault_ends && matches!(fact, CallerFact::AgentReturned { .. });
        let has_local_causes = self.has_local_causes;
        let is_revised = self.drafts.change(id, &self.policy, |draft| {
            let is_silence = draft.is_concluded_silence() && !draft.holds(&SignalMeaning::AgentReturned);
            // An agent may return before and after the verdict on its silence.
            if !(is_return && has_local_causes && draft.holds_fact(&sign)) {
                draft.add(&SignalRef::of(&sign.clone().into()), &self.policy);
            }
            // The class of a silence does not change with the return of the agent, but its layer and its reasons.
            draft.thinks_again(catalogue) || is_return && is_silence
        });
        if is_revised != Some(true) {
            return None;
        }
        let revised = self
            .drafts
            .conclude(id, &self.policy, |draft| conclude(draft, now, catalogue))?;
        Some(DraftChange::Revised(Box::new(revised)))
    }

    /// Records that no rank of a generation is left that could report something: its failure settles in
    /// [`DraftPolicy::ended_settle`], or in [`DraftPolicy::ordered_settle`] if `is_ordered`: everything that the kernels
    /// of its nodes logged until now has been reported.
    pub fn ranks_ended(&mut self, now: Timestamp, job: &JobId, generation: Generation, is_ordered: bool) {
        if let Some(id) = self.open_of(job, generation) {
            self.drafts
                .change(id, &self.policy, |draft| draft.ranks_ended(now, is_ordered));
        }
    }

    /// Returns true if the ranks of a generation should be left alone, because a collective operation timed out and their
    /// stacks and flight recorders show why.
    pub fn awaits_dumps(&self, job: &JobId, generation: Generation) -> bool {
        let draft = self.open_of(job, generation).and_then(|id| self.drafts.get(id));
        draft.is_some_and(Draft::awaits_dumps)
    }

    fn open_of(&self, job: &JobId, generation: Generation) -> Option<DraftId> {
        self.drafts.of_scope(ScopeRef::Job(job, generation))?.open
    }

    /// Returns the time at which [`conclude`](Self::conclude) has work next.
    pub fn due(&self) -> Option<Timestamp> {
        self.drafts.due()
    }

    /// Returns the open drafts with their scopes.
    pub fn open_scopes(&self) -> impl Iterator<Item = (DraftId, &DraftScope)> {
        self.drafts.open().map(|draft| (draft.id, &draft.scope))
    }

    /// Concludes every draft that is due.
    pub fn conclude(&mut self, now: Timestamp, catalogue: &Catalogue) -> Vec<ConcludedDraft> {
        let due = self.drafts.due_by(now);
        let flight = &self.flight;
        let mut all = Vec::with_capacity(due.len());
        for id in due {
            self.drafts.conclude(id, &self.policy, |draft| {
                for sign in flight.signs(&draft.scope, &draft.placements) {
                    draft.add(&SignalRef::of(&sign), &self.policy);
                }
                all.push(conclude(draft, now, catalogue));
            });
        }
        self.forget(now);
        all
    }

    fn forget(&mut self, now: Timestamp) {
        self.memory.forget(now, &self.policy);
        self.flight.forget(now, self.policy.window);
        self.drafts.forget(now, &self.policy);
    }
}
