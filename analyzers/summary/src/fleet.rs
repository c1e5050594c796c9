//! Report of a fleet over a period: cases by group and week, time between failures, time to recover, classes that are seen
//! for the first time, nodes that failed repeatedly, and the use of the wall time of jobs.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_faults::Catalogue;
use rankguard_model::{Case, NodeId, Rank, Severity, StatusView, Timestamp};
use serde::Serialize;

use crate::grouping::CaseGrouping;
use crate::job_time::JobTime;
use crate::summary::{CaseSummary, RankCounts, SummaryInput};

/// Cases of a node from which it is a repeat offender.
const OFFENDER_CASES: u64 = 2;

/// Report of a fleet. All renderers and the JSON documents have these facts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FleetReport {
    /// Grouping of the cases: `class`, `layer`, `node` and so on, or the id of a taxonomy.
    pub by: String,
    /// Beginning of the period; absent if it is that of the records and there is no case.
    pub from: Option<Timestamp>,
    /// End of the period.
    pub to: Timestamp,
    /// Cases by group.
    #[serde(flatten)]
    pub summary: CaseSummary,
    /// Mondays of the weeks with cases, UTC, in order of time; each group counts its cases of a week in `by_week`.
    pub weeks: Vec<String>,
    /// Cases of failures that interrupted a job.
    pub failures: u64,
    /// Mean time between failures: the period divided by `failures`, milliseconds.
    pub mtbf_ms: Option<i64>,
    /// Mean time to recover: from the first evidence to the first step, over the recoveries, milliseconds.
    pub mttr_ms: Option<i64>,
    /// Sum of these times multiplied by the ranks of the failed generations, hours; a rank has one GPU.
    pub rank_hours_lost: f64,
    /// Number of recoveries of which the number of ranks is not known; their hours are missing in the sum.
    pub recoveries_of_unknown_size: u64,
    /// Classes of the selected cases that no earlier case had, oldest first.
    pub first_seen: Vec<FirstSeenClass>,
    /// Nodes that several selected cases blame, the one with the most cases first.
    pub offenders: Vec<RepeatOffender>,
    /// Wall time, over their whole life, of the jobs that ran in the period; the newest submission first.
    pub jobs: Vec<JobTime>,
}

/// Failure class with its first case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FirstSeenClass {
    /// Id of the class, that of the newest correction if there is one.
    pub class: String,
    /// Time of the first evidence.
    pub at: Timestamp,
    /// Number of the first case.
    pub case: u64,
}

/// Node that several cases blame, as a whole or a device of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RepeatOffender {
    /// Name of the node.
    pub node: String,
    /// Number of cases.
    pub cases: u64,
    /// Classes of these cases, sorted.
    pub classes: Vec<String>,
    /// Number of its newest case.
    pub newest_case: u64,
}

/// Cases and period of a report.
#[derive(Debug)]
pub struct FleetSelection<'a> {
    /// Name of the grouping.
    pub by: &'a str,
    /// Beginning of the period.
    pub from: Option<Timestamp>,
    /// End of the period.
    pub to: Timestamp,
    /// Cases that the filter selects.
    pub cases: &'a [&'a Case],
    /// All cases of the source, for what is seen for the first time.
    pub known: &'a [Case],
    /// Nodes and jobs, if the source has them.
    pub status: Option<&'a StatusView>,
}

impl FleetReport {
    /// Counts the selected cases.
    pub fn of(selection: &FleetSelection<'_>, grouping: CaseGrouping<'_>, catalogue: &Catalogue) -> Self {
        let domains = selection.status.map(domains).unwrap_or_default();
        let ranks = selection.status.map(rank_counts).unwrap_or_default();
        let input = SummaryInput {
            catalogue,
            domain_of: &|node| domains.get(node).cloned(),
            ranks: &ranks,
        };
        let summary = CaseSummary::of(selection.cases.iter().copied(), grouping, &input);
        let weeks = summary.groups.iter().flat_map(|group| group.by_week.keys().cloned());
        let weeks: BTreeSet<String> = weeks.collect();
        // Every case has a layer; the grouping of the report may have no place for some.
        let all = CaseSummary::of(selection.cases.iter().copied(), CaseGrouping::Layer, &input);
        let recoveries: u64 = all.groups.iter().map(|group| group.recoveries).sum();
        let downtime_ms: i64 = all.groups.iter().map(|group| group.downtime_ms).sum();
        let interrupts = |case: &&&Case| case.job.is_some() && case.verdict.severity == Severity::Failure;
        let failures = selection.cases.iter().filter(interrupts).count() as u64;
        let period_ms = selection.from.map(|from| selection.to.millis_since(from).max(0));
        let divided = |sum: i64, count: u64| sum.checked_div(i64::try_from(count).ok()?);
        Self {
            by: selection.by.to_owned(),
            from: selection.from,
            to: selection.to,
            weeks: weeks.into_iter().collect(),
            failures,
            mtbf_ms: period_ms.and_then(|period| divided(period, failures)),
            mttr_ms: divided(downtime_ms, recoveries),
            rank_hours_lost: all.groups.iter().map(|group| group.rank_hours_lost).sum(),
            recoveries_of_unknown_size: all.groups.iter().map(|group| group.recoveries_of_unknown_size).sum(),
            first_seen: first_seen(selection),
            offenders: offenders(selection.cases),
            jobs: selection.status.map_or_else(Vec::new, |status| jobs(status, selection)),
            summary,
        }
    }
}

fn class_of(case: &Case) -> &str {
    case.corrected_class().unwrap_or(&case.verdict.class).as_str()
}

/// Returns the classes of which the first known case is selected.
fn first_seen(selection: &FleetSelection<'_>) -> Vec<FirstSeenClass> {
    let mut first: BTreeMap<&str, &Case> = BTreeMap::new();
    for case in selection.known {
        let earliest = first.entry(class_of(case)).or_insert(case);
        if (case.first_at, case.id) < (earliest.first_at, earliest.id) {
            *earliest = case;
        }
    }
    let selected: BTreeSet<u64> = selection.cases.iter().map(|case| case.id.0).collect();
    let mut found: Vec<FirstSeenClass> = first
        .into_iter()
        .filter(|(_, case)| selected.contains(&case.id.0))
        .map(|(class, case)| FirstSeenClass {
            class: class.to_owned(),
            at: case.first_at,
            case: case.id.0,
        })
        .collect();
    found.sort_by_key(|class| (class.at, class.case));
    found
}

fn offenders(cases: &[&Case]) -> Vec<RepeatOffender> {
    let mut nodes: BTreeMap<&NodeId, (u64, BTreeSet<&str>, u64)> = BTreeMap::new();
    for case in cases {
        if let Some(node) = case.verdict.blamed.node() {
            let (count, classes, newest) = nodes.entry(node).or_default();
            *count += 1;
            classes.insert(class_of(case));
            *newest = (*newest).max(case.id.0);
        }
    }
    let repeated = nodes.into_iter().filter(|(_, (count, _, _))| *count >= OFFENDER_CASES);
    let mut found: Vec<RepeatOffender> = repeated
        .map(|(node, (cases, classes, newest_case))| RepeatOffender {
            node: node.to_string(),
            cases,
            classes: classes.into_iter().map(str::to_owned).collect(),
            newest_case,
        })
        .collect();
    // Stable: nodes with the same number are sorted by name.
    found.sort_by_key(|offender| std::cmp::Reverse(offender.cases));
    found
}

/// Returns the jobs that ran in the period.
fn jobs(status: &StatusView, selection: &FleetSelection<'_>) -> Vec<JobTime> {
    let times = JobTime::of_jobs(&status.jobs, &[], status.at).unwrap_or_default();
    let began = |time: &JobTime| selection.from.is_none_or(|from| time.until >= from);
    let is_within = |time: &JobTime| began(time) && time.submitted_at <= selection.to;
    times.into_iter().filter(is_within).collect()
}

fn domains(status: &StatusView) -> BTreeMap<NodeId, String> {
    let nodes = status.nodes.iter();
    nodes
        .map(|node| (node.node.clone(), node.failure_domain.clone()))
        .collect()
}

/// Counts the ranks of each generation that the status still has.
fn rank_counts(status: &StatusView) -> RankCounts {
    let mut counts = RankCounts::new();
    for job in &status.jobs {
        let mut ranks: BTreeMap<_, BTreeSet<Rank>> = BTreeMap::new();
        for span in &job.spans {
            if let Some((generation, rank)) = span.generation.zip(span.rank) {
                ranks.entry(generation).or_default().insert(rank);
            }
        }
        for (generation, ranks) in ranks {
            counts.insert((job.spec.id.clone(), generation), ranks.len() as u64);
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use rankguard_model::{CaseId, ClassId, Entity, JobId, Verdict};

    use super::*;

    const HOUR_MS: i64 = 3_600_000;
    const WEEK_MS: i64 = 7 * 24 * HOUR_MS;

    fn sample_case(id: u64, class: &str, node: &str, at_ms: i64) -> Case {
        let at = Timestamp::from_millis(at_ms);
        let node = NodeId::from(node);
        let verdict = Verdict {
            class: ClassId::from(class),
            layer: "user-code".to_owned(),
            severity: Severity::Failure,
            blamed: Entity::Node { node },
            blamed_part: None,
            root_rank: None,
            first_cause: None,
            confidence: 0.8,
            taxonomies: Catalogue::builtin().taxonomies_of(&ClassId::from(class)),
            mitigation: Catalogue::builtin().mitigation(&ClassId::from(class)),
            alternatives: Vec::new(),
        };
        let mut case = Case::open(CaseId(id), verdict, at, at);
        case.job = Some(JobId::from("train"));
        case
    }

    /// Report of the cases after the first one, over a week.
    fn report(cases: &[Case]) -> FleetReport {
        let selected: Vec<&Case> = cases.iter().skip(1).collect();
        let selection = FleetSelection {
            by: "class",
            from: Some(Timestamp(0)),
            to: Timestamp::from_millis(WEEK_MS),
            cases: &selected,
            known: cases,
            status: None,
        };
        FleetReport::of(&selection, CaseGrouping::Class, Catalogue::builtin())
    }

    #[test]
    fn a_report_divides_the_period_by_the_failures_and_names_what_is_new_and_what_returns() {
        let mut cases: Vec<Case> = [(1, "segfault"), (2, "segfault"), (3, "cuda-oom"), (4, "cuda-oom")]
            .into_iter()
            .map(|(id, class)| sample_case(id, class, "n1", i64::try_from(id).expect("small") * HOUR_MS))
            .collect();
        cases[1].delays.first_step_ms = Some(1_000);
        cases[2].delays.first_step_ms = Some(3_000);
        let report = report(&cases);
        assert_eq!((report.summary.cases, report.failures), (3, 3));
        assert_eq!(report.mtbf_ms, Some(WEEK_MS / 3));
        assert_eq!(report.mttr_ms, Some(2_000));
        // The first segfault was before the period.
        let new: Vec<&str> = report.first_seen.iter().map(|seen| seen.class.as_str()).collect();
        assert_eq!((new, report.first_seen[0].case), (vec!["cuda-oom"], 3));
        let offender = &report.offenders[0];
        assert_eq!(
            (offender.node.as_str(), offender.cases, offender.newest_case),
            ("n1", 3, 4)
        );
        assert_eq!(offender.classes, ["cuda-oom", "segfault"]);
        assert_eq!(report.weeks, ["1969-12-29"]);
        assert_eq!(report.summary.groups[0].by_week["1969-12-29"], 2);
    }

    #[test]
    fn a_period_without_a_failure_has_no_mean_times() {
        let report = report(&[sample_case(1, "segfault", "n1", 0)]);
        assert_eq!((report.failures, report.mtbf_ms, report.mttr_ms), (0, None, None));
        assert!(report.first_seen.is_empty() && report.offenders.is_empty() && report.weeks.is_empty());
    }
}
