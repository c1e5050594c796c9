//! Aligned per-step rows: the same ranks in every step, and each rank's own time.

use std::collections::BTreeMap;

use crate::operation::StepTiming;
use crate::problem::ProblemList;
use crate::rank_course::RankCourse;
use crate::statistics::{lower_median, median};

/// Source of a rank's own time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum OwnTimeSource {
    Compute,
    WithoutCommunication,
    Duration,
}

/// Rows by step, each with the same ranks in the same order.
pub(crate) struct StepTable<'a> {
    pub(crate) ranks: Vec<i64>,
    pub(crate) steps: Vec<(i64, Vec<&'a StepTiming>)>,
    pub(crate) own: OwnTimeSource,
    /// Work of each stage relative to the usual stage; empty if stages are unknown.
    stages: BTreeMap<i64, f64>,
}

/// Returns the largest value; 0 for empty input.
pub(crate) fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

/// Aligns rows; returns `None` if no step has all ranks.
pub(crate) fn arrange<'a>(name: &str, rows: &'a [StepTiming], problems: &mut ProblemList) -> Option<StepTable<'a>> {
    let mut steps: BTreeMap<i64, BTreeMap<i64, &StepTiming>> = BTreeMap::new();
    let mut repeated = 0_usize;
    for row in rows {
        let slot = steps.entry(row.step).or_default().entry(row.rank);
        slot.and_modify(|known| {
            repeated += 1;
            // The result must not depend on row order.
            if row.duration > known.duration {
                *known = row;
            }
        })
        .or_insert(row);
    }
    if repeated > 0 {
        problems.note(
            name,
            format!("{repeated} rows repeat a rank and step; the longest of each was kept"),
        );
    }
    let mut ranks: Vec<i64> = rows.iter().map(|row| row.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let before = steps.len();
    steps.retain(|_, rows| rows.len() == ranks.len());
    if steps.len() < before {
        let what = format!(
            "{} of {before} steps lack rows of some ranks and are left out",
            before - steps.len()
        );
        problems.note(name, what);
    }
    let used = || steps.values().flat_map(BTreeMap::values);
    let own = match () {
        () if used().all(|row| row.compute.is_some()) => OwnTimeSource::Compute,
        () if used().all(|row| row.communication.is_some()) => OwnTimeSource::WithoutCommunication,
        () => OwnTimeSource::Duration,
    };
    let steps: Vec<_> = steps
        .into_iter()
        .map(|(step, rows)| (step, rows.into_values().collect()))
        .collect();
    let stages = stages(&steps, own);
    (!steps.is_empty()).then_some(StepTable {
        ranks,
        steps,
        own,
        stages,
    })
}

impl OwnTimeSource {
    pub(crate) fn words(self) -> &'static str {
        match self {
            OwnTimeSource::Compute => "compute_s",
            OwnTimeSource::WithoutCommunication => "duration_s without comm_s and data_s",
            OwnTimeSource::Duration => "duration_s alone",
        }
    }

    pub(crate) fn of(self, row: &StepTiming) -> f64 {
        match self {
            OwnTimeSource::Compute => row.compute.unwrap_or(0.0),
            OwnTimeSource::WithoutCommunication => {
                (row.duration - row.communication.unwrap_or(0.0) - row.data.unwrap_or(0.0)).max(0.0)
            }
            OwnTimeSource::Duration => row.duration,
        }
    }
}

impl StepTable<'_> {
    pub(crate) fn own(&self, rows: &[&StepTiming]) -> Vec<f64> {
        rows.iter().map(|row| self.own.of(row)).collect()
    }

    pub(crate) fn per_step(&self, measure: impl Fn(&[f64]) -> f64) -> Vec<f64> {
        self.steps.iter().map(|(_, rows)| measure(&self.own(rows))).collect()
    }

    /// Returns the work of the rank's stage relative to the usual stage.
    pub(crate) fn stage_ratio(&self, row: &StepTiming) -> f64 {
        row.stage
            .and_then(|stage| self.stages.get(&stage))
            .copied()
            .unwrap_or(1.0)
    }

    /// Returns the stage with the most work.
    pub(crate) fn largest_stage(&self) -> Option<(i64, f64)> {
        let stages = self.stages.iter().map(|(stage, ratio)| (*stage, *ratio));
        stages.reduce(|a, b| if b.1 > a.1 { b } else { a })
    }

    /// Returns the own time of the usual rank of the usual stage in a step.
    pub(crate) fn usual(&self, rows: &[&StepTiming]) -> f64 {
        lower_median(
            &mut rows
                .iter()
                .map(|row| self.own.of(row) / self.stage_ratio(row))
                .collect::<Vec<_>>(),
        )
    }

    /// Returns the course of each rank's own time relative to the usual rank, corrected for its stage.
    pub(crate) fn rank_courses(&self) -> Vec<RankCourse> {
        let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); self.ranks.len()];
        for (_, rows) in &self.steps {
            let usual = self.usual(rows).max(f64::MIN_POSITIVE);
            for (rank, row) in rows.iter().enumerate() {
                ratios[rank].push(self.own.of(row) / self.stage_ratio(row) / usual);
            }
        }
        ratios.iter().map(|ratios| RankCourse::of(ratios)).collect()
    }
}

/// Returns the median own time of each stage relative to the lower median of all stages.
fn stages(steps: &[(i64, Vec<&StepTiming>)], own: OwnTimeSource) -> BTreeMap<i64, f64> {
    let mut stages: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for row in steps.iter().flat_map(|(_, rows)| rows) {
        let Some(stage) = row.stage else { return BTreeMap::new() };
        stages.entry(stage).or_default().push(own.of(row));
    }
    let levels: BTreeMap<i64, f64> = stages
        .into_iter()
        .map(|(stage, mut own)| (stage, median(&mut own)))
        .collect();
    let usual = lower_median(&mut levels.values().copied().collect::<Vec<_>>());
    levels
        .into_iter()
        .map(|(stage, level)| (stage, if usual > 0.0 && level > 0.0 { level / usual } else { 1.0 }))
        .collect()
}
