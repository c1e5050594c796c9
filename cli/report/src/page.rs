//! Structure of the pages.

use std::fmt::Write as _;

use rankguard_console::display_text;
use rankguard_model::{Case, JobState, JobView, NodeRange, NodeState, StatusView, Timestamp};

use super::text::escape;
use super::{ReportInput, cases, summary, timeline, torchruns};

pub(crate) const STYLE: &str = include_str!("style.css");

/// Target size of a page, in bytes. A page has at least one case.
const PAGE_BYTES: usize = 400_000;
/// Part of [`PAGE_BYTES`] for the sections of jobs.
const JOBS_BYTES: usize = 250_000;
/// Size of a case's table row, in addition to its card.
const ROW_BYTES: usize = 700;

/// File of the report.
pub(super) struct ReportPage {
    pub(super) name: String,
    pub(super) html: String,
}

/// Returns the file name of a page; the first page is the report.
pub(super) fn page_name(number: usize) -> String {
    match number {
        0 => "report.html".to_owned(),
        _ => format!("report-cases-{}.html", number + 1),
    }
}

/// Renders all pages: the report with the newest cases, then older cases.
pub(super) fn pages(input: &ReportInput) -> Vec<ReportPage> {
    let status = &input.status;
    let start = start(input);
    let mut top = summary::tiles(input);
    for gap in &status.journal_gaps {
        let _ = write!(top, "<p>{}</p>", escape(display_text::journal_gap(gap)));
    }
    top.push_str(&job_sections(input));
    let bottom = torchruns::section(status) + &nodes(status);
    let chunks = chunks(
        &input.cases,
        start,
        PAGE_BYTES.saturating_sub(top.len() + bottom.len() + STYLE.len()),
    );
    let count = chunks.len();
    let page = |(number, chunk): (usize, &[Case])| {
        let mut body = if number == 0 { top.clone() } else { String::new() };
        body.push_str(&cases_section(chunk, start, number, count));
        if number == 0 {
            body.push_str(&bottom);
        }
        ReportPage {
            name: page_name(number),
            html: frame(input, start, &body),
        }
    };
    chunks.into_iter().enumerate().map(page).collect()
}

/// Splits cases into pages, newest page first; within a page the oldest case is first. The first page has `room` bytes
/// for them.
fn chunks(cases: &[Case], start: Timestamp, room: usize) -> Vec<&[Case]> {
    let mut chunks = Vec::new();
    let mut left = cases;
    let mut room = room;
    loop {
        let mut from = left.len();
        let mut bytes = 0;
        while from > 0 {
            bytes += cases::card(&left[from - 1], start).len() + ROW_BYTES;
            if bytes > room && from < left.len() {
                break;
            }
            from -= 1;
        }
        chunks.push(&left[from..]);
        left = &left[..from];
        room = PAGE_BYTES - STYLE.len();
        if left.is_empty() {
            return chunks;
        }
    }
}

fn frame(input: &ReportInput, start: Timestamp, body: &str) -> String {
    let title = escape(&input.title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{title}</title><style>{STYLE}</style></head><body>\
         <header><h1>{title}</h1><p class=\"quiet\">As of {}. Times on the page are counted from {}.</p></header><main>{body}\
         </main><footer><p class=\"quiet\">Written by rankguard; report.json beside this page has the same facts.</p></footer></body></html>\n",
        escape(input.status.at.to_string()),
        escape(start.to_string())
    )
}

/// Renders the sections of the newest jobs, up to [`JOBS_BYTES`].
fn job_sections(input: &ReportInput) -> String {
    let mut jobs: Vec<&JobView> = input.status.jobs.iter().collect();
    jobs.sort_by_key(|job| std::cmp::Reverse(job.submitted_at));
    let mut sections: Vec<String> = Vec::new();
    let mut bytes = 0;
    for job in &jobs {
        let section = section(job, &input.cases, &input.status);
        bytes += section.len();
        if bytes > JOBS_BYTES && !sections.is_empty() {
            break;
        }
        sections.push(section);
    }
    let left = jobs.len() - sections.len();
    sections.reverse();
    let mut html = String::new();
    if left > 0 {
        let _ = write!(
            html,
            "<p class=\"quiet\">{left} older jobs are in report.json only.</p>"
        );
    }
    html.push_str(&sections.concat());
    html
}

fn cases_section(cases: &[Case], start: Timestamp, number: usize, count: usize) -> String {
    let mut html = String::from("<section aria-labelledby=\"cases\"><h2 id=\"cases\">Cases</h2>");
    if cases.is_empty() {
        html.push_str("<p>Nothing has failed.</p></section>");
        return html;
    }
    if count > 1 {
        html.push_str("<p>");
        if number > 0 {
            let _ = write!(html, "<a href=\"{}\">newer cases</a> ", page_name(number - 1));
        }
        let _ = write!(html, "page {} of {count}", number + 1);
        if number + 1 < count {
            let _ = write!(html, " <a href=\"{}\">older cases</a>", page_name(number + 1));
        }
        html.push_str("</p>");
    }
    html.push_str("<p class=\"quiet\">Delays after the first evidence&#39;s own time.</p>");
    html.push_str(&cases::table(cases));
    cases.iter().for_each(|case| html.push_str(&cases::card(case, start)));
    html.push_str("</section>");
    html
}

/// Returns the earliest time on the page.
fn start(input: &ReportInput) -> Timestamp {
    let jobs = input.status.jobs.iter().map(|job| job.submitted_at);
    jobs.chain(input.cases.iter().map(|case| case.first_at))
        .min()
        .unwrap_or(input.status.at)
}

/// Formats the number of nodes that a job asks for.
fn nodes_text(nodes: NodeRange) -> String {
    let most = display_text::count(nodes.max as usize, "node");
    if nodes.min == nodes.max {
        most
    } else {
        format!("{} to {most}", nodes.min)
    }
}

fn section(job: &JobView, cases: &[Case], status: &StatusView) -> String {
    let name = escape(job.spec.id.as_str());
    let of_job: Vec<&Case> = cases
        .iter()
        .filter(|case| case.job.as_ref() == Some(&job.spec.id))
        .collect();
    let mut html = format!(
        "<section><h2>Job {name} <span class=\"badge\">{}</span></h2>",
        display_text::job_state(job.state)
    );
    if let Some(reason) = &job.reason {
        let _ = write!(html, "<p>{}</p>", escape(reason));
    }
    let steps = display_text::or_dash(job.current_step());
    let least = if display_text::has_gap(job, &status.journal_gaps) {
        "at least "
    } else {
        ""
    };
    let _ = write!(
        html,
        "<p class=\"quiet\">steps: {steps}, checkpoints committed: {least}{}, generation {}; asked for {} with {} each</p>",
        job.checkpoint_counts.committed,
        job.generation,
        nodes_text(job.spec.nodes),
        display_text::count(job.spec.ranks_per_node as usize, "rank")
    );
    match timeline::figure(job, &of_job, status) {
        Some(figure) => html.push_str(&figure),
        None if matches!(job.state, JobState::Finished | JobState::Stopped) && job.spans.is_empty() => {
            html.push_str("<p>No rank of it ever ran.</p>");
        }
        None if matches!(job.state, JobState::Finished | JobState::Stopped) => {
            html.push_str("<p>None of its ranks ran for long enough to be shown.</p>");
        }
        None => html.push_str("<p>It has not run yet.</p>"),
    }
    html.push_str("</section>");
    html
}

fn nodes(status: &StatusView) -> String {
    if status.nodes.is_empty() {
        return String::new();
    }
    let mut html = String::from(
        "<section><h2>Nodes</h2><div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"Table of the nodes, may be \
         scrolled\"><table><thead><tr><th scope=\"col\">node</th><th scope=\"col\">state</th>\
         <th scope=\"col\" class=\"number\">slots</th><th scope=\"col\">job</th><th scope=\"col\">reason</th></tr></thead><tbody>",
    );
    for node in &status.nodes {
        let class = match node.state {
            _ if node.faulty_in_use.is_some() => "bad",
            NodeState::Healthy => "good",
            NodeState::Cordoned | NodeState::Fencing => "warn",
            NodeState::Lost => "bad",
        };
        let _ = write!(
            html,
            "<tr><th scope=\"row\">{}</th><td><span class=\"badge {class}\">{}</span></td><td class=\"number\">{}</td>\
             <td>{}</td><td>{}</td></tr>",
            escape(node.node.as_str()),
            display_text::node_use(node),
            node.slots,
            escape(display_text::or_dash(node.job.as_ref())),
            escape(display_text::or_dash(node.reason.as_ref()))
        );
    }
    html.push_str("</tbody></table></div></section>");
    html
}
