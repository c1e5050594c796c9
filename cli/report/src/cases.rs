//! Cases of the report: a table for comparison, then each with its evidence and reasoning.

use std::fmt::Write as _;

use rankguard_console::{display_text, recovery_text};
use rankguard_faults::root_rank_text;
use rankguard_model::{Case, CaseFinding, CaseState, ReasoningEntry, Role, Timestamp};

use super::delays;
use super::text::{escape, offset};

/// Renders the table, one row per case.
pub(super) fn table(cases: &[Case]) -> String {
    let mut html = String::from(
        "<div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"Table of the cases, may be scrolled\"><table>\
         <thead><tr><th scope=\"col\">case</th><th scope=\"col\">class</th><th scope=\"col\">blamed</th>\
         <th scope=\"col\">state</th>",
    );
    for name in ["evidence", "case", "plan", "fenced", "launched", "first step"] {
        let _ = write!(html, "<th scope=\"col\" class=\"number\">{name}</th>");
    }
    html.push_str("<th scope=\"col\" class=\"number\">steps lost</th></tr></thead><tbody>");
    for case in cases {
        let id = case.id;
        let _ = write!(
            html,
            "<tr><th scope=\"row\"><a href=\"#case-{id}\">{id}</a></th><td><code>{}</code></td><td class=\"who\">{}</td><td>{}{}</td>",
            escape(case.verdict.class.as_str()),
            escape(case.blamed_text()),
            badge(case),
            synthetic(case.is_synthetic())
        );
        let d = &case.delays;
        for ms in [
            d.evidence_ms,
            d.case_ms,
            d.plan_ms,
            d.fenced_ms,
            d.launched_ms,
            d.first_step_ms,
        ] {
            let _ = write!(html, "<td class=\"number\">{}</td>", time(ms));
        }
        let _ = write!(
            html,
            "<td class=\"number\">{}</td></tr>",
            escape(display_text::or_dash(case.steps_lost))
        );
    }
    html.push_str("</tbody></table></div>");
    html
}

fn time(ms: Option<i64>) -> String {
    ms.map_or_else(|| "–".to_owned(), |ms| display_text::millis(ms as f64))
}

fn badge(case: &Case) -> String {
    let class = match case.state {
        _ if case.is_open() => "warn",
        CaseState::Open | CaseState::Recovering | CaseState::FaultPresent => "warn",
        CaseState::Recovered => "good",
        CaseState::Closed => "",
    };
    format!(
        "<span class=\"badge {class}\">{}</span>",
        display_text::case_progress(case)
    )
}

/// Renders one case completely.
pub(super) fn card(case: &Case, start: Timestamp) -> String {
    let verdict = &case.verdict;
    let id = case.id;
    let mut html = format!(
        "<article class=\"card\" id=\"case-{id}\" aria-labelledby=\"case-{id}-name\">\
         <h3 id=\"case-{id}-name\"><span class=\"case-number\">{id}</span> <code>{}</code> {}{}</h3>",
        escape(verdict.class.as_str()),
        badge(case),
        synthetic(case.is_synthetic())
    );
    let _ = write!(html, "<p class=\"blamed\">{}</p>", blamed(case));
    if let Some(bar) = delays::bar(&case.delays) {
        html.push_str(&bar);
    }
    html.push_str("<dl class=\"facts\">");
    let mut fact = |name: &str, value: String| {
        let _ = write!(html, "<dt>{name}</dt><dd>{value}</dd>");
    };
    fact(
        "outcome",
        escape(case.outcome.as_deref().unwrap_or(display_text::no_outcome(case))),
    );
    fact(
        "first seen",
        format!(
            "{} into the record ({})",
            offset(case.first_at, start),
            escape(case.first_at.to_string())
        ),
    );
    let recommended = if case.plan.is_some() || !case.actions.is_empty() {
        "recommended in general"
    } else {
        "do"
    };
    fact(
        recommended,
        format!(
            "{} <small>{}</small>",
            escape(&verdict.mitigation.advice),
            escape(format!(
                "{} · {}",
                verdict.mitigation.action,
                display_text::sources(&verdict.mitigation.recommended_by)
            ))
        ),
    );
    fact(case.clears_label(), escape(&case.clears));
    if let Some(lost) = case.steps_lost {
        fact("steps lost", lost.to_string());
    }
    if !verdict.alternatives.is_empty() {
        let others = verdict
            .alternatives
            .iter()
            .map(|(class, confidence)| format!("{class} ({confidence:.2})"));
        fact("also considered", escape(others.collect::<Vec<_>>().join(", ")));
    }
    html.push_str("</dl>");
    html.push_str(&taxonomies(case));
    html.push_str(&reasons("Reasoning", &case.reasoning, case.first_at, true));
    let plan = case
        .plan
        .map_or_else(|| "Actions".to_owned(), |plan| format!("Plan {plan} and its actions"));
    html.push_str(&reasons(&plan, &case.actions, case.first_at, false));
    html.push_str(&recovery_options(case));
    html.push_str(&findings(&case.findings, case.first_at));
    html.push_str("</article>");
    html
}

/// Renders the recovery options with their costs; empty if none were compared.
fn recovery_options(case: &Case) -> String {
    let Some(choice) = &case.recovery else {
        return String::new();
    };
    let mut html = String::from(
        "<details><summary>Recovery options</summary><div class=\"scroll\" role=\"group\" tabindex=\"0\" \
         aria-label=\"Table of the recovery options, may be scrolled\"><table><thead><tr>",
    );
    for heading in recovery_text::HEADINGS {
        let _ = write!(html, "<th scope=\"col\">{heading}</th>");
    }
    html.push_str("</tr></thead><tbody>");
    for row in recovery_text::option_rows(choice) {
        html.push_str("<tr>");
        for cell in row {
            let _ = write!(html, "<td>{}</td>", escape(&cell));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div><ul>");
    for line in recovery_text::restart_line(case)
        .into_iter()
        .chain(recovery_text::input_lines(choice))
    {
        let _ = write!(html, "<li>{}</li>", escape(&line));
    }
    html.push_str("</ul></details>");
    html
}

fn blamed(case: &Case) -> String {
    let verdict = &case.verdict;
    let rank = root_rank_text(case).map_or_else(String::new, |rank| format!(", {rank}"));
    format!(
        "<strong>{}</strong>{} <small>{}</small>",
        escape(case.blamed_text()),
        escape(rank),
        escape(format!(
            "{} · {} · confidence {:.2}",
            display_text::verdict_layer(verdict),
            display_text::severity(verdict.severity),
            verdict.confidence
        ))
    )
}

fn taxonomies(case: &Case) -> String {
    let mut html = String::from("<h4>Published taxonomies</h4><dl class=\"facts\">");
    for (taxonomy, categories) in case.verdict.taxonomies.iter() {
        let names: Vec<String> = categories
            .iter()
            .map(|category| display_text::category(taxonomy, category))
            .collect();
        let _ = write!(
            html,
            "<dt>{}</dt><dd>{}</dd>",
            escape(display_text::taxonomy(taxonomy)),
            escape(names.join("; "))
        );
    }
    html.push_str("</dl>");
    html
}

fn reasons(heading: &str, reasons: &[ReasoningEntry], first: Timestamp, open: bool) -> String {
    if reasons.is_empty() {
        return String::new();
    }
    let open = if open { " open=\"open\"" } else { "" };
    let mut html = format!(
        "<details{open}><summary>{}</summary><ol class=\"log\">",
        escape(heading)
    );
    for reason in reasons {
        let _ = write!(
            html,
            "<li><time>{}</time><span>{}</span></li>",
            offset(reason.at, first),
            escape(&reason.text)
        );
    }
    html.push_str("</ol></details>");
    html
}

/// Badge of a case or finding from a drill or simulation.
fn synthetic(is_synthetic: bool) -> &'static str {
    if is_synthetic {
        " <span class=\"badge\">synthetic</span>"
    } else {
        ""
    }
}

fn findings(findings: &[CaseFinding], first: Timestamp) -> String {
    let mut html = format!(
        "<details><summary>Facts ({}), in order of cause</summary><ol class=\"log\">",
        findings.len()
    );
    for finding in findings {
        let class = match finding.role {
            Role::Root => "bad",
            Role::Confirmation => "warn",
            Role::Cascade | Role::Noise => "",
        };
        let _ = write!(
            html,
            "<li><time>{}</time><div><span class=\"badge {class}\">{}</span> <code>{}</code> {}{}<pre>{}</pre><small>{}</small></div></li>",
            offset(finding.at, first),
            display_text::role(finding.role),
            escape(finding.class.as_str()),
            escape(finding.entity.to_string()),
            synthetic(finding.synthetic),
            escape(&finding.text),
            escape(format!("{} · evidence {}", finding.why, finding.evidence))
        );
    }
    html.push_str("</ol></details>");
    html
}
