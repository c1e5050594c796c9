//! Preflight gate before a generation: every node checks the job's requirements, and values that must be equal on all
//! nodes are compared here. The first node may be ordered to measure the network links between all of them.
//!
//! A node with a failed check is excluded from this job until its agent restarts or an operator uncordons it; each
//! failure becomes a case with the class that it would have had. A check that fails on every node is a mistake of the
//! job, and stops it.
//!
//! A job that prepares nodes for its growth has the checks made while its ranks work ([`super::preparation`]), and does not wait
//! for them at the gate.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_diagnosis::CallerFact;
use rankguard_faults::classes;
use rankguard_model::{AgentOrder, ClassId, FailedCheck, Generation, JobId, NodeId, PeerAgent, PreflightOrder};
use serde::{Deserialize, Serialize};

use super::DecisionContext;
use crate::job::JobLookup;
use crate::policy::PreflightMode;
use crate::{Job, JobPhase, Plan};

/// Failures of one node that become cases.
const CASES: usize = 8;
/// Check that one node makes of the others; its subject is the faulty node.
pub(crate) const BETWEEN: &str = "between";
/// Names, or prefixes of names, of values that must be equal, and the failure class of a difference. Differences of
/// other values are announced only.
const STRICT: [(&str, &str); 4] = [
    ("gpu-driver", classes::DRIVER_VERSION_MISMATCH),
    ("import ", classes::LIBRARY_INCOMPATIBLE),
    ("program", classes::ENVIRONMENT_SETUP_ERROR),
    ("script", classes::ENVIRONMENT_SETUP_ERROR),
];

/// Preflight results of the nodes of the coming generation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PreflightResults {
    /// Nodes that have not answered.
    pub(crate) waiting: BTreeSet<NodeId>,
    failed: BTreeMap<NodeId, Vec<FailedCheck>>,
    environments: BTreeMap<NodeId, BTreeMap<String, String>>,
}

/// Node with a value that differs from the majority.
#[derive(Debug, PartialEq, Eq)]
struct EnvironmentDifference {
    node: NodeId,
    what: String,
    has: String,
    most: String,
}

impl PreflightResults {
    /// Returns results without answers.
    pub(crate) fn await_nodes(nodes: BTreeSet<NodeId>) -> Self {
        Self {
            waiting: nodes,
            ..Self::default()
        }
    }

    /// Records the answer of a node among these. A check between nodes is one of its subject.
    fn record(
        &mut self,
        node: &NodeId,
        failed: &[FailedCheck],
        environment: &BTreeMap<String, String>,
        nodes: &[NodeId],
    ) {
        for check in failed {
            let other = nodes
                .iter()
                .find(|node| check.check == BETWEEN && node.as_str() == check.subject);
            let about = other.unwrap_or(node).clone();
            self.failed.entry(about).or_default().push(check.clone());
        }
        self.environments.insert(node.clone(), environment.clone());
    }

    /// Returns the results of these nodes; `None` if one has not answered.
    fn of_nodes(&self, nodes: &[NodeId]) -> Option<Self> {
        let environment = |node: &NodeId| Some((node.clone(), self.environments.get(node)?.clone()));
        let failed = nodes
            .iter()
            .filter_map(|node| Some((node.clone(), self.failed.get(node)?.clone())));
        Some(Self {
            waiting: BTreeSet::new(),
            failed: failed.collect(),
            environments: nodes.iter().map(environment).collect::<Option<_>>()?,
        })
    }

    /// Returns true if no node fails a check or differs in a value that excludes it.
    fn refuses_none(&self) -> bool {
        let (differences, _) = self.differences();
        self.failed.is_empty()
            && !differences
                .iter()
                .any(|difference| strict_class(&difference.what).is_some())
    }

    /// Returns the differing values by node. A value without a majority is returned as text without a node.
    fn differences(&self) -> (Vec<EnvironmentDifference>, Vec<String>) {
        let names: BTreeSet<&String> = self.environments.values().flat_map(BTreeMap::keys).collect();
        let mut named = Vec::new();
        let mut open = Vec::new();
        for name in names {
            let value = |own: &BTreeMap<String, String>| own.get(name).cloned().unwrap_or_else(|| "nothing".to_owned());
            let mut counts: BTreeMap<String, usize> = BTreeMap::new();
            for own in self.environments.values() {
                *counts.entry(value(own)).or_default() += 1;
            }
            if counts.len() < 2 {
                continue;
            }
            let most = counts.iter().max_by_key(|(_, count)| **count);
            let Some((most, _)) = most.filter(|(_, count)| **count * 2 > self.environments.len()) else {
                let told: Vec<String> = counts
                    .iter()
                    .map(|(value, count)| format!("{value} on {count}"))
                    .collect();
                open.push(format!("{name}: {}", told.join(", ")));
                continue;
            };
            let others = self.environments.iter().filter(|(_, own)| value(own) != *most);
            named.extend(others.map(|(node, own)| EnvironmentDifference {
                node: node.clone(),
                what: name.clone(),
                has: value(own),
                most: most.clone(),
            }));
        }
        (named, open)
    }

    /// Returns the checks that failed on every node.
    fn checks_failed_on_all(&self) -> Vec<&FailedCheck> {
        let asked = self.environments.len();
        let Some((_, first)) = self.failed.iter().next().filter(|_| self.failed.len() == asked) else {
            return Vec::new();
        };
        let same =
            |one: &FailedCheck, other: &FailedCheck| (&one.check, &one.subject) == (&other.check, &other.subject);
        let on_all = |check: &&FailedCheck| {
            self.failed
                .values()
                .all(|own| own.iter().any(|other| same(check, other)))
        };
        first.iter().filter(on_all).collect()
    }
}

impl DecisionContext<'_> {
    /// Orders preflight on the nodes of the plan unless it is disabled.
    pub(super) fn ask_nodes(&mut self, name: &JobId) {
        if self.state.policy.preflight == PreflightMode::Off {
            return;
        }
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        job.answers = PreflightResults::await_nodes(job.nodes().iter().cloned().collect());
        for node in job.nodes().to_vec() {
            self.ask_node(name, &node);
        }
    }

    pub(super) fn ask_node(&mut self, name: &JobId, node: &NodeId) {
        let Some(job) = self.state.jobs.get(name) else { return };
        let wanted = PreflightOrder {
            job: name.clone(),
            generation: job.generation(),
            command: job.spec.command.clone(),
            env: job.spec.env.clone(),
            workdir: job.spec.workdir.clone(),
            write_paths: job.spec.checkpoint.iter().map(|policy| policy.store.clone()).collect(),
            // A node runs several checks one after the other.
            deadline_ms: self.state.policy.preflight_ms / 4,
            between: self.link_peers(job, node),
            links: self.measured_nodes(job),
        };
        self.order(node, AgentOrder::Preflight(wanted));
    }

    /// Returns the nodes among which this one measures links: all of the job if it is the first.
    fn link_peers(&self, job: &Job, node: &NodeId) -> Vec<PeerAgent> {
        if job.nodes().first() == Some(node) {
            self.measured_nodes(job)
        } else {
            Vec::new()
        }
    }

    /// Returns the nodes of a job that measure links with each other; none if that is disabled.
    fn measured_nodes(&self, job: &Job) -> Vec<PeerAgent> {
        let is_measured = self.state.policy.preflight_between && job.nodes().len() > 1;
        let nodes = job.nodes().iter().filter(|_| is_measured);
        let peer = |node: &NodeId| {
            let info = &self.state.fleet.get(node)?.info;
            Some(PeerAgent {
                node: node.clone(),
                address: info.peer_address.clone(),
                failure_domain: info.failure_domain.clone(),
            })
        };
        nodes.filter_map(peer).collect()
    }

    pub(super) fn node_preflighted(
        &mut self,
        name: &JobId,
        generation: Generation,
        node: &NodeId,
        failed: &[FailedCheck],
        environment: &BTreeMap<String, String>,
    ) {
        let Some(job) = self.state.jobs.in_generation(name, generation) else {
            return;
        };
        if !matches!(job.phase(), JobPhase::Fencing { .. }) {
            let early = job
                .preparation
                .as_mut()
                .and_then(|preparation| preparation.preflight_mut());
            if let Some(early) = early.filter(|early| early.waiting.contains(node)) {
                early.waiting.remove(node);
                early.record(node, failed, environment, &[]);
            }
            return;
        }
        if !job.answers.waiting.remove(node) {
            return;
        }
        let nodes = job.nodes().to_vec();
        job.answers.record(node, failed, environment, &nodes);
        if !job.answers.waiting.is_empty() {
            return;
        }
        let answers = std::mem::take(&mut job.answers);
        if self.passes(name, &answers) {
            self.advance(name);
        }
    }

    /// Orders the preflight of a coming growth on all nodes of the job and those that it is to take in. The ranks work on.
    /// Links are not measured beside them; where that is required, the gate waits for it.
    pub(super) fn preflight_ahead(&mut self, name: &JobId, added: &[NodeId]) {
        let policy = &self.state.policy;
        if !self.state.prepares_ahead() || policy.preflight == PreflightMode::Off || policy.preflight_between {
            return;
        }
        let at = self.at;
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let nodes: BTreeSet<NodeId> = job.nodes().iter().chain(added).cloned().collect();
        let Some(preparation) = &mut job.preparation else {
            return;
        };
        preparation.ask_preflight(at, nodes.clone());
        for node in nodes {
            self.ask_node(name, &node);
        }
    }

    /// Returns the results of a preflight that was made ahead for all nodes of a plan, if it refuses none of them. Otherwise the
    /// nodes check themselves at the gate.
    pub(super) fn early_preflight(&self, plan: &Plan) -> Option<PreflightResults> {
        let job = self.state.jobs.get(&plan.job)?;
        let results = job.preparation.as_ref()?.preflight(self.at)?;
        results.of_nodes(&plan.nodes).filter(PreflightResults::refuses_none)
    }

    /// Evaluates the results. Returns true if the generation may start.
    pub(super) fn passes(&mut self, name: &JobId, answers: &PreflightResults) -> bool {
        let mut refused: BTreeMap<NodeId, Vec<String>> = BTreeMap::new();
        let mut cases: Vec<(NodeId, ClassId, String)> = Vec::new();
        for (node, failed) in &answers.failed {
            for check in failed.iter().take(CASES) {
                let text = format!("preflight of {} {}: {}", check.check, check.subject, check.found);
                refused.entry(node.clone()).or_default().push(text.clone());
                cases.push((node.clone(), check.class.clone(), text));
            }
        }
        let (differences, open) = answers.differences();
        for what in open {
            self.announce(format!(
                "job {name}: its nodes differ, and none is in the majority: {what}"
            ));
        }
        for difference in differences {
            let EnvironmentDifference { node, what, has, most } = difference;
            let text = format!("preflight of {what}: {has}, and {most} on most nodes of the job");
            match strict_class(&what) {
                Some(class) => {
                    refused.entry(node.clone()).or_default().push(text.clone());
                    cases.push((node, ClassId::from(class), text));
                }
                None => self.announce(format!("job {name}, node {node}: {text}")),
            }
        }
        for (node, why) in &refused {
            self.announce(format!("job {name}, node {node}: {}", why.join("; ")));
        }
        if refused.is_empty() || self.state.policy.preflight != PreflightMode::Require {
            return true;
        }
        let at = self.at;
        for (node, class, text) in cases {
            self.witness_fact(&CallerFact::CheckFailed {
                node,
                class,
                text,
                since: at,
            });
        }
        let everywhere: Vec<String> = answers
            .checks_failed_on_all()
            .iter()
            .map(|check| format!("{} {}: {} ({})", check.check, check.subject, check.found, check.advice))
            .collect();
        if !everywhere.is_empty() {
            let nodes = match answers.environments.len() {
                1 => "its node".to_owned(),
                many => format!("any of its {many} nodes"),
            };
            self.stop_job(name, format!("it cannot run on {nodes}: {}", everywhere.join("; ")));
            return false;
        }
        let reasons: Vec<String> = refused
            .keys()
            .map(|node| format!("preflight refused node {node}"))
            .collect();
        if let Some(job) = self.state.jobs.get_mut(name) {
            job.refused.extend(refused.into_keys());
        }
        self.place(name, None, reasons);
        false
    }

    /// Lifts the preflight exclusions of a node after a restart of its agent or an uncordon.
    pub(super) fn forget_refusals(&mut self, node: &NodeId) {
        for job in self.state.jobs.values_mut() {
            job.refused.remove(node);
            job.starts.forget(node);
        }
        if let Some(entry) = self.state.fleet.get_mut(node) {
            entry.lack = None;
        }
    }
}

/// Returns the class of a difference between nodes that excludes one of them; `None` for other values.
fn strict_class(what: &str) -> Option<&'static str> {
    let (_, class) = STRICT.iter().find(|(begins, _)| what.starts_with(begins))?;
    Some(class)
}

/// Returns the nodes that the phase of a job still waits for.
pub(super) fn awaited(job: &Job, fencing: &BTreeSet<NodeId>) -> Vec<NodeId> {
    fencing.union(&job.answers.waiting).cloned().collect()
}
