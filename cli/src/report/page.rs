//! The page as a whole.

use std::fmt::Write as _;

use rankguard_model::{Case, JobView, NodeState, StatusView, Timestamp};

use super::text::escape;
use super::{ReportInput, cases, summary, timeline};
use crate::words;

const STYLE: &str = include_str!("style.css");

/// The page, complete.
pub(super) fn page(input: &ReportInput) -> String {
    let title = escape(&input.title);
    let status = &input.status;
    let start = start(input);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{title}</title><style>{STYLE}</style></head><body>\
         <header><h1>{title}</h1><p class=\"quiet\">As of {}. Times on the page are counted from {}.</p></header><main>",
        escape(status.at.to_string()),
        escape(start.to_string())
    );
    html.push_str(&summary::tiles(input));
    let mut jobs: Vec<&JobView> = status.jobs.iter().collect();
    jobs.sort_by_key(|job| job.submitted_at);
    jobs.iter()
        .for_each(|job| html.push_str(&section(job, &input.cases, status)));
    html.push_str("<section aria-labelledby=\"cases\"><h2 id=\"cases\">Cases</h2>");
    if input.cases.is_empty() {
        html.push_str("<p>Nothing has failed.</p>");
    } else {
        html.push_str("<p class=\"quiet\">Delays after the first evidence&#39;s own time.</p>");
        html.push_str(&cases::table(&input.cases));
        input
            .cases
            .iter()
            .for_each(|case| html.push_str(&cases::card(case, start)));
    }
    html.push_str("</section>");
    html.push_str(&nodes(status));
    html.push_str("</main><footer><p class=\"quiet\">Written by rankguard; report.json beside this page has the same facts.</p></footer></body></html>\n");
    html
}

/// The first moment that the page tells of.
fn start(input: &ReportInput) -> Timestamp {
    let jobs = input.status.jobs.iter().map(|job| job.submitted_at);
    jobs.chain(input.cases.iter().map(|case| case.first_at))
        .min()
        .unwrap_or(input.status.at)
}

fn section(job: &JobView, cases: &[Case], status: &StatusView) -> String {
    let name = escape(job.spec.id.as_str());
    let of_job: Vec<&Case> = cases
        .iter()
        .filter(|case| case.job.as_ref() == Some(&job.spec.id))
        .collect();
    let mut html = format!(
        "<section><h2>Job {name} <span class=\"badge\">{}</span></h2>",
        words::job_state(job.state)
    );
    if let Some(reason) = &job.reason {
        let _ = write!(html, "<p>{}</p>", escape(reason));
    }
    let steps = words::or_dash(job.step);
    let _ = write!(
        html,
        "<p class=\"quiet\">steps: {steps}, checkpoints committed: {}, generation {}; asked for {} to {} nodes with {} ranks each</p>",
        job.checkpoints.len(),
        job.generation,
        job.spec.nodes.min,
        job.spec.nodes.max,
        job.spec.ranks_per_node
    );
    match timeline::figure(job, &of_job, status) {
        Some(figure) => html.push_str(&figure),
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
            NodeState::Healthy => "good",
            NodeState::Cordoned | NodeState::Fencing => "warn",
            NodeState::Lost => "bad",
        };
        let _ = write!(
            html,
            "<tr><th scope=\"row\">{}</th><td><span class=\"badge {class}\">{}</span></td><td class=\"number\">{}</td>\
             <td>{}</td><td>{}</td></tr>",
            escape(node.node.as_str()),
            words::node_state(node.state),
            node.slots,
            escape(words::or_dash(node.job.as_ref())),
            escape(words::or_dash(node.reason.as_ref()))
        );
    }
    html.push_str("</tbody></table></div></section>");
    html
}
