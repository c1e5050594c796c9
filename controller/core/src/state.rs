//! The state: everything the brain knows.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use rankguard_diagnosis::{Context, Diagnosis, JobContext};
use rankguard_faults::Catalogue;
use rankguard_model::{CaseId, JobId, NodeId, OrderId, PlanId, Sequence, Span, Timestamp};

use crate::cases::Cases;
use crate::catalogue::Knowing;
use crate::{Action, Fleet, Job, Plan, Policy, Timer};

/// Everything the brain knows. Built from nothing but events, so a journal of them is enough to have it back.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    pub(crate) policy: Policy,
    pub(crate) catalogue: Knowing,
    pub(crate) fleet: Fleet,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    pub(crate) plans: BTreeMap<PlanId, Plan>,
    pub(crate) cases: Cases,
    pub(crate) diagnosis: Diagnosis,
    pub(crate) timers: BTreeMap<Timer, Timestamp>,
    pub(crate) seen: BTreeMap<NodeId, Sequence>,
    pub(crate) node_spans: Vec<Span>,
    pub(crate) next_order: OrderId,
    pub(crate) next_plan: PlanId,
    /// What diagnosis must know of the jobs, kept by [`State::place`].
    pub(crate) context: Context,
}

impl State {
    /// Nothing has happened yet.
    pub fn new(policy: Policy, catalogue: &'static Catalogue) -> Self {
        Self {
            diagnosis: Diagnosis::new(policy.diagnosis()),
            catalogue: Knowing(Cow::Borrowed(catalogue)),
            fleet: Fleet::default(),
            jobs: BTreeMap::new(),
            plans: BTreeMap::new(),
            cases: Cases::new(policy.replay_only),
            timers: BTreeMap::new(),
            seen: BTreeMap::new(),
            node_spans: Vec::new(),
            next_order: OrderId(1),
            next_plan: PlanId(1),
            context: Context::default(),
            policy,
        }
    }

    /// How it decides.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What its verdicts rest on.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue.0
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
        if let Some(context) = self.jobs.get(name).and_then(placed) {
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

/// What diagnosis must know of a job; nothing of one that was never placed.
pub(crate) fn placed(job: &Job) -> Option<JobContext> {
    job.plan.as_ref()?;
    Some(JobContext {
        generation: job.generation,
        placements: job.places(),
        stopping: job.is_over(),
    })
}
