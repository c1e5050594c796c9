//! Scheduled reports of the fleet: files in a folder, and a message to receivers of notifications.
//!
//! A report is whole when its JSON file exists, which is written last. After a start the report of the newest period is made
//! if it is missing. A failure is shown in `status`, is tried again, and stops nothing else.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use rankguard_faults::Catalogue;
use rankguard_files::private;
use rankguard_model::{Case, StatusView};
use rankguard_notify::ReportFacts;
use rankguard_report::fleet;
use rankguard_summary::{CaseGrouping, FleetReport, FleetSelection};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{error, info};

use crate::clock::MonotonicClock;
use crate::health::SharedHealth;
use crate::input::{LoopInput, OperatorQuery};
use crate::notifications::SharedReport;
use crate::report_schedule::{DuePeriod, ReportSchedule};

/// Interval at which the schedule is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(15);
/// Name of the part in `status` if a report cannot be written.
const PART: &str = "reports";
/// Endings of the files of a report; the last one is written last.
const ENDINGS: [&str; 3] = ["html", "md", "json"];
const FILE_MODE: u32 = 0o644;

/// Settings of scheduled reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportSettings {
    /// Times and periods.
    pub schedule: ReportSchedule,
    /// Folder of the files.
    pub directory: PathBuf,
    /// Number of reports that are retained.
    pub keep: usize,
    /// Names of the receivers of notifications that get each report as text.
    pub send_to: Vec<String>,
}

/// Task that makes the reports.
#[derive(Debug)]
pub(crate) struct ReportScheduler {
    pub(crate) settings: ReportSettings,
    pub(crate) clock: MonotonicClock,
    pub(crate) inputs: mpsc::Sender<LoopInput>,
    pub(crate) health: SharedHealth,
    pub(crate) message: SharedReport,
}

/// Runs the task, if reports are configured.
pub(crate) async fn run(scheduler: Option<ReportScheduler>) -> Infallible {
    match scheduler {
        Some(scheduler) => scheduler.run().await,
        None => std::future::pending().await,
    }
}

impl ReportScheduler {
    async fn run(self) -> Infallible {
        let mut done = None;
        let mut failed = None;
        loop {
            let outcome = self.turn(&mut done).await;
            let failure = outcome.err();
            if let Some(problem) = failure.as_ref().filter(|problem| failed.as_ref() != Some(*problem)) {
                error!("{problem}");
            }
            self.health.set_failure(PART, failure.clone());
            failed = failure;
            sleep(CHECK_INTERVAL).await;
        }
    }

    /// Makes the report that is due, unless it is `done`.
    async fn turn(&self, done: &mut Option<String>) -> Result<(), String> {
        let Some(due) = self.settings.schedule.due(self.clock.now()) else {
            return Ok(());
        };
        if done.as_ref() == Some(&due.name) {
            return Ok(());
        }
        let (Some(status), Some(cases)) = (
            self.query(OperatorQuery::Status).await,
            self.query(OperatorQuery::Cases).await,
        ) else {
            // The event loop ends.
            return Ok(());
        };
        let name = due.name.clone();
        let settings = self.settings.clone();
        let made = spawn_blocking(move || make(&settings, &due, &status, &cases)).await;
        let made = made.map_err(|problem| problem.to_string())??;
        if let Some(message) = made {
            info!(report = name, "report of the fleet made");
            self.message.set(message);
        } else {
            info!(
                report = name,
                "report of the fleet not due: it exists, or there is nothing to report"
            );
        }
        *done = Some(name);
        Ok(())
    }

    async fn query<T>(&self, query: impl FnOnce(oneshot::Sender<T>) -> OperatorQuery) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.inputs.send(LoopInput::Query(query(reply))).await.ok()?;
        answer.await.ok()
    }
}

/// Makes a report that does not exist and returns its message, so that a restart repeats none. Returns none for a period
/// before the first report and the first record of this controller.
fn make(
    settings: &ReportSettings,
    due: &DuePeriod,
    status: &StatusView,
    cases: &[Case],
) -> Result<Option<ReportFacts>, String> {
    let has_cases = cases.iter().any(|case| case.first_at < due.to);
    let has_jobs = status.jobs.iter().any(|job| job.submitted_at < due.to);
    if !has_cases && !has_jobs && !has_reports(settings) {
        return Ok(None);
    }
    let report = report(due, status, cases);
    let title = format!(
        "report of the {} from {} to {}",
        settings.schedule.period().word(),
        due.from,
        due.to
    );
    let written = write(settings, &due.name, &title, &report).map_err(|problem| {
        format!(
            "cannot write the report {} into {}: {problem}; it is tried again until it is written: free space there or make the \
             folder writable",
            due.name,
            settings.directory.display()
        )
    })?;
    Ok(written.then(|| ReportFacts {
        until: due.to,
        title,
        lines: fleet::text_lines(&report),
        command: format!("rankguard cases summary --since {} --until {}", due.from, due.to),
        receivers: settings.send_to.clone(),
    }))
}

/// Counts the real cases of a period; drills and replays are left out.
fn report(due: &DuePeriod, status: &StatusView, cases: &[Case]) -> FleetReport {
    let is_real = |case: &&Case| !case.is_synthetic() && !case.replayed;
    let known: Vec<Case> = cases.iter().filter(is_real).cloned().collect();
    let is_within = |case: &&Case| case.first_at >= due.from && case.first_at < due.to;
    let selected: Vec<&Case> = known.iter().filter(is_within).collect();
    let selection = FleetSelection {
        by: "class",
        from: Some(due.from),
        to: due.to,
        cases: &selected,
        known: &known,
        status: Some(status),
    };
    FleetReport::of(&selection, CaseGrouping::Class, Catalogue::builtin())
}

/// Writes the files of a report that is not whole, and removes the oldest reports. Returns true if it has written them.
fn write(settings: &ReportSettings, name: &str, title: &str, report: &FleetReport) -> io::Result<bool> {
    let folder = &settings.directory;
    fs::create_dir_all(folder)?;
    let [_, _, last] = ENDINGS;
    let is_missing = !folder.join(format!("{name}.{last}")).exists();
    if is_missing {
        let json = rankguard_report::json_text(report)?;
        let texts = [fleet::html(report, title), fleet::markdown(report, Some(title)), json];
        for (ending, text) in ENDINGS.into_iter().zip(texts) {
            private::replace_file(&folder.join(format!("{name}.{ending}")), text.as_bytes(), FILE_MODE)?;
        }
    }
    remove_oldest(folder, settings.schedule.period().word(), settings.keep)?;
    Ok(is_missing)
}

/// Returns true if the folder has a report of any period of this length.
fn has_reports(settings: &ReportSettings) -> bool {
    let period = settings.schedule.period().word();
    let names = report_names(&settings.directory, period);
    names.is_ok_and(|names| !names.is_empty())
}

/// Returns the names of the reports in a folder, oldest first.
fn report_names(folder: &Path, period: &str) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let file = entry?.file_name();
        names.extend(
            file.to_str()
                .and_then(|file| report_name(file, period))
                .map(str::to_owned),
        );
    }
    Ok(names)
}

/// Removes the oldest reports of a period beyond `keep`; other files stay.
fn remove_oldest(folder: &Path, period: &str, keep: usize) -> io::Result<()> {
    let names = report_names(folder, period)?;
    let excess = names.len().saturating_sub(keep);
    for name in names.into_iter().take(excess) {
        for ending in ENDINGS {
            match fs::remove_file(folder.join(format!("{name}.{ending}"))) {
                Err(problem) if problem.kind() != io::ErrorKind::NotFound => return Err(problem),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Returns the name of the report of a file `week-2026-11-23.html`; `None` for another file.
fn report_name<'f>(file: &'f str, period: &str) -> Option<&'f str> {
    let (name, ending) = file.rsplit_once('.')?;
    let date = name.strip_prefix(period)?.strip_prefix('-')?;
    let is_date = date.len() == 10 && date.parse::<jiff::civil::Date>().is_ok();
    (is_date && ENDINGS.contains(&ending)).then_some(name)
}

#[cfg(test)]
mod tests {
    use rankguard_model::Timestamp;

    use super::*;

    fn settings(directory: &Path, keep: usize) -> ReportSettings {
        ReportSettings {
            schedule: ReportSchedule::parse("day", "07:00", "UTC").expect("a schedule"),
            directory: directory.to_owned(),
            keep,
            send_to: vec!["chat".to_owned()],
        }
    }

    fn due(day: u32) -> DuePeriod {
        let at = |day: u32| Timestamp::from_millis(i64::from(day) * 86_400_000);
        DuePeriod {
            name: format!("day-1970-01-{:02}", day + 1),
            from: at(day),
            to: at(day + 1),
        }
    }

    fn empty() -> FleetReport {
        let selection = FleetSelection {
            by: "class",
            from: Some(Timestamp(0)),
            to: Timestamp(1),
            cases: &[],
            known: &[],
            status: None,
        };
        FleetReport::of(&selection, CaseGrouping::Class, Catalogue::builtin())
    }

    #[test]
    fn the_newest_reports_are_retained_and_other_files_are_left_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let settings = settings(dir.path(), 2);
        for file in [
            "notes.html",
            "day-notes.html",
            "day-1970-01-01.txt",
            "week-1970-01-01.json",
        ] {
            fs::write(dir.path().join(file), "x").expect("written");
        }
        for day in 0..4 {
            assert!(write(&settings, &due(day).name, "A day", &empty()).expect("written"));
        }
        let mut files: Vec<String> = fs::read_dir(dir.path())
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        files.sort();
        let wanted = [
            "day-1970-01-01.txt",
            "day-1970-01-03.html",
            "day-1970-01-03.json",
            "day-1970-01-03.md",
            "day-1970-01-04.html",
            "day-1970-01-04.json",
            "day-1970-01-04.md",
            "day-notes.html",
            "notes.html",
            "week-1970-01-01.json",
        ];
        assert_eq!(files, wanted);
    }

    /// A report that was cut off, without its JSON file, is written anew; a whole one stays as it is.
    #[test]
    fn a_whole_report_is_not_written_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let settings = settings(dir.path(), 9);
        let html = dir.path().join("day-1970-01-01.html");
        fs::write(&html, "half").expect("written");
        assert!(write(&settings, "day-1970-01-01", "A day", &empty()).expect("written"));
        assert!(
            fs::read_to_string(&html)
                .expect("readable")
                .starts_with("<!DOCTYPE html>")
        );
        fs::write(&html, "of an operator").expect("written");
        assert!(!write(&settings, "day-1970-01-01", "A day", &empty()).expect("written"));
        assert_eq!(fs::read_to_string(&html).expect("readable"), "of an operator");
    }
}
