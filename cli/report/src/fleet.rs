//! Renderers of the report of a fleet: HTML, Markdown and lines of plain text. JSON is the serialised [`FleetReport`].

mod html;
mod markdown;
mod tables;

pub use html::html;
pub use markdown::{escaped, markdown};
pub use tables::{GROUP_COLUMNS, GroupColumn, interval, selection};

use rankguard_summary::FleetReport;

/// Groups, new classes and nodes in a message; the files have all of them.
const LINES_MAX: usize = 8;

/// Returns the report as lines of plain text for a message: the sums, and the largest groups.
pub fn text_lines(report: &FleetReport) -> Vec<String> {
    let mut lines = vec![format!("{}.", selection(report))];
    lines.extend(
        tables::figures(report)
            .iter()
            .map(|figure| format!("{}: {}", figure.name, figure.value)),
    );
    let more = |count: usize| (count > LINES_MAX).then(|| format!("... and {} more", count - LINES_MAX));
    for group in report.summary.groups.iter().take(LINES_MAX) {
        lines.push(format!("{} x {}", group.cases, group.name));
    }
    lines.extend(more(report.summary.groups.len()));
    for seen in report.first_seen.iter().take(LINES_MAX) {
        lines.push(format!("First seen: {} (case {})", seen.class, seen.case));
    }
    lines.extend(more(report.first_seen.len()));
    for offender in report.offenders.iter().take(LINES_MAX) {
        lines.push(format!(
            "Node {}: {} cases, newest {}",
            offender.node, offender.cases, offender.newest_case
        ));
    }
    lines.extend(more(report.offenders.len()));
    lines
}

#[cfg(test)]
mod tests;
