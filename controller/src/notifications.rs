//! Notifications: copies facts out of the state for the thread that sends messages.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rankguard_core::{DecisionState, Job, JobPhase, Plan};
use rankguard_faults::root_rank_text;
use rankguard_identity::PeerTransport;
use rankguard_model::{Case, Entity, JobId, JobState, NodeId, NodeState, Timestamp, is_cancellation};
use rankguard_notify::{
    CaseFacts, ClusterFacts, ENDED_CASE_AGE, JobFacts, NodeCounts, NotifyControl, NotifyCounts, NotifyFeed,
    NotifySettings, ReportFacts,
};

use crate::error::ControllerError;

/// Name of a cluster without a setting and without an identity.
const CLUSTER: &str = "rankguard";

/// Notifications of this start of the controller.
#[derive(Debug)]
pub(crate) struct Notifications {
    feed: NotifyFeed,
    started_at: Timestamp,
    report: SharedReport,
}

/// Newest scheduled report as a message; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedReport(Arc<Mutex<Option<ReportFacts>>>);

impl SharedReport {
    /// Replaces the report.
    pub(crate) fn set(&self, report: ReportFacts) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
    }

    fn get(&self) -> Option<ReportFacts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Notifications {
    /// Starts the thread. Without receivers it waits for a reload that adds one.
    pub(crate) fn start(
        settings: &NotifySettings,
        network: &PeerTransport,
        state_dir: &Path,
        started_at: Timestamp,
    ) -> Result<(Self, NotifyCounts, NotifyControl), ControllerError> {
        let cluster = cluster_name(settings, network);
        let started = NotifyFeed::start(settings, &cluster, state_dir);
        let (feed, counts, control) = started.map_err(|source| ControllerError::Notify { source })?;
        let report = SharedReport::default();
        let notifications = Self {
            feed,
            started_at,
            report,
        };
        Ok((notifications, counts, control))
    }

    /// Returns the newest scheduled report, which the scheduler replaces.
    pub(crate) fn report(&self) -> SharedReport {
        self.report.clone()
    }

    /// Passes on the facts of a state; never waits.
    pub(crate) fn publish(&self, state: &DecisionState, degraded: Option<&str>, impaired: Vec<String>, now: Timestamp) {
        if !self.feed.has_receivers() {
            return;
        }
        self.feed.publish(ClusterFacts {
            at: now,
            started_at: self.started_at,
            cases: case_facts(state, now),
            jobs: job_facts(state),
            nodes: node_counts(state),
            degraded: degraded.map(str::to_owned),
            impaired,
            report: self.report.get(),
        });
    }
}

/// Returns the name of the cluster in messages of notifications.
pub fn cluster_name(settings: &NotifySettings, network: &PeerTransport) -> String {
    if !settings.cluster.is_empty() {
        return settings.cluster.clone();
    }
    let card = network.identity().and_then(|identity| identity.card().ok());
    card.map_or_else(|| CLUSTER.to_owned(), |card| card.name.cluster().to_owned())
}

fn case_facts(state: &DecisionState, now: Timestamp) -> Vec<CaseFacts> {
    let mut cordoned: BTreeMap<_, Vec<NodeId>> = BTreeMap::new();
    for (name, node) in state.fleet().iter() {
        if let Some(case) = node.cordon.as_ref().and_then(|cordon| cordon.case) {
            cordoned.entry(case).or_default().push(name.clone());
        }
    }
    let is_recent = |case: &&Case| {
        let ended = case.closed_at.is_some_and(|at| now.since(at) > ENDED_CASE_AGE);
        !case.replayed && (case.is_open() || !ended)
    };
    let cases = state.cases().values().filter(is_recent);
    cases
        .map(|case| CaseFacts {
            cordoned: cordoned.remove(&case.id).unwrap_or_default(),
            ..facts_of(state, case)
        })
        .collect()
}

fn facts_of(state: &DecisionState, case: &Case) -> CaseFacts {
    let verdict = &case.verdict;
    let job = case.job.as_ref().and_then(|job| state.jobs().get(job));
    let plan = case.plan.and_then(|plan| state.plans().get(&plan));
    CaseFacts {
        id: case.id,
        state: case.state,
        opened_at: case.opened_at,
        ended_at: case.closed_at,
        class: verdict.class.clone(),
        severity: verdict.severity,
        confidence: verdict.confidence,
        blamed: case.blamed_text(),
        node: verdict.blamed.node().cloned(),
        blames_node: matches!(verdict.blamed, Entity::Node { .. } | Entity::Device { .. }),
        root_rank: root_rank_text(case),
        job: case.job.clone(),
        generation: case.generation,
        is_job_stopped: job.is_some_and(|job| is_stopped_by(job, case)),
        plan: plan.map(plan_text),
        cordoned: Vec::new(),
        awaits_operator: case.awaits_operator.is_some(),
        is_drill: case.is_synthetic(),
    }
}

/// Returns true if the job was stopped, not cancelled, after the generation of the case.
fn is_stopped_by(job: &Job, case: &Case) -> bool {
    let JobPhase::Stopped { reason } = job.phase() else {
        return false;
    };
    case.generation == Some(job.generation()) && !is_cancellation(reason)
}

/// Describes a plan without the names of its nodes, which may be hundreds.
fn plan_text(plan: &Plan) -> String {
    format!(
        "{}, generation {} with {} ranks on {} nodes",
        plan.kind.describe(),
        plan.generation,
        plan.world_size(),
        plan.nodes.len()
    )
}

fn job_facts(state: &DecisionState) -> Vec<JobFacts> {
    let mut restarts: BTreeMap<&JobId, Vec<Timestamp>> = BTreeMap::new();
    for plan in state.plans().values().filter(|plan| plan.case.is_some()) {
        restarts.entry(&plan.job).or_default().push(plan.made_at);
    }
    let jobs = state.jobs().values().filter(|job| !job.is_over());
    jobs.map(|job| {
        let name = &job.spec.id;
        let restarts = restarts.remove(name).unwrap_or_default();
        JobFacts {
            job: name.clone(),
            // An earlier job of the name may have left plans.
            restarts: restarts.into_iter().filter(|at| *at >= job.submitted_at).collect(),
            fruitless: job.fruitless_restarts(),
            fruitless_max: job.spec.max_restarts,
            nodes: used_nodes(job).len(),
            nodes_min: usize::try_from(job.spec.nodes.min).unwrap_or(usize::MAX),
        }
    })
    .collect()
}

fn used_nodes(job: &Job) -> &[NodeId] {
    match job.state() {
        JobState::Starting | JobState::Running | JobState::Recovering => job.nodes(),
        JobState::Pending | JobState::Finished | JobState::Stopped => &[],
    }
}

fn node_counts(state: &DecisionState) -> NodeCounts {
    let used: BTreeSet<&NodeId> = state.jobs().values().flat_map(used_nodes).collect();
    let mut counts = NodeCounts::default();
    for (name, node) in state.fleet().iter() {
        counts.known += 1;
        // An agent that was asked to end is expected to be silent.
        let is_expected = node.farewell.is_some();
        if node.state() == NodeState::Lost {
            counts.lost += usize::from(!is_expected);
        } else if node.session_ended.is_some() {
            counts.without_session += usize::from(!is_expected);
        } else if node.unjoined_since.is_some() {
            counts.unjoined += 1;
        } else if node.is_usable() && !used.contains(name) {
            counts.free += 1;
        }
    }
    counts
}
