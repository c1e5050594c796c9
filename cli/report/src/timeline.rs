//! Figure of a job: loss, step time, checkpoint stalls and the spans of nodes and ranks on a common time axis, with the
//! failures as vertical lines.

use std::fmt::Write as _;

use rankguard_model::{Case, JobView, StateSpan, StatusView};

use super::axis;
use super::canvas::{FigurePanel, RIGHT, TimeAxis, WIDTH};
use super::gantt;
use super::panels;
use super::text::escape;

/// Space above the panels for the numbers of the cases.
const TOP: f64 = 30.0;

/// Renders the figure of a job with the cases of its attempt; `None` if it has no step and no span.
pub(super) fn figure(job: &JobView, cases: &[&Case], status: &StatusView) -> Option<String> {
    if job.progress.is_empty() && job.spans.is_empty() {
        return None;
    }
    let of_attempt = cases.iter().copied().filter(|case| job.is_of_attempt(case));
    let cases: &[&Case] = &of_attempt.collect::<Vec<_>>();
    let clock = clock(job, status);
    let mut panels = Vec::new();
    panels.extend(panels::loss(job, &clock, TOP));
    let mut top = TOP + panels.iter().map(|panel: &FigurePanel| panel.height).sum::<f64>();
    for draw in [panels::step_time, panels::stalls] {
        if let Some(panel) = draw(job, &clock, top) {
            top += panel.height;
            panels.push(panel);
        }
    }
    let gantt = gantt::panel(job, &node_spans(job, status, &clock), &clock, top);
    top += gantt.height;
    panels.push(gantt);
    let height = top + 24.0;

    let mut svg = String::new();
    let name = escape(job.spec.id.as_str());
    let label = escape(describe(job, cases, &clock));
    let _ = write!(
        svg,
        "<figure><div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"Figure, may be scrolled\">\
         <svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{label}\"><title>Job {name} over time</title>"
    );
    time_axis(&mut svg, &clock, top);
    shades(&mut svg, cases, &clock, top);
    panels.iter().for_each(|panel| svg.push_str(&panel.svg));
    marks(&mut svg, cases, &clock, top);
    let _ = write!(svg, "</svg></div><figcaption>{}</figcaption></figure>", legend(job));
    Some(svg)
}

/// Builds the time axis from the submission or first progress of the job to its end, or to now.
fn clock(job: &JobView, status: &StatusView) -> TimeAxis {
    let last = job.progress.last().map(|point| point.at);
    let spans = job.spans.iter().filter_map(|span| span.to).max();
    let end = job
        .ended_at
        .unwrap_or(status.at)
        .max(last.unwrap_or_default())
        .max(spans.unwrap_or_default());
    let first = job.progress.first().map_or(end, |point| point.at);
    TimeAxis::new(job.submitted_at.min(first), end)
}

/// Returns the spans of all nodes within the time of the figure.
fn node_spans(job: &JobView, status: &StatusView, clock: &TimeAxis) -> Vec<StateSpan> {
    let of_job = job.spans.iter().filter(|span| span.rank.is_none());
    let spans = status.node_spans.iter().chain(of_job);
    spans
        .filter(|span| span.from < clock.end && span.to.is_none_or(|to| to > clock.start))
        .cloned()
        .collect()
}

fn time_axis(svg: &mut String, clock: &TimeAxis, bottom: f64) {
    for tick in clock.axis.ticks(8) {
        let x = clock.axis.at(tick);
        let label = axis::seconds(tick, clock.span());
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom:.1}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            bottom + 16.0
        );
    }
}

/// Shades the time from each failure to the first new step.
fn shades(svg: &mut String, cases: &[&Case], clock: &TimeAxis, bottom: f64) {
    for case in cases {
        let Some(took) = case.delays.first_step_ms.and_then(|ms| u64::try_from(ms).ok()) else {
            continue;
        };
        let from = clock.at(case.first_at);
        let to = clock.at(case.first_at.after(std::time::Duration::from_millis(took)));
        let _ = write!(
            svg,
            "<rect class=\"shade\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/>",
            (to - from).max(0.0),
            bottom - TOP
        );
    }
}

/// Marks the failures with their numbers; numbers that would overlap are moved right.
fn marks(svg: &mut String, cases: &[&Case], clock: &TimeAxis, bottom: f64) {
    let mut free_from = f64::MIN;
    for case in cases {
        let x = clock.at(case.first_at);
        let label = x.max(free_from).min(WIDTH - RIGHT);
        free_from = label + 22.0;
        let id = case.id;
        let class = escape(case.verdict.class.as_str());
        let _ = write!(
            svg,
            "<a href=\"#case-{id}\"><title>Case {id}: {class}</title>\
             <path class=\"fault\" d=\"M{label:.1} 22 L{x:.1} {TOP} V{bottom:.1}\"/>\
             <circle class=\"fault-dot\" cx=\"{label:.1}\" cy=\"13\" r=\"9.5\"/>\
             <text class=\"fault-number\" x=\"{label:.1}\" y=\"17\" text-anchor=\"middle\">{id}</text></a>"
        );
    }
}

fn describe(job: &JobView, cases: &[&Case], clock: &TimeAxis) -> String {
    let steps = job.step.map_or(0, |step| step.0);
    let failures: Vec<String> = cases
        .iter()
        .map(|case| {
            format!(
                "case {} ({}) at {}",
                case.id,
                case.verdict.class,
                super::text::offset(case.first_at, clock.start)
            )
        })
        .collect();
    format!(
        "Loss, step time, checkpoint stalls and ranks of job {} over {:.1} seconds and {steps} steps. Failures: {}.",
        job.spec.id,
        clock.span(),
        if failures.is_empty() {
            "none".to_owned()
        } else {
            failures.join(", ")
        }
    )
}

fn legend(job: &JobView) -> String {
    let mut entries = vec![
        "<span class=\"key key-fault\"></span> failure, by number of its case",
        "<span class=\"key key-shade\"></span> until the first new step",
    ];
    if !job.checkpoints.is_empty() {
        entries.push("<span class=\"key key-checkpoint\"></span> checkpoint committed");
    }
    entries.extend([
        "<span class=\"key key-running\"></span> rank runs",
        "<span class=\"key key-starting\"></span> rank starts",
        "<span class=\"key key-healthy\"></span> node healthy",
        "<span class=\"key key-cordoned\"></span> node out of use",
        "<span class=\"key key-lost\"></span> node lost",
    ]);
    let entries: Vec<String> = entries
        .iter()
        .map(|entry| format!("<span class=\"entry\">{entry}</span>"))
        .collect();
    entries.join(" ")
}
