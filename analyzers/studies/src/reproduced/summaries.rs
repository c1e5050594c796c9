//! Sources that are published as tables of counts only: Llama 3, Summit, Helios, Acme, Philly.

use std::collections::BTreeMap;

use rankguard_datasets::{Dataset, TableKind};

use crate::error::StudyError;
use crate::reproduced::FigureCollector;

/// Row, metric, category and value of each number, in the order of the files.
struct SummaryRows(Vec<(String, String, String, f64)>);

impl SummaryRows {
    fn of(data: &Dataset) -> Result<Self, StudyError> {
        let rows = data.strings(TableKind::Samples, "node")?;
        let metrics = data.strings(TableKind::Samples, "metric")?;
        let values = data.f64s(TableKind::Samples, "value")?;
        // Only the table of interruptions has categories.
        let categories = data.strings(TableKind::Samples, "x_category").unwrap_or_default();
        let categories = categories.into_iter().chain(std::iter::repeat(None));
        let all = rows.into_iter().zip(metrics).zip(values).zip(categories);
        let whole = all.filter_map(|(((row, metric), value), category)| {
            Some((row?, metric?, category.unwrap_or_default(), value?))
        });
        Ok(Self(whole.collect()))
    }

    fn sum(&self, metric: &str, wanted: impl Fn(&str, &str) -> bool) -> f64 {
        let rows = self
            .0
            .iter()
            .filter(|(row, name, category, _)| name == metric && wanted(row, category));
        rows.map(|(.., value)| value).sum()
    }
}

pub(super) fn tables(data: &Dataset, figures: &mut FigureCollector) -> Result<(), StudyError> {
    const LLAMA: &str = "The Llama 3 Herd of Models, table 5";
    let counts = SummaryRows::of(data)?;
    let all = counts.sum("interruptions", |_, _| true);
    let gpu = counts.sum("interruptions", |_, category| category == "GPU");
    let faulty = counts.sum("interruptions", |row, _| row == "Faulty GPU");
    if all > 0.0 {
        let figure = figures.add("mix", "Llama 3: unexpected interruptions", all, 419.0, 0.0);
        figure.printed("419", LLAMA).defined("sum of the table's counts");
        let figure = figures.add(
            "mtbf",
            "Llama 3: hours between interruptions",
            54.0 * 24.0 / all,
            3.09,
            0.005,
        );
        figure.defined("54 days over 419 interruptions of one job on 16,384 GPUs");
        let printed = counts.sum("printed_percent", |_, category| category == "GPU");
        let figure = figures.add("mix", "Llama 3: GPU rows, sum of printed %", printed, 58.7, 0.05);
        figure
            .printed("58.7", LLAMA)
            .defined("sum of the printed per cents of the rows of GPUs");
        let figure = figures.add("mix", "Llama 3: GPU rows, % of counts", 100.0 * gpu / all, 64.0, 0.05);
        figure.defined("268 of 419; the paper's 58.7 is the sum of its printed per cents, of which one is wrong");
        let figure = figures.add(
            "mix",
            "Llama 3: Faulty GPU, % of counts",
            100.0 * faulty / all,
            35.3,
            0.05,
        );
        figure.defined("148 of 419; the table prints 30.1");
    }
    let xids = counts.sum("count", |_, _| true);
    if xids > 0.0 {
        let figure = figures.add("mix", "Summit: XID errors", xids, 251_859.0, 0.0);
        figure.defined("sum of the counts, 27,756 GPUs, 2019-12-27 to 2021-01-31");
        let nvlink = |metric| counts.sum(metric, |row, _| row == "NVLINK error");
        let share = 100.0 * nvlink("max_on_one_node") / nvlink("count");
        let figure = figures.add("lemons", "Summit: NVLINK errors on one node, %", share, 96.9, 0.05);
        figure.defined("largest count on one node over all NVLINK errors");
        let user = ["Memory page fault", "Graphics engine exception", "Stopped processing"];
        let user = 100.0 * counts.sum("count", |row, _| user.contains(&row)) / xids;
        let figure = figures.add("mix", "Summit: errors of user code, %", user, 95.9, 0.05);
        figure.defined("page faults, exceptions and stopped processing over all; leave them out of any hardware rate");
    }
    Ok(())
}

pub(super) fn clusters(data: &Dataset, figures: &mut FigureCollector) -> Result<(), StudyError> {
    const STATES: [&str; 3] = ["complete", "cancel", "fail"];
    let counts = SummaryRows::of(data)?;
    let value = |cluster: &str, metric: &str| {
        let row = counts.0.iter().find(|(row, name, ..)| row == cluster && name == metric);
        row.map_or(f64::NAN, |(.., value)| *value)
    };
    let wanted: BTreeMap<&str, [f64; 3]> = BTreeMap::from([
        ("Helios", [51.28, 39.38, 9.34]),
        ("Seren", [21.20, 66.36, 12.44]),
        ("Kalos", [31.27, 60.74, 7.99]),
        ("Philly", [32.06, 29.38, 38.57]),
    ]);
    for (cluster, shares) in wanted {
        let times = STATES.map(|state| value(cluster, &format!("{state}_gpu_time")));
        let all: f64 = times.iter().sum();
        for ((state, time), expected) in STATES.iter().zip(times).zip(shares) {
            let rate = value(cluster, &format!("{state}_rate_gpu_time"));
            let figure = figures.add(
                "jobs",
                &format!("{cluster}: GPU time of {state}, %"),
                100.0 * time / all,
                expected,
                0.005,
            );
            figure.defined(
                "the authors' GPU-seconds of this state over those of all three; TIMEOUT and NODE_FAIL are failed",
            );
            if rate.is_finite() {
                figure.printed(&format!("{:.1}", 100.0 * rate), "AcmeTrace, cluster_summary.csv");
            }
        }
    }
    let clusters = ["Venus", "Earth", "Saturn", "Uranus"];
    for (cluster, rates) in [
        ("Seren", ["49.7", "7.5", "42.9"]),
        ("Kalos", ["54.1", "6.2", "39.7"]),
        ("Philly", ["60.4", "9.0", "30.5"]),
    ] {
        for (state, printed) in STATES.iter().zip(rates) {
            let found = 100.0 * value(cluster, &format!("{state}_rate_gpu"));
            let expected = printed.parse().unwrap_or(f64::NAN);
            let figure = figures.add(
                "jobs",
                &format!("{cluster}: GPU jobs of {state}, %"),
                found,
                expected,
                1e-9,
            );
            figure.printed(printed, "AcmeTrace, cluster_summary.csv").defined(
                "the authors' rate as their table has it: it holds no counts of jobs by state to compute it from",
            );
        }
    }
    let gpu_jobs: f64 = clusters.iter().map(|cluster| value(cluster, "gpu_job_num")).sum();
    for (state, printed, expected) in [
        ("complete", "62.4", 62.4),
        ("cancel", "22.1", 22.1),
        ("fail", "15.5", 15.5),
    ] {
        let weighted = clusters
            .iter()
            .map(|cluster| value(cluster, &format!("{state}_rate_gpu")) * value(cluster, "gpu_job_num"));
        let found = 100.0 * weighted.sum::<f64>() / gpu_jobs;
        let figure = figures.add("jobs", &format!("Helios: GPU jobs of {state}, %"), found, expected, 0.1);
        figure
            .printed(printed, "HeliosArtifact, total row")
            .defined("rates of the four clusters weighted by their GPU jobs; the rates are rounded to three digits");
    }
    let jobs: f64 = clusters.iter().map(|cluster| value(cluster, "job_num")).sum();
    let figure = figures.add("jobs", "Helios: jobs", jobs, 3_362_981.0, 0.0);
    figure
        .printed("3,362,981", "HeliosArtifact, total row")
        .defined("sum of the four clusters");
    Ok(())
}
