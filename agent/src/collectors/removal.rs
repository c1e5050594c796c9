//! Notices that this machine is about to be taken away: a spot instance that ends, a host that is serviced.
//!
//! They come from the metadata service of the cloud, and from a file that any program of the node may create: a trap of
//! a batch script, a handler of the scheduler. A notice is reported once, and its withdrawal too. Maintenance that
//! is further away than [`RemovalSettings::lead`] is announced and reported when its time comes.
//!
//! A metadata service that does not answer is a gap, once until it answers again.

mod clouds;
mod metadata;
mod notice;

use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{EvidenceBody, EvidenceSource, REMOVAL_NOTICE, REMOVAL_NOTICE_WITHDRAWN, Role};

use crate::clock;
use crate::intake::EvidenceIntake;
use crate::pending_evidence::{PendingEvidence, mark};
use crate::settings::RemovalSettings;
use crate::stop_flag::StopFlag;
use clouds::CloudNotices;
use notice::{RemovalNotice, file_notice};

/// Signature of a notice of maintenance that is further away than the lead.
const ANNOUNCED: &str = "agent.removal-announced";

/// Collector of removal notices.
#[derive(Debug)]
pub(crate) struct RemovalCollector {
    pub(crate) settings: RemovalSettings,
    pub(crate) interval: Duration,
    pub(crate) intake: EvidenceIntake,
    pub(crate) stop: StopFlag,
}

impl RemovalCollector {
    /// Reads the sources at the interval until `stop` is set.
    pub(crate) fn run(self) {
        let mut cloud = match self.settings.cloud.map(|kind| CloudNotices::new(kind, &self.settings)) {
            Some(Err(problem)) => {
                let what = format!("removal notices of the cloud are not read: {problem}");
                self.intake.gap(EvidenceSource::Host, what, None);
                None
            }
            Some(Ok(cloud)) => Some(cloud),
            None => None,
        };
        let mut reported = ReportedNotices::default();
        loop {
            let file = self.settings.file.as_deref().map(file_notice);
            let service = cloud.as_mut().map(CloudNotices::read);
            let evidence = reported.next(self.settings.lead, file, service);
            let entity = || self.intake.node_entity();
            let evidence = evidence.into_iter().map(|report| report.into_evidence(entity()));
            self.intake.push_all(evidence.collect());
            if self.stop.wait(self.interval) {
                return;
            }
        }
    }
}

/// Result of one source: its notice, if any, or the reason why it cannot be read.
type SourceResult = Result<Option<RemovalNotice>, String>;

/// Notices and problems that were reported.
#[derive(Debug, Default)]
struct ReportedNotices {
    active: Option<RemovalNotice>,
    announced: Option<RemovalNotice>,
    /// Newest notice of each source, which stands while the source cannot be read.
    newest: [Option<RemovalNotice>; 2],
    problems: [Option<String>; 2],
}

/// Report of the collector.
#[derive(Debug, PartialEq, Eq)]
enum NoticeReport {
    /// The machine is taken away soon.
    Active(RemovalNotice),
    /// The machine is taken away later.
    Announced(RemovalNotice),
    Withdrawn(RemovalNotice),
    Unreadable(String),
}

impl ReportedNotices {
    /// Returns what has changed.
    fn next(&mut self, lead: Duration, file: Option<SourceResult>, cloud: Option<SourceResult>) -> Vec<NoticeReport> {
        let mut reports = Vec::new();
        for (place, result) in [file, cloud].into_iter().enumerate() {
            let problem = match result {
                Some(Ok(notice)) => {
                    self.newest[place] = notice;
                    None
                }
                Some(Err(problem)) => Some(problem),
                None => None,
            };
            if let (None, Some(problem)) = (&self.problems[place], &problem) {
                reports.push(NoticeReport::Unreadable(problem.clone()));
            }
            self.problems[place] = problem;
        }
        let horizon = clock::now().after(lead);
        // What is preempted goes within minutes; only maintenance is planned for later.
        let is_planned = |notice: &RemovalNotice| notice.class == classes::MAINTENANCE;
        let is_soon = |notice: &&RemovalNotice| !is_planned(notice) || notice.at.is_none_or(|at| at <= horizon);
        let (soon, later): (Vec<_>, Vec<_>) = self.newest.iter().flatten().partition(is_soon);
        let first = |notices: Vec<&RemovalNotice>| notices.into_iter().min_by_key(|notice| notice.at).cloned();
        let (active, announced) = (first(soon), first(later));
        if active != self.active {
            let report = match (active.clone(), self.active.take()) {
                (Some(notice), _) => Some(NoticeReport::Active(notice)),
                (None, Some(before)) => Some(NoticeReport::Withdrawn(before)),
                (None, None) => None,
            };
            reports.extend(report);
            self.active = active;
        }
        if announced != self.announced {
            reports.extend(announced.clone().map(NoticeReport::Announced));
            self.announced = announced;
        }
        reports
    }
}

impl NoticeReport {
    fn into_evidence(self, entity: rankguard_model::Entity) -> PendingEvidence {
        let line = |text: String| EvidenceBody::Line {
            text,
            context: Vec::new(),
            repeats: 1,
        };
        let (body, marks) = match self {
            Self::Active(notice) => {
                let mark = mark(notice.class, Role::Root, 0.9, REMOVAL_NOTICE);
                (line(format!("removal notice: {}", notice.describe())), vec![mark])
            }
            Self::Announced(notice) => {
                let mark = mark(notice.class, Role::Confirmation, 0.3, ANNOUNCED);
                (line(format!("removal announced: {}", notice.describe())), vec![mark])
            }
            Self::Withdrawn(notice) => {
                let mark = mark(classes::NONE, Role::Noise, 1.0, REMOVAL_NOTICE_WITHDRAWN);
                (
                    line(format!("removal notice withdrawn: {}", notice.describe())),
                    vec![mark],
                )
            }
            Self::Unreadable(problem) => {
                let what = format!("removal notices cannot be read: {problem}");
                (EvidenceBody::Gap { what, lost: None }, Vec::new())
            }
        };
        PendingEvidence::now(EvidenceSource::Host, entity, body).marked(marks)
    }
}

#[cfg(test)]
mod tests;
