//! The state: everything the brain knows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rankguard_checkpoint_schedule::pairs;
use rankguard_diagnosis::{Context, Diagnosis, JobContext};
use rankguard_faults::Catalogue;
use rankguard_model::{CaseId, Generation, JobId, NodeId, OrderId, PlanId, Sequence, Span, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::brain::RefusedEvidence;
use crate::cases::Cases;
use crate::catalogue::CatalogueInForce;
use crate::limits::Removed;
use crate::order_ledger::OrderLedger;
use crate::{Action, ControllerLives, Fleet, GenerationFloors, Job, Plan, Policy, Timer};

/// Everything the brain knows. Built from nothing but events, so a journal of them is enough to have it back. A state that was
/// written with serde and read again is equal to the one that was written and decides alike, so a journal may begin with one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct State {
    pub(crate) policy: Policy,
    pub(crate) catalogue: CatalogueInForce,
    pub(crate) fleet: Fleet,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    pub(crate) plans: BTreeMap<PlanId, Plan>,
    pub(crate) cases: Cases,
    pub(crate) diagnosis: Diagnosis,
    #[serde(with = "pairs")]
    pub(crate) timers: BTreeMap<Timer, Timestamp>,
    pub(crate) seen: BTreeMap<NodeId, Sequence>,
    pub(crate) node_spans: Vec<Span>,
    /// Orders that each node was sent, the newest few.
    #[serde(default)]
    pub(crate) orders_sent: OrderLedger,
    /// Evidence that was refused, by the node that sent it.
    #[serde(default)]
    pub(crate) refused: BTreeMap<NodeId, RefusedEvidence>,
    #[serde(default)]
    pub(crate) lives: ControllerLives,
    #[serde(default)]
    pub(crate) floors: GenerationFloors,
    pub(crate) next_order: OrderId,
    pub(crate) next_plan: PlanId,
    /// Version of the decision rules in force, see [`Policy::rules`].
    #[serde(default)]
    pub(crate) rules: u32,
    /// What diagnosis must know of the jobs, kept by [`State::place`] and made again from the jobs when a state is read.
    #[serde(skip)]
    pub(crate) context: Context,
    /// Names of jobs that the limits removed, oldest first.
    #[serde(default)]
    pub(crate) removed_names: VecDeque<JobId>,
    /// What the limits removed.
    #[serde(default)]
    pub(crate) removed: Removed,
    /// Whether finished jobs, plans and closed cases are kept without limit.
    #[serde(skip)]
    pub(crate) unlimited: bool,
}

impl State {
    /// Nothing has happened yet.
    pub fn new(policy: Policy, catalogue: &'static Catalogue) -> Self {
        let mut diagnosis = Diagnosis::new(policy.diagnosis());
        diagnosis.set_case_ends(policy.rules >= 4);
        Self {
            diagnosis,
            catalogue: CatalogueInForce::builtin(catalogue),
            fleet: Fleet::default(),
            jobs: BTreeMap::new(),
            plans: BTreeMap::new(),
            cases: Cases::new(policy.replay_only),
            timers: BTreeMap::new(),
            seen: BTreeMap::new(),
            node_spans: Vec::new(),
            orders_sent: OrderLedger::default(),
            refused: BTreeMap::new(),
            lives: ControllerLives::default(),
            floors: GenerationFloors::default(),
            next_order: OrderId(1),
            next_plan: PlanId(1),
            rules: policy.rules,
            context: Context::default(),
            removed_names: VecDeque::new(),
            removed: Removed::default(),
            // What is replayed ends, and analysts want all of it.
            unlimited: policy.replay_only,
            policy,
        }
    }

    /// The same state without limits on what it remembers, for readers of history that want all of it.
    #[must_use]
    pub fn without_limits(mut self) -> Self {
        self.unlimited = true;
        self
    }

    /// The same state under another catalogue; events that give a catalogue replace it.
    #[must_use]
    pub fn with_catalogue(mut self, catalogue: &'static Catalogue) -> Self {
        self.catalogue = CatalogueInForce::builtin(catalogue);
        self
    }

    /// How it decides.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Takes newer rules. What diagnosis knows of the jobs depends on them.
    pub(crate) fn adopt_rules(&mut self, rules: u32) {
        self.rules = self.rules.max(rules);
        self.diagnosis.set_case_ends(self.has_case_ends());
        let names: Vec<JobId> = self.jobs.keys().cloned().collect();
        for name in names {
            self.place(&name);
        }
    }

    /// Version of the decision rules in force.
    pub fn rules(&self) -> u32 {
        self.rules
    }

    /// Whether nodes outside the current plans are fenced; older rules did not.
    pub(crate) fn fences_returning_nodes(&self) -> bool {
        self.rules >= 1
    }

    /// Whether progress refills restart budgets, and commits and signs of life count as progress; older rules knew steps only.
    pub(crate) fn refills_budgets(&self) -> bool {
        self.rules >= 2
    }

    /// Whether an operator's reason replaces that of a standing cordon; older rules kept the first.
    pub(crate) fn replaces_cordon_reasons(&self) -> bool {
        self.rules >= 3
    }

    /// Whether cases have an end and clearing a node clears it ([`rankguard_diagnosis`], attribution); older rules had neither.
    pub(crate) fn has_case_ends(&self) -> bool {
        self.rules >= 4
    }

    /// Whether ranks that run on while their job waits for nodes may complete it; older rules ran such a job again.
    pub(crate) fn completes_waiting_jobs(&self) -> bool {
        self.rules >= 4
    }

    /// Whether a look for nodes to grow onto keeps its time when another is wanted; older rules put it off each time.
    pub(crate) fn keeps_growth_timers(&self) -> bool {
        self.rules >= 4
    }

    /// What its verdicts rest on.
    pub fn catalogue(&self) -> &Catalogue {
        self.catalogue.get()
    }

    /// The nodes.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// The jobs, by name.
    pub fn jobs(&self) -> &BTreeMap<JobId, Job> {
        &self.jobs
    }

    /// The plans that were made, by number.
    pub fn plans(&self) -> &BTreeMap<PlanId, Plan> {
        &self.plans
    }

    /// The cases, by number.
    pub fn cases(&self) -> &BTreeMap<CaseId, rankguard_model::Case> {
        self.cases.all()
    }

    /// The newest sequence of a node's evidence that the state has taken in; 0 when none.
    pub fn acknowledged(&self, node: &NodeId) -> Sequence {
        self.seen.get(node).copied().unwrap_or_default()
    }

    /// The same for all nodes that ever reported, those among them that the fleet no longer knows.
    pub fn all_acknowledged(&self) -> &BTreeMap<NodeId, Sequence> {
        &self.seen
    }

    /// Whether a job has, or had, this name.
    pub fn has_job_name(&self, name: &JobId) -> bool {
        self.jobs.contains_key(name) || self.removed_names.contains(name)
    }

    /// Evidence that was refused, over all nodes.
    pub fn refused_evidence(&self) -> u64 {
        self.refused.values().map(RefusedEvidence::count).sum()
    }

    /// What the limits on memory have removed.
    pub fn removed(&self) -> Removed {
        self.removed
    }

    /// The starts of controllers on the journal.
    pub fn lives(&self) -> &ControllerLives {
        &self.lives
    }

    /// The start of the controller in which a generation was begun; 0 where that is not known, or where it no longer acts.
    pub fn life_of(&self, job: &JobId, generation: Generation) -> u64 {
        let job = self.jobs.get(job).filter(|job| job.generation == generation);
        let plan = job.and_then(|job| job.plan.as_ref());
        plan.filter(|plan| plan.generation == generation)
            .map_or(0, |plan| plan.life)
    }

    /// Timers that are set.
    pub fn timers(&self) -> &BTreeMap<Timer, Timestamp> {
        &self.timers
    }

    /// Nodes on which jobs other than this one have their place.
    pub(crate) fn nodes_of_other_jobs(&self, job: &JobId) -> BTreeSet<NodeId> {
        self.jobs
            .iter()
            .filter(|(name, other)| *name != job && !other.is_over())
            .flat_map(|(_, other)| other.nodes().iter().cloned())
            .collect()
    }

    /// A job has another plan or is over: diagnosis is to know. Whoever changes either says so here.
    pub(crate) fn place(&mut self, name: &JobId) {
        let has_case_ends = self.has_case_ends();
        if let Some(context) = self.jobs.get(name).and_then(|job| placed(job, has_case_ends)) {
            self.context.set(name.clone(), context);
        }
    }

    /// Sets a timer, replacing an earlier one for the same purpose.
    pub(crate) fn set_timer(&mut self, timer: Timer, at: Timestamp, actions: &mut Vec<Action>) {
        self.timers.insert(timer.clone(), at);
        actions.push(Action::SetTimer { timer, at });
    }

    /// Takes a number for an order.
    pub(crate) fn take_order_id(&mut self) -> OrderId {
        let id = self.next_order;
        self.next_order = id.next();
        id
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut state = Self::deserialize(deserializer)?;
        state.unlimited = state.policy.replay_only;
        let has_case_ends = state.has_case_ends();
        let jobs = state.jobs.iter();
        state.context = jobs
            .filter_map(|(name, job)| Some((name.clone(), placed(job, has_case_ends)?)))
            .collect();
        Ok(state)
    }
}

/// What diagnosis must know of a job; nothing of one that was never placed. Under older rules a job that was over used its nodes on.
pub(crate) fn placed(job: &Job, has_case_ends: bool) -> Option<JobContext> {
    let plan = job.plan.as_ref()?;
    Some(JobContext {
        generation: job.generation,
        placements: job.places(),
        stopping: job.is_over(),
        since: has_case_ends.then_some(plan.made_at),
        ended_at: job.ended_at.filter(|_| has_case_ends),
    })
}
