//! Section of the runs of torchrun.

use std::fmt::Write as _;

use rankguard_console::display_text;
use rankguard_model::{StatusView, TorchrunMemberState, TorchrunState, TorchrunView};

use super::text::escape;

/// Processes that are listed for each run; the others are in `report.json`.
const MEMBERS_MAX: usize = 200;
/// Maximum size of the section, in bytes; further runs are in `report.json`.
const SECTION_BYTES: usize = 60_000;

/// Renders a table of the runs and one of the processes of each run; empty without a run.
pub(super) fn section(status: &StatusView) -> String {
    if status.torchruns.is_empty() {
        return String::new();
    }
    let mut html = String::from("<section><h2>Runs of torchrun</h2>");
    html.push_str(&runs(&status.torchruns));
    let mut left = 0;
    for run in &status.torchruns {
        let members = members(run);
        if html.len() + members.len() > SECTION_BYTES {
            left += 1;
        } else {
            html.push_str(&members);
        }
    }
    if left > 0 {
        let _ = write!(
            html,
            "<p class=\"quiet\">The processes of {left} runs are in report.json only.</p>"
        );
    }
    html.push_str("</section>");
    html
}

fn runs(runs: &[TorchrunView]) -> String {
    let mut html = table(
        "the runs of torchrun",
        &["run", "state", "owner", "round", "nodes", "changed", "reason"],
    );
    for run in runs {
        let class = match run.state {
            TorchrunState::Running => "good",
            TorchrunState::Waiting | TorchrunState::Restarting => "warn",
            TorchrunState::Closed => "",
        };
        let running = display_text::torchrun_members(run, TorchrunMemberState::Running);
        let spares = display_text::torchrun_members(run, TorchrunMemberState::Spare);
        let _ = write!(
            html,
            "<tr><th scope=\"row\">{}</th><td><span class=\"badge {class}\">{}</span></td><td>{}</td><td>{}</td>\
             <td>{running} of {} to {}, {spares} spare</td><td>{}</td><td>{}</td></tr>",
            escape(run.run.as_str()),
            display_text::torchrun_state(run.state),
            escape(display_text::or_dash(run.owner.as_ref())),
            display_text::or_dash(run.round),
            run.nodes_min,
            run.nodes_max,
            escape(run.changed_at.to_string()),
            escape(run.reason.as_str())
        );
    }
    html.push_str("</tbody></table></div>");
    html
}

fn members(run: &TorchrunView) -> String {
    let mut html = format!("<h3>Processes of {}</h3>", escape(run.run.as_str()));
    html.push_str(&table("the processes of a run", &["node", "rank", "state", "reason"]));
    for member in run.members.iter().take(MEMBERS_MAX) {
        let _ = write!(
            html,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(member.node.as_str()),
            display_text::or_dash(member.rank),
            display_text::torchrun_member_state(member.state),
            escape(display_text::or_dash(member.reason.as_ref()))
        );
    }
    html.push_str("</tbody></table></div>");
    let left = run.members.len().saturating_sub(MEMBERS_MAX);
    if left > 0 {
        let _ = write!(html, "<p class=\"quiet\">{left} more are in report.json only.</p>");
    }
    html
}

/// Begins a table that may be scrolled.
fn table(what: &str, columns: &[&str]) -> String {
    let mut html = format!(
        "<div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"Table of {what}, may be scrolled\"><table><thead><tr>"
    );
    for column in columns {
        let _ = write!(html, "<th scope=\"col\">{column}</th>");
    }
    html.push_str("</tr></thead><tbody>");
    html
}

#[cfg(test)]
mod tests {
    use rankguard_model::{NodeId, TorchrunMemberView};

    use super::*;
    use crate::{ReportInput, page, sample};

    fn run(name: &str, members: usize) -> TorchrunView {
        let member = |index: usize| TorchrunMemberView {
            node: NodeId::from(format!("gpu-{index}").as_str()),
            rank: (index > 0).then(|| u32::try_from(index - 1).unwrap_or_default()),
            state: if index > 0 {
                TorchrunMemberState::Running
            } else {
                TorchrunMemberState::Spare
            },
            reason: (index == 0).then(|| "node gpu-0 is cordoned: <i>fan</i>".to_owned()),
        };
        TorchrunView {
            run: name.to_owned(),
            owner: Some("launcher vision".to_owned()),
            state: TorchrunState::Running,
            round: Some(7),
            nodes_min: 2,
            nodes_max: 4,
            members: (0..members).map(member).collect(),
            changed_at: sample::at(5_000),
            reason: "the connection to torchrun on node gpu-9 was lost".to_owned(),
            ended_at: None,
        }
    }

    fn page_of(runs: Vec<TorchrunView>) -> String {
        let (mut status, cases) = sample::cluster();
        status.torchruns = runs;
        page::pages(&ReportInput::new("Runs", status, cases, None))
            .remove(0)
            .html
    }

    #[test]
    fn runs_are_listed_with_their_processes() {
        let html = page_of(vec![run("llm-7", 3)]);
        for part in [
            "<h2>Runs of torchrun</h2>",
            "<td>launcher vision</td>",
            "<td>2 of 2 to 4, 1 spare</td>",
            "the connection to torchrun on node gpu-9 was lost",
            "<th scope=\"row\">gpu-2</th><td>1</td><td>running</td>",
            "node gpu-0 is cordoned: &lt;i&gt;fan&lt;/i&gt;",
        ] {
            assert!(html.contains(part), "{part:?} is not in the page");
        }
        assert!(!page_of(Vec::new()).contains("torchrun"), "no run, no section");
    }

    #[test]
    fn large_runs_do_not_fill_the_page() {
        let many = (0..256).map(|index| run(&format!("run-{index}"), 1_024)).collect();
        let html = page_of(many);
        assert!(html.len() < 500_000, "{} bytes", html.len());
        assert!(html.contains("runs are in report.json only"));
        assert!(html.contains("run-255"), "each run has its line");
        assert!(
            page_of(vec![run("large", 1_024)]).contains("<p class=\"quiet\">824 more are in report.json only.</p>")
        );
    }
}
