//! Counts and cost of groups of cases.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use rankguard_faults::Catalogue;
use rankguard_model::{Case, Generation, JobId, NodeId, Timestamp};
use serde::Serialize;

use crate::grouping::{CaseGrouping, monday};

/// Number of ranks of the generations of jobs.
pub type RankCounts = BTreeMap<(JobId, Generation), u64>;

/// What is known beside the cases.
pub struct SummaryInput<'a> {
    pub catalogue: &'a Catalogue,
    /// Failure domain of a node.
    pub domain_of: &'a dyn Fn(&NodeId) -> Option<String>,
    /// Ranks of generations, as far as known.
    pub ranks: &'a RankCounts,
}

/// Cases of a selection by group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CaseSummary {
    /// Number of cases.
    pub cases: u64,
    /// Number of cases for which the grouping has no place.
    pub without_group: u64,
    /// Groups, the one with the most cases first; weeks in order of time.
    pub groups: Vec<CaseGroup>,
}

/// Cases of one group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CaseGroup {
    /// Class, layer, blamed part, node, failure domain, job, week or category.
    pub key: String,
    /// Name of the group.
    pub name: String,
    pub cases: u64,
    /// Number of its cases that are open.
    pub open: u64,
    /// Number of jobs that these cases concern.
    pub jobs: u64,
    /// Number of cases after which a job made a step again.
    pub recoveries: u64,
    /// Sum of the times from the first evidence to the first step of these recoveries, milliseconds.
    pub downtime_ms: i64,
    /// Sum over the recoveries of that time, multiplied by the ranks of the failed generation, hours; as far as the number of
    /// ranks is known.
    pub rank_hours_lost: f64,
    /// Number of recoveries of which the number of ranks is not known.
    pub recoveries_of_unknown_size: u64,
    /// Sum of the steps that had to be repeated, as far as recorded.
    pub steps_lost: u64,
    /// Time of the first evidence of its first case.
    pub first_at: Timestamp,
    /// Time of the first evidence of its newest case.
    pub newest_at: Timestamp,
    /// Number of its newest case.
    pub newest_case: u64,
    /// Number of its cases by week: the date of the Monday, UTC.
    pub by_week: BTreeMap<String, u64>,
    #[serde(skip)]
    job_ids: BTreeSet<JobId>,
}

impl CaseSummary {
    /// Counts cases and their cost by group.
    pub fn of<'a>(
        cases: impl IntoIterator<Item = &'a Case>,
        grouping: CaseGrouping<'_>,
        input: &SummaryInput<'_>,
    ) -> Self {
        let mut groups: BTreeMap<String, CaseGroup> = BTreeMap::new();
        let mut count = 0;
        let mut without_group = 0;
        for case in cases {
            count += 1;
            match grouping.key(case, input.catalogue, input.domain_of) {
                Some(key) => groups
                    .entry(key)
                    .or_insert_with_key(|key| CaseGroup::empty(key, grouping, case))
                    .add(case, input.ranks),
                None => without_group += 1,
            }
        }
        let mut groups: Vec<CaseGroup> = groups.into_values().collect();
        if !matches!(grouping, CaseGrouping::Week) {
            // Stable: groups of the same size are sorted by key.
            groups.sort_by_key(|group| Reverse(group.cases));
        }
        Self {
            cases: count,
            without_group,
            groups,
        }
    }
}

impl CaseGroup {
    fn empty(key: &str, grouping: CaseGrouping<'_>, case: &Case) -> Self {
        Self {
            key: key.to_owned(),
            name: grouping.name_of(key),
            cases: 0,
            open: 0,
            jobs: 0,
            recoveries: 0,
            downtime_ms: 0,
            rank_hours_lost: 0.0,
            recoveries_of_unknown_size: 0,
            steps_lost: 0,
            first_at: case.first_at,
            newest_at: case.first_at,
            newest_case: case.id.0,
            by_week: BTreeMap::new(),
            job_ids: BTreeSet::new(),
        }
    }

    fn add(&mut self, case: &Case, ranks: &RankCounts) {
        self.cases += 1;
        self.open += u64::from(case.is_open());
        if let Some(week) = monday(case.first_at) {
            *self.by_week.entry(week).or_default() += 1;
        }
        self.steps_lost = self.steps_lost.saturating_add(case.steps_lost.unwrap_or(0));
        self.first_at = self.first_at.min(case.first_at);
        if case.first_at >= self.newest_at {
            self.newest_at = case.first_at;
            self.newest_case = case.id.0;
        }
        if let Some(job) = &case.job
            && self.job_ids.insert(job.clone())
        {
            self.jobs += 1;
        }
        let Some(downtime) = case.delays.first_step_ms else {
            return;
        };
        self.recoveries += 1;
        self.downtime_ms = self.downtime_ms.saturating_add(downtime);
        let generation = case.job.clone().zip(case.generation);
        match generation.and_then(|generation| ranks.get(&generation)) {
            Some(ranks) => self.rank_hours_lost += downtime.max(0) as f64 / 3_600_000.0 * *ranks as f64,
            None => self.recoveries_of_unknown_size += 1,
        }
    }

    /// Returns the mean time from the first evidence to the first step, milliseconds.
    pub fn mean_recovery_ms(&self) -> Option<i64> {
        self.downtime_ms.checked_div(i64::try_from(self.recoveries).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rankguard_model::{CaseId, ClassId, Entity, NodeId, Severity, Verdict};

    use super::*;

    const HOUR: i64 = 3_600_000;

    fn case(id: u64, class: &str, job: &str, downtime_ms: Option<i64>) -> Case {
        let at = Timestamp(0).after(Duration::from_secs(id * 86_400));
        let blamed = Entity::Node {
            node: NodeId::from(format!("n{}", id % 2)),
        };
        let verdict = Verdict {
            class: ClassId::from(class),
            layer: "hardware".to_owned(),
            severity: Severity::Failure,
            blamed,
            blamed_part: None,
            root_rank: None,
            first_cause: None,
            confidence: 0.8,
            taxonomies: Catalogue::builtin().taxonomies_of(&ClassId::from(class)),
            mitigation: Catalogue::builtin().mitigation(&ClassId::from(class)),
            alternatives: Vec::new(),
        };
        let mut case = Case::open(CaseId(id), verdict, at, at);
        case.job = Some(JobId::from(job));
        case.generation = Some(Generation(id));
        case.steps_lost = Some(id);
        case.delays.first_step_ms = downtime_ms;
        case
    }

    fn summary(cases: &[Case], by: &str, ranks: &RankCounts) -> CaseSummary {
        let catalogue = Catalogue::builtin();
        let input = SummaryInput {
            catalogue,
            domain_of: &|node| (node.as_str() == "n0").then(|| "rack-1".to_owned()),
            ranks,
        };
        CaseSummary::of(cases, CaseGrouping::parse(by, catalogue).expect("a grouping"), &input)
    }

    #[test]
    fn cost_is_summed_over_what_is_recorded() {
        let cases = [
            case(1, "gpu-fallen-off-bus", "a", Some(HOUR)),
            case(2, "gpu-fallen-off-bus", "a", Some(3 * HOUR)),
            case(3, "gpu-fallen-off-bus", "b", None),
            case(4, "segfault", "b", None),
        ];
        let ranks = RankCounts::from([((JobId::from("a"), Generation(1)), 8)]);
        let summary = summary(&cases, "class", &ranks);
        assert_eq!((summary.cases, summary.without_group, summary.groups.len()), (4, 0, 2));
        let gpu = &summary.groups[0];
        assert_eq!(
            (gpu.key.as_str(), gpu.cases, gpu.jobs, gpu.recoveries),
            ("gpu-fallen-off-bus", 3, 2, 2)
        );
        assert_eq!(
            (gpu.downtime_ms, gpu.mean_recovery_ms(), gpu.steps_lost),
            (4 * HOUR, Some(2 * HOUR), 6)
        );
        assert_eq!((gpu.rank_hours_lost, gpu.recoveries_of_unknown_size), (8.0, 1));
        assert_eq!(
            (gpu.first_at, gpu.newest_at, gpu.newest_case),
            (cases[0].first_at, cases[2].first_at, 3)
        );
        assert_eq!(summary.groups[1].mean_recovery_ms(), None);
    }

    #[test]
    fn a_case_without_a_place_is_counted_and_weeks_are_in_order() {
        let cases: Vec<Case> = (1..=20).map(|id| case(id, "segfault", "a", None)).collect();
        let domains = summary(&cases, "failure-domain", &RankCounts::new());
        assert_eq!((domains.without_group, domains.groups[0].cases), (10, 10));
        let weeks = summary(&cases, "week", &RankCounts::new());
        let keys: Vec<&str> = weeks.groups.iter().map(|group| group.key.as_str()).collect();
        assert_eq!(keys, ["1969-12-29", "1970-01-05", "1970-01-12", "1970-01-19"]);
        assert_eq!(weeks.groups.iter().map(|group| group.cases).sum::<u64>(), 20);
    }

    #[test]
    fn a_correction_moves_a_case_to_its_class() {
        let mut corrected = case(1, "segfault", "a", None);
        corrected.notes.push(rankguard_model::CaseNote {
            at: Timestamp(0),
            by: "ada".to_owned(),
            kind: rankguard_model::CaseNoteKind::Corrected {
                class: ClassId::from("cuda-oom"),
            },
            text: String::new(),
        });
        let cases = [corrected];
        assert_eq!(summary(&cases, "class", &RankCounts::new()).groups[0].key, "cuda-oom");
        assert_eq!(summary(&cases, "layer", &RankCounts::new()).groups[0].key, "user-code");
    }
}
