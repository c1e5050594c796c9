//! Pattern alarms: conditions of jobs, nodes and the controller itself that no single case shows.
//!
//! | alarm | condition |
//! |---|---|
//! | `restart-storm` | a job was restarted after failures several times within a window |
//! | `no-progress` | a job was restarted several times without progress in between |
//! | `suspect-node` | several cases of a day blame one node |
//! | `spares-low` | fewer nodes are free than configured while jobs run |
//! | `agents-unheard` | nothing is received from a share of the nodes |
//! | `controller-degraded` | the controller cannot write its journal, so that it records and decides nothing; or its audit log, tokens or reports |
//! | `controller-stuck` | the controller's event loop has passed on no facts for a minute |

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rankguard_model::{CaseId, CaseState, JobId, NodeId, Severity, Timestamp};
use serde::{Deserialize, Serialize};

use crate::facts::{CaseFacts, ClusterFacts, JobFacts};
use crate::incident::{Incident, IncidentKey, IncidentStage};

/// Time for which nodes must be unheard, also after a start of the controller: agents need some time to join again.
const UNHEARD_FOR: Duration = Duration::from_secs(60);
/// Time without facts after which the event loop counts as stuck; a commit on a slow disk may take seconds.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// Window of the cases that blame one node.
const SUSPECT_WINDOW: Duration = Duration::from_secs(86_400);
/// Case numbers that the text of an alarm lists.
const CASES_LISTED: usize = 5;

/// Kinds of alarms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlarmKind {
    RestartStorm,
    NoProgress,
    SuspectNode,
    SparesLow,
    AgentsUnheard,
    ControllerDegraded,
    ControllerStuck,
}

impl AlarmKind {
    /// Returns the name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::RestartStorm => "restart-storm",
            Self::NoProgress => "no-progress",
            Self::SuspectNode => "suspect-node",
            Self::SparesLow => "spares-low",
            Self::AgentsUnheard => "agents-unheard",
            Self::ControllerDegraded => "controller-degraded",
            Self::ControllerStuck => "controller-stuck",
        }
    }
}

/// Limits of the alarms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlarmLimits {
    /// Restarts of one job within `restart_window`; 0 disables the alarm.
    pub restarts: usize,
    /// Window of `restarts`.
    pub restart_window: Duration,
    /// Restarts without progress; 0 disables the alarm.
    pub fruitless: u32,
    /// Cases of a day that blame one node; 0 disables the alarm.
    pub suspect_cases: usize,
    /// Free nodes below which the alarm is raised while jobs run; 0 disables it.
    pub spares_min: usize,
    /// Share of nodes from which nothing is received, percent; 0 disables the alarm.
    pub unheard_share: usize,
}

impl Default for AlarmLimits {
    fn default() -> Self {
        Self {
            restarts: 5,
            restart_window: Duration::from_secs(3_600),
            fruitless: 3,
            suspect_cases: 3,
            spares_min: 0,
            unheard_share: 25,
        }
    }
}

/// Raised alarms with the times of their beginnings.
#[derive(Debug)]
pub struct AlarmBoard {
    limits: AlarmLimits,
    raised: BTreeMap<IncidentKey, Incident>,
    /// Begin of the time in which the share of unheard nodes is too large.
    unheard_since: Option<Timestamp>,
}

/// Condition of an alarm that holds.
struct RaisedCondition {
    kind: AlarmKind,
    subject: String,
    severity: Severity,
    job: Option<JobId>,
    node: Option<NodeId>,
    title: String,
    details: Vec<String>,
    command: String,
}

impl AlarmBoard {
    /// Creates a board without alarms.
    pub fn new(limits: AlarmLimits) -> Self {
        Self {
            limits,
            raised: BTreeMap::new(),
            unheard_since: None,
        }
    }

    /// Replaces the limits; alarms that hold under the new ones stay raised.
    pub fn set_limits(&mut self, limits: AlarmLimits) {
        self.limits = limits;
    }

    /// Returns true if the controller has run long enough for an alarm that is not raised to be over.
    pub fn is_settled(facts: &ClusterFacts, now: Timestamp) -> bool {
        now.since(facts.started_at) > UNHEARD_FOR + Duration::from_secs(5)
    }

    /// Returns the alarms that hold; `now` may be later than the facts.
    pub fn evaluate(&mut self, facts: &ClusterFacts, now: Timestamp) -> Vec<Incident> {
        let stuck = stuck(facts, now);
        if stuck.is_some() {
            // Facts that are out of date prove no other condition, and disprove none.
            let known = self.raised.values().filter(|alarm| !is_stuck(alarm)).cloned().collect();
            return self.renew(stuck.into_iter().collect(), known, now);
        }
        let mut found = Vec::new();
        for job in &facts.jobs {
            found.extend(self.restart_storm(job, now));
            found.extend(self.no_progress(job));
        }
        found.extend(self.suspect_nodes(&facts.cases, now));
        found.extend(self.spares_low(facts));
        found.extend(self.agents_unheard(facts, now));
        found.extend(degraded(facts));
        self.renew(found, Vec::new(), now)
    }

    /// Replaces the raised alarms by those found; `retained` stay raised.
    fn renew(&mut self, found: Vec<RaisedCondition>, retained: Vec<Incident>, now: Timestamp) -> Vec<Incident> {
        let mut raised: BTreeMap<IncidentKey, Incident> =
            retained.into_iter().map(|alarm| (alarm.key.clone(), alarm)).collect();
        for condition in found {
            let key = IncidentKey::Alarm {
                kind: condition.kind,
                subject: condition.subject,
            };
            let opened_at = self.raised.get(&key).map_or(now, |known| known.opened_at);
            let alarm = Incident {
                key: key.clone(),
                stage: IncidentStage::Raised,
                severity: condition.severity,
                opened_at,
                ended_at: None,
                job: condition.job,
                node: condition.node,
                class: None,
                title: condition.title,
                details: condition.details,
                command: condition.command,
                is_drill: false,
                only_to: Vec::new(),
            };
            raised.insert(key, alarm);
        }
        self.raised = raised;
        self.raised.values().cloned().collect()
    }

    fn restart_storm(&self, job: &JobFacts, now: Timestamp) -> Option<RaisedCondition> {
        let window = self.limits.restart_window;
        let recent = job.restarts.iter().filter(|at| now.since(**at) < window).count();
        (self.limits.restarts > 0 && recent >= self.limits.restarts).then(|| RaisedCondition {
            title: format!(
                "job {} was restarted {recent} times after failures within {} s",
                job.job,
                window.as_secs()
            ),
            details: vec![format!("The limit of the alarm is {} restarts.", self.limits.restarts)],
            ..of_job(AlarmKind::RestartStorm, &job.job)
        })
    }

    fn no_progress(&self, job: &JobFacts) -> Option<RaisedCondition> {
        let is_met = self.limits.fruitless > 0 && job.fruitless >= self.limits.fruitless;
        is_met.then(|| RaisedCondition {
            title: format!(
                "job {} was restarted {} times after failures without progress in between",
                job.job, job.fruitless
            ),
            details: vec![format!("It is stopped after {} such restarts.", job.fruitless_max)],
            ..of_job(AlarmKind::NoProgress, &job.job)
        })
    }

    fn suspect_nodes(&self, cases: &[CaseFacts], now: Timestamp) -> Vec<RaisedCondition> {
        let mut by_node: BTreeMap<&NodeId, BTreeSet<CaseId>> = BTreeMap::new();
        for case in cases {
            let is_counted = case.state != CaseState::Open && now.since(case.opened_at) < SUSPECT_WINDOW;
            if let Some(node) = case
                .node
                .as_ref()
                .filter(|_| is_counted && case.blames_node && !case.is_drill)
            {
                by_node.entry(node).or_default().insert(case.id);
            }
        }
        let limit = self.limits.suspect_cases;
        let many = by_node
            .into_iter()
            .filter(|(_, cases)| limit > 0 && cases.len() >= limit);
        many.map(|(node, cases)| {
            let newest: Vec<String> = cases.iter().rev().take(CASES_LISTED).map(CaseId::to_string).collect();
            RaisedCondition {
                kind: AlarmKind::SuspectNode,
                subject: node.to_string(),
                severity: Severity::Warning,
                job: None,
                node: Some(node.clone()),
                title: format!(
                    "{} cases of the last 24 h blame node {node} or a part of it",
                    cases.len()
                ),
                details: vec![format!("The newest cases: {}.", newest.join(", "))],
                command: format!("rankguard node show {node}"),
            }
        })
        .collect()
    }

    fn spares_low(&self, facts: &ClusterFacts) -> Option<RaisedCondition> {
        let running: Vec<&JobFacts> = facts.jobs.iter().filter(|job| job.nodes > 0).collect();
        let free = facts.nodes.free;
        if running.is_empty() || free >= self.limits.spares_min {
            return None;
        }
        let rigid = running.iter().filter(|job| job.nodes <= job.nodes_min).count();
        Some(RaisedCondition {
            severity: Severity::Warning,
            title: format!(
                "{free} nodes are free, fewer than the {} configured",
                self.limits.spares_min
            ),
            details: vec![format!(
                "Of {} running jobs, {rigid} cannot run with one node fewer.",
                running.len()
            )],
            ..of_cluster(AlarmKind::SparesLow, "rankguard status nodes")
        })
    }

    fn agents_unheard(&mut self, facts: &ClusterFacts, now: Timestamp) -> Option<RaisedCondition> {
        let nodes = facts.nodes;
        let unheard = nodes.unheard();
        let share = self.limits.unheard_share;
        let is_met = share > 0 && unheard > 0 && unheard * 100 >= nodes.known * share;
        if !is_met {
            self.unheard_since = None;
            return None;
        }
        let since = *self.unheard_since.get_or_insert(now);
        let is_long = now.since(since) >= UNHEARD_FOR && now.since(facts.started_at) >= UNHEARD_FOR;
        is_long.then(|| RaisedCondition {
            title: format!(
                "nothing is received from {unheard} of {} nodes; failures there are not seen",
                nodes.known
            ),
            details: vec![
                format!(
                    "Lost: {}. Without a session: {}. Not joined since the controller started: {}.",
                    nodes.lost, nodes.without_session, nodes.unjoined
                ),
                format!("The controller started at {}.", facts.started_at),
            ],
            ..of_cluster(AlarmKind::AgentsUnheard, "rankguard status nodes")
        })
    }
}

fn is_stuck(alarm: &Incident) -> bool {
    let kind = AlarmKind::ControllerStuck;
    matches!(&alarm.key, IncidentKey::Alarm { kind: known, .. } if *known == kind)
}

fn stuck(facts: &ClusterFacts, now: Timestamp) -> Option<RaisedCondition> {
    let age = now.since(facts.at);
    (age >= STUCK_AFTER).then(|| RaisedCondition {
        title: "the controller's event loop does not run; no evidence is taken and nothing is decided".to_owned(),
        details: vec![format!("The newest state is {} s old.", age.as_secs())],
        ..of_cluster(AlarmKind::ControllerStuck, "rankguard status")
    })
}

/// Returns the alarm of a controller of which a part fails; it names each part. Without its journal it decides nothing, which
/// is a failure; other parts are a warning.
fn degraded(facts: &ClusterFacts) -> Option<RaisedCondition> {
    let others = || facts.impaired.iter().map(|part| format!("Fails: {part}."));
    let alarm = of_cluster(AlarmKind::ControllerDegraded, "rankguard status");
    if let Some(reason) = &facts.degraded {
        return Some(RaisedCondition {
            title: "the controller cannot write its journal; it records and decides nothing".to_owned(),
            details: [format!("Cause: {reason}")].into_iter().chain(others()).collect(),
            ..alarm
        });
    }
    let names: Vec<&str> = facts.impaired.iter().map(|part| part_name(part)).collect();
    (!names.is_empty()).then(|| RaisedCondition {
        severity: Severity::Warning,
        title: format!(
            "a part of the controller fails while it records and decides: {}",
            names.join(", ")
        ),
        details: others().collect(),
        ..alarm
    })
}

/// Returns the name of a part, which is before the colon of its text.
fn part_name(part: &str) -> &str {
    part.split_once(": ").map_or(part, |(name, _)| name)
}

fn of_job(kind: AlarmKind, job: &JobId) -> RaisedCondition {
    RaisedCondition {
        kind,
        subject: job.to_string(),
        severity: Severity::Failure,
        job: Some(job.clone()),
        node: None,
        title: String::new(),
        details: Vec::new(),
        command: format!("rankguard cases list --job {job}"),
    }
}

fn of_cluster(kind: AlarmKind, command: &str) -> RaisedCondition {
    RaisedCondition {
        kind,
        subject: String::new(),
        severity: Severity::Failure,
        job: None,
        node: None,
        title: String::new(),
        details: Vec::new(),
        command: command.to_owned(),
    }
}
