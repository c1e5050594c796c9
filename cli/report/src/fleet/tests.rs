use rankguard_faults::Catalogue;
use rankguard_model::{Case, Timestamp};
use rankguard_summary::{CaseGrouping, FleetReport, FleetSelection};

use super::*;
use crate::sample;

fn report() -> FleetReport {
    let (status, mut cases) = sample::cluster();
    let weeks = i64::try_from(cases.len()).expect("few");
    for (number, case) in (0..).zip(&mut cases) {
        case.first_at = Timestamp::from_millis((number - weeks) * 7 * 86_400_000 + status.at.as_millis());
        case.verdict.blamed_part = Some("<b>x|y</b>".to_owned());
    }
    let selected: Vec<&Case> = cases.iter().collect();
    let selection = FleetSelection {
        by: "blamed",
        from: cases.first().map(|case| case.first_at),
        to: status.at,
        cases: &selected,
        known: &cases,
        status: Some(&status),
    };
    FleetReport::of(&selection, CaseGrouping::Blamed, Catalogue::builtin())
}

/// Every renderer has each figure, each week, each new class and each job, and no foreign text is markup.
#[test]
fn all_renderers_have_the_same_facts() {
    let report = report();
    let pages = [html(&report, "Week <1>"), markdown(&report, Some("Week <1>"))];
    assert!(report.weeks.len() > 1 && !report.first_seen.is_empty() && !report.jobs.is_empty());
    for page in &pages {
        for figure in tables::figures(&report) {
            assert!(
                page.contains(figure.name) && page.contains(&figure.value),
                "{}: {page}",
                figure.name
            );
        }
        for week in &report.weeks {
            assert!(page.contains(week.as_str()), "{week}: {page}");
        }
        for seen in &report.first_seen {
            assert!(page.contains(&seen.at.to_string()), "{}: {page}", seen.class);
        }
        for job in &report.jobs {
            assert!(page.contains(job.job.as_str()), "{}: {page}", job.job);
        }
        assert!(!page.contains("<b>x"), "{page}");
    }
    assert!(
        !pages[0].contains("<script") && pages[0].contains("prefers-color-scheme") && pages[0].contains("@media print")
    );
    assert!(
        !pages[0].contains("http://") && !pages[0].contains("https://"),
        "{}",
        pages[0]
    );
    let lines = text_lines(&report);
    assert!(lines.iter().all(|line| !line.contains('\n')), "{lines:?}");
    assert!(
        lines.iter().any(|line| line.starts_with("Mean time between failures")),
        "{lines:?}"
    );
}

#[test]
fn a_report_without_cases_is_a_page_with_its_figures() {
    let selection = FleetSelection {
        by: "class",
        from: Some(Timestamp(0)),
        to: Timestamp::from_millis(1),
        cases: &[],
        known: &[],
        status: None,
    };
    let report = FleetReport::of(&selection, CaseGrouping::Class, Catalogue::builtin());
    let page = html(&report, "Nothing");
    assert!(
        page.contains("<td colspan=\"12\">none</td>") && page.contains("0 cases"),
        "{page}"
    );
    assert!(markdown(&report, None).starts_with("0 cases by class from "));
}
