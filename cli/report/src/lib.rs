//! HTML report: one self-contained page, and the same facts as JSON.
//!
//! The page has no script and no external font or image, follows the reader's light or dark setting and fits a
//! telephone. Plots are rendered here as SVG; information in colour is repeated by shape or text, and every plot has a
//! description. Foreign text is escaped in one place (`text`).
//!
//! Absent: zooming, and plots of more than one job in one figure.

mod axis;
mod canvas;
mod cases;
mod delays;
pub mod fleet;
mod gantt;
mod page;
mod panels;
#[cfg(any(test, feature = "sample"))]
pub mod sample;
mod summary;
mod text;
mod timeline;
mod torchruns;

use std::io;
use std::path::Path;

use rankguard_console::display_text::CaseDocument;
use rankguard_files::private;
use rankguard_model::{Case, StatusView};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// Returns a document as JSON, with times as RFC 3339.
pub fn json_text(document: &impl Serialize) -> io::Result<String> {
    Ok(rankguard_console::out::json_text(document)? + "\n")
}

/// Content of a report.
#[derive(Debug, Clone, Serialize)]
pub struct ReportInput {
    /// Title of the page.
    title: String,
    /// Measurements in addition to the controller's view: parameters, ledger, stalls. Set by the demo only.
    facts: Option<Value>,
    /// Nodes and jobs.
    status: StatusView,
    /// All cases, oldest first.
    #[serde(serialize_with = "documents")]
    cases: Vec<Case>,
}

/// Writes cases with the states that the listings show.
fn documents<S: Serializer>(cases: &[Case], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(cases.iter().map(CaseDocument))
}

impl ReportInput {
    /// Creates the input of a report.
    pub fn new(title: &str, status: StatusView, cases: Vec<Case>, facts: Option<Value>) -> Self {
        Self {
            title: title.to_owned(),
            facts,
            status,
            cases,
        }
    }
}

/// Writes `report.html` and `report.json` into an existing folder. Each file is replaced atomically.
pub fn write(input: &ReportInput, folder: &Path) -> io::Result<()> {
    let json = json_text(input)?;
    put(folder, "report.json", json.as_bytes())?;
    let pages = page::pages(input);
    pages
        .iter()
        .try_for_each(|page| put(folder, &page.name, page.html.as_bytes()))?;
    remove_older_pages(folder, pages.len())
}

/// Removes pages of an earlier, longer report in the same folder.
fn remove_older_pages(folder: &Path, count: usize) -> io::Result<()> {
    for number in count.. {
        match std::fs::remove_file(folder.join(page::page_name(number))) {
            Ok(()) => {}
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(problem) => return Err(problem),
        }
    }
    Ok(())
}

fn put(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let written = private::replace_file(&folder.join(name), bytes, 0o644);
    written.map_err(|problem| io::Error::new(problem.kind(), format!("{}: {problem}", folder.join(name).display())))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn input() -> ReportInput {
        let (status, cases) = sample::cluster();
        ReportInput::new("A <b>report</b>", status, cases, Some(sample::facts()))
    }

    fn first_page(input: &ReportInput) -> String {
        page::pages(input).remove(0).html
    }

    #[test]
    fn pages_of_many_cases_are_bounded_and_have_each_case_once() {
        let (status, cases) = sample::cluster();
        let mut many = Vec::new();
        for id in 1..=2_000 {
            let mut case = cases[id % cases.len()].clone();
            case.id = rankguard_model::CaseId(id as u64);
            many.push(case);
        }
        let pages = page::pages(&ReportInput::new("Many", status, many, None));
        assert!(pages.len() > 2 && pages.iter().all(|page| page.html.len() < 500_000));
        // Parts of a case have its number and a name.
        let ids = pages.iter().flat_map(|page| page.html.split("id=\"case-").skip(1));
        let ids = ids.filter_map(|rest| rest.split('"').next()?.parse().ok());
        let mut ids: Vec<u64> = ids.collect();
        ids.sort_unstable();
        assert!(ids.iter().copied().eq(1..=2_000), "each once: {ids:?}");
        assert!(pages[0].html.contains("id=\"case-2000\""), "the newest come first");
        for (number, page) in pages.iter().enumerate() {
            assert_eq!(page.name, page::page_name(number));
            assert_eq!(page.html.contains("older cases"), number + 1 < pages.len());
        }
    }

    #[test]
    fn pages_of_an_earlier_report_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        for number in 1..4 {
            fs::write(folder.path().join(page::page_name(number)), "old").expect("written");
        }
        write(&input(), folder.path()).expect("written");
        assert!(!folder.path().join(page::page_name(1)).exists() && !folder.path().join(page::page_name(3)).exists());
    }

    #[test]
    fn a_report_needs_nothing_else_and_runs_nothing() {
        let html = first_page(&input());
        for forbidden in [
            "<script",
            "http-equiv",
            "src=",
            "@import",
            "url(",
            "<link",
            "<iframe",
            "onload",
        ] {
            assert!(!html.contains(forbidden), "{forbidden:?} is in the page");
        }
        assert!(html.contains("A &lt;b&gt;report&lt;/b&gt;") && !html.contains("<b>report"));
    }

    #[test]
    fn every_element_that_is_opened_is_closed() {
        let html = first_page(&input());
        let void = ["meta", "!DOCTYPE"];
        let mut open: Vec<&str> = Vec::new();
        for tag in html.split('<').skip(1) {
            let (inside, _) = tag.split_once('>').expect("every < of the page begins a tag");
            let name = inside
                .split([' ', '\n', '/'])
                .find(|part| !part.is_empty())
                .unwrap_or_default();
            if let Some(closed) = inside.strip_prefix('/') {
                assert_eq!(open.pop(), Some(closed), "near <{}", inside);
            } else if !inside.ends_with('/') && !void.contains(&name) {
                open.push(name);
            }
        }
        assert_eq!(open, Vec::<&str>::new());
    }

    #[test]
    fn every_case_is_told_with_its_five_taxonomies_and_delays() {
        let html = first_page(&input());
        let (_, cases) = sample::cluster();
        for case in &cases {
            assert!(html.contains(&format!("id=\"case-{}\"", case.id)), "case {}", case.id);
        }
        for part in [
            "gpu-fallen-off-bus",
            "6.21 s",
            "bit-identical",
            "RuntimeError",
            "cascade",
            "shape &#39;",
        ] {
            assert!(html.contains(part), "{part:?} is not in the page");
        }
    }

    #[test]
    fn recovery_options_are_shown_with_their_costs() {
        let (status, mut cases) = sample::cluster();
        cases[0].recovery = Some(sample::recovery_choice());
        let html = first_page(&ReportInput::new("report", status, cases, None));
        for part in [
            "<summary>Recovery options</summary>",
            "<td>shrink</td><td>2</td><td>1855.5</td>",
            "predicted 4.00 s",
            "(assumed; 0 returns",
        ] {
            assert!(html.contains(part), "{part:?} is not in the page");
        }
    }

    #[test]
    fn a_link_in_the_folder_is_replaced_and_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let other = folder.path().join("other");
        fs::write(&other, "own").expect("written");
        for name in ["report.json", "report.html", ".report.json.part"] {
            std::os::unix::fs::symlink(&other, folder.path().join(name)).expect("linked");
        }
        write(&input(), folder.path()).expect("written");
        assert_eq!(fs::read_to_string(&other).expect("read"), "own");
    }

    #[test]
    fn an_empty_cluster_has_a_report() {
        let status = StatusView {
            nodes: Vec::new(),
            node_spans: Vec::new(),
            jobs: Vec::new(),
            open_cases: Vec::new(),
            degraded: None,
            impaired: Vec::new(),
            journal_gaps: Vec::new(),
            torchruns: Vec::new(),
            receivers: Vec::new(),
            at: sample::at(0),
        };
        let html = first_page(&ReportInput::new("Empty", status, Vec::new(), None));
        assert!(html.contains("Nothing has failed"), "{html}");
    }

    #[test]
    fn counts_of_a_job_with_a_gap_in_its_history_are_lower_limits() {
        let (mut status, cases) = sample::cluster();
        let page = |status: &StatusView| first_page(&ReportInput::new("Gap", status.clone(), cases.clone(), None));
        assert!(!page(&status).contains("checkpoints committed: at least"));
        let node = status.nodes[0].node.clone();
        let mut gap = |found_at| {
            let what = "the journal was restored from a copy".to_owned();
            let node = node.clone();
            status.journal_gaps = vec![rankguard_model::JournalGap { found_at, node, what }];
            page(&status)
        };
        assert!(
            !gap(rankguard_model::Timestamp(0)).contains("checkpoints committed: at least"),
            "before the job"
        );
        assert!(gap(sample::at(1_000)).contains("checkpoints committed: at least"));
    }

    #[test]
    fn both_files_are_written_whole_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        write(&input(), folder.path()).expect("written");
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .expect("listed")
            .flatten()
            .map(|e| e.file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["report.html", "report.json"]);
        let json: Value =
            serde_json::from_slice(&fs::read(folder.path().join("report.json")).expect("read")).expect("JSON");
        assert_eq!(json["cases"][0]["verdict"]["class"], "gpu-fallen-off-bus");
        assert_eq!(json["facts"]["parameters_identical"], true);
        let at = json["cases"][0]["first_at"].as_str().expect("a time as RFC 3339");
        assert!(at.ends_with('Z') && at.contains('T'), "{at}");
    }
}
