//! Tables and figures of the report of a fleet, as cells of text that each renderer escapes.

use std::fmt::Write as _;

use rankguard_console::display_text;
use rankguard_summary::{CaseGroup, FleetReport, JobTime};

/// Weeks that have a column; a report over a longer time has the newest ones.
const WEEKS_MAX: usize = 13;

/// Heading and cell of a column of groups.
pub type GroupColumn = (&'static str, fn(&CaseGroup) -> String);

/// Columns of the groups.
pub const GROUP_COLUMNS: &[GroupColumn] = &[
    ("group", |group| group.name.clone()),
    ("cases", |group| group.cases.to_string()),
    ("open", |group| group.open.to_string()),
    ("jobs", |group| group.jobs.to_string()),
    ("recoveries", |group| group.recoveries.to_string()),
    ("mean recovery", |group| {
        group.mean_recovery_ms().map_or_else(String::new, seconds)
    }),
    ("downtime", |group| {
        if group.recoveries == 0 {
            String::new()
        } else {
            seconds(group.downtime_ms)
        }
    }),
    ("rank hours lost", |group| {
        rank_hours(
            group.rank_hours_lost,
            group.recoveries,
            group.recoveries_of_unknown_size,
        )
    }),
    ("steps lost", |group| group.steps_lost.to_string()),
    ("first", |group| group.first_at.to_string()),
    ("newest", |group| group.newest_at.to_string()),
    ("newest case", |group| group.newest_case.to_string()),
];

/// Table with a title.
pub(super) struct ReportTable {
    pub(super) title: &'static str,
    pub(super) headings: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// Figure of the whole report.
pub(super) struct ReportFigure {
    pub(super) name: &'static str,
    pub(super) value: String,
}

/// Returns the figures of the whole report.
pub(super) fn figures(report: &FleetReport) -> Vec<ReportFigure> {
    let figure = |name, value| ReportFigure { name, value };
    let time = |millis: Option<i64>| millis.map_or_else(|| "none".to_owned(), |millis| interval(millis as f64 / 1e3));
    let recoveries: u64 = report.summary.groups.iter().map(|group| group.recoveries).sum();
    let lost = rank_hours(
        report.rank_hours_lost,
        recoveries.max(report.recoveries_of_unknown_size),
        report.recoveries_of_unknown_size,
    );
    let lost = if lost.is_empty() { "unknown".to_owned() } else { lost };
    vec![
        figure("Failures that interrupted a job", report.failures.to_string()),
        figure("Mean time between failures (MTBF)", time(report.mtbf_ms)),
        figure("Mean time to recover (MTTR)", time(report.mttr_ms)),
        figure("GPU hours lost to recoveries (one GPU a rank)", lost),
    ]
}

/// Returns the tables of the report; one without rows is left out, except that of the groups.
pub(super) fn tables(report: &FleetReport) -> Vec<ReportTable> {
    let others = [weeks(report), first_seen(report), offenders(report), jobs(report)];
    let others = others.into_iter().filter(|table| !table.rows.is_empty());
    std::iter::once(groups(report)).chain(others).collect()
}

fn headings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn groups(report: &FleetReport) -> ReportTable {
    let cells = |group: &CaseGroup| GROUP_COLUMNS.iter().map(|(_, cell)| cell(group)).collect();
    ReportTable {
        title: "Cases by group",
        headings: GROUP_COLUMNS.iter().map(|(name, _)| (*name).to_owned()).collect(),
        rows: report.summary.groups.iter().map(cells).collect(),
    }
}

/// Returns the cases of each group by week; no rows for a report of one week or by week.
fn weeks(report: &FleetReport) -> ReportTable {
    let newest = &report.weeks[report.weeks.len().saturating_sub(WEEKS_MAX)..];
    let row = |group: &CaseGroup| {
        let count = |week: &String| group.by_week.get(week).copied().unwrap_or_default().to_string();
        std::iter::once(group.name.clone())
            .chain(newest.iter().map(count))
            .collect()
    };
    let is_shown = newest.len() > 1 && report.by != "week";
    let rows = report.summary.groups.iter().filter(|_| is_shown).map(row);
    ReportTable {
        title: "Cases by week (Monday, UTC)",
        headings: std::iter::once("group".to_owned())
            .chain(newest.iter().cloned())
            .collect(),
        rows: rows.collect(),
    }
}

fn first_seen(report: &FleetReport) -> ReportTable {
    let row =
        |seen: &rankguard_summary::FirstSeenClass| vec![seen.class.clone(), seen.at.to_string(), seen.case.to_string()];
    ReportTable {
        title: "Classes seen for the first time",
        headings: headings(&["class", "first evidence", "case"]),
        rows: report.first_seen.iter().map(row).collect(),
    }
}

fn offenders(report: &FleetReport) -> ReportTable {
    let row = |offender: &rankguard_summary::RepeatOffender| {
        vec![
            offender.node.clone(),
            offender.cases.to_string(),
            offender.classes.join(", "),
            offender.newest_case.to_string(),
        ]
    };
    ReportTable {
        title: "Nodes that several cases blame",
        headings: headings(&["node", "cases", "classes", "newest case"]),
        rows: report.offenders.iter().map(row).collect(),
    }
}

fn jobs(report: &FleetReport) -> ReportTable {
    let row = |time: &JobTime| {
        let bound = if time.is_complete { "" } else { "+" };
        let ettr = time
            .ettr
            .map_or_else(String::new, |ratio| format!("{:.1} %{bound}", 100.0 * ratio));
        vec![
            time.job.to_string(),
            display_text::job_state(time.state).to_owned(),
            ettr,
            interval(time.wall_ms as f64 / 1e3),
            interval(time.productive_ms as f64 / 1e3),
            format!("{:.3}", time.rank_hours),
            format!("{:.3}", time.rank_hours_lost),
        ]
    };
    ReportTable {
        title: "Jobs of the period, over their whole life",
        headings: headings(&[
            "job",
            "state",
            "ETTR",
            "wall",
            "productive",
            "rank hours",
            "rank hours lost",
        ]),
        rows: report.jobs.iter().map(row).collect(),
    }
}

/// Formats a time between cases in the unit that shows it; `seconds` is the time.
pub fn interval(seconds: f64) -> String {
    match seconds {
        short if short < 600.0 => display_text::millis((short * 1e3).round()),
        medium if medium < 3_600.0 => format!("{:.1} min", medium / 60.0),
        long => format!("{:.2} h", long / 3_600.0),
    }
}

/// Describes the selection in a sentence without its full stop.
pub fn selection(report: &FleetReport) -> String {
    let summary = &report.summary;
    let to = report.to;
    let cases = display_text::count(usize::try_from(summary.cases).unwrap_or(usize::MAX), "case");
    let mut text = match report.from {
        Some(from) => format!("{cases} by {} from {from} to {to}", report.by),
        None => format!("{cases} by {}", report.by),
    };
    if let Some(from) = report.from
        && summary.cases > 0
    {
        let seconds = to.since(from).as_secs_f64() / summary.cases as f64;
        let _ = write!(text, ", one every {}", interval(seconds));
    }
    if summary.without_group > 0 {
        let _ = write!(text, "; {} of them without a group", summary.without_group);
    }
    text
}

fn seconds(millis: i64) -> String {
    format!("{:.1} s", millis as f64 / 1_000.0)
}

/// Formats lost hours of ranks; a plus states that the size of some generations is not known.
fn rank_hours(hours: f64, recoveries: u64, unknown: u64) -> String {
    let more = if unknown > 0 { "+" } else { "" };
    if recoveries > unknown {
        format!("{hours:.3}{more}")
    } else {
        String::new()
    }
}
