//! Lifetimes of devices, by cohort.

use std::collections::BTreeMap;

use rankguard_datasets::{Dataset, TableKind as Canonical};
use rankguard_statistics::cox::{self, CoxSubject, TieMethod};
use rankguard_statistics::kaplan_meier::{self, ObservedLifetime};
use rankguard_statistics::log_rank;

use crate::error::StudyError;
use crate::outcome::{ResultCell, ResultTable, StudyResult};
use crate::plot::{PlotContent, StudyPlot};
use crate::studies::{LEVEL, Study, StudyOptions};

const YEAR: f64 = 365.25 * 86_400.0;

pub(super) const STUDY: Study = Study {
    name: "survival",
    about: "Kaplan-Meier curves by cohort (--by), log-rank test and Cox model",
    needs: "nodes: x_time_s (seconds seen), x_dead (TRUE or FALSE), a cohort column (x_batch)",
    run,
};

fn run(data: &Dataset, options: &StudyOptions) -> Result<StudyResult, StudyError> {
    let by = options.by("x_batch");
    let cohorts = cohorts(data, by)?;
    let definition = format!(
        "life: seconds in service as published, in years of 365.25 days; failure: dead by the source's rule, else censored; cohorts by {by}"
    );
    let mut outcome = StudyResult::new("survival", data, definition);
    let mut table = ResultTable::new(
        "Kaplan-Meier, Greenwood's 95 % interval on the log-log scale",
        &["cohort", "lives", "failures", "year", "survival", "low", "high"],
    );
    let mut curves = Vec::new();
    for (cohort, lives) in &cohorts {
        let curve = kaplan_meier::curve(lives, LEVEL);
        let failed = lives.iter().filter(|life| life.failed).count();
        for year in 1..=7_u32 {
            let after = curve.partition_point(|step| step.time <= f64::from(year));
            if let Some(step) = after.checked_sub(1).map(|at| curve[at]) {
                table.row([
                    cohort.as_str().into(),
                    lives.len().into(),
                    failed.into(),
                    u64::from(year).into(),
                    step.survival.into(),
                    step.low.into(),
                    step.high.into(),
                ]);
            }
        }
        // A picture resolves only some hundred steps.
        let every = (curve.len() / 400).max(1);
        let points = curve.iter().step_by(every).map(|step| (step.time, step.survival));
        curves.push((cohort.clone(), std::iter::once((0.0, 1.0)).chain(points).collect()));
    }
    outcome.tables.push(table);
    outcome.plots.push(StudyPlot {
        title: format!("survival by {by}"),
        across: "years in service".to_owned(),
        shape: PlotContent::Steps(curves),
    });
    let lives: Vec<Vec<ObservedLifetime>> = cohorts.values().cloned().collect();
    if let Some(test) = log_rank::compare(&lives) {
        let mut table = ResultTable::new("log-rank", &["cohorts", "chi-squared", "degrees", "p"]);
        table.row([
            cohorts.len().into(),
            test.chi_squared.into(),
            test.degrees.into(),
            test.p.into(),
        ]);
        outcome.tables.push(table);
    }
    outcome.tables.extend(hazards(&cohorts));
    Ok(outcome)
}

/// Returns the life of each node in years, in the order of the table; `None` if unknown.
pub(crate) fn lives(data: &Dataset) -> Result<Vec<Option<ObservedLifetime>>, StudyError> {
    let seen = data.f64s(Canonical::Nodes, "x_time_s");
    let dead = data.labels(Canonical::Nodes, "x_dead");
    let (Ok(seen), Ok(dead)) = (seen, dead) else {
        return Err(StudyError::missing(
            "no lifetimes: the data does not say how long each device was seen and whether it failed",
            "give data whose nodes have x_time_s and x_dead",
        ));
    };
    let life = |(seconds, dead): (Option<f64>, Option<&str>)| {
        let dead = dead?;
        Some(ObservedLifetime {
            time: seconds? / YEAR,
            failed: dead.eq_ignore_ascii_case("true") || dead == "1",
        })
    };
    Ok(seen.into_iter().zip(dead.texts()).map(life).collect())
}

fn cohorts(data: &Dataset, by: &str) -> Result<BTreeMap<String, Vec<ObservedLifetime>>, StudyError> {
    let lives = lives(data)?;
    let mut cohorts: BTreeMap<String, Vec<ObservedLifetime>> = BTreeMap::new();
    for (cohort, life) in data.labels(Canonical::Nodes, by)?.texts().zip(lives) {
        if let Some(life) = life {
            cohorts
                .entry(cohort.unwrap_or("(none)").to_owned())
                .or_default()
                .push(life);
        }
    }
    Ok(cohorts)
}

/// Fits a Cox model of each cohort against the first in order.
fn hazards(cohorts: &BTreeMap<String, Vec<ObservedLifetime>>) -> Option<ResultTable> {
    let names: Vec<&String> = cohorts.keys().collect();
    if !(2..=20).contains(&names.len()) {
        return None;
    }
    let subjects: Vec<CoxSubject> = cohorts
        .values()
        .enumerate()
        .flat_map(|(at, lives)| {
            let covariates: Vec<f64> = (1..names.len()).map(|other| f64::from(u8::from(other == at))).collect();
            lives.iter().map(move |life| CoxSubject {
                time: life.time,
                failed: life.failed,
                covariates: covariates.clone(),
            })
        })
        .collect();
    let title = format!("Cox, Efron's ties, hazard against {}", names[0]);
    let mut table = ResultTable::new(title, &["cohort", "hazard ratio", "low", "high", "p"]);
    match cox::fit(&subjects, TieMethod::Efron, LEVEL) {
        Ok(model) => model.effects.iter().zip(&names[1..]).for_each(|(effect, name)| {
            table.row([
                name.as_str().into(),
                effect.hazard_ratio.into(),
                effect.low.into(),
                effect.high.into(),
                effect.p.into(),
            ]);
        }),
        Err(problem) => table.row([
            ResultCell::Text(format!("no model: {problem}")),
            ResultCell::Absent,
            ResultCell::Absent,
            ResultCell::Absent,
            ResultCell::Absent,
        ]),
    }
    Some(table)
}
