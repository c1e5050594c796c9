//! Incidents: subjects of message threads, that is cases and pattern alarms, each with its present stage.

use std::fmt;

use rankguard_model::{CaseId, CaseState, ClassId, JobId, NodeId, Severity, Timestamp};
use serde::{Deserialize, Serialize};

use crate::alarms::AlarmKind;
use crate::facts::{CaseFacts, ReportFacts};

/// Key of an incident, stable over its life.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IncidentKey {
    /// Case by number.
    Case(CaseId),
    /// Alarm with its subject: a job, a node or the cluster.
    Alarm { kind: AlarmKind, subject: String },
    /// Message of the notifier itself.
    Notice(NoticeKind),
}

/// Messages of the notifier itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoticeKind {
    /// Number of messages that the rate limit suppressed.
    Suppressed,
    /// Test by an operator.
    Test,
    /// Scheduled report of the fleet.
    Report,
}

impl fmt::Display for IncidentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Case(id) => write!(f, "case/{id}"),
            Self::Alarm { kind, subject } if subject.is_empty() => write!(f, "alarm/{}", kind.name()),
            Self::Alarm { kind, subject } => write!(f, "alarm/{}/{subject}", kind.name()),
            Self::Notice(NoticeKind::Suppressed) => f.write_str("notice/suppressed"),
            Self::Notice(NoticeKind::Test) => f.write_str("notice/test"),
            Self::Notice(NoticeKind::Report) => f.write_str("notice/report"),
        }
    }
}

/// Stage of an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IncidentStage {
    /// Evidence of a case is being gathered.
    Opened,
    /// The verdict of a case is concluded.
    Verdict,
    /// A case awaits a decision of an operator.
    AwaitsOperator,
    /// The case stopped its job.
    JobStopped,
    /// The job makes progress again.
    Recovered,
    /// The case is closed.
    Closed,
    /// The condition of an alarm holds.
    Raised,
    /// The condition of an alarm no longer holds.
    Cleared,
}

impl IncidentStage {
    /// Returns the name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Verdict => "verdict",
            Self::AwaitsOperator => "awaits-operator",
            Self::JobStopped => "job-stopped",
            Self::Recovered => "recovered",
            Self::Closed => "closed",
            Self::Raised => "raised",
            Self::Cleared => "cleared",
        }
    }

    /// Returns true if the incident is over.
    pub fn is_end(self) -> bool {
        matches!(self, Self::JobStopped | Self::Recovered | Self::Closed | Self::Cleared)
    }
}

/// Subject of a message thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    pub key: IncidentKey,
    pub stage: IncidentStage,
    pub severity: Severity,
    /// Time of its beginning; an alarm begins anew at a start of the controller.
    pub opened_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub job: Option<JobId>,
    pub node: Option<NodeId>,
    pub class: Option<ClassId>,
    /// Sentence with failure and subject.
    pub title: String,
    /// Further facts, one sentence a line.
    pub details: Vec<String>,
    /// Command that shows more.
    pub command: String,
    /// True if the incident rests on an injection or a simulation.
    pub is_drill: bool,
    /// Names of its only receivers, without regard to their own selection; empty: every receiver that selects it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only_to: Vec<String>,
}

impl Incident {
    /// Makes the incident of a case.
    pub fn of_case(case: &CaseFacts) -> Self {
        let stage = stage_of(case);
        Self {
            key: IncidentKey::Case(case.id),
            stage,
            severity: case.severity,
            opened_at: case.opened_at,
            ended_at: case.ended_at.filter(|_| stage.is_end()),
            job: case.job.clone(),
            node: case.node.clone(),
            class: (stage != IncidentStage::Opened).then(|| case.class.clone()),
            title: title(case, stage),
            details: details(case, stage),
            command: format!("rankguard cases show {}", case.id),
            is_drill: case.is_drill,
            only_to: Vec::new(),
        }
    }

    /// Makes a message of the notifier itself.
    pub fn notice(kind: NoticeKind, title: String, details: Vec<String>, now: Timestamp) -> Self {
        Self {
            key: IncidentKey::Notice(kind),
            stage: IncidentStage::Raised,
            severity: Severity::Warning,
            opened_at: now,
            ended_at: None,
            job: None,
            node: None,
            class: None,
            title,
            details,
            command: "rankguard cases list".to_owned(),
            is_drill: false,
            only_to: Vec::new(),
        }
    }

    /// Makes the message of a scheduled report. The end of its period identifies it.
    pub fn of_report(report: &ReportFacts) -> Self {
        let notice = Self::notice(
            NoticeKind::Report,
            report.title.clone(),
            report.lines.clone(),
            report.until,
        );
        Self {
            severity: Severity::Info,
            command: report.command.clone(),
            only_to: report.receivers.clone(),
            ..notice
        }
    }

    /// Returns true for a message that has no end at the receiver: a scheduled report.
    pub(crate) fn is_report(&self) -> bool {
        self.key == IncidentKey::Notice(NoticeKind::Report)
    }

    /// Returns the incident as ended.
    #[must_use]
    pub fn cleared(&self, now: Timestamp) -> Self {
        Self {
            stage: IncidentStage::Cleared,
            ended_at: Some(now),
            title: format!("no longer: {}", self.title),
            details: vec![format!("The alarm was raised at {}.", self.opened_at)],
            ..self.clone()
        }
    }

    /// Returns the text that changes when another message is due: the stage, and class and blamed entity of the verdict.
    pub fn mark(&self) -> String {
        let class = self.class.as_ref().map_or("", ClassId::as_str);
        let node = self.node.as_ref().filter(|_| !class.is_empty());
        let node = node.map_or("", NodeId::as_str);
        // The job of a closed case may be removed or submitted again, which is no news of the case.
        let stage = match self.stage {
            IncidentStage::JobStopped => IncidentStage::Closed,
            stage => stage,
        };
        format!("{} {class} {node}", stage.name()).trim_end().to_owned()
    }
}

fn stage_of(case: &CaseFacts) -> IncidentStage {
    if case.awaits_operator {
        return IncidentStage::AwaitsOperator;
    }
    match case.state {
        CaseState::Open => IncidentStage::Opened,
        CaseState::Recovering | CaseState::FaultPresent => IncidentStage::Verdict,
        CaseState::Recovered => IncidentStage::Recovered,
        CaseState::Closed if case.is_job_stopped => IncidentStage::JobStopped,
        CaseState::Closed => IncidentStage::Closed,
    }
}

fn title(case: &CaseFacts, stage: IncidentStage) -> String {
    let drill = if case.is_drill { "Drill: " } else { "" };
    let id = case.id;
    let job = case.job.as_ref().map(|job| format!("job {job}"));
    let subject = job.clone().unwrap_or_else(|| case.blamed.clone());
    let class = &case.class;
    let sentence = match stage {
        IncidentStage::Opened => format!("a failure of {subject} is being diagnosed"),
        IncidentStage::AwaitsOperator => format!("{subject} awaits a decision of an operator: {class}"),
        IncidentStage::JobStopped => format!("{subject} was stopped: {class}"),
        IncidentStage::Recovered => format!("{subject} makes progress again after {class}"),
        IncidentStage::Closed => format!("closed: {class}, {subject}"),
        IncidentStage::Verdict | IncidentStage::Raised | IncidentStage::Cleared => match job {
            Some(job) => format!("{class} interrupted {job}"),
            None => format!("{class}: {}", case.blamed),
        },
    };
    format!("{drill}case {id}: {sentence}")
}

fn details(case: &CaseFacts, stage: IncidentStage) -> Vec<String> {
    let mut lines = Vec::new();
    if stage != IncidentStage::Opened {
        let percent = (case.confidence * 100.0).round();
        let rank = case
            .root_rank
            .as_ref()
            .map_or_else(String::new, |rank| format!(", {rank}"));
        lines.push(format!("Where: {}{rank} (confidence {percent} %).", case.blamed));
    }
    if let Some(generation) = case.generation {
        lines.push(format!("Generation {generation} of the job failed."));
    }
    if let Some(plan) = &case.plan {
        lines.push(format!("Plan: {plan}."));
    }
    if !case.cordoned.is_empty() {
        let nodes: Vec<&str> = case.cordoned.iter().map(NodeId::as_str).collect();
        lines.push(format!("Cordoned for this case: {}.", nodes.join(", ")));
    }
    if let Some(ended) = case.ended_at.filter(|_| stage.is_end()) {
        let seconds = ended.since(case.opened_at).as_secs();
        lines.push(format!("Ended {seconds} s after the case was opened."));
    }
    lines
}
